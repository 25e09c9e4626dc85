"""torch's functional collectives over the c10d backend: at once, in place, with gradients, traced, and compiled by MACO."""

import pytest
import ranks
from test_c10d import REDUCTIONS, equal, values

import maco

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")


def stacked(world, *shape, dtype="float32", seed=0):
    return torch.stack([values(r, *shape, dtype=dtype, seed=seed) for r in range(world)])


def ways(world):
    """What torch takes for a group."""
    from torch.distributed.device_mesh import init_device_mesh

    line = init_device_mesh("cpu", (world,))
    plane = init_device_mesh("cpu", (1, world), mesh_dim_names=("a", "b"))
    pg = dist.group.WORLD
    return [pg, list(range(world)), line, (plane, 1), pg.group_name]


# ---- at once


def reductions(rank, world, f, pg):
    for dtype, names in (("float32", ("sum", "avg", "max", "min", "product")), ("int64", ("sum", "band", "bor", "bxor"))):
        whole = stacked(world, 3, 2, dtype=dtype)
        for name in names:
            x = whole[rank].clone()
            y = f.all_reduce(x, name, pg)
            assert isinstance(y, f.AsyncCollectiveTensor) and y.shape == x.shape
            want = REDUCTIONS[{"avg": "AVG", "product": "PRODUCT"}.get(name, name.upper())](whole)
            torch.testing.assert_close(y + 0, want.to(x.dtype))
            equal(x, whole[rank])
    whole = stacked(world, 2 * world, 4)
    for dim in (0, 1, -1):
        x = whole[rank] if dim == 0 else whole[rank].t().contiguous()
        want = whole.sum(0)[2 * rank : 2 * rank + 2]
        y = f.reduce_scatter_tensor(x, "sum", dim, pg)
        equal(f.wait_tensor(y), want if dim == 0 else want.t())
    y = f.reduce_scatter_tensor(stacked(world, world, dtype="int64")[rank], "max", 0, pg)
    equal(y + 0, stacked(world, world, dtype="int64").amax(0)[rank : rank + 1])
    outs = f.all_reduce_coalesced([values(rank, 2), values(rank, 3, 1)], "max", pg)
    equal(outs[0] + 0, stacked(world, 2).amax(0))
    equal(outs[1] + 0, stacked(world, 3, 1).amax(0))
    outs = f.reduce_scatter_tensor_coalesced([values(rank, world), values(rank, 3, 2 * world)], "sum", [0, 1], pg)
    equal(outs[0] + 0, stacked(world, world).sum(0)[rank : rank + 1])
    equal(outs[1] + 0, stacked(world, 3, 2 * world).sum(0)[:, 2 * rank : 2 * rank + 2])
    with pytest.raises((RuntimeError, ValueError)):
        f.all_reduce(torch.ones(2), "median", pg)


def gathers(rank, world, f, pg):
    for dtype in ("float32", "bfloat16", "int64", "bool"):
        whole = stacked(world, 2, 3, dtype=dtype)
        for dim in (0, 1):
            equal(f.wait_tensor(f.all_gather_tensor(whole[rank], dim, pg)), torch.cat(list(whole), dim))
    outs = f.all_gather_into_tensor_coalesced([values(rank, 2), values(rank, 1, 3)], pg)
    equal(outs[0] + 0, stacked(world, 2).view(-1))
    equal(outs[1] + 0, stacked(world, 1, 3).view(world, 3))
    for root in range(world):
        x = values(rank, 2, 2)
        equal(f.broadcast(x, root, pg) + 0, values(root, 2, 2))
        equal(x, values(rank, 2, 2))


