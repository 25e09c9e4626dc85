"""Collectives and messages on tensors, on one rank and on several."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import ranks

import maco

torch = pytest.importorskip("torch")

DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
    torch.complex64, torch.complex128,
]  # fmt: skip


def values(rank, shape, dtype):
    """Small numbers, of which sums over ranks are exact."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count) * 3 + rank * 5) % 7
    if dtype is torch.bool:
        return (numbers % (rank + 2) == 0).reshape(shape)
    made = numbers.to(dtype).reshape(shape)
    return made * (1 + 2j) if dtype.is_complex else made


def total(parts):
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return result


def equal(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
    assert torch.equal(got, want), (got, want)
    assert got.is_contiguous()


def every_collective():
    world, rank = maco.get_world_size(), maco.get_rank()
    for dtype in DTYPES:
        shape = (2 * world, 3)
        all_x = [values(r, shape, dtype) for r in range(world)]
        x, before = all_x[rank].clone(), all_x[rank]
        equal(maco.allreduce(x), total(all_x))
        equal(maco.allgather(x), torch.stack(all_x))
        equal(maco.reduce_scatter(x), total(all_x).view(world, 2, 3)[rank])
        equal(maco.alltoall(x), torch.cat([part.view(world, 2, 3)[rank] for part in all_x]))
        equal(maco.broadcast(x, root=world - 1), all_x[-1])
        equal(x, before)
    return world


def every_shape():
    world, rank = maco.get_world_size(), maco.get_rank()
    for shape in [(), (1,), (7,), (5, 3), (2, 1, 3, 2, 2), (0,), (3, 0, 2), (1023,)]:
        all_x = [values(r, shape, torch.float32) for r in range(world)]
        equal(maco.allreduce(all_x[rank]), total(all_x))
        equal(maco.allgather(all_x[rank]), torch.stack(all_x))
        equal(maco.broadcast(all_x[rank]), all_x[0])
    whole = [values(r, (6, 8), torch.float32) for r in range(world)]
    for view in (
        lambda x: x.t(),
        lambda x: x[:, 1:7:2],
        lambda x: x[1:, 3],
        lambda x: x.flatten()[1:30],
        lambda x: x[2:2],
        lambda x: x[0, 0].expand(4),
    ):
        equal(maco.allreduce(view(whole[rank])), total([view(x) for x in whole]))
        equal(maco.allgather(view(whole[rank])), torch.stack([view(x) for x in whole]))
    equal(maco.allreduce(whole[rank], maco.MAX), torch.stack(whole).amax(0))
    equal(maco.allreduce(whole[rank], maco.MIN), torch.stack(whole).amin(0))
    equal(maco.allreduce(whole[rank], maco.AVG), (total(whole) / world))
    equal(maco.allreduce(whole[rank], maco.PROD), torch.stack(whole).prod(0))
    equal(maco.allreduce(whole[rank], torch.distributed.ReduceOp.MAX), torch.stack(whole).amax(0))
    integers = [values(r, (4,), torch.int32) for r in range(world)]
    both = integers[0].clone()
    for one in integers[1:]:
        both |= one
    equal(maco.allreduce(integers[rank], maco.BOR), both)
    conjugate = torch.conj(values(rank, (3,), torch.complex64))
    equal(maco.allreduce(conjugate), total([torch.conj(values(r, (3,), torch.complex64)) for r in range(world)]).resolve_conj())
    nothing = torch.zeros(0, 3)
    assert maco.alltoall(nothing).shape == (0, 3) and maco.reduce_scatter(nothing).shape == (0, 3)


def messages():
    world, rank = maco.get_world_size(), maco.get_rank()
    x = values(rank, (2, 3), torch.float32)
    after, before = (rank + 1) % world, (rank - 1) % world
    if world > 1:
        for dtype in (torch.float32, torch.int64, torch.bool):
            sent = values(0, (3, 5), dtype)
            if rank == 0:
                maco.send(sent, dst=1, tag=3)
                equal(maco.recv(src=1, shape=(2,), dtype=dtype), values(1, (2,), dtype))
            elif rank == 1:
                equal(maco.recv(src=0, shape=sent.shape, dtype=dtype, tag=3), sent)
                maco.send(values(1, (2,), dtype), dst=0)
    else:
        maco.send(x, dst=0)
        x.add_(1)
        equal(maco.recv(src=0, shape=(2, 3)), values(rank, (2, 3), torch.float32))
        x.sub_(1)
    with maco.ring(direction="forward"):
        maco.send(x, dst=after)
        got = maco.recv(src=before)
    equal(got, values(before, (2, 3), torch.float32))
    with maco.ring("backward"):
        got = maco.recv(src=after, shape=x.shape, dtype=x.dtype)
        with pytest.raises(maco.Error, match="has no value before this rank has sent"):
            got.sum()
        assert got.shape == (2, 3)
        maco.send(x, dst=before)
        equal(got + 0, values(after, (2, 3), torch.float32))
    assert type(got) is torch.Tensor
    # Around once.
    own = x
    with maco.ring():
        for _ in range(world):
            changed = own.clone()
            maco.send(changed, dst=after)
            changed.zero_()
            own = maco.recv(src=before)
    equal(own, x)
    # The ends of a chain only send or receive.
    if world > 1:
        with maco.ring():
            if rank < world - 1:
                maco.send(x, dst=after)
            if rank > 0:
                got = maco.recv(src=before, shape=x.shape)
        if rank > 0:
            equal(got, values(before, (2, 3), torch.float32))
    if world > 2:
        with maco.ring(), pytest.raises(maco.Error, match=f"sends to rank {after}, not {before}"):
            maco.send(x, dst=before)
    with pytest.raises(maco.Error, match="did you mean 'forward'"), maco.ring("foward"):
        pass


def gradients():
    world, rank = maco.get_world_size(), maco.get_rank()
    weights = torch.arange(1.0, 2 * world + 1)

    def grad_of(function):
        x = (torch.arange(2.0 * world) + rank).requires_grad_()
        y = function(x)
        (y.reshape(-1)[: 2 * world] * weights[: y.numel()]).sum().backward()
        return x.grad

    equal(grad_of(maco.allreduce), weights)
    equal(grad_of(lambda x: maco.allreduce(x, maco.AVG)), weights / world)
    highest = weights if rank == world - 1 else torch.zeros_like(weights)
    equal(grad_of(lambda x: maco.allreduce(x, maco.MAX)), highest)
    # All ranks have the same weights for their results: the gradient is the sum of those of all losses.
    equal(grad_of(lambda x: maco.broadcast(x, root=0)), weights * world if rank == 0 else torch.zeros_like(weights))
    equal(grad_of(maco.reduce_scatter), weights[:2].repeat(world))
    equal(grad_of(maco.alltoall), weights.view(world, 2)[rank].repeat(world))
    gathered = torch.zeros(world, 2 * world)
    gathered[0] = weights * world
    equal(grad_of(maco.allgather), gathered[rank])
    x = torch.ones(3, requires_grad=True)
    work = maco.allreduce(x, async_op=True)
    (work.wait() * 2).sum().backward()
    equal(x.grad, torch.full((3,), 2.0))
    with torch.no_grad():
        assert not maco.allreduce(x).requires_grad
        assert not maco.allreduce(x, async_op=True).wait().requires_grad


def later():
    world, rank = maco.get_world_size(), maco.get_rank()
    x = torch.full((5,), float(rank))
    works = []
    for _ in range(10):
        works.append(maco.allreduce(x, async_op=True, priority="high", overlap_group="attn", use_ring=False))
        x += 1
    last = maco.allreduce(x)
    base = sum(range(world))
    for i, work in enumerate(works):
        equal(work.wait(), torch.full((5,), float(base + i * world)))
        assert work.is_completed() and work.result() is work.wait()
    equal(last, torch.full((5,), float(base + 10 * world)))
    equal(maco.allreduce(works[0]), torch.full((5,), float(base * world)))
    for ring in (True, False):
        equal(maco.allreduce(x, use_ring=ring, overlap_with_next=True), last)
        equal(maco.allgather(x, use_ring=ring), torch.stack([torch.full((5,), 10.0 + r) for r in range(world)]))


def many_sizes():
    world = maco.get_world_size()
    for n in [*range(1, 20), 255, 256, 257, 1025, 3000, 65536 // 4 + 1]:
        equal(maco.allreduce(torch.ones(n)), torch.full((n,), float(world)))
        equal(maco.reduce_scatter(torch.ones(world * n)), torch.full((n,), float(world)))


@pytest.mark.parametrize("world", [1, 3])
def test_every_collective_takes_every_dtype(world):
    assert ranks.run(world, every_collective) == [world] * world


@pytest.mark.parametrize("world", [1, 3])
def test_shapes_views_and_reductions(world):
    ranks.run(world, every_shape)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_messages_and_rings(world):
    ranks.run(world, messages)


@pytest.mark.parametrize("world", [1, 2])
def test_gradients(world):
    ranks.run(world, gradients)


def test_async_collectives_keep_their_order():
    ranks.run(2, later)


def test_one_program_serves_many_sizes():
    ranks.run(2, many_sizes)


# ---- groups


def groups_of_torch(port):
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = maco.get_rank()
    assert (rank, maco.get_world_size()) == (dist.get_rank(), 3)
    low, high = dist.new_group([0, 1]), dist.new_group([1, 2])
    x = torch.tensor([float(rank)])
    if rank < 2:
        equal(maco.allreduce(x, group=low), torch.tensor([1.0]))
    if rank > 0:
        equal(maco.allreduce(x, group=high), torch.tensor([3.0]))
    else:
        with pytest.raises(maco.Error, match="isn't a rank of the group"):
            maco.allreduce(x, group=high)
    if rank != 1:
        equal(maco.allgather(x, group=[2, 0]), torch.tensor([[2.0], [0.0]]))
    else:
        with pytest.raises(maco.Error, match=r"isn't in the group \[0, 2\]"):
            maco.allreduce(x, group=[0, 2])
    with pytest.raises(maco.Error, match="there is no rank 7"):
        maco.allreduce(x, group=[0, 7])
    equal(maco.allreduce(x), torch.tensor([3.0]))
    equal(maco.allreduce(torch.tensor([rank])), torch.tensor([3]))
    dist.destroy_process_group()
    equal(maco.allreduce(x), torch.tensor([3.0]))
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo")
    equal(maco.allreduce(x), torch.tensor([3.0]))
    dist.destroy_process_group()


def torch_after_maco():
    import torch.distributed as dist

    maco.init()
    maco.init()
    rank, x = maco.get_rank(), torch.ones(2)
    equal(maco.allreduce(x), torch.full((2,), 2.0))
    with pytest.raises(maco.Error, match="before with backend='auto', and now with backend='gloo'"):
        maco.init("gloo")
    dist.init_process_group("gloo")
    y = torch.ones(2)
    dist.all_reduce(y)
    equal(maco.allreduce(y), torch.full((2,), 4.0))
    assert dist.get_rank() == maco.get_rank() == rank
    dist.destroy_process_group()
    equal(maco.allreduce(x), torch.full((2,), 2.0))
    maco.finalize()
    maco.init("gloo", timeout=60)
    equal(maco.allreduce(x), torch.full((2,), 2.0))
    maco.finalize()
    equal(maco.allreduce(x), torch.full((2,), 2.0))


def test_groups_of_torch_distributed():
    ranks.run(3, groups_of_torch, str(ranks.free_port()))


def test_torch_distributed_may_be_initialised_later():
    ranks.run(2, torch_after_maco)


VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize(
    ("rank_name", "size_name"),
    [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")],
)
def test_ranks_of_mpi_and_slurm(rank_name, size_name):
    import conftest

    job = f"job-{ranks.free_port()}"
    text = "import maco, torch; print(maco.get_rank(), maco.get_world_size(), float(maco.allreduce(torch.ones(1))))"
    processes = []
    for rank in range(2):
        env = {key: value for key, value in conftest.child_environment().items() if key not in VARIABLES}
        env |= {rank_name: str(rank), size_name: "2", "PMIX_NAMESPACE": job, "PMI_JOBID": job, "SLURM_JOB_ID": job}
        processes.append(subprocess.Popen([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, text=True))
    assert [one.communicate(timeout=120)[0].split() for one in processes] == [["0", "2", "2.0"], ["1", "2", "2.0"]]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"RANK": "0"}, "RANK is set, but not WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, but not RANK"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK is 'x', which is no number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "a"}, "MASTER_PORT is 'a'"),
    ],
)
def test_variables_that_fit_no_rank(monkeypatch, env, message):
    from maco import groups

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(groups, "_state", groups._State())
    with pytest.raises(maco.Error, match=message):
        maco.init()


