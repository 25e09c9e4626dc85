"""optimize, optimize_comm, task_graph, optimize_context and PersistentContext: layers over torch.compile."""

import copy
import pickle
import threading

import pytest
import ranks

import maco

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    torch._dynamo.reset()


class Launches:
    """Counts launches of programs."""

    def __init__(self):
        from maco.program import Program

        self.names = []
        self.owner, self.called = Program, Program.__call__

        def call(program, tensors, values=None, *more, **named):
            self.names.append(program.name)
            return self.called(program, tensors, values, *more, **named)

        Program.__call__ = call

    def taken(self):
        found, self.names = len(self.names), []
        return found

    def close(self):
        self.owner.__call__ = self.called


@pytest.fixture
def launches():
    counter = Launches()
    yield counter
    counter.close()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 16, bias=False)
        self.second = torch.nn.Linear(16, 8)

    def forward(self, x):
        y = maco.allreduce(self.first(x))
        return self.second(torch.relu(y))


def by_hand(net, *inputs):
    return net.second(torch.relu(sum(net.first(x) for x in inputs)))


@maco.optimize
class Optimized(Net):
    """Optimised where it is defined."""


def test_a_function_is_one_launch(launches):
    x, w = torch.randn(8, 16), torch.randn(16, 16)

    @maco.optimize_comm
    def forward(x, weight):
        """What it does."""
        return maco.allreduce(torch.matmul(x, weight))

    torch.testing.assert_close(forward(x, w), x @ w)
    assert launches.taken() == 1 and forward.__name__ == "forward" and forward.__doc__ == "What it does."

    @maco.optimize(strict=True, dynamic=False)
    def other(x):
        return torch.relu(x @ w)

    torch.testing.assert_close(other(x), torch.relu(x @ w))
    assert launches.taken() == 1

    @maco.optimize(strict=True)
    def refused(x):
        return torch.linalg.inv(x @ w)

    with pytest.raises(maco.Error, match="strict"):
        refused(w)


def test_a_class_stays_the_class_that_it_was(launches):
    model = Optimized()
    assert Optimized.__name__ == "Optimized" and isinstance(model, Net) and Optimized.__doc__ == "Optimised where it is defined."
    model.load_state_dict(Net().state_dict())
    assert list(model.state_dict()) == ["first.weight", "second.weight", "second.bias"]
    x = torch.randn(8, 16)
    torch.testing.assert_close(model(x), by_hand(model, x))
    assert launches.taken() == 1
    with torch.no_grad():
        model.second.weight.mul_(2)
    torch.testing.assert_close(model(x), by_hand(model, x))
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        torch.testing.assert_close(again(x), by_hand(model, x))

    class Sub(Optimized):
        def forward(self, x):
            return super().forward(x) + 1

    sub = Sub()
    launches.taken()
    torch.testing.assert_close(sub(x), by_hand(sub, x) + 1)
    assert launches.taken() == 1
    assert Net.forward is not Optimized.forward


def test_gradients_go_through():
    x, mine = torch.randn(8, 16), Optimized()
    theirs = Net()
    theirs.load_state_dict(mine.state_dict())
    mine(x).pow(2).sum().backward()
    by_hand(theirs, x).pow(2).sum().backward()
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(16, 16)

    @maco.task_graph
    def forward(self, x, kv_cache=None):
        return x + maco.allreduce(self.proj(x))


def test_task_graphs_become_part_of_what_is_compiled(launches):
    from maco.backend import compile as compile_model

    x, model = torch.randn(4, 16), torch.nn.Sequential(Layer(), Layer())
    want = x
    for layer in model:
        want = want + layer.proj(want)
    torch.testing.assert_close(model[1](model[0](x)), want)
    assert launches.taken() == 2
    torch.testing.assert_close(compile_model(model)(x), want)
    assert launches.taken() == 1
    for wrong in (3, Layer, Layer()):
        with pytest.raises(TypeError):
            maco.task_graph(wrong)


def test_a_block_compiles_what_is_called_in_it_and_leaves_nothing_behind(launches):
    x, model = torch.randn(8, 16), torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    want = model(x)
    with maco.optimize_context():
        torch.testing.assert_close(model(x), want)
        assert launches.taken() == 1
        model(x)
        assert launches.taken() == 1
        with maco.optimize_context(min_ops=1):
            model(x)
            assert launches.taken() == 1
    assert torch.nn.Module._compiled_call_impl is None
    model(x)
    assert launches.taken() == 0
    with pytest.raises(ZeroDivisionError), maco.optimize_context():
        _ = 1 / 0
    assert torch.nn.Module._compiled_call_impl is None
    with pytest.raises(maco.Error, match="did you mean 'strict'"), maco.optimize_context(strikt=True):
        pass
    pickle.dumps(model)