def exchanges(rank, world, f, pg):
    x = stacked(world, 2 * world, 3)
    want = x.view(world, world, 2, 3)[:, rank].reshape(2 * world, 3)
    for splits in (None, [2] * world):
        equal(f.all_to_all_single(x[rank], splits, splits, pg) + 0, want)
    rows = [[(r + s) % 3 for s in range(world)] for r in range(world)]
    given = [values(r, sum(rows[r]), 2) for r in range(world)]
    y = f.all_to_all_single(given[rank], [rows[r][rank] for r in range(world)], rows[rank], pg)
    equal(y + 0, torch.cat([given[r].split(rows[r])[rank] for r in range(world)]))
    y = f.permute_tensor(values(rank, 4), [(r + 1) % world for r in range(world)], pg)
    equal(y + 0, values((rank - 1) % world, 4))


def group_words(rank, world, f, pg):
    for group in ways(world):
        equal(f.all_reduce(values(rank, 3), "sum", group) + 0, stacked(world, 3).sum(0))
        equal(f.all_gather_tensor(values(rank, 2), 0, group) + 0, stacked(world, 2).view(-1))
    if world > 2:
        half = dist.new_group([world - 1, 0])  # its ranks aren't those of all
        if rank in (0, world - 1):
            members = dist.get_process_group_ranks(half)
            equal(f.all_reduce(values(rank, 3), "sum", half) + 0, values(0, 3) + values(world - 1, 3))
            equal(f.broadcast(values(rank, 3), 1, half) + 0, values(members[1], 3))  # a rank within the group
            equal(f.all_gather_tensor(values(rank, 1), 0, half) + 0, torch.cat([values(r, 1) for r in members]))
    with pytest.raises((TypeError, ValueError)):
        f.all_reduce(torch.ones(2), "sum", 17)


def native(rank, world, f, pg):
    """The operators that compiled code calls."""
    ops, name = torch.ops._c10d_functional, pg.group_name
    wait = ops.wait_tensor
    x = values(rank, 3)
    y = ops.all_reduce_(x, "sum", name)
    assert y.data_ptr() == x.data_ptr()
    equal(wait(y), stacked(world, 3).sum(0))
    equal(x, stacked(world, 3).sum(0))
    xs = [values(rank, 2), values(rank, 3)]
    for y, n in zip(ops.all_reduce_coalesced_(xs, "avg", name), (2, 3), strict=True):
        torch.testing.assert_close(wait(y), stacked(world, n).mean(0))
    x = values(rank, 3)
    wait(ops.broadcast_(x, world - 1, name))
    equal(x, values(world - 1, 3))
    out = torch.zeros(2 * world)
    wait(ops.all_gather_into_tensor_out(values(rank, 2), world, name, out=out))
    equal(out, stacked(world, 2).view(-1))
    out = torch.zeros(2)
    if hasattr(ops, "reduce_scatter_tensor_out"):
        wait(ops.reduce_scatter_tensor_out(values(rank, 2 * world), "sum", world, name, out=out))
        equal(out, stacked(world, 2 * world).sum(0)[2 * rank : 2 * rank + 2])
    y = ops.all_reduce(values(rank, 3), "sum", name)
    equal(wait(wait(y)), stacked(world, 3).sum(0))
    # Under way together, waited for in another order; one that nobody waits for.
    ys = [ops.all_reduce(values(rank, n), "sum", name) for n in range(1, 6)]
    ops.all_reduce(values(rank, 2), "sum", name)
    for n in (3, 5, 1, 4, 2):
        equal(wait(ys[n - 1]), stacked(world, n).sum(0))
    old = torch.ops.c10d_functional
    y = old.all_reduce(values(rank, 3), "sum", "", list(range(world)), world)
    equal(old.wait_tensor(y), stacked(world, 3).sum(0))