def test_a_host_of_slurms_list():
    from maco.groups import _first_host

    assert [_first_host(one) for one in ("n[03-05,9],m", "alone", "a,b", "x[7]")] == ["n03", "alone", "a", "x7"]


def test_missing_ranks_are_named():
    import conftest

    env = conftest.child_environment(RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ranks.free_port()))
    text = "import maco\ntry:\n  maco.init(timeout=3)\nexcept maco.Error as e:\n  print(e)"
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=60)
    assert "rank 1 hasn't come within 3 seconds" in done.stdout, done
    env["RANK"] = "1"
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=60)
    assert "rank 1 of 2 found no store of rank 0's" in done.stdout, done


# ---- ranks that differ


def differ():
    rank = maco.get_rank()
    told = []
    for call in (
        lambda: maco.allreduce(torch.ones(2 + rank)),
        lambda: maco.allreduce(torch.ones(2 + rank)),
        lambda: maco.allreduce(torch.ones(2, 3) if rank else torch.ones(3, 2)),
        lambda: maco.allreduce(torch.ones(2, dtype=torch.float16 if rank else torch.bfloat16)),
        lambda: maco.allgather(torch.ones(2)) if rank else maco.allreduce(torch.ones(2)),
        lambda: maco.allreduce(torch.ones(2), maco.MAX if rank else maco.SUM),
        lambda: maco.broadcast(torch.ones(2), root=rank),
        lambda: maco.barrier() if rank else maco.allreduce(torch.ones(2)),
        lambda: maco.recv(0, shape=(3,)) if rank else maco.send(torch.ones(4), 1),
        lambda: maco.recv(0, shape=(4,), tag=1) if rank else maco.send(torch.ones(4), 1),
        lambda: maco.recv(0, shape=(4,), dtype=torch.int32) if rank else maco.send(torch.ones(4), 1),
    ):
        begin = time.monotonic()
        with pytest.raises(maco.MismatchError, match=r"rank 0 .*, rank 1 "):
            call()
        assert time.monotonic() - begin < 60
        equal(maco.allreduce(torch.ones(2)), torch.full((2,), 2.0))
        told.append(1)
    return len(told)


