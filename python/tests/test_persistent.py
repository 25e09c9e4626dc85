"""PersistentKernel: registered tensors, a task graph over them, one launch a call."""

import pickle

import pytest
import ranks

import maco

numpy = pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    monkeypatch.delenv("MACO_CPU_SMS", raising=False)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def arrays(*shapes):
    source = numpy.random.default_rng(0)
    return [source.standard_normal(shape, dtype="float32") for shape in shapes]


# ---- NumPy, without torch


def test_numpy_arrays_are_read_where_they_are():
    x, w = arrays((16, 32), (32, 24))
    kernel = maco.PersistentKernel(num_workers=6, num_remote_schedulers=2)
    left, right = kernel.register_tensor(x, name="input"), kernel.register_tensor(w, name="weight")
    out = kernel.register_output((16, 24), "f32", name="output")
    with kernel.task_graph() as graph:
        graph.matmul(left, right, output=out)
    assert kernel() is out
    numpy.testing.assert_allclose(out, x @ w, rtol=1e-5, atol=1e-5)
    x[:] = 2
    kernel()
    numpy.testing.assert_allclose(out, x @ w, rtol=1e-5, atol=1e-5)
    assert "0..5" in kernel.compile().report


def test_operators_are_ops_of_the_graph():
    x, w = arrays((4, 8), (8, 8))
    kernel = maco.PersistentKernel()
    a, b = kernel.register_tensor(x, "x"), kernel.register_tensor(w, "w")
    with kernel.task_graph() as graph:
        h = a @ b
        graph.output("y", 2 * h + 1 - a * a)
        graph.output("z", 3 - a)
        with pytest.raises(maco.Error, match="'exp' would run at once"):
            numpy.exp(a)
    found = kernel()
    numpy.testing.assert_allclose(found["y"], 2 * (x @ w) + 1 - x * x, rtol=1e-5, atol=1e-5)
    numpy.testing.assert_allclose(found["z"], 3 - x, rtol=1e-6)
    assert type(a + 1) is numpy.ndarray


def test_outputs_are_those_that_have_names():
    (x,) = arrays((4, 8))
    kernel = maco.PersistentKernel()
    a = kernel.register_tensor(x, "x")
    with kernel.task_graph() as graph:
        graph.exp(a)
        named = graph.relu(a, name="read")
        graph.mul(named, value=2, name="twice")
    found = kernel()
    numpy.testing.assert_allclose(found, 2 * x.clip(0))
    assert "exp" not in kernel.compile().report


def test_a_tensor_that_is_written_is_a_state():
    cache, (x,) = numpy.zeros((8, 4), "float32"), arrays((2, 4))
    kernel = maco.PersistentKernel()
    c, a = kernel.register_tensor(cache, name="cache"), kernel.register_tensor(x, name="x")
    with kernel.task_graph() as graph:
        at = graph.scalar("at", 0, 7)
        after = graph.kv_append(c, a, at=at)
        graph.sum(after, name="sums")
    numpy.testing.assert_allclose(kernel(at=1)[1:3], x.sum(1), rtol=1e-5)
    numpy.testing.assert_array_equal(cache[1:3], x)
    kernel(at=5)
    numpy.testing.assert_array_equal(cache[5:7], x)
    numpy.testing.assert_array_equal(cache[1:3], x)
    assert not cache[3:5].any()


def test_into_makes_a_state_too():
    total, (x,) = numpy.zeros((4, 4), "float32"), arrays((4, 4))
    kernel = maco.PersistentKernel()
    t, a = kernel.register_tensor(total, name="total"), kernel.register_tensor(x, name="x")
    with kernel.task_graph() as graph:
        graph.add(t, a, into=t)
    for _ in range(3):
        assert kernel() == {}
    numpy.testing.assert_allclose(total, 3 * x, rtol=1e-6)


