"""Context, auto_overlap, overlap_region and dynamic_sm_config: what is called in a block becomes one graph."""

import pickle
import signal
import threading

import pytest
import ranks

import maco

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    monkeypatch.delenv("MACO_CPU_SMS", raising=False)


@pytest.fixture
def operands():
    torch.manual_seed(0)
    return torch.randn(8, 16), torch.randn(16, 16) / 4


def launched(block):
    return block._recorder.launches


# ---- Context


def test_nothing_runs_before_a_value_is_needed_and_then_all_of_it(operands):
    x, w = operands
    calls = []
    context = maco.Context(world_size=1, compute_sms=6, comm_sms=2, overlap=True)

    def product():
        calls.append(1)
        return torch.matmul(x, w)

    with context:
        y = context.compute(product)
        reduced = context.allreduce(y, async_op=True)
        z = context.compute(lambda: torch.matmul(x, w) + 1)
        assert isinstance(y, maco.Lazy) and isinstance(y, torch.Tensor) and y.shape == (8, 16)
        assert not y.is_completed() and launched(context) == 0
        found = reduced.wait()
        assert launched(context) == 1
    assert launched(context) == 1 and calls == [1]
    torch.testing.assert_close(found, x @ w)
    torch.testing.assert_close(y.result(), x @ w)
    torch.testing.assert_close(z, x @ w + 1)
    assert type(y.result()) is torch.Tensor and type(z + 1) is torch.Tensor


def test_a_lazy_value_is_a_tensor_to_torch(operands):
    x, w = operands
    context = maco.Context()
    with context:
        y = context.compute(lambda: x @ w)
        joined = torch.cat([y, x])
        y.mul_(2)
        first = y[0]
        assert float(y.sum()) == pytest.approx(float((x @ w).sum() * 2), rel=1e-4)
        pair = context.compute(lambda one: (one + 1, {"sum": one.sum()}, 3), y)
        left, right, number = pair
        both = context.compute(torch.add, left, right["sum"])
    reference = (x @ w) * 2
    torch.testing.assert_close(joined[:8], x @ w)
    torch.testing.assert_close(first, reference[0])
    torch.testing.assert_close(both.result(), reference + 1 + reference.sum(), rtol=1e-4, atol=1e-4)
    assert number == 3 and pair.result()[2] == 3 and type(pair.result()[0]) is torch.Tensor
    torch.testing.assert_close(pickle.loads(pickle.dumps(y)), y.wait())
    torch.testing.assert_close(torch.from_numpy(y.numpy()), reference)
    assert repr(y).startswith("maco.Lazy(")


def test_what_is_called_sees_the_tensors_of_its_time(operands):
    x, w = operands
    x = x.clone()
    context = maco.Context()
    with context:
        before = context.compute(lambda: x @ w)
        x.add_(1)
        behind = context.compute(lambda: x @ w)
        reduced = context.allreduce(x)
        x.zero_()
    torch.testing.assert_close(before.result(), operands[0] @ w)
    torch.testing.assert_close(behind.result(), (operands[0] + 1) @ w)
    torch.testing.assert_close(reduced.result(), operands[0] + 1)
    assert not x.any()


def test_exceptions_are_the_users_and_the_context_stays_usable(operands):
    x, w = operands
    context = maco.Context()
    with pytest.raises(ZeroDivisionError), context:
        y = context.compute(lambda: x @ w)
        context.compute(lambda: 1 / 0)
    torch.testing.assert_close(y.result(), x @ w)
    with context:
        with pytest.raises(RuntimeError):
            context.compute(lambda: x @ x)
        with pytest.raises(KeyError):
            context.compute(lambda: {}["a"])
        z = context.compute(lambda: x @ w)
        with context:
            inner = context.compute(lambda: x + 1)
    torch.testing.assert_close(z.result(), x @ w)
    torch.testing.assert_close(inner.result(), x + 1)