def test_ranks_that_call_different_things_are_told():
    assert ranks.run(2, differ) == [11, 11]


def one_leaves(which):
    maco.allreduce(torch.ones(2))
    if maco.get_rank() == which:
        return ""
    begin = time.monotonic()
    for _ in range(2):
        with pytest.raises(maco.Error, match=f"the process of rank {which} has ended") as error:
            maco.allreduce(torch.ones(2))
    assert time.monotonic() - begin < 30
    return str(error.value)


def one_dies():
    maco.allreduce(torch.ones(2))
    if maco.get_rank() == 1:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        time.sleep(60)
    with pytest.raises(maco.Error, match="the process of rank 1 has ended"):
        maco.allreduce(torch.ones(5000))
    os._exit(7)


@pytest.mark.parametrize("which", [0, 1])
def test_a_rank_that_has_left_is_missed(which):
    assert f"rank {which}" in ranks.run(2, one_leaves, which)[1 - which]


def test_a_rank_that_dies_is_missed():
    with pytest.raises(AssertionError, match="ended with status (-9|7)"):
        ranks.run(2, one_dies, timeout=60)


def interrupted():
    rank = maco.get_rank()
    maco.allreduce(torch.ones(2))
    if rank == 0:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            maco.allreduce(torch.ones(2))
        assert time.monotonic() - begin < 20
    else:
        time.sleep(3)
    equal(maco.allreduce(torch.full((2,), 3.0)), torch.full((2,), 6.0))
    equal(maco.allreduce(torch.ones(700)), torch.full((700,), 2.0))


