"""Kernels, sessions and launches on the CPU target, with one to three ranks."""

import gc
import json
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest

import maco
from conftest import child_environment, relu_graph


def opened(graph, **options):
    s = maco.Session(graph.compile(target="cpu"), **options)
    s.allocate()
    return s


# ---- kernels


def test_a_kernel_says_what_it_is(tmp_path):
    g = maco.Graph("g", 2)
    tokens, pos = g.dim("tokens", 6, min=2), g.scalar("pos", -3, 5)
    x = g.input("x", "bf16", [tokens, 8])
    g.output("y", g.rope(x, head_dim=8, position=pos))
    k = g.compile(target="cpu")
    assert (k.name, k.target, k.world) == ("g", "cpu", 2)
    assert k.tensors == (maco.TensorInfo("x", "input", maco.bf16, (6, 8), 96), maco.TensorInfo("y", "output", maco.bf16, (6, 8), 96))
    assert k.dims == (maco.VariableInfo("tokens", 2, 6),)
    assert k.scalars == (maco.VariableInfo("pos", -3, 4),)
    assert "rope" in k.report and "namespace maco_program" in k.source
    assert "for cpu on 2 ranks" in repr(k)
    k.save(tmp_path / "kernel.cu")
    assert [f.name for f in tmp_path.iterdir()] == ["kernel.cu"]
    again = maco.Kernel.load(tmp_path / "kernel.cu")
    assert (again.source, again.tensors, again.dims, again.scalars, again.report) == (k.source, k.tensors, k.dims, k.scalars, "")
    maco.Session(again).close()
    with pytest.raises(maco.Error, match="/nowhere' can't be read"):
        maco.Kernel.load("/nowhere")
    with pytest.raises(maco.Error, match="/nowhere/k.cu' can't be written"):
        k.save("/nowhere/k.cu")
    (tmp_path / "no.cu").write_text("int main() {}")
    with pytest.raises(maco.Error, match="no.cu"):
        maco.Kernel.load(tmp_path / "no.cu")


def test_what_cannot_be_pickled_says_what_can(relu_kernel):
    with pytest.raises(TypeError, match="can't pickle a maco.Kernel: pickle its graph, or its source"):
        pickle.dumps(relu_kernel)
    with (
        maco.Session(relu_kernel) as s,
        pytest.raises(TypeError, match="can't pickle a maco.Session: pickle its graph, or its kernel's source"),
    ):
        pickle.dumps(s)
    with pytest.raises(TypeError, match="comes from Graph.compile"):
        maco.Kernel()
    with pytest.raises(TypeError, match="runs a maco.Kernel, not a Graph"):
        maco.Session(relu_graph())


def test_a_session_outlives_its_kernel_and_graph():
    s = opened(relu_graph())
    gc.collect()
    s.run()


# ---- memory