def test_dims_count_rows():
    (x,) = arrays((8, 4))
    kernel = maco.PersistentKernel()
    rows = kernel.dim("rows", 8)
    a = kernel.register_tensor(x, name="x", rows=rows)
    out = kernel.register_output((8, 4), "f32", "y", rows=rows)
    with kernel.task_graph() as graph:
        graph.relu(a, output=out)
        graph.exp(a, name="e")
    out[:] = 7
    found = kernel(rows=3)
    assert found["y"].shape == (3, 4) and found["e"].shape == (3, 4)
    numpy.testing.assert_allclose(found["y"], x[:3].clip(0))
    assert (out[3:] == 7).all()
    assert kernel()["y"].shape == (8, 4)


def test_calls_say_what_they_lack():
    (x,) = arrays((8, 4))
    kernel = maco.PersistentKernel()
    a = kernel.register_tensor(x, name="x")
    with kernel.task_graph() as graph:
        graph.slice(graph.relu(a), axis=0, begin=0, end=2, name="y")
        kernel.scalar("pos", 0, 4)
        cache = graph.state("cache", "f32", [8, 4])
        graph.kv_append(cache, graph.slice(a, axis=0, begin=0, end=2), at="pos")
    with pytest.raises(TypeError, match="did you mean 'pos'"):
        kernel(post=3)
    with pytest.raises(maco.Error, match="'pos'"):
        kernel()
    with pytest.raises(maco.Error, match="pos"):
        kernel(pos=4)
    with pytest.raises(TypeError):
        kernel(pos="1")
    with pytest.raises(TypeError):
        kernel(1)
    numpy.testing.assert_allclose(kernel(pos=1), x[:2].clip(0))


# ---- what is refused


def test_a_local_scheduler_is_refused_by_name():
    with pytest.raises(maco.Error, match="num_local_schedulers"):
        maco.PersistentKernel(num_workers=4, num_local_schedulers=2)
    maco.PersistentKernel(num_workers=4, num_local_schedulers=0)


def test_counts_that_do_not_fit_are_told_with_what_there_is():
    with pytest.raises(maco.Error, match="num_workers=96 and num_remote_schedulers=8 needs 104 SMs, but the CPU target has 8"):
        maco.PersistentKernel(num_workers=96, num_remote_schedulers=8)
    with pytest.raises(maco.Error, match="num_workers is at least 1"):
        maco.PersistentKernel(num_workers=0)
    with pytest.raises(maco.Error, match="world_size is 8, but there is 1 process"):
        maco.PersistentKernel(world_size=8, rank=0)
    with pytest.raises(maco.Error, match="rank is 1"):
        maco.PersistentKernel(world_size=1, rank=1)
    with pytest.raises(TypeError):
        maco.PersistentKernel(num_workers="all")
    with pytest.raises(TypeError):
        maco.PersistentKernel(sm_config={"compute": 3})
    with pytest.raises(maco.Error, match="leave num_workers"):
        maco.PersistentKernel(num_workers=3, sm_config=maco.auto_config())


def test_registering_says_what_is_wrong():
    x, y = arrays((4, 4), (4, 4))
    kernel = maco.PersistentKernel()
    a = kernel.register_tensor(x, name="x")
    for wrong in (x, a):
        with pytest.raises(maco.Error, match="registered already, as 'x'"):
            kernel.register_tensor(wrong, name="again")
    with pytest.raises(maco.Error, match="'x' is taken"):
        kernel.register_tensor(y, name="x")
    with pytest.raises(maco.Error, match="can't be called"):
        kernel.register_tensor(y, name="no good")
    with pytest.raises(TypeError):
        kernel.register_tensor([1, 2], name="l")
    with pytest.raises(maco.Error, match="float64"):
        kernel.register_tensor(y.astype("float64"), name="d")
    for shape in (4, "44", (2, 1.5)):
        with pytest.raises(TypeError):
            kernel.register_output(shape, "f32", "o")
    with pytest.raises(maco.Error):
        kernel.register_output((-1, 3), "f32", "o")
    with pytest.raises(maco.Error):
        kernel.register_output((2, 3), "float61", "o")