def gradients(rank, world, f, pg):
    """Those of losses that ranks compute each for itself and that add up."""
    weight = stacked(world, 2 * world, 3, seed=5)
    x = values(rank, 2, 3).requires_grad_()
    (f.wait_tensor(f.all_gather_tensor_autograd(x, 0, pg)) * weight[rank]).sum().backward()
    equal(x.grad, weight.sum(0)[2 * rank : 2 * rank + 2])
    x = values(rank, 2 * world, 3).requires_grad_()
    (f.wait_tensor(f.reduce_scatter_tensor_autograd(x, "sum", 0, pg)) * weight[rank][:2]).sum().backward()
    equal(x.grad, weight[:, :2].reshape(2 * world, 3))
    x = values(rank, 2 * world, 3).requires_grad_()
    splits = [2] * world
    (f.wait_tensor(f.all_to_all_single_autograd(x, splits, splits, pg)) * weight[rank]).sum().backward()
    equal(x.grad, weight.view(world, world, 2, 3)[:, rank].reshape(2 * world, 3))


def traces(rank, world, f, pg):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x):
        y = f.all_gather_tensor(f.all_reduce(x, "sum", pg) + 1, 0, pg)
        return f.reduce_scatter_tensor(y * 2, "sum", 0, pg) - 1

    x = values(rank, 2, 3)
    for mode in ("real", "fake", "symbolic"):
        traced = make_fx(function, tracing_mode=mode)(x)
        named = [str(node.target) for node in traced.graph.nodes if "c10d" in str(node.target)]
        assert sum("wait_tensor" in one for one in named) == 3 and len(named) == 6, named
        equal(traced(x) + 0, function(x) + 0)
    with FakeTensorMode():
        fake = torch.empty(2 * world, 3)
        assert f.all_reduce(fake, "sum", pg).shape == (2 * world, 3)
        assert f.all_gather_tensor(fake, 1, pg).shape == (2 * world, 3 * world)
        assert f.reduce_scatter_tensor(fake, "sum", 0, pg).shape == (2, 3)
        assert f.all_to_all_single(fake, None, None, pg).shape == (2 * world, 3)
        assert f.broadcast(fake, 0, pg).shape == (2 * world, 3)
    meta = torch.empty(2, 3, device="meta")
    assert f.all_reduce(meta, "avg", pg).device.type == "meta"


AT_ONCE = (reductions, gathers, exchanges, group_words, native, gradients, traces)


def at_once(name):
    import torch.distributed._functional_collectives as functional

    dist.init_process_group(name)
    for one in AT_ONCE:
        try:
            one(dist.get_rank(), dist.get_world_size(), functional, dist.group.WORLD)
        except BaseException as error:
            raise AssertionError(f"in {one.__name__}") from error
    dist.destroy_process_group()


@pytest.mark.parametrize(("world", "name"), [(2, "cpu:maco,cuda:maco"), (3, "maco")])
def test_at_once(world, name):
    ranks.run(world, at_once, name)


# ---- compiled


def functions(world):
    """Functions of a [2 * world, 4] tensor, each with the kinds of its collectives."""
    import torch.distributed._functional_collectives as f

    pg = dist.group.WORLD

    def reduces(x):
        y = f.all_reduce(x * 2, "sum", pg) + f.all_reduce(x, "max", pg)
        return f.reduce_scatter_tensor(y, "sum", 0, pg) + 1, f.reduce_scatter_tensor(y.t().contiguous(), "avg", 1, pg)

    def gathers(x):
        y = f.all_gather_tensor(x[:2] + 1, 0, pg)
        return y * 2, f.broadcast(y[: 2 * world] + x, 1, pg)

    def exchanges(x):
        y = f.all_to_all_single(x + 1, None, None, pg)
        return f.all_to_all_single(y * x, [2] * world, [2] * world, pg)

    def several(x):
        a, b = f.all_reduce_coalesced([x, x[:2] * 2], "sum", pg)
        c, d = f.all_gather_into_tensor_coalesced([a[:1], b], pg)
        (e,) = f.reduce_scatter_tensor_coalesced([x + c.sum()], "sum", [0], pg)
        return a, b, c, d, e

    def moved(x):
        rows = [2 * world] + [0] * (world - 1)
        gets = [2 * world] * world if dist.get_rank() == 0 else [0] * world
        return f.all_to_all_single(x + 1, gets, rows, pg) * 2

    def in_place(x):
        y = x * 2
        dist.all_reduce(y)
        dist.all_reduce(y, op=dist.ReduceOp.MAX, group=pg)
        out = torch.empty(2 * world * world, 4)
        dist.all_gather_into_tensor(out, y + 1)
        part = torch.empty(2 * world, 4)
        dist.reduce_scatter_tensor(part, out * 2, dist.ReduceOp.AVG)
        other = torch.empty_like(x)
        dist.all_to_all_single(other, part + x)
        parts = [torch.empty(2 * world, 4) for _ in range(world)]
        dist.all_gather(parts, other)
        return y, part, other, torch.stack(parts)

    return {"reduces": reduces, "gathers": gathers, "exchanges": exchanges, "several": several, "moved": moved, "in_place": in_place}