def interrupted_later():
    rank, x = maco.get_rank(), torch.ones(2)
    maco.allreduce(x)
    if rank == 0:
        works = [maco.allreduce(x, async_op=True) for _ in range(3)]
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            works[1].wait()
        for work in works:
            with pytest.raises(maco.Error, match="Ctrl-C has ended the wait"):
                work.wait()
    else:
        time.sleep(3)
    equal(maco.allreduce(torch.full((2,), 3.0)), torch.full((2,), 6.0))
    equal(maco.allreduce(x, async_op=True).wait(), torch.full((2,), 2.0))


@pytest.mark.parametrize("function", [interrupted, interrupted_later])
def test_ctrl_c_ends_a_wait_and_all_goes_on(function):
    ranks.run(2, function)


# ---- wrong calls


def test_wrong_words_and_types():
    x = torch.ones(3)
    with pytest.raises(maco.Error, match="no reduction 'smu'; did you mean 'sum'"):
        maco.allreduce(x, "smu")
    with pytest.raises(maco.Error, match="no priority 'hihg'; did you mean 'high'"):
        maco.allreduce(x, priority="hihg")
    with pytest.raises(maco.Error, match="an overlap group is a name"):
        maco.allreduce(x, overlap_group="a b")
    with pytest.raises(TypeError, match="use_ring is True, False or None"):
        maco.allreduce(x, use_ring=1)
    with pytest.raises(TypeError, match="overlap_with"):
        maco.allreduce(x, overlap_with=1)
    with pytest.raises(TypeError, match="root is an integer, not float"):
        maco.broadcast(x, root=0.5)
    with pytest.raises(TypeError, match="dst is an integer, not str"):
        maco.send(x, dst="0")
    with pytest.raises(TypeError, match="tag is an integer, not str"):
        maco.send(x, dst=0, tag="a")
    with pytest.raises(TypeError, match=r"allreduce\(\) takes a torch.Tensor, not a list"):
        maco.allreduce([1.0])
    with pytest.raises(maco.Error, match="MACO has no ring for 'alltoall'"):
        maco.alltoall(x, use_ring=True)
    with pytest.raises(maco.Error, match="means of integers"):
        maco.allreduce(torch.ones(2, dtype=torch.int64), maco.AVG)
    with pytest.raises(maco.Error, match="complex numbers have no order"):
        maco.allreduce(torch.ones(2, dtype=torch.complex64), maco.MAX)
    with pytest.raises(maco.Error, match="call .to_dense"):
        maco.allreduce(torch.eye(2).to_sparse())
    with pytest.raises(maco.Error, match="there is no rank 4"):
        maco.broadcast(x, root=4)
    with pytest.raises(maco.Error, match="dst is 3, but there are 1 ranks"):
        maco.send(x, dst=3)
    with pytest.raises(maco.Error, match="needs the shape of what comes|sent itself nothing"):
        maco.recv(0)
    with pytest.raises(maco.Error, match="no axis"):
        maco.reduce_scatter(torch.tensor(1.0))
    with pytest.raises(TypeError, match="a group is"):
        maco.allreduce(x, group=3.5)