def test_the_graph_says_what_is_wrong():
    x, y = arrays((4, 4), (4, 4))
    kernel = maco.PersistentKernel()
    a = kernel.register_tensor(x, name="x")
    out = kernel.register_output((4, 4), "f32", "out")
    with kernel.task_graph() as graph:
        with pytest.raises(maco.Error, match="isn't registered"):
            graph.relu(y)
        with pytest.raises(TypeError):
            graph.relu(3)
        with pytest.raises(TypeError, match="did you mean 'output'|no keyword"):
            graph.relu(a, outptu=out)
        with pytest.raises(maco.Error, match="did you mean 'out'"):
            graph.relu(a, output="ouh")
        with pytest.raises(maco.Error, match="isn't registered"):
            graph.relu(a, output=y)
        with pytest.raises(maco.Error, match="'x' isn't a registered output"):
            graph.relu(a, output=a)
        with pytest.raises(maco.GraphError, match="before an op has it"):
            graph.relu(out)
        graph.relu(a, output=out)
        with pytest.raises(maco.GraphError, match="output of two ops"):
            graph.exp(a, output=out)
        with pytest.raises(maco.Error, match="register_tensor"):
            graph.input("more", "f32", [4])
    with pytest.raises(maco.Error, match="'with kernel.task_graph"):
        graph.relu(a)
    numpy.testing.assert_allclose(kernel(), x.clip(0))
    with pytest.raises(maco.Error, match="compiled"):
        kernel.register_tensor(y, name="y")
    with pytest.raises(maco.Error, match="compiled"), kernel.task_graph():
        pass


def test_an_output_of_another_shape_is_told_at_its_op():
    (x,) = arrays((4, 8))
    kernel = maco.PersistentKernel()
    a, out = kernel.register_tensor(x, name="x"), kernel.register_output((4, 4), "f32", "out")
    with kernel.task_graph() as graph:
        graph.relu(a, output=out)  # here
    with pytest.raises(maco.GraphError, match=r"\[4,8\].*\[4,4\]") as found:
        kernel.compile()
    assert found.value.diagnostics[0].file == __file__


def test_an_error_of_the_settings_is_told_where_the_user_compiles():
    pytest.importorskip("torch")
    (x,) = arrays((4, 8))
    config = maco.SMConfig(8)
    config.assign_role((0, 4), maco.Role.COMPUTE, task_types=["matmul"])
    kernel = maco.PersistentKernel(sm_config=config)
    a, out = kernel.register_tensor(x, name="x"), kernel.register_output((4, 8), "f32", "out")
    with kernel.task_graph() as graph:
        graph.relu(a, output=out)
    with pytest.raises(maco.GraphError, match="takes 'relu'") as found:
        kernel.compile()
    assert found.value.diagnostics[0].file == __file__


def test_an_output_that_no_op_makes_and_a_graph_without_ops_are_errors():
    (x,) = arrays((4, 8))
    kernel = maco.PersistentKernel()
    a = kernel.register_tensor(x, name="x")
    with pytest.raises(maco.Error, match="no ops"):
        kernel()
    kernel.register_output((4, 8), "f32", "out")
    with kernel.task_graph() as graph:
        graph.relu(a, name="y")
    with pytest.raises(maco.Error, match="'out'"):
        kernel.compile()


def test_a_block_that_raises_leaves_no_trace():
    (x,) = arrays((4, 8))
    kernel = maco.PersistentKernel()
    a, out = kernel.register_tensor(x, name="x"), kernel.register_output((4, 8), "f32", "out")
    with pytest.raises(ZeroDivisionError), kernel.task_graph() as graph:
        graph.relu(a, output=out)
        graph.add(a, a, into=a)
        _ = 1 / 0
    with kernel.task_graph() as graph:
        graph.exp(a, output=out)
    before = x.copy()
    numpy.testing.assert_allclose(kernel(), numpy.exp(x), rtol=1e-5)
    numpy.testing.assert_array_equal(x, before)


def test_a_read_only_array_is_read_but_not_written():
    (x,) = arrays((4, 8))
    x.flags.writeable = False
    kernel = maco.PersistentKernel()
    a = kernel.register_tensor(x, name="x")
    with kernel.task_graph() as graph:
        with pytest.raises(maco.Error, match="read-only"):
            graph.add(a, a, into=a)
        graph.relu(a, name="y")
    numpy.testing.assert_allclose(kernel(), x.clip(0))


