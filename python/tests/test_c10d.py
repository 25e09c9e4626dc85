"""The c10d backend, call by call as torch.distributed documents it: at once and later, by dtype, in place, in groups, and wrongly."""

import time

import pytest
import ranks

import maco

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "uint8", "int8", "int16", "int64")


def values(rank, *shape, dtype="float32", seed=0):
    """A rank's numbers, which every rank can make: small whole ones from 1 on, so that sums and products are exact in all dtypes."""
    made = torch.randint(1, 4, shape, generator=torch.Generator().manual_seed(100 * seed + rank))
    return made.to(getattr(torch, dtype))


def equal(got, want):
    assert got.dtype == want.dtype and torch.equal(got, want), (got, want)


def done(work, later):
    """Waits for what a call gives, which is a Work only if it was asked for."""
    if not later:
        assert work is None
        return
    assert isinstance(work, dist.Work)
    assert work.wait()
    if type(work) is not dist.Work:  # of gloo's some have neither
        assert work.is_completed()
        work.get_future().wait()


REDUCTIONS = {
    "SUM": lambda x: x.sum(0),
    "AVG": lambda x: x.double().mean(0),
    "MAX": lambda x: x.amax(0),
    "MIN": lambda x: x.amin(0),
    "PRODUCT": lambda x: x.prod(0),
    "BAND": lambda x: _folded(torch.bitwise_and, x),
    "BOR": lambda x: _folded(torch.bitwise_or, x),
    "BXOR": lambda x: _folded(torch.bitwise_xor, x),
}


def _folded(function, xs):
    result = xs[0]
    for x in xs[1:]:
        result = function(result, x)
    return result


def reducible(own):
    """Pairs of a dtype and a reduction: in `own` those that MACO compiles a kernel for, and what gloo does."""
    yield from own
    for dtype in ("float64", "int64"):
        for name in ("SUM", "MAX", "PRODUCT"):
            yield dtype, name
    yield from (("float32", "PRODUCT"), ("int32", "PRODUCT"), ("int64", "BAND"), ("int32", "BOR"), ("uint8", "BXOR"))


def all_reduce(rank, world):
    own = [("float32", name) for name in ("SUM", "AVG", "MAX", "MIN")]
    own += [("bfloat16", "SUM"), ("int32", "SUM"), ("int8", "SUM"), ("int16", "SUM"), ("uint8", "MAX")]
    for dtype, name in reducible(own):
        whole = torch.stack([values(r, 3, 5, dtype=dtype) for r in range(world)])
        want = REDUCTIONS[name](whole)
        for later in (False, True):
            x = whole[rank].clone()
            done(dist.all_reduce(x, getattr(dist.ReduceOp, name), async_op=later), later)
            if name == "AVG":
                torch.testing.assert_close(x, want.to(x.dtype))
            else:
                equal(x, want.to(x.dtype))
    whole = torch.stack([torch.complex(values(r, 4), values(r, 4, seed=1)) for r in range(world)])
    x = whole[rank].clone()
    dist.all_reduce(x)
    equal(x, whole.sum(0))
    for shape in ((), (0,), (1,), (1000, 7)):
        x = values(rank, *shape)
        dist.all_reduce(x)
        equal(x, torch.stack([values(r, *shape) for r in range(world)]).sum(0))
    # In place whatever the strides: transposed, every other, behind an odd offset.
    for view in (lambda x: x.t(), lambda x: x[:, ::2], lambda x: x.view(-1)[1:]):
        x = values(rank, 4, 6)
        want = x.clone()
        view(want).copy_(torch.stack([view(values(r, 4, 6)) for r in range(world)]).sum(0))
        dist.all_reduce(view(x))
        equal(x, want)
    x = values(rank, 3).requires_grad_()
    dist.all_reduce(x)
    assert x.is_leaf and x.grad is None
    with torch.inference_mode():
        x = values(rank, 3)
        dist.all_reduce(x)
    equal(x, torch.stack([values(r, 3) for r in range(world)]).sum(0))


