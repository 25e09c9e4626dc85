"""The c10d backend "maco" and the patch of torch.distributed."""

import os
import subprocess
import sys

import pytest
import ranks

import maco

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")


def equal(got, want):
    assert torch.equal(got, want), (got, want)


def launches():
    """The graphs that are run from here on, by name."""
    from maco import eager

    seen, run = [], eager.Program.__call__

    def call(self, *arguments):
        seen.append(self.name)
        return run(self, *arguments)

    eager.Program.__call__ = call
    return seen


def collectives(rank, world):
    """Calls of torch.distributed's, each with its result; how many of them MACO has."""
    x = torch.full((2, 3), float(rank + 1))
    both = float(world * (world + 1) // 2)
    dist.all_reduce(x)
    equal(x, torch.full((2, 3), both))
    work = dist.all_reduce(x.t(), op=dist.ReduceOp.MAX, async_op=True)
    work.wait()
    assert work.is_completed()
    equal(x, torch.full((2, 3), both))
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    y = torch.empty(2 * world)
    dist.all_gather_into_tensor(y, torch.full((2,), float(rank)))
    equal(y, torch.arange(world).repeat_interleave(2).float())
    parts = [torch.empty(2, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(parts, torch.full((2,), rank))
    equal(torch.stack(parts), torch.arange(world).view(-1, 1).expand(world, 2))
    y = torch.empty(2)
    dist.reduce_scatter_tensor(y, torch.arange(2.0 * world))
    equal(y, world * torch.arange(2.0 * rank, 2 * rank + 2))
    dist.reduce_scatter(y, [torch.full((2,), float(i)) for i in range(world)])
    equal(y, torch.full((2,), float(rank * world)))
    y = torch.empty(world)
    dist.all_to_all_single(y, torch.arange(float(world)) + 10 * rank)
    equal(y, torch.arange(world) * 10.0 + rank)
    y = torch.full((2,), float(rank))
    dist.broadcast(y, world - 1)
    equal(y, torch.full((2,), world - 1.0))
    x = torch.ones(3, requires_grad=True)
    dist.all_reduce(x)
    empty = torch.empty(0)
    dist.all_reduce(empty)
    return 9


def others(rank, world):
    """Calls that MACO leaves to others."""
    x = torch.full((3,), rank + 1)
    dist.all_reduce(x, op=dist.ReduceOp.PRODUCT)
    equal(x, torch.full((3,), [1, 1, 2, 6][world]))
    x = torch.full((3,), 2**40 + rank)
    dist.all_reduce(x)
    equal(x, torch.full((3,), world * 2**40 + sum(range(world))))
    x = torch.full((2,), float(rank))
    dist.reduce(x, 0)
    if rank == 0:
        equal(x, torch.full((2,), float(sum(range(world)))))
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(world)]
    got = [torch.empty(2) for _ in range(world)] if rank == 0 else None
    dist.gather(torch.full((2,), float(rank)), got)
    out = torch.empty(2)
    dist.scatter(out, [torch.full((2,), float(r)) for r in range(world)] if rank == 0 else None)
    equal(out, torch.full((2,), float(rank)))
    splits = [i + 1 for i in range(world)]
    y = torch.empty((rank + 1) * world)
    dist.all_to_all_single(y, torch.arange(float(sum(splits))), [rank + 1] * world, splits)
    if world > 1:
        t = torch.zeros(2)
        if rank == 0:
            dist.send(torch.ones(2), 1)
            work = dist.isend(torch.full((2,), 5.0), 1, tag=4)
            work.wait()
        elif rank == 1:
            assert dist.recv(t) == 0
            equal(t, torch.ones(2))
            dist.irecv(t, 0, tag=4).wait()
            equal(t, torch.full((2,), 5.0))
    dist.barrier()


def backend(name, port):
    dist.init_process_group(name)
    rank, world = dist.get_rank(), dist.get_world_size()
    assert "maco" in dist.get_backend()
    seen = launches()
    count = collectives(rank, world)
    if world > 1:
        assert len(seen) >= count, seen
    others(rank, world)
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    equal(functional.all_reduce(torch.ones(3), "sum", group) + 0, torch.full((3,), float(world)))
    equal(functional.all_gather_tensor(torch.full((2,), float(rank)), 0, group) + 0, torch.arange(world).repeat_interleave(2).float())
    equal(functional.reduce_scatter_tensor(torch.ones(2 * world), "avg", 0, group) + 0, torch.ones(2))
    equal(functional.all_to_all_single(torch.arange(float(world)), None, None, group) + 0, torch.full((world,), float(rank)))
    equal(functional.broadcast(torch.full((2,), float(rank)), 0, group) + 0, torch.zeros(2))
    outs = functional.all_reduce_coalesced([torch.ones(2), torch.ones(3)], "sum", group)
    equal(outs[1] + 0, torch.full((3,), float(world)))
    equal(maco.allreduce(torch.ones(2)), torch.full((2,), float(world)))
    low = dist.new_group(list(range(max(1, world - 1))))
    if rank < max(1, world - 1):
        x = torch.ones(2)
        dist.all_reduce(x, group=low)
        equal(x, torch.full((2,), float(max(1, world - 1))))
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda f: f.value()[0] + 1)
    equal(future.wait(), torch.full((2,), world + 1.0))
    dist.destroy_process_group()
    # At another port, since a rank may come to this one before rank 0 has left.
    os.environ["MASTER_PORT"] = port
    dist.init_process_group(name)
    collectives(rank, world)
    dist.destroy_process_group()


def test_no_collective_goes_past_the_process_group():
    """Versions of PyTorch give other names to what torch.distributed's functions call: gloo and NCCL would run it."""
    from maco.distributed import ProcessGroupMaco

    words = ("gather", "reduce", "scatter", "alltoall", "all_to_all", "broadcast")
    names = {name for name in dir(torch.distributed.ProcessGroup) if any(word in name for word in words) and not name.startswith("__")}
    assert not names - set(vars(ProcessGroupMaco))


@pytest.mark.parametrize(("world", "name"), [(1, "maco"), (2, "cpu:maco,cuda:maco"), (3, "maco")])
def test_a_process_group_of_maco(world, name):
    ranks.run(world, backend, name, str(ranks.free_port()))


def trained(name):
    torch.manual_seed(0)
    dist.init_process_group(name)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    whole = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    whole.load_state_dict(model.state_dict())
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    data = torch.randn(world * 4, 4)
    parallel(data[rank * 4 : rank * 4 + 4]).pow(2).mean().backward()
    whole(data).pow(2).mean().backward()
    for own, theirs in zip(model.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(own.grad, theirs.grad, atol=1e-6)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    equal(compiled(torch.ones(2)), torch.full((2,), 2.0 * world + 1))
    with maco.patch_torch_distributed():
        equal(compiled(torch.ones(2, 2)), torch.full((2, 2), 2.0 * world + 1))
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["maco", "gloo"])
def test_data_parallel_training_and_dynamo(name):
    ranks.run(2, trained, name)


def test_the_backend_is_known_whoever_is_imported_first():
    text = "import {}; import {}; import torch.distributed as dist; assert dist.Backend.MACO == 'maco'; import maco.distributed"
    import conftest

    for first, second in (("maco", "torch"), ("torch", "maco"), ("torch.distributed", "maco")):
        subprocess.run([sys.executable, "-c", text.format(first, second)], check=True, timeout=120, env=conftest.child_environment())


def patched():
    original = dist.all_reduce
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    half = dist.new_group([0, 1])
    seen = launches()
    undo = maco.patch_torch_distributed(min_bytes=8, max_bytes=64)
    assert dist.all_reduce is not original and dist.all_reduce.__doc__ == original.__doc__
    x = torch.ones(2)
    dist.all_reduce(x)
    assert seen == ["allreduce"]
    equal(x, torch.full((2,), float(world)))
    for y in (torch.ones(1), torch.ones(17)):
        dist.all_reduce(y)
        equal(y, torch.full_like(y, world))
    x = torch.ones(4)
    if rank < 2:
        dist.all_reduce(x, group=half)
        equal(x, torch.full((4,), 2.0))
    assert len(seen) == 1
    again = maco.patch_torch_distributed()
    collectives(rank, world)
    count = len(seen)
    assert count >= 9
    others(rank, world)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    with pytest.raises(TypeError, match="opp"):
        dist.all_reduce(x, opp=dist.ReduceOp.SUM)
    with pytest.raises((TypeError, ValueError), match="Tensor"):
        dist.all_reduce([1.0])
    again()
    again()
    assert dist.all_reduce is not original
    undo()
    undo()
    assert dist.all_reduce is original and dist.distributed_c10d.all_reduce is original
    with maco.patch_torch_distributed(), pytest.raises(KeyError):
        raise KeyError("mine")
    assert dist.all_reduce is original
    count = len(seen)
    dist.all_reduce(x)
    assert len(seen) == count
    dist.destroy_process_group()


def test_the_patch():
    ranks.run(3, patched)


def test_wrong_limits_of_the_patch():
    with pytest.raises(TypeError, match="min_bytes is a number of bytes"):
        maco.patch_torch_distributed("1KB")
    with pytest.raises(maco.Error, match="are none"):
        maco.patch_torch_distributed(min_bytes=4, max_bytes=2)


def differing():
    dist.init_process_group("maco")
    with pytest.raises(maco.MismatchError, match=r"float32\[2\], rank 1 calls allreduce by sum of float32\[3\]"):
        dist.all_reduce(torch.ones(2 + dist.get_rank()))
    work = dist.all_reduce(torch.ones(2 + dist.get_rank()), async_op=True)
    with pytest.raises(maco.MismatchError, match="the ranks do different things"):
        work.wait()
    x = torch.ones(2)
    dist.all_reduce(x)
    equal(x, torch.full((2,), 2.0))


def test_ranks_that_differ_are_told():
    ranks.run(2, differing)