@pytest.mark.parametrize("world", [1, 2, 3])
def test_run_with_bound_numpy_arrays(world):
    g = maco.Graph("g", world)
    x, w = g.input("x", "f32", [8, 16]), g.param("w", "f32", [16, 16])
    g.output("y", g.allreduce(g.matmul(x, w)))
    s = maco.Session(g.compile(target="cpu"))
    rng = np.random.default_rng(world)
    xs = [rng.standard_normal((8, 16)).astype(np.float32) for _ in range(world)]
    ws = [rng.standard_normal((16, 16)).astype(np.float32) for _ in range(world)]
    ys = [np.zeros((8, 16), np.float32) for _ in range(world)]
    for r in range(world):
        s.bind("x", xs[r], r)
        s.bind("w", ws[r], rank=r)
        s.bind("y", ys[r], r)
        assert s.address("y", r) == ys[r].ctypes.data
    for _ in range(2):
        s.run()
        want = sum(x.astype(np.float64) @ w for x, w in zip(xs, ws, strict=True))
        for r in range(world):
            np.testing.assert_allclose(ys[r], want, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(s.read("y", r), ys[r])
        xs[0][:] *= 2  # in place: seen by the next launch
    assert s.bench(3) > 0


@pytest.mark.parametrize("world", [1, 2, 3])
def test_torch_tensors(world):
    torch = pytest.importorskip("torch")
    g = maco.Graph("g", world)
    g.output("y", g.allgather(g.silu(g.input("x", "bf16", [8, 16]))))
    s = maco.Session(g.compile(target="cpu"))
    xs = [torch.randn(8, 16).bfloat16() for _ in range(world)]
    ys = [torch.zeros(8 * world, 16, dtype=torch.bfloat16) for _ in range(world)]
    for r in range(world):
        s.bind("x", xs[r], r)
        s.bind("y", ys[r], r)
    s.launch()
    s.wait()
    want = torch.nn.functional.silu(torch.cat(xs).float())
    for y in ys:
        assert torch.allclose(y.float(), want, rtol=2e-2, atol=1e-3)
    assert torch.equal(s.read("y", world - 1, to="torch"), ys[0])


def test_bound_memory_is_kept_alive_and_let_go(relu_kernel):
    s = maco.Session(relu_kernel)
    x, y = np.full((4, 8), -1, np.float32), np.ones((4, 8), np.float32)
    gone = weakref.ref(y)
    s.bind("x", x)
    s.bind("y", y)
    del y
    gc.collect()
    s.run()
    assert not gone().any()
    other = np.ones((4, 8), np.float32)
    s.bind("y", other)
    gc.collect()
    assert gone() is None
    gone = weakref.ref(other)
    del other
    s.close()
    gc.collect()
    assert gone() is None


def test_what_does_not_fit_is_refused_by_name(relu_kernel):
    s = maco.Session(relu_kernel)
    good = np.zeros((4, 8), np.float32)
    for tensor, words in [
        (np.zeros((4, 8), np.float16), "'x' is f32, but the tensor is f16"),
        (np.zeros((4, 9), np.float32), r"'x' has the shape \[4,8\], but the tensor has \[4,9\]"),
        (np.zeros((3, 8), np.float32), r"'x' has the shape \[4,8\], but the tensor has \[3,8\]"),
        (np.zeros((8, 4), np.float32).T, "'x' must be contiguous"),
        (np.zeros((0, 8), np.float32), r"the tensor has \[0,8\]"),
        (np.zeros((4, 8), np.float64), "'x': MACO has no dtype 'float64'; did you mean 'f32'"),
    ]:
        with pytest.raises(maco.Error, match=words):
            s.bind("x", tensor)
    with pytest.raises(maco.Error, match="'g' has no tensor 'z'; (it is one of|did you mean)"):
        s.bind("z", good)
    with pytest.raises(maco.Error, match="'g' has no tensor 'xx'; did you mean 'x'?"):
        s.write("xx", good)
    with pytest.raises(maco.Error, match="this process has the ranks 0, not 1"):
        s.bind("x", good, 1)
    with pytest.raises(TypeError, match="'x': a tensor is expected"):
        s.bind("x", [1, 2])
    good.flags.writeable = False
    s.bind("x", good)
    with pytest.raises(maco.Error, match="'y' is written by the kernel, but the tensor is read-only"):
        s.bind("y", good)
    with pytest.raises(maco.Error, match="'y'"):
        s.run()  # it lives nowhere
    two = maco.Session(relu_graph(2).compile(target="cpu"))
    with pytest.raises(maco.Error, match=r"bind\(\) must say which rank is meant: rank=0 to rank=1"):
        two.bind("x", np.zeros((4, 8), np.float32))


def test_write_and_read():
    s = opened(relu_graph(2))
    assert not s.read("x", 0).any()  # allocate gives zeros
    x = np.arange(-16, 16, dtype=np.float32).reshape(4, 8)
    s.write("x", x)  # on all ranks
    s.write("x", np.asfortranarray(x * 2), 1)
    s.run()
    np.testing.assert_array_equal(s.read("y", 0), np.maximum(x, 0))
    np.testing.assert_array_equal(s.read("y", 1), np.maximum(2 * x, 0))
    s.write("x", np.zeros((0, 8), np.float32))  # no rows: nothing
    s.write("x", x[:1] + 100, 0)  # the first row
    np.testing.assert_array_equal(s.read("x", 0), np.concatenate([x[:1] + 100, x[1:]]))
    assert s.read("y", 0, rows=2).shape == (2, 8) and s.read("y", 0, rows=0).shape == (0, 8)
    with pytest.raises(maco.Error, match="'y' has 4 rows, not 5"):
        s.read("y", 0, rows=5)
    with pytest.raises(maco.Error, match="'x' has the shape up to"):
        s.write("x", np.zeros((5, 8), np.float32))
    with pytest.raises(maco.Error, match="read to 'numpy' or 'torch', not 'jax'"):
        s.read("y", 0, to="jax")
    with pytest.raises(maco.Error, match="must say which rank"):
        s.read("y")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "u8"])