def all_gather_into_tensor(rank, world):
    for dtype in (*FLOATS, *INTEGERS, "bool", "complex64", "complex128"):
        whole = torch.stack([values(r, 2, 3, dtype=dtype) for r in range(world)])
        for later in (False, True):
            out = torch.zeros_like(whole)
            done(dist.all_gather_into_tensor(out, whole[rank].clone(), async_op=later), later)
            equal(out, whole)
            out = torch.zeros_like(whole).view(2 * world, 3)
            done(dist.all_gather_into_tensor(out, whole[rank].clone(), async_op=later), later)
            equal(out, whole.view(2 * world, 3))
    # Into the tensor of which the operand is a part, as sharded parameters are gathered.
    out = torch.zeros(world, 5)
    out[rank] = values(rank, 5)
    dist.all_gather_into_tensor(out, out[rank])
    equal(out, torch.stack([values(r, 5) for r in range(world)]))
    parts = [torch.zeros(3, 2) for _ in range(world)]
    done(dist.all_gather(parts, values(rank, 2, 3).t(), async_op=True), True)
    equal(torch.stack(parts), torch.stack([values(r, 2, 3).t() for r in range(world)]))
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_gather_into_tensor(torch.zeros(2 * world + 1), torch.zeros(2))
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        dist.all_gather_into_tensor(torch.zeros(2 * world), torch.zeros(2, dtype=torch.int32))


def reduce_scatter_tensor(rank, world):
    for dtype, name in reducible([("float32", "SUM"), ("float32", "AVG"), ("int32", "SUM"), ("int8", "SUM")]):
        whole = torch.stack([values(r, 2 * world, 3, dtype=dtype) for r in range(world)])
        want = REDUCTIONS[name](whole)[2 * rank : 2 * rank + 2]
        for later in (False, True):
            for shape in ((2 * world, 3), (world, 2, 3)):
                out = torch.zeros_like(whole[0, :2])
                operand = whole[rank].clone().view(shape)
                done(dist.reduce_scatter_tensor(out, operand, getattr(dist.ReduceOp, name), async_op=later), later)
                if name == "AVG":
                    torch.testing.assert_close(out, want.to(out.dtype))
                else:
                    equal(out, want.to(out.dtype))
                equal(operand.view(-1), whole[rank].view(-1))
    # Into this rank's part of the operand, as sharded gradients are reduced.
    x = values(rank, world, 4)
    dist.reduce_scatter_tensor(x[rank], x)
    equal(x[rank], torch.stack([values(r, world, 4) for r in range(world)]).sum(0)[rank])
    out = torch.zeros(3)
    done(dist.reduce_scatter(out, [values(rank, 3, seed=r) for r in range(world)], async_op=True), True)
    equal(out, torch.stack([values(r, 3, seed=rank) for r in range(world)]).sum(0))
    with pytest.raises((RuntimeError, ValueError)):
        dist.reduce_scatter_tensor(torch.zeros(2), torch.zeros(2 * world + 1))


def all_to_all_single(rank, world):
    for dtype in (*FLOATS, *INTEGERS, "bool", "complex64"):
        whole = torch.stack([values(r, 2 * world, 3, dtype=dtype) for r in range(world)])
        want = whole.view(world, world, 2, 3)[:, rank].reshape(2 * world, 3)
        for later in (False, True):
            for splits in ((None, None), ([2] * world, [2] * world)):
                out = torch.zeros_like(want)
                done(dist.all_to_all_single(out, whole[rank].clone(), *splits, async_op=later), later)
                equal(out, want)
    # From rank r to rank s go (r + s) % 3 rows: some parts are empty.
    rows = [[(r + s) % 3 for s in range(world)] for r in range(world)]
    given = [values(r, sum(rows[r]), 2) for r in range(world)]
    want = torch.cat([given[r].split(rows[r])[rank] for r in range(world)])
    for later in (False, True):
        out = torch.zeros(want.shape)
        gets = [rows[r][rank] for r in range(world)]
        done(dist.all_to_all_single(out, given[rank].clone(), gets, rows[rank], async_op=later), later)
        equal(out, want)
        outs = [torch.zeros(n, 2) for n in gets]
        done(dist.all_to_all(outs, list(given[rank].split(rows[rank])), async_op=later), later)
        equal(torch.cat(outs), want)
        outs = [torch.zeros(2, dtype=torch.int64) for _ in range(world)]
        done(dist.all_to_all(outs, list(values(rank, world, 2, dtype="int64")), async_op=later), later)
        equal(torch.stack(outs), torch.stack([values(r, world, 2, dtype="int64")[rank] for r in range(world)]))
    # Parts that are equal on all ranks but the last.
    rows = [2] * (world - 1) + [3 if rank == world - 1 else 2]
    given = values(rank, sum(rows))
    want = [values(r, 2 * world + (r == world - 1)).split([2] * (world - 1) + [3 if r == world - 1 else 2])[rank] for r in range(world)]
    out = torch.zeros(sum(rows))
    dist.all_to_all_single(out, given, rows, rows)
    equal(out, torch.cat(want))
    outs = list(torch.zeros(sum(rows)).split(rows))
    dist.all_to_all(outs, list(given.split(rows)))
    equal(torch.cat(outs), torch.cat(want))
    # Lists of tensors of other shapes and strides.
    outs = [torch.zeros(rank + 1, r + 2).t() for r in range(world)]
    dist.all_to_all(outs, [values(rank, rank + 2, r + 1, seed=r) for r in range(world)])
    for r, out in enumerate(outs):
        equal(out, values(r, r + 2, rank + 1, seed=rank))
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_to_all_single(torch.zeros(world), torch.zeros(world), [1] * world, [2] * world)