def test_a_work_is_not_pickled():
    import pickle

    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(maco.allreduce(torch.ones(1), async_op=True))


def in_a_forked_child():
    maco.allreduce(torch.ones(1))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            maco.allreduce(torch.ones(1))
            os.write(write, b"went on")
        except maco.Error as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read, 1000).decode()
    equal(maco.allreduce(torch.ones(1)), torch.full((1,), 2.0))
    return said


def test_a_forked_child_is_told():
    assert all("fork" in said for said in ranks.run(2, in_a_forked_child))


def test_operators_can_be_traced():
    from torch.fx.experimental.proxy_tensor import make_fx

    import maco.torch_ops

    traced = make_fx(lambda x: torch.ops.maco.all_gather(x, "", "").sum(0), tracing_mode="fake")(torch.ones(2, 3))
    assert "maco.all_gather" in traced.code
    compiled = torch.compile(lambda x: maco.allreduce(x * 2, priority="high") + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
    torch.library.opcheck(torch.ops.maco.all_reduce.default, (torch.ones(3, requires_grad=True), "sum", "", ""))
    torch.library.opcheck(torch.ops.maco.all_gather.default, (torch.ones(3, requires_grad=True), "", ""))


def test_what_a_ring_gives_is_what_was_asked_for():
    x = torch.ones(4)
    with maco.ring():
        maco.send(x, dst=0)
        with pytest.raises(maco.Error, match="not torch.float16"):
            maco.recv(src=0, dtype=torch.float16)
    with maco.ring():
        maco.send(x, dst=0)
        with pytest.raises(maco.Error, match="on cpu, not on meta"):
            maco.recv(src=0, device="meta")