def test_gradients_are_those_of_torch(operands):
    x, w = operands
    context = maco.Context(compute_sms=6, comm_sms=2)
    mine, theirs = torch.nn.Parameter(w.clone()), torch.nn.Parameter(w.clone())
    with context:
        y = context.compute(lambda: torch.tanh(x @ mine))
        loss = context.compute(lambda one: (one**2).sum(), context.allreduce(y))
    assert loss.requires_grad
    loss.backward()
    (torch.tanh(x @ theirs) ** 2).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)
    with context:
        context.compute(lambda: (x @ mine).sum().backward())
    (x @ theirs).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_a_configuration_says_what_every_sm_does(operands):
    x, w = operands
    config = maco.SMConfig(8)
    config.assign_role((0, 3), maco.Role.COMPUTE)
    config.assign_role((6, 8), maco.Role.REMOTE_SCHEDULER)
    context = maco.Context(sm_config=config)
    assert (context.compute_sms, context.comm_sms) == (3, 2)
    with maco.profiler() as prof, context:
        y = context.compute(lambda: torch.relu(x @ w))
    torch.testing.assert_close(y.result(), torch.relu(x @ w))
    assert all(row["SM Usage"] <= 3 for row in prof.table)


@pytest.mark.parametrize("overlap", [True, False])
def test_without_overlap_the_result_is_the_same(operands, overlap):
    x, w = operands
    with maco.Context(overlap=overlap) as context:
        y = context.allreduce(context.compute(lambda: x @ w))
    torch.testing.assert_close(y.result(), x @ w)


def test_wrong_contexts_are_refused(operands):
    x, _ = operands
    with pytest.raises(maco.Error, match="compute_sms=96 and comm_sms=32 needs 128 SMs, but the CPU target has 8"):
        maco.Context(compute_sms=96, comm_sms=32)
    with pytest.raises(maco.Error, match="world_size is 2, but there is 1 process"):
        maco.Context(world_size=2)
    with pytest.raises(maco.Error, match="leave compute_sms"):
        maco.Context(compute_sms=3, sm_config=maco.auto_config())
    with pytest.raises(maco.Error, match="'with' block"):
        maco.Context().compute(lambda: x)
    for wrong in ({"world_size": "1"}, {"overlap": "yes"}, {"compute_sms": 1.5}, {"sm_config": 3}, {"sms": 3}):
        with pytest.raises(TypeError):
            maco.Context(**wrong)
    context = maco.Context()
    with context:
        with pytest.raises(TypeError):
            context.compute(x)
        with pytest.raises(maco.Error, match="did you mean 'sum'"):
            context.allreduce(x, op="summ")
        with pytest.raises(maco.Error, match="did you mean 'high'"):
            context.allreduce(x, priority="hihg")
        told = []

        def elsewhere():
            try:
                context.compute(lambda: x)
            except maco.Error as error:
                told.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert "thread" in told[0]
    for one in (context, maco.auto_overlap(), maco.overlap_region()):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(one)


def test_all_collectives_and_forms_of_tensors():
    context = maco.Context()
    with context:
        found = [
            context.allgather(torch.ones(2, 3)),
            context.reduce_scatter(torch.ones(4)),
            context.alltoall(torch.ones(4)),
            context.broadcast(torch.ones(3), root=0),
            context.allreduce(torch.tensor(2.0)),
            context.allreduce(torch.empty(0, 3)),
            context.allreduce(torch.arange(4)),
            context.allreduce(torch.ones(4, 6).t()),
            context.allreduce(torch.ones(2, dtype=torch.bool)),
        ]
    shapes = [tuple(one.result().shape) for one in found]
    assert shapes == [(1, 2, 3), (4,), (4,), (3,), (), (0, 3), (4,), (6, 4), (2,)]
    assert torch.equal(found[6], torch.arange(4)) and found[4].item() == 2


# ---- auto_overlap


def test_a_block_is_one_launch(operands):
    x, w = operands
    block = maco.auto_overlap()
    with block:
        y1 = torch.matmul(x, w)
        y1_reduced = maco.allreduce(y1)
        y1.zero_()  # behind its all-reduce
        y2 = torch.matmul(x, w) * 2
        y2_reduced = maco.allreduce(y2)
    assert launched(block) == 1
    torch.testing.assert_close(y1_reduced, x @ w)
    torch.testing.assert_close(y2_reduced, 2 * (x @ w))
    assert not y1.any() and type(y1) is torch.Tensor