def test_every_dtype_comes_and_goes(dtype):
    g = maco.Graph("g")
    g.output("y", g.copy(g.input("x", dtype, [4, 16])))
    s = opened(g)
    kind = maco.DType[dtype]
    bits = np.random.default_rng(3).integers(0, 100, (4, 16 * kind.itemsize)).astype(np.uint8)
    plain = {"f32": np.float32, "i32": np.int32}.get(dtype, {1: np.uint8, 2: np.uint16}.get(kind.itemsize))
    s.write("x", bits.view(plain), dtype=dtype)
    s.run()
    got = s.read("y")
    assert got.dtype == kind.numpy()
    np.testing.assert_array_equal(got.view(np.uint8), bits)
    s.write("x", got, dtype=dtype if got.dtype.kind == "u" else None)
    torch = pytest.importorskip("torch")
    t = s.read("y", to="torch")
    assert t.dtype is kind.torch()
    np.testing.assert_array_equal(t.view(torch.uint8).numpy(), bits)
    s.write("x", t)


def test_share():
    prefill, decode = maco.Graph("prefill"), maco.Graph("decode")
    for g in (prefill, decode):
        x, w, s = g.input("x", "f32", [2, 4]), g.param("w", "f32", [4]), g.state("s", "f32", [2, 4])
        new = g.add(s, x, into=s)
        g.output("y", g.mul(new, w))
    a = opened(prefill)
    b = maco.Session(decode.compile(target="cpu"))
    b.share(a)
    b.allocate()
    a.write("w", np.full(4, 3, np.float32))
    a.write("x", np.ones((2, 4), np.float32))
    a.run()
    b.write("x", np.ones((2, 4), np.float32))
    assert b.address("s") == a.address("s")
    a.close()  # its memory stays as long as b
    b.run()
    np.testing.assert_array_equal(b.read("y"), np.full((2, 4), 6, np.float32))
    with pytest.raises(TypeError, match="takes a maco.Session"):
        b.share(3)
    with pytest.raises(maco.Error, match="the session was closed"):
        b.share(a)
    b.close()


# ---- values


