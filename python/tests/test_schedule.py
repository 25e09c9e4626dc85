"""CommScheduler: collectives in phases, as one kernel."""

import pickle

import pytest
import ranks

import maco

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    monkeypatch.delenv("MACO_CPU_SMS", raising=False)


def made(world, *shape, seed=0, dtype=torch.float32):
    """The same tensors on all ranks, one for each of them."""
    source = torch.Generator()
    found = []
    for i in range(world):
        source.manual_seed(seed + i)
        found.append((torch.randn(shape, generator=source) * 4).to(dtype))
    return found


def on_ranks():
    world, rank = maco.get_world_size(), maco.get_rank()
    q, k, v = made(world, 6, 8, seed=1), made(world, 3, seed=5, dtype=torch.bfloat16), made(world, world * 2, 4, seed=9)
    scalar, long, apart = made(world, seed=20), made(world, 4, seed=30, dtype=torch.int64), [one.t() for one in made(world, 5, 7, seed=40)]
    flags, deep = [torch.arange(4) == i for i in range(world)], made(world, 2, 1, 2, 1, 3, seed=50)
    every = (q, k, v, scalar, long, apart, deep)
    scheduler = maco.CommScheduler(num_sms=4)
    first = scheduler.phase("allreduce qkv")
    reduced = [first.allreduce(one[rank]) for one in every]
    empty, either = first.allreduce(torch.zeros(0, 3)), first.allreduce(flags[rank])
    second = scheduler.phase("out", depends_on=first)
    gathered = second.allgather(reduced[0], priority="high", overlap_group="attn")
    scattered = second.reduce_scatter(v[rank], op=maco.MAX)
    exchanged = second.alltoall(v[rank])
    told = second.broadcast(q[rank], root=world - 1)
    longs = second.allgather(reduced[4])
    with pytest.raises(maco.Error, match="run"):
        told.result()
    scheduler.compile()
    results = []
    for turn in range(3):
        scheduler.run() if turn else scheduler()
        for handle, one in zip(reduced, every, strict=True):
            want = sum(part.double() for part in one)
            assert handle.result().shape == one[0].shape and handle.result().dtype == one[0].dtype
            torch.testing.assert_close(handle.result().double(), want, rtol=2e-2 if one is k else 1e-5, atol=1e-4)
        torch.testing.assert_close(gathered.result(), torch.stack([sum(q)] * world))
        assert empty.result().shape == (0, 3)
        assert torch.equal(either.result(), torch.stack(flags).any(0))
        torch.testing.assert_close(scattered.result(), torch.stack(v).max(0).values.view(world, 2, 4)[rank])
        torch.testing.assert_close(exchanged.result(), torch.cat([one.view(world, 2, 4)[rank] for one in v]))
        torch.testing.assert_close(told.wait(), q[world - 1])
        torch.testing.assert_close(longs.result(), torch.stack([sum(long)] * world))
        results.append((gathered.result(), gathered.result().clone()))
        for one in q:
            one.mul_(1.5)
    for result, copy in results:  # a run leaves the results of those before
        assert torch.equal(result, copy)
    x = q[rank].clone().requires_grad_()
    third = maco.CommScheduler()
    phase = third.phase("a")
    total, all_of_it = phase.allreduce(x), phase.allgather(x)
    third()
    (total.result().sum() * 2 + (all_of_it.result() * 3).sum()).backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.0 + 3 * world))
    return True


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks(world):
    assert all(ranks.run(world, on_ranks))


def test_phases_know_those_before_them():
    scheduler = maco.CommScheduler()
    first = scheduler.phase("first")
    second = scheduler.phase("second", depends_on="first")
    third = scheduler.phase("third", depends_on=[first, second])
    assert third.depends_on == ("first", "second") and third.name == "third"
    with pytest.raises(maco.Error, match="did you mean 'first'"):
        scheduler.phase("x", depends_on="frist")
    with pytest.raises(maco.Error, match="on itself"):
        scheduler.phase("x", depends_on="x")
    with pytest.raises(maco.Error, match="already"):
        scheduler.phase("first")
    with pytest.raises(maco.Error, match="another scheduler"):
        scheduler.phase("x", depends_on=maco.CommScheduler().phase("first"))
    for wrong in (3, None):
        with pytest.raises(TypeError):
            scheduler.phase(wrong)
    with pytest.raises(TypeError):
        scheduler.phase("x", depends_on=3)


def test_wrong_calls():
    scheduler = maco.CommScheduler()
    phase = scheduler.phase("a")
    with pytest.raises(TypeError, match="Tensor"):
        phase.allreduce([1.0])
    with pytest.raises(maco.Error, match="did you mean 'sum'"):
        phase.allreduce(torch.ones(2), op="summ")
    with pytest.raises(maco.Error, match="did you mean 'high'"):
        phase.allreduce(torch.ones(2), priority="hihg")
    with pytest.raises(TypeError, match="did you mean 'priority'"):
        phase.allreduce(torch.ones(2), priorty="high")
    with pytest.raises(maco.Error, match="no rank 3"):
        phase.broadcast(torch.ones(2), root=3)
    with pytest.raises(maco.Error, match="no axis"):
        phase.reduce_scatter(torch.tensor(1.0))
    other = maco.CommScheduler().phase("b").allreduce(torch.ones(2))
    with pytest.raises(maco.Error, match="another scheduler"):
        phase.allreduce(other)
    with pytest.raises(maco.Error, match="num_sms=99 needs 99 SMs, but the CPU target has 8"):
        maco.CommScheduler(num_sms=99)
    with pytest.raises(maco.Error, match="at least 1"):
        maco.CommScheduler(num_sms=0)
    with pytest.raises(TypeError):
        maco.CommScheduler(num_sms="4")


def test_a_tensor_of_another_shape_is_an_error():
    with maco.CommScheduler() as scheduler:
        x = torch.ones(4, 4)
        handle = scheduler.phase("a").allreduce(x)
        scheduler()
        x.resize_(2, 2)
        with pytest.raises(maco.Error, match=r"phase 'a' was torch.float32\[4, 4\] on cpu, and is torch.float32\[2, 2\]"):
            scheduler()
        x.resize_(4, 4).fill_(3)
        scheduler()
        assert torch.equal(handle.result(), x)


def test_it_does_not_grow_when_compiled():
    with maco.CommScheduler() as scheduler:
        phase = scheduler.phase("a")
        handle = phase.allreduce(torch.ones(2))
        scheduler()
        assert torch.equal(handle.result(), torch.ones(2))
        with pytest.raises(maco.Error, match="compiled"):
            phase.allreduce(torch.ones(2))
        with pytest.raises(maco.Error, match="compiled"):
            scheduler.phase("b")
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(scheduler)
    with pytest.raises(maco.Error, match="closed"):
        scheduler.run()
    empty = maco.CommScheduler()
    empty.compile()
    empty.run()