WITHOUT = ("several", "moved")
"""What of these stays with torch: coalesced collectives, and exchanges of uneven parts."""


def flat(results):
    return [one + 0 for one in (results if isinstance(results, tuple) else (results,))]


def compiled(name):
    dist.init_process_group(name)
    rank, world = dist.get_rank(), dist.get_world_size()
    x = values(rank, 2 * world, 4)
    for called, function in functions(world).items():
        want = flat(function(x.clone()))
        torch._dynamo.reset()
        got = flat(torch.compile(function, backend="maco", fullgraph=True)(x.clone()))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, msg=lambda text, called=called: f"{called}: {text}")
        report = maco.explain(function, x.clone())
        kinds = {row["op"].split(".")[1] for row in report.fallbacks if "c10d" in row["op"] and "wait" not in row["op"]}
        if called not in WITHOUT:
            assert not kinds, (called, report)
            assert report.launches == 1, (called, report)
    dist.destroy_process_group()


def test_compiled():
    ranks.run(2, compiled, "cpu:maco,cuda:maco")


def later(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x + 1
    work.wait()
    return y + z


def compiled_otherwise():
    """Compiled by torch's own parts, with gradients, with calls that break the graph, and in a sub-group."""
    import torch.distributed._functional_collectives as f

    dist.init_process_group("maco")
    rank, world = dist.get_rank(), dist.get_world_size()
    pg = dist.group.WORLD
    x = values(rank, 2 * world, 4)
    for called, function in functions(world).items():
        if called == "in_place":
            torch._dynamo.reset()
            for a, b in zip(flat(torch.compile(function, backend="aot_eager")(x.clone())), flat(function(x.clone())), strict=True):
                torch.testing.assert_close(a, b)

    torch._dynamo.reset()
    equal(torch.compile(later, backend="maco")(x), stacked(world, 2 * world, 4).sum(0) * 2 + x + 1)

    def loss(x, w):
        y = f.all_gather_tensor_autograd(x, 0, pg)
        y = f.reduce_scatter_tensor_autograd(y * w, "sum", 0, pg)
        return f.all_to_all_single_autograd(y, [2] * world, [2] * world, pg).pow(2).sum()

    w = values(rank, 2 * world * world, 4, seed=3)
    grads = []
    for run in (loss, torch.compile(loss, backend="maco", fullgraph=True)):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        run(a, b).backward()
        grads.append((a.grad, b.grad))
    for got, want in zip(grads[1], grads[0], strict=True):
        torch.testing.assert_close(got, want)

    members = [1, 2]
    group = dist.new_group(members)
    if rank in members:

        def inner(x):
            y = f.all_reduce(x * 2, "sum", group)
            return f.broadcast(y + x, 1, group)  # a rank within the group: 2 of all

        want = (values(1, 2 * world, 4) + values(2, 2 * world, 4)) * 2 + values(2, 2 * world, 4)
        equal(torch.compile(inner, backend="maco", fullgraph=True)(x) + 0, want)
        equal(inner(x) + 0, want)
    dist.barrier()
    dist.destroy_process_group()


def test_compiled_otherwise():
    ranks.run(3, compiled_otherwise)