def test_it_is_closed_and_not_pickled():
    (x,) = arrays((4, 8))
    with maco.PersistentKernel() as kernel:
        a = kernel.register_tensor(x, name="x")
        with kernel.task_graph() as graph:
            graph.relu(a, name="y")
        kernel()
        for one in (kernel, graph):
            with pytest.raises(TypeError, match="pickle"):
                pickle.dumps(one)
    with pytest.raises(maco.Error, match="closed"):
        kernel()
    kernel.close()


# ---- torch


def test_torch_tensors_of_all_forms(torch):
    torch.manual_seed(0)
    x, w = torch.randn(8, 16), torch.nn.Parameter(torch.randn(32, 16))
    apart, one, odd = torch.randn(16, 8).t(), torch.tensor(3.0), torch.randn(130)[2:]
    kernel = maco.PersistentKernel(1, 0)
    a, b = kernel.register_tensor(x, name="x"), kernel.register_tensor(w, name="w")
    c, s, o = kernel.register_tensor(apart, name="apart"), kernel.register_tensor(one, name="one"), kernel.register_tensor(odd, name="odd")
    out = kernel.register_output((8, 32), torch.bfloat16, "out")
    assert isinstance(a, torch.Tensor) and a.data_ptr() == x.data_ptr() and out.dtype is torch.bfloat16
    with kernel.task_graph() as graph:
        graph.matmul(a, b, transpose_b=True, output=out)
        graph.output("moved", c * s + a)
        graph.relu(o, name="odds")
        with pytest.raises(maco.Error, match="'relu' would run at once"):
            torch.relu(a)
    for _ in range(2):
        found = kernel()
        torch.testing.assert_close(found["out"], (x @ w.t()).to(torch.bfloat16), rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(found["moved"], apart * one + x)
        torch.testing.assert_close(found["odds"], odd.relu())
        with torch.no_grad():
            x.mul_(2), w.add_(1), apart.sub_(1), one.fill_(5), odd.neg_()
    assert type(a + 1) is torch.Tensor and not found["out"].requires_grad


def test_tensors_on_two_devices_are_refused(torch):
    kernel = maco.PersistentKernel()
    kernel.register_tensor(torch.ones(2), name="x")
    with pytest.raises(maco.Error, match="meta"):
        kernel.register_tensor(torch.ones(2, device="meta"), name="y")


def test_what_splits_has_several_outputs(torch):
    x = torch.randn(4, 8)
    kernel = maco.PersistentKernel()
    a = kernel.register_tensor(x, name="x")
    left, right = (kernel.register_output((4, 4), torch.float32, name) for name in ("left", "right"))
    with kernel.task_graph() as graph:
        with pytest.raises(maco.GraphError, match="2 results, but 1 outputs"):
            graph.split(a, 2, axis=1, output=left)
        graph.split(a, 2, axis=1, output=[left, right])
    kernel()
    torch.testing.assert_close(torch.cat([left, right], 1), x)


def test_a_kernel_without_tensors_of_its_own(torch):
    kernel = maco.PersistentKernel()
    out = kernel.register_output((4, 4), torch.float32, "out")
    with kernel.task_graph() as graph:
        state = graph.state("count", "f32", [4, 4])
        graph.add(state, value=1, into=state)
        graph.mul(state, value=2, output=out)
    kernel()
    kernel()
    assert (out == 4).all()


# ---- several ranks


def on_ranks():
    import torch

    torch.manual_seed(0)
    world, rank = maco.get_world_size(), maco.get_rank()
    inputs = [torch.randn(8, 16) for _ in range(world)]
    w, w2 = torch.randn(16, 12), torch.randn(12, 6)
    kernel = maco.PersistentKernel(world_size=world, rank=rank, num_workers=6, num_local_schedulers=0, num_remote_schedulers=2)
    x = inputs[rank].clone()
    a, b, c = (kernel.register_tensor(one, name=name) for one, name in ((x, "x"), (w, "w"), (w2, "w2")))
    out = kernel.register_output((8, 6), torch.float32, "out")
    reduced = kernel.register_output((8, 12), torch.float32, "reduced")
    with kernel.task_graph() as graph:
        y = graph.allreduce(a @ b, output=reduced)
        graph.matmul(y, c, output=out)
        graph.allgather(a, name="all")
    kernel.compile()
    for i in range(3):
        found = kernel()
        total = sum(one + i for one in inputs) @ w
        torch.testing.assert_close(found["reduced"], total, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found["out"], total @ w2, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found["all"], torch.cat([one + i for one in inputs]))
        x.add_(1)
    config = maco.SMConfig(8)
    config.assign_role((0, 4), maco.Role.COMPUTE)
    config.assign_role((6, 8), maco.Role.REMOTE_SCHEDULER)
    second = maco.PersistentKernel(sm_config=config)
    a = second.register_tensor(x, name="x")
    with second.task_graph() as graph:
        graph.allreduce(graph.exp(a), name="y")
    torch.testing.assert_close(second(), sum(torch.exp(one + 3) for one in inputs), rtol=1e-4, atol=1e-4)
    if world > 1:
        assert "6..7" in second.compile().report if rank == 0 else True
        alone = maco.PersistentKernel(world_size=1)
        a = alone.register_tensor(x, name="x")
        with alone.task_graph() as graph:
            graph.relu(a, name=f"y{rank}")  # differs by rank, and may
        torch.testing.assert_close(alone(), x.relu())
        wrong = maco.PersistentKernel()
        a = wrong.register_tensor(x, name="x")
        with wrong.task_graph() as graph:
            graph.allreduce(graph.mul(a, value=rank), name="y")
        with pytest.raises(maco.MismatchError, match="rank 0"):
            wrong()
    return float(out.sum())


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks(world, torch):
    assert len(set(ranks.run(world, on_ranks))) == 1


def test_tensors_without_elements(torch):
    kernel = maco.PersistentKernel()
    x, w = kernel.register_tensor(torch.zeros(0, 16), name="x"), kernel.register_tensor(torch.ones(16, 8), name="w")
    out = kernel.register_output((0, 8), torch.float32, name="out")
    with kernel.task_graph() as graph:
        graph.matmul(x, w, output=out)
    assert kernel.compile() is None and kernel().shape == (0, 8)
    with pytest.raises(maco.Error, match="is compiled"):
        kernel.register_tensor(torch.ones(2), name="late")
    kernel = maco.PersistentKernel()
    x, w = kernel.register_tensor(torch.zeros(4, 0), name="x"), kernel.register_tensor(torch.ones(0, 8), name="w")
    out = kernel.register_output((4, 8), torch.float32, name="out")
    with kernel.task_graph() as graph:
        graph.matmul(x, w, output=out)
    with pytest.raises(maco.Error, match=r"'w' has the shape \[0,8\], without elements, but the graph writes 'out'"):
        kernel.compile()


def _roles(*tasks):
    config = maco.SMConfig(8)
    config.assign_role((0, 6), maco.Role.COMPUTE, task_types=list(tasks))
    config.assign_role((6, 8), maco.Role.COMM, task_types=["allreduce"])
    return config


def test_a_collective_of_one_rank_needs_no_kind_of_its_own(torch):
    kernel = maco.PersistentKernel(sm_config=_roles("matmul"))
    x = kernel.register_tensor(torch.ones(4, 8), name="x")
    out = kernel.register_output((4, 8), torch.float32, name="out")
    with kernel.task_graph() as graph:
        graph.allreduce(x, output=out)
    assert torch.equal(kernel(), torch.ones(4, 8))


def test_errors_of_roles_name_what_the_caller_wrote(torch):
    kernel = maco.PersistentKernel(sm_config=_roles("matmul"))
    x = kernel.register_tensor(torch.ones(4, 8), name="x")
    out = kernel.register_output((4, 8), torch.float32, name="out")
    with kernel.task_graph() as graph:
        graph.relu(x, output=out)
    with pytest.raises(maco.GraphError, match="no range of 'sm_config' with the role 'compute' takes 'relu'") as told:
        kernel.compile()
    assert "'sm_config'" in told.value.diagnostics[0].text