def test_it_decorates(operands):
    x, w = operands

    @maco.auto_overlap()
    def function(one):
        return one @ w

    torch.testing.assert_close(function(x), x @ w)


def test_kernels_of_the_users_see_what_was_written_before(operands):
    x, w = operands
    memory = torch.zeros(8, 16)
    kernel = maco.PersistentKernel()
    a = kernel.register_tensor(memory, name="a")
    with kernel.task_graph() as graph:
        graph.mul(a, value=2, name="y")
    with maco.auto_overlap():
        memory.copy_(x @ w)
        y = kernel() + 1
    torch.testing.assert_close(y, 2 * (x @ w) + 1)


def test_compiled_functions_are_part_of_the_block(operands):
    x, w = operands

    @maco.optimize
    def function(one):
        return torch.relu(one @ w)

    for _ in range(2):
        with maco.auto_overlap():
            y = function(x @ w) + 1
        torch.testing.assert_close(y, torch.relu(x @ w @ w) + 1)
        function(x)


# ---- any code in a block does what it does outside


def same(function, *operands):
    """Runs a function outside of a block and within one, on equal tensors."""
    outside, inside = ([one.clone() for one in operands] for _ in range(2))
    want = function(*outside)
    block = maco.auto_overlap()
    with block:
        found = function(*inside)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(inside, outside, rtol=1e-4, atol=1e-5)
    return launched(block)


@pytest.fixture
def by_torch(monkeypatch):
    """Blocks run by torch, op by op, which compiles nothing."""
    from maco import recorder

    def compile_nothing(segment, wanted, name, options):
        module = segment.module(wanted)
        return lambda inputs, _: module(*inputs)

    monkeypatch.setattr(recorder, "_compile", compile_nothing)
    recorder._compiled.clear()
    yield
    recorder._compiled.clear()


def in_place(x, w):
    y = x @ w
    part = y[:, :4]
    part.mul_(2)
    x.add_(1)
    total = x.sum(-1)
    y[0] = 3
    y[1, 2:5] += 1
    return y, total, part, y.t().contiguous()


def views_from_before(x, w):
    row, whole = x[2:4], x.detach()
    y = x @ w
    row.mul_(0.5)
    z = x @ w
    x.mul_(2)
    whole[0] = 1
    x.data.add_(1)
    return y, z, row + 0, whole * 1


def values_decide(x, w):
    y = x @ w
    y = y * 2 if y.sum() > 0 else y * 3
    array = y.numpy().copy()
    y.add_(1)
    return y, torch.from_numpy(array), torch.tensor(y.tolist()), torch.nonzero(y > 0), y[y > 0]


def random_numbers(x, w):
    torch.manual_seed(3)
    first, y, second = torch.rand_like(x), x @ w, torch.randn(3)
    dropped = torch.nn.functional.dropout(y)
    drawn = torch.bernoulli(torch.sigmoid(y))
    y.normal_()
    return first, second, dropped, drawn, y + 1


def other_kinds(x, w):
    whole, none, scalar = torch.arange(5), torch.empty(0, 16), torch.tensor(2.0)
    spectrum = torch.fft.fft(x @ w)
    sparse = torch.sparse.mm((x * (x > 0)).to_sparse(), w)
    return (
        (whole * 2)[whole > 2],
        none @ w,
        (x.sum() * scalar).double(),
        spectrum,
        sparse,
        (x * 10).to(torch.int64),
        x.argmax(-1),
        (x > 0).any(-1),
    )


def metadata_changes(x, w):
    y = x @ w
    y.t_()
    y.unsqueeze_(0)
    z = y.transpose(1, 2)
    z.add_(1)
    y.data = torch.ones(3)
    return y, z


def outs_and_scatters(x, w):
    out = torch.empty(8, 16)
    torch.mm(x, w, out=out)
    ids = torch.tensor([1, 2, 3, 0])
    rows = torch.nn.functional.embedding(ids, w)
    w.index_add_(0, ids, rows)
    w.index_put_((ids,), rows, accumulate=True)
    return out, rows, w.gather(1, ids[:, None]), torch.topk(x, 3).values, x.split(4)[1] + 1, torch.cumsum(x, 0)