def test_dims_and_scalars():
    g = maco.Graph("g", 2)
    t, pos = g.dim("tokens", 6), g.scalar("pos", 0, 4)
    x, cache = g.input("x", "f32", [t, 4]), g.state("cache", "f32", [9, 4])
    kept = g.kv_append(cache, x, at=pos)
    g.output("y", g.allreduce(x))
    g.output("all", g.copy(kept))
    s = opened(g)
    s.write("x", np.ones((6, 4), np.float32))
    s.run(tokens=2, pos=3)
    np.testing.assert_array_equal(s.read("all", 1)[:, 0], [0, 0, 0, 1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(s.read("y", 0, rows=2), np.full((2, 4), 2, np.float32))
    s.run({"pos": np.int64(0)}, tokens=1)
    s.run(pos=1)  # the dim has its maximum
    np.testing.assert_array_equal(s.read("all", 0)[:, 0], [1] * 7 + [0] * 2)
    for wrong, words in [
        ({}, "scalar 'pos' has no value"),
        ({"pos": 4}, "must be from 0 to 3"),
        ({"pos": 0, "tokens": 7}, "from 1 to 6"),
        ({"pos": 0, "row": 1}, "row"),
        ({"pos": 2**70}, "does not fit 64 bits"),
    ]:
        with pytest.raises(maco.Error, match=words) as raised:
            s.run(**wrong)
        assert raised.value.code is maco.ErrorCode.INVALID_ARGUMENT
    with pytest.raises(TypeError, match="'pos' is an integer, not a float"):
        s.run(pos=1.0)
    for call in (s.run, lambda value: s.launch(None, value), lambda value: s.bench(1, value)):
        with pytest.raises(TypeError, match="keywords or a mapping by name, not a int"):
            call(3)
    assert s.bench(2, pos=0) > 0


def test_launch_with_a_value_in_memory():
    g = maco.Graph("g", 2)
    pos = g.scalar("pos", 0, 4)
    x, cache = g.input("x", "f32", [1, 4]), g.state("cache", "f32", [4, 4])
    g.output("y", g.copy(g.kv_append(cache, x, at=pos)))
    s = opened(g)
    s.write("x", np.ones((1, 4), np.float32))
    at = [np.array([2], np.int32) for _ in range(2)]
    s.launch(None, {"pos": at})
    for one in at:
        one[0] = 0
    s.launch(pos=at)
    s.wait()
    np.testing.assert_array_equal(s.read("y", 0)[:, 0], [1, 0, 1, 0])
    for wrong, words in [
        (at[:1], "'pos' has 1 tensors for 2 ranks"),
        ([np.zeros(2, np.int32)] * 2, "a tensor of one element"),
        ([np.zeros(1, np.float32)] * 2, "'pos' is i32, but the tensor is f32"),
    ]:
        with pytest.raises(maco.Error, match=words):
            s.launch(pos=wrong)
    with pytest.raises(maco.Error, match="streams are CUDA's, but the session is on the CPU"):
        s.launch(12345, pos=0)


@pytest.mark.parametrize("library", ["numpy", "numpy beside torch", "torch"])
def test_a_value_in_memory_may_have_64_bits_and_count_from_the_end(library):
    torch = pytest.importorskip("torch") if "torch" in library else None
    g = maco.Graph("g")
    pos = g.scalar("pos", 0, 4)
    x, cache = g.input("x", "f32", [1, 4]), g.state("cache", "f32", [4, 4])
    g.output("y", g.copy(g.kv_append(cache, x, at=pos)))
    s = opened(g)
    s.write("x", np.ones((1, 4), np.float32))

    def there(*numbers):
        return torch.tensor(numbers) if library == "torch" else np.array(numbers, np.int64)

    s.launch(pos=there(1))
    with pytest.raises(maco.LaunchError, match="scalar 'pos' is -1, but must be from 0 to 3"):
        s.launch(pos=there(-1))
        s.wait()
    with pytest.raises(maco.LaunchError, match="scalar 'pos' is 4294967298"):
        s.launch(pos=there(2**32 + 2))
        s.wait()
    s.count_from_end("pos")
    s.launch(pos=there(-1))
    s.wait()
    np.testing.assert_array_equal(s.read("y")[:, 0], [0, 1, 0, 1])
    with pytest.raises(maco.Error, match="a tensor of one element"):
        s.launch(pos=there(1, 2))
    with pytest.raises(maco.Error, match="'p' is no dim or scalar of 'g'; it has pos"):
        s.count_from_end("p")


# ---- failures


def test_an_index_out_of_range_is_a_launch_error():
    g = maco.Graph("g", 2)
    g.output("y", g.embedding(g.param("table", "f32", [8, 4]), g.input("ids", "i32", [3]), name="look"))
    s = opened(g)
    s.write("ids", np.array([0, 99, 1], np.int32), 1)
    with pytest.raises(maco.LaunchError, match=r"index 99 is outside \[0, 8\)") as raised:
        s.run()
    assert (raised.value.rank, raised.value.task, raised.value.code) == (1, "y", maco.ErrorCode.RUN_FAILED) or raised.value.task == "look"
    s.write("ids", np.zeros(3, np.int32), 1)
    s.run()  # it can run again


def test_a_time_out_names_the_task_and_the_event():
    g = maco.Graph("g", 2)
    x = g.input("x", "f32", [64, 4096])
    w = g.param("w", "f32", [4096, 4096])
    for i in range(3):
        x = g.matmul(x, w, name=f"m{i}")
    g.output("y", g.allreduce(x))
    s = opened(g, timeout=0.001)
    with pytest.raises(maco.LaunchError, match="1 ms") as raised:
        for _ in range(20):
            s.run()
    error = raised.value
    assert error.rank in (0, 1) and error.task and error.event, error
    assert error.seen < error.expected, error


def test_what_is_not_there():
    kernel = relu_graph().compile()  # for a GPU
    with pytest.raises(maco.Error) as raised:
        maco.Session(kernel, device="cuda")
    if isinstance(raised.value, maco.Unavailable):
        assert raised.value.code is maco.ErrorCode.UNAVAILABLE
    with pytest.raises(maco.Error, match="'cuda' or 'cpu', not 'gpu'"):
        maco.Session(kernel, device="gpu")
    for timeout in (0, -1, 1e12):
        with pytest.raises(maco.Error, match="the time-out is from 0.001 seconds to a year"):
            maco.Session(kernel, device="cpu", timeout=timeout)


def test_a_closed_session_says_so(relu_kernel):
    s = maco.Session(relu_kernel)
    with s as same:
        assert same is s and not s.closed
        s.allocate()
        s.run()
    s.close()
    assert s.closed and "closed" in repr(s)
    for call in (s.run, s.wait, s.allocate, lambda: s.read("y"), lambda: s.bench(1), lambda: s.address("x")):
        with pytest.raises(maco.Error, match="the session was closed"):
            call()


def test_a_session_closed_while_it_runs_in_another_thread():
    import threading

    g = maco.Graph("g")
    x = g.input("x", "f32", [256, 256])
    y = x
    for _ in range(40):
        y = g.matmul(y, x)
    g.output("y", y)
    s = opened(g)
    thread = threading.Thread(target=s.run)
    thread.start()
    s.close()
    thread.join()
    assert s.closed


def test_threads_take_turns(relu_kernel):
    from concurrent.futures import ThreadPoolExecutor

    s = maco.Session(relu_kernel)
    s.allocate()
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(s.run) for _ in range(40)]:
            done.result()


PROCESSES = """
import sys
import numpy as np
import maco
world, rows = int(sys.argv[1]), int(sys.argv[2])
g = maco.Graph("g", world)
g.output("y", g.allreduce(g.input("x", "f32", [rows, 8])))
try:
    s = maco.Session(g.compile(target="cpu"), process_a_rank=True, timeout=20)
except maco.MismatchError as error:
    print("mismatch", error)
    sys.exit()
s.allocate()
s.write("x", np.full((rows, 8), 1 + s.ranks[0], np.float32))
s.run()
print(s.ranks, s.read("y")[0, 0])
"""


@pytest.mark.parametrize("rows, same", [([4, 4], True), ([4, 4, 4], True), ([4, 5], False)])
def test_a_process_for_each_rank(rows, same, tmp_path):
    world = len(rows)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESSES, str(world), str(rows[rank])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=child_environment(
                RANK=str(rank),
                WORLD_SIZE=str(world),
                LOCAL_RANK=str(rank),
                LOCAL_WORLD_SIZE=str(world),
                MACO_GROUP=f"py{tmp_path.name}{id(rows)}",
            ),
        )
        for rank in range(world)
    ]
    try:
        printed = [process.communicate(timeout=100)[0].strip() for process in started]
    finally:
        for process in started:
            process.kill()
    if same:
        assert printed == [f"({rank},) {sum(range(1, world + 1))}.0" for rank in range(world)]
    else:
        assert all(one.startswith("mismatch") and "the ranks were told different things" in one for one in printed), printed