def test_a_model_is_compiled_for_a_block(launches):
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    x = torch.randn(8, 16)
    context = maco.PersistentContext(model)
    with pytest.raises(maco.Error, match="isn't entered"):
        context.forward(x)
    with context as entered:
        assert entered is context and context.model is model
        for rows in (8, 4, 8, 5, 1):
            torch.testing.assert_close(context.forward(x[:rows]), model(x[:rows]))
        assert launches.taken() == 5
        with torch.no_grad():
            model[0].weight.add_(1)
        torch.testing.assert_close(context(x), model(x))
        context.forward(x).sum().backward()
        assert model[0].weight.grad is not None
    with pytest.raises(maco.Error, match="was left"):
        context.forward(x)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(context)
    for wrong in (3, Net, None):
        with pytest.raises(TypeError):
            maco.PersistentContext(wrong)
    with pytest.raises(maco.Error, match="did you mean 'overlap'"):
        maco.PersistentContext(model, overlp="none")


def test_what_cannot_be_optimized_is_refused():
    for wrong in (3, int, "model"):
        with pytest.raises(TypeError):
            maco.optimize(wrong)
    with pytest.raises(maco.Error, match="did you mean 'strict'"):
        maco.optimize(strikt=True)

    @maco.optimize
    def fails(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails(torch.ones(2))


def on_ranks():
    import torch.distributed as dist

    torch.manual_seed(0)
    world, rank = maco.get_world_size(), maco.get_rank()
    dist.init_process_group("gloo")
    inputs = [torch.randn(8, 16) for _ in range(world)]
    x, w = inputs[rank], torch.randn(16, 16)
    launches = Launches()

    @maco.optimize_comm
    def forward(x, weight):
        return maco.allreduce(torch.matmul(x, weight))

    torch.testing.assert_close(forward(x, w), sum(one @ w for one in inputs), rtol=1e-4, atol=1e-4)
    assert launches.taken() == 1
    model = Optimized()
    torch.testing.assert_close(model(x), by_hand(model, *inputs), rtol=1e-4, atol=1e-4)
    assert launches.taken() == 1

    class Reducing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear1, self.linear2 = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)

        def forward(self, x):
            y = self.linear1(x)
            dist.all_reduce(y)
            return self.linear2(y)

    plain = Reducing()
    with torch.no_grad():
        want = plain(x)
        with maco.optimize_context():
            torch.testing.assert_close(plain(x), want, rtol=1e-4, atol=1e-4)
            y = x.clone()
            dist.all_reduce(y)
            torch.testing.assert_close(y, sum(inputs), rtol=1e-4, atol=1e-4)
        assert launches.taken() >= 2
        optimized = maco.optimize(Reducing)()
        optimized.load_state_dict(plain.state_dict())
        torch.testing.assert_close(optimized(x), want, rtol=1e-4, atol=1e-4)
        assert launches.taken() == 1
        with maco.PersistentContext(model) as context:
            for rows in (8, 3):
                torch.testing.assert_close(context.forward(x[:rows]), by_hand(model, *[one[:rows] for one in inputs]), rtol=1e-4, atol=1e-4)
    dist.destroy_process_group()
    return True


@pytest.mark.parametrize("world", [2, 3])
def test_ranks(world):
    assert all(ranks.run(world, on_ranks))


@maco.optimize
def doubled(x):
    return x * 2


def test_optimized_functions_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(doubled)) is doubled and copy.deepcopy(doubled) is doubled
    assert doubled.__name__ == "doubled" and torch.equal(doubled(torch.ones(3)), torch.full((3,), 2.0))
    for one in (maco.optimize(lambda x: x), maco.optimize_comm(lambda x: x)):
        with pytest.raises(TypeError, match="can't pickle the optimized function '.*<lambda>'.*module"):
            pickle.dumps(one)


def test_optimized_functions_are_methods_and_parts_of_others():
    class Model:
        @maco.optimize
        def step(self, x):
            return doubled(x) + 1

    outer = maco.compile(lambda x: doubled(x) @ x, fullgraph=True)
    x = torch.randn(4, 4)
    torch.testing.assert_close(Model().step(x), x * 2 + 1)
    torch.testing.assert_close(outer(x), x * 2 @ x)
    assert maco.explain(doubled, x).launches == 1


def _compiling_threads(made, count=4):
    torch._dynamo.reset()
    wrong = []

    def work(i):
        try:
            for n in (3, 5, 7):
                x = torch.randn(n, n)
                torch.testing.assert_close(made[i % len(made)](x), torch.relu(x @ x) + x)
        except BaseException as error:  # noqa: BLE001 - for the test
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(240)
        assert not one.is_alive()
    return wrong


def test_threads_that_compile_at_once():
    assert not _compiling_threads([maco.compile(lambda x: torch.relu(x @ x) + x), maco.optimize(lambda x: torch.relu(x @ x) + x)])


def test_a_call_while_another_thread_traces():
    from torch.fx.experimental.proxy_tensor import make_fx

    from maco.compiled import tracing

    compiled, x = maco.compile(lambda x: x * 3), torch.ones(3)
    compiled(x)
    inside, found = threading.Event(), []

    def slow(x):
        inside.set()
        waiting.wait(10)
        return x + 1

    waiting = threading.Event()

    def trace():
        with tracing():
            make_fx(slow)(x)

    threads = [threading.Thread(target=trace), threading.Thread(target=lambda: found.append(compiled(x)))]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    threads[1].join(1)  # it fails at once, or waits for the lock
    waiting.set()
    for one in threads:
        one.join(30)
    assert len(found) == 1 and torch.equal(found[0], x * 3)