def without_gradients(x, w):
    with torch.no_grad():
        y = x @ w
        y.add_(1)
    with torch.inference_mode():
        z = (x @ w).add_(1)
        z = z * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = torch.nn.functional.linear(x, w)
    return y * 2, z.clone(), torch.softmax(a.float(), -1)


def training(x, w):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 4)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x @ w), torch.arange(8) % 4)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [one.detach().clone() for one in model.parameters()], [one.clone() for one in model.buffers()]


def higher_gradients(x, w):
    x = x.detach().requires_grad_()
    seen = []
    y = torch.tanh(x @ w)
    y.register_hook(lambda grad: seen.append(grad.sum().item()))
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), x)
    return first.detach(), second, seen[0]


def transforms(x, w):
    return (
        torch.vmap(lambda one: one @ w)(x),
        torch.func.grad(lambda one: (one @ w).sum())(x),
        torch.func.jvp(lambda one: torch.tanh(one @ w), (x,), (x,)),
    )


def nested(x, w):
    y = x @ w
    with maco.auto_overlap():
        z = y * 2
        y.add_(1)
    with maco.Context() as context:
        later = context.compute(lambda: (y + z) @ w)
        used = later + 1
    return y, z, used, later.result()


def other_bits(x, w):
    y = x @ w
    bits = y.view(torch.int32)
    bits[0] = 0
    return y + 1, bits + 0, x.view(torch.uint8).view(torch.float32) * 2


def errors(x, w):
    y = x @ w
    for wrong in (lambda: y @ x, lambda: y.add_(torch.randn(3)), lambda: y.view(7)):
        with pytest.raises(RuntimeError):
            wrong()
    with pytest.raises(RuntimeError):
        w.detach().requires_grad_().add_(1)
    return y + 1


CODE = [
    in_place, views_from_before, values_decide, random_numbers, other_kinds, metadata_changes, outs_and_scatters, without_gradients,
    training, higher_gradients, transforms, nested, other_bits, errors,
]  # fmt: skip


@pytest.mark.parametrize("code", CODE, ids=lambda one: one.__name__)
def test_code_in_a_block(code, operands, by_torch):
    same(code, *operands)


@pytest.mark.parametrize(
    "code", [in_place, views_from_before, without_gradients, higher_gradients, other_bits], ids=lambda one: one.__name__
)
def test_code_in_a_block_of_kernels(code, operands):
    same(code, *operands)


def test_a_launch_that_fails_leaves_no_numbers_behind(operands, monkeypatch):
    from maco import recorder

    def broken(*_):
        raise maco.LaunchError("no")

    monkeypatch.setattr(recorder, "_compile", broken)
    x, w = operands
    block = maco.auto_overlap()
    with pytest.raises(maco.LaunchError), block:
        y = x @ w + 4321
    assert y.isnan().all()
    monkeypatch.undo()
    with block:
        z = x @ w
    torch.testing.assert_close(z, x @ w)


def test_threads_have_blocks_of_their_own(operands):
    x, w = operands
    context, found = maco.Context(), []
    with context:
        y = context.compute(lambda: x @ w)
        thread = threading.Thread(target=lambda: found.append(y.wait() + 1))  # runs what this thread wrote down
        thread.start()
        thread.join()
        z = context.compute(lambda: x @ w * 2)
    torch.testing.assert_close(found[0], x @ w + 1)
    torch.testing.assert_close(z.result(), x @ w * 2)

    def work(number):
        with maco.auto_overlap():
            one = torch.relu((x + number) @ w)
        found.append(torch.allclose(one, torch.relu((x + number) @ w), atol=1e-4))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found[1:] == [True] * 4


def test_compiled_code_may_have_blocks(operands):
    x, w = operands
    context = maco.Context()

    @maco.optimize
    def function(one):
        y = one @ w
        with maco.auto_overlap():
            z = torch.relu(y @ w)
        with context:
            later = context.compute(lambda: z + 1)
        return later.result() * 2

    torch.testing.assert_close(function(x), (torch.relu(x @ w @ w) + 1) * 2)