def test_warnings_have_lines_of_python():
    g = maco.Graph("w")
    x = g.input("x", "f32", [4])
    g.exp(x)
    g.output("y", g.relu(x))
    kernel = g.compile(target="cpu")
    (warning,) = kernel.warnings
    assert warning.severity == "warning"
    assert warning.file == __file__
    assert warning.line == g_line(__file__, "    g.exp(x)")


def g_line(file, text):
    with open(file, encoding="utf-8") as source:
        return next(i for i, line in enumerate(source.read().splitlines(), 1) if line == text)


def test_profile_ended_and_order():
    g = maco.Graph("p", world=2)
    x = g.input("x", "f32", [4, 8])
    g.output("y", g.allreduce(x))
    kernel = g.compile(target="cpu")
    with maco.Session(kernel, profile=True) as session:
        session.allocate()
        session.run()
        assert session.ended()
        profile = session.profile()
        assert "allreduce" in profile.table
        assert json.loads(profile.trace)
    said = []
    with maco.Session(kernel, order=7, progress=said.append) as session:
        assert len(said) >= 2
        assert said[-1] == ""
        session.allocate()
        session.run()
        with pytest.raises(maco.Error, match="profile=True"):
            session.profile()
    with pytest.raises(maco.Error, match="in a chosen order run by turns and have no times"):
        maco.Session(kernel, order=7, profile=True)