def broadcast(rank, world):
    for dtype in (*FLOATS, *INTEGERS, "bool", "complex64"):
        for root in range(world):
            for later in (False, True):
                x = values(rank, 2, 3, dtype=dtype)
                done(dist.broadcast(x, root, async_op=later), later)
                equal(x, values(root, 2, 3, dtype=dtype))
    x = values(rank, 3, 4)
    dist.broadcast(x.t()[1:], group_src=world - 1)
    want = values(rank, 3, 4)
    want.t()[1:] = values(world - 1, 3, 4).t()[1:]
    equal(x, want)
    for shape in ((), (0, 3)):
        x = values(rank, *shape)
        dist.broadcast(x, 0)
        equal(x, values(0, *shape))


def messages(rank, world):
    after, before = (rank + 1) % world, (rank - 1) % world
    for dtype in ("float32", "bfloat16", "int64", "bool"):
        got = torch.zeros(4, dtype=getattr(torch, dtype))
        work = dist.isend(values(rank, 4, dtype=dtype), after)
        assert dist.recv(got, before) == before
        work.wait()
        assert work.is_completed()
        equal(got, values(before, 4, dtype=dtype))
    # Tags tell messages apart that come in another order.
    first, second = torch.zeros(2), torch.zeros(3)
    sent = [dist.isend(values(rank, 2, seed=1), after, tag=1), dist.isend(values(rank, 3, seed=2), after, tag=2)]
    got = [dist.irecv(second, before, tag=2), dist.irecv(first, group_src=before, tag=1)]
    for work in (*got, *sent):
        work.wait()
    equal(first, values(before, 2, seed=1))
    equal(second, values(before, 3, seed=2))
    # From whoever sends.
    if rank == 0:
        seen = set()
        for _ in range(world - 1):
            x = torch.zeros(2)
            source = dist.recv(x)
            equal(x, values(source, 2))
            seen.add(source)
        assert seen == set(range(1, world))
    else:
        dist.send(values(rank, 2), group_dst=0)
    x = torch.zeros(3)
    both = [dist.P2POp(dist.isend, values(rank, 3), after), dist.P2POp(dist.irecv, x, before)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    equal(x, values(before, 3))
    # Messages stand beside collectives that are under way.
    y = values(rank, 3)
    work = dist.all_reduce(y, async_op=True)
    message = dist.isend(y.new_full((1,), rank), after)
    dist.recv(x[:1], before)
    message.wait()
    work.wait()
    equal(x[0], torch.tensor(float(before)))
    with pytest.raises(ValueError):
        dist.send(torch.zeros(1), rank)


def barrier(rank, world):
    store = dist.PrefixStore("barrier", dist.distributed_c10d._get_default_store())
    for turn in range(3):
        for later in (False, True):
            key = f"{turn}{later}"
            if rank == turn % world:
                time.sleep(0.05)
            store.add(key, 1)
            done(dist.barrier(async_op=later), later)
            assert store.add(key, 0) == world
    dist.barrier(device_ids=[0])


def order(rank, world):
    """Of calls that are under way, in whichever order they are waited for."""
    xs = [values(rank, n + 1, seed=n) for n in range(8)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    y = values(rank, 3)
    dist.broadcast(y, 0)
    out = torch.zeros(world, 3)
    works.append(dist.all_gather_into_tensor(out, y, async_op=True))
    works.append(dist.barrier(async_op=True))
    product = values(rank, 2)
    works.append(dist.all_reduce(product, dist.ReduceOp.PRODUCT, async_op=True))
    for work in reversed(works):
        work.wait()
    for n, x in enumerate(xs):
        equal(x, torch.stack([values(r, n + 1, seed=n) for r in range(world)]).sum(0))
    equal(out, values(0, 3).expand(world, 3))
    equal(product, torch.stack([values(r, 2) for r in range(world)]).prod(0))
    # One that goes on with what another gives, without a wait in between.
    x = values(rank, 4)
    dist.all_reduce(x, async_op=True)
    dist.all_reduce(x, async_op=True).wait()
    equal(x, torch.stack([values(r, 4) for r in range(world)]).sum(0) * world)
    future = dist.all_reduce(values(rank, 2), async_op=True).get_future().then(lambda f: f.value()[0] * 10)
    equal(future.wait(), torch.stack([values(r, 2) for r in range(world)]).sum(0) * 10)


def coalesced(rank, world):
    xs = [values(rank, 3), values(rank, 2, 2)]
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    equal(xs[1], torch.stack([values(r, 2, 2) for r in range(world)]).sum(0))
    outs = [torch.zeros(world, 2), torch.zeros(world, 3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for out in outs:
            dist.all_gather_into_tensor(out, values(rank, out.shape[1]))
    manager.wait()
    equal(outs[1], torch.stack([values(r, 3) for r in range(world)]))
    outs = [torch.zeros(2), torch.zeros(1)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for out in outs:
            dist.reduce_scatter_tensor(out, values(rank, world * out.numel()), dist.ReduceOp.MAX)
    manager.wait()
    equal(outs[0], torch.stack([values(r, 2 * world) for r in range(world)]).amax(0)[2 * rank : 2 * rank + 2])


def sub_groups(rank, world):
    """Ranks of a group have other numbers in it."""
    members = list(range(world - 2, world)) if world > 2 else [1]
    group = dist.new_group(members, timeout=torch.distributed.distributed_c10d.timedelta(seconds=60))
    if rank not in members:
        x = torch.ones(2)
        with pytest.warns(UserWarning):
            assert dist.all_reduce(x, group=group) is None
        equal(x, torch.ones(2))
        return
    own, size = members.index(rank), len(members)
    assert dist.get_rank(group) == own and dist.get_world_size(group) == size and "maco" in dist.get_backend(group)
    x = values(rank, 3)
    done(dist.all_reduce(x, group=group, async_op=True), True)
    equal(x, torch.stack([values(r, 3) for r in members]).sum(0))
    out = torch.zeros(size, 2)
    dist.all_gather_into_tensor(out, values(rank, 2), group=group)
    equal(out, torch.stack([values(r, 2) for r in members]))
    out = torch.zeros(2)
    dist.reduce_scatter_tensor(out, values(rank, size, 2), group=group)
    equal(out, torch.stack([values(r, size, 2) for r in members]).sum(0)[own])
    out = torch.zeros(size)
    dist.all_to_all_single(out, values(rank, size), group=group)
    equal(out, torch.stack([values(r, size)[own] for r in members]))
    for root, src in enumerate(members):
        x = values(rank, 2)
        dist.broadcast(x, src, group=group)
        equal(x, values(src, 2))
        x = values(rank, 2)
        dist.broadcast(x, group=group, group_src=root)
        equal(x, values(src, 2))
    if size > 1:
        x = torch.zeros(2)
        if own == 0:
            dist.send(values(rank, 2), members[1], group=group)
            dist.send(values(rank, 2), group=group, group_dst=1)
        else:
            dist.recv(x, members[0], group=group)
            equal(x, values(members[0], 2))
            assert dist.recv(x, group=group, group_src=0) == members[0]
    if world > 2:
        with pytest.raises(ValueError):
            dist.broadcast(torch.zeros(2), 0, group=group)
    dist.barrier(group=group)
    dist.destroy_process_group(group)


def wrong(rank, world):
    with pytest.raises((TypeError, ValueError)):
        dist.all_reduce([1.0])
    with pytest.raises((TypeError, ValueError)):
        dist.all_gather_into_tensor([torch.zeros(2)], torch.zeros(2))
    with pytest.raises(ValueError):
        dist.broadcast(torch.zeros(2))
    with pytest.raises((RuntimeError, ValueError, maco.Error)):
        dist.broadcast(torch.zeros(2), world)
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_reduce(torch.zeros(2, dtype=torch.complex64), dist.ReduceOp.MAX)
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND)
    # The ranks go on together afterwards.
    x = torch.ones(2)
    dist.all_reduce(x)
    equal(x, torch.full((2,), float(world)))


CALLS = (
    all_reduce,
    all_gather_into_tensor,
    reduce_scatter_tensor,
    all_to_all_single,
    broadcast,
    messages,
    barrier,
    order,
    coalesced,
    sub_groups,
    wrong,
)


def calls(name):
    dist.init_process_group(name)
    for one in CALLS:
        try:
            one(dist.get_rank(), dist.get_world_size())
        except BaseException as error:
            raise AssertionError(f"in {one.__name__}") from error
    dist.destroy_process_group()


@pytest.mark.parametrize(("world", "name"), [(2, "cpu:maco,cuda:maco"), (3, "maco")])
def test_calls(world, name):
    ranks.run(world, calls, name)