# ---- overlap_region


def test_a_region_gives_futures(operands):
    x, w = operands
    with maco.overlap_region() as region:
        product = region.submit_compute(torch.matmul, x, w)
        reduced = region.submit_comm(maco.allreduce, x, op=maco.SUM)
        again = region.submit_compute(torch.relu, product)
        failed = region.submit_compute(lambda: 1 / 0)
    torch.testing.assert_close(product.result(), x @ w)
    torch.testing.assert_close(reduced.result(), x)
    torch.testing.assert_close(again.result(), torch.relu(x @ w))
    with pytest.raises(ZeroDivisionError):
        failed.result()
    assert isinstance(product, maco.Lazy) and isinstance(failed, maco.Lazy)
    with pytest.raises(maco.Error, match="'with' block"):
        region.submit_compute(torch.matmul, x, w)
    with pytest.raises(TypeError), maco.overlap_region() as region:
        region.submit_compute(x, w)


def test_an_exception_that_nobody_can_ask_for_is_raised(operands):
    x, w = operands
    with pytest.raises(ZeroDivisionError), maco.overlap_region() as region:
        region.submit_compute(lambda: 1 / 0)
        kept = region.submit_compute(torch.matmul, x, w)
    torch.testing.assert_close(kept.result(), x @ w)
    with maco.overlap_region() as region, pytest.raises(RuntimeError):
        region.submit_compute(torch.matmul, x, x).result()


# ---- dynamic_sm_config

prefill = True


def test_all_configurations_are_variants_of_one_kernel(operands, monkeypatch):
    from maco import program

    x, w = operands
    graphs, chosen = [], []
    made, called = program.Program.__init__, program.Program.__call__

    def make(self, graph, **options):
        made(self, graph, **options)
        graphs.append(graph.text())

    def call(self, tensors, values=None, *more, **named):
        chosen.append(values)
        return called(self, tensors, values, *more, **named)

    monkeypatch.setattr(program.Program, "__init__", make)
    monkeypatch.setattr(program.Program, "__call__", call)

    @maco.dynamic_sm_config
    def forward(one):
        if prefill:
            maco.set_config(compute_sms=7, comm_sms=1)
        else:
            maco.set_config(compute_sms=4, comm_sms=4)
        return torch.sigmoid(maco.allreduce(one @ w))

    for word in (True, False, True):
        monkeypatch.setitem(globals(), "prefill", word)
        torch.testing.assert_close(forward(x), torch.sigmoid(x @ w))
    assert len(graphs) == 1 and '"compute": 7' in graphs[0] and '"compute": 4' in graphs[0]
    assert chosen == [{"sm_config": 0}, {"sm_config": 1}, {"sm_config": 0}]
    assert forward.__name__ == "forward"


def test_a_configuration_that_appears_later_works_too(operands):
    x, w = operands
    parameter = torch.nn.Parameter(w.clone())

    @maco.dynamic_sm_config
    def forward(one, sms):
        maco.set_config(compute_sms=sms, comm_sms=2)
        return maco.allreduce(one @ parameter)

    for sms in (2, 3, 2):
        torch.testing.assert_close(forward(x, sms), x @ w)
    forward(x, 3).sum().backward()
    torch.testing.assert_close(parameter.grad, x.t() @ torch.ones(8, 16))
    with pytest.raises(maco.Error, match="compute_sms=99 and comm_sms=2 needs 101 SMs"):
        forward(x, 99)
    torch.testing.assert_close(forward(x, 2), x @ w)


def test_set_config_has_its_place(operands):
    with pytest.raises(maco.Error, match="dynamic_sm_config"):
        maco.set_config(compute_sms=3, comm_sms=1)

    @maco.dynamic_sm_config
    def wrong(**told):
        maco.set_config(**told)

    with pytest.raises(TypeError):
        wrong()
    with pytest.raises(TypeError):
        wrong(compute_sms="3")
    with pytest.raises(TypeError):
        wrong(sms=3)
    with pytest.raises(maco.Error, match="leave compute_sms"):
        wrong(compute_sms=3, sm_config=maco.auto_config())
    wrong(sm_config=maco.auto_config("high", "low"))
    with pytest.raises(TypeError):
        maco.dynamic_sm_config(3)