def test_memory_that_is_written_is_nobody_elses():
    g = maco.Graph("apart")
    a, b = (g.input(name, "f32", [4, 8]) for name in "ab")
    g.output("y", a + b)
    memory = np.arange(64, dtype=np.float32).reshape(8, 8)
    with maco.Session(g.compile(target="cpu")) as s:
        s.bind("a", memory[:4])
        s.bind("b", memory[:4])  # only read
        s.bind("y", memory[2:6])
        for call in (s.run, s.launch, lambda: s.bench(1)):
            with pytest.raises(maco.Error, match="'y' of rank 0 are bound to memory that overlaps"):
                call()
        s.bind("y", memory[4:])
        s.run()
        np.testing.assert_array_equal(memory[4:], 2 * memory[:4])


def test_a_profile_needs_stamps():
    graph = maco.Graph("g")
    graph.output("y", graph.relu(graph.input("x", "f32", [4])))
    with maco.Session(graph.compile(target="cpu"), "cpu") as session, pytest.raises(maco.Error, match="profile=True"):
        session.profile()


def test_a_kernel_for_the_cpu_on_a_gpu_is_told_in_words_of_python():
    error = maco.errors.from_library(3, "the kernel was compiled for 'cpu': compile it with --target=sm_90a, say")
    assert "Graph.compile(target='sm_90a')" in str(error)


def test_memory_that_was_replaced_is_let_go():
    graph = maco.Graph("g")
    graph.output("y", graph.relu(graph.input("x", "f32", [4])))
    with maco.Session(graph.compile(target="cpu"), "cpu") as session:
        session._device = "cuda"  # whose launches may still read it
        for _ in range(1000):
            session._replace(("value", "n"), object())
        assert len(session._handle.keep.get("replaced", ())) <= 64