# ---- several ranks


def on_ranks():
    torch.manual_seed(1)
    world, rank = maco.get_world_size(), maco.get_rank()
    inputs = [torch.randn(8, 16) for _ in range(world)]
    x, w = inputs[rank], torch.randn(16, 16)
    total = sum(one @ w for one in inputs)
    context = maco.Context(world_size=world, compute_sms=6, comm_sms=2)
    for _ in range(2):
        with context:
            y = context.compute(lambda: torch.matmul(x, w))
            reduced = context.allreduce(y, async_op=True)
            z = context.compute(lambda: torch.matmul(x, w) + 1)
            reduced.wait()
        torch.testing.assert_close(reduced.result(), total, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(z.result(), x @ w + 1)
    assert context._recorder.launches == 2
    block = maco.auto_overlap()
    with block:
        y1 = x @ w
        first = maco.allreduce(y1)
        y1.zero_()
        work = maco.allreduce(x, op=maco.MAX, async_op=True)
        second = work.wait() + 1
        third = maco.allgather(torch.arange(3) + rank)
    torch.testing.assert_close(first, total, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second, torch.stack(inputs).max(0).values + 1)
    assert third.tolist() == [[i, i + 1, i + 2] for i in range(world)] and not y1.any()
    with maco.overlap_region() as region:
        product = region.submit_compute(torch.matmul, x, w)
        summed = region.submit_comm(maco.allreduce, x)
    torch.testing.assert_close(product.result(), x @ w)
    torch.testing.assert_close(summed.result(), sum(inputs), rtol=1e-4, atol=1e-5)
    mine, theirs = torch.nn.Parameter(w.clone()), torch.nn.Parameter(w.clone())
    with context:
        loss = context.compute(lambda one: (one * 2).sum(), context.allreduce(context.compute(lambda: torch.relu(x @ mine))))
    loss.backward()
    (maco.allreduce(torch.relu(x @ theirs)) * 2).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)

    @maco.dynamic_sm_config
    def forward(one, many):
        maco.set_config(compute_sms=7, comm_sms=1) if many else maco.set_config(compute_sms=4, comm_sms=4)
        return maco.allreduce(one @ w)

    for many in (True, False, True):
        torch.testing.assert_close(forward(x, many), total, rtol=1e-4, atol=1e-4)
    with maco.auto_overlap():  # messages are no part of a kernel, and come in their order
        sent = x * 3
        if world > 1:
            with maco.ring():
                maco.send(sent, dst=(rank + 1) % world)
                got = maco.recv(src=(rank - 1) % world)
            torch.testing.assert_close(got, inputs[(rank - 1) % world] * 3)
    return True


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks(world):
    assert all(ranks.run(world, on_ranks))


def differing():
    """One rank looks at a value, or has forgotten something in a cycle, and the others haven't."""
    torch.manual_seed(1)
    world, rank = maco.get_world_size(), maco.get_rank()
    inputs = [torch.randn(8, 16) for _ in range(world)]
    x, w = inputs[rank], torch.randn(16, 16)
    total = sum(one @ w for one in inputs)
    context = maco.Context()
    for turn in range(4):
        with context:
            a = context.compute(lambda: x * 2)
            t = context.allreduce(context.compute(lambda one: one @ w, a))
            if rank == 0 and turn % 2:
                knot = [a]
                knot.append(knot)
                del knot
            del a
        torch.testing.assert_close(t.result(), 2 * total, rtol=1e-4, atol=1e-4)
        with maco.auto_overlap():
            unused = maco.allreduce(x)
            if rank:
                del unused
    for turn in range(4):
        with maco.auto_overlap():
            t = maco.allreduce(x @ w)
            if rank == 0 and turn in (1, 3):
                assert float(t.sum()) == pytest.approx(float(total.sum()), abs=1e-2)
            u = maco.allreduce(t * 2)
        torch.testing.assert_close(u, total * 2 * world, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(maco.allreduce(x), sum(inputs), rtol=1e-4, atol=1e-4)
    return True


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_that_differ(world):
    assert all(ranks.run(world, differing))


@pytest.mark.parametrize("change", [lambda a, x: torch.add(a, a, out=x), lambda a, x: torch._foreach_mul_([x], 7.0)], ids=["out", "a list"])
def test_what_is_written_down_runs_before_its_operands_change(change):
    a, x = torch.full((4,), 5.0), torch.ones(4)
    with maco.auto_overlap():
        y = x * 2 + 1
        change(a, x)
    assert y.tolist() == [3.0] * 4


# ---- Ctrl-C


@pytest.mark.parametrize("make", [maco.Context, maco.auto_overlap, maco.overlap_region], ids=lambda make: make.__name__)
def test_ctrl_c_in_a_block_drops_what_was_recorded(operands, make):
    x, w = operands
    block = make()
    cache = torch.zeros(8, 16)
    with pytest.raises(KeyboardInterrupt), block:
        y = torch.matmul(x, w)
        cache.add_(y)
        signal.raise_signal(signal.SIGINT)
    assert launched(block) == 0 and y.isnan().all() and not cache.any()
    with block:
        y = torch.matmul(x, w)
    assert launched(block) == 1
    torch.testing.assert_close(y, x @ w)


def test_what_ctrl_c_dropped_has_no_value(operands):
    x, w = operands
    context = maco.Context()
    with pytest.raises(KeyboardInterrupt), context:
        y = context.compute(torch.matmul, x, w)
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(maco.Error, match="Ctrl-C ended the block"):
        y.wait()
    with context:
        y = context.compute(torch.matmul, x, w)
    torch.testing.assert_close(y.wait(), x @ w)


def test_ctrl_c_in_a_persistent_context(operands):
    x, w = operands
    model = torch.nn.Linear(16, 16)
    context = maco.PersistentContext(model)
    with pytest.raises(KeyboardInterrupt), context:
        context.forward(x)
        signal.raise_signal(signal.SIGINT)
    with context, torch.no_grad():
        torch.testing.assert_close(context.forward(x), model(x))


def _one_is_interrupted(how):
    """Rank 0 gets Ctrl-C in a block, the others don't: what they are told, and the blocks behind it."""
    x = torch.ones(4, 8)
    context = maco.Context() if how == "context" else maco.auto_overlap()
    found = []
    for number in range(3):
        try:
            with context:
                y = maco.allreduce(x * (number + 1))
                if number == 1 and maco.get_rank() == 0:
                    signal.raise_signal(signal.SIGINT)
            found.append(float(y[0, 0]))
        except (KeyboardInterrupt, maco.Error) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("how", ["context", "auto_overlap"])
def test_ranks_are_told_of_ctrl_c_in_another_s_block(how):
    first, second = ranks.run(2, _one_is_interrupted, how)
    assert first[0] == second[0] == 2 and first[2] == second[2] == 6
    assert first[1].startswith("KeyboardInterrupt") and "rank 0 failed: Ctrl-C has ended its block of" in second[1]


# ---- roles by kinds of ops


def test_kinds_of_ops_on_one_rank(operands):
    x, w = operands
    config = maco.SMConfig(8)
    config.assign_role((0, 6), maco.Role.COMPUTE, task_types=["matmul"])
    config.assign_role((6, 8), maco.Role.COMM, task_types=["allreduce"])
    with maco.Context(sm_config=config):
        y = maco.allreduce(x)
    assert torch.equal(y, x)
    with pytest.raises(maco.Error, match="'sm_config'.*takes 'relu'"), maco.Context(sm_config=config):
        y = torch.relu(x @ w)


def test_submit_comm_keeps_words_of_other_functions():
    def exchange(x, async_op=False):
        return x * 2 if async_op else x

    x = torch.ones(4)
    with maco.overlap_region() as region:
        own = region.submit_comm(exchange, x, async_op=True)
        reduced = region.submit_comm(maco.allreduce, x, async_op=True)
    assert torch.equal(own.result(), x * 2) and torch.equal(reduced.result(), x)
