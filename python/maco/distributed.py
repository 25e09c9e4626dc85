"""MACO below torch.distributed: the c10d backend "maco", and a patch of torch.distributed's functions.

`dist.init_process_group("cpu:maco,cuda:maco")`, or "maco", makes a process group whose all-reduces, all-gathers, reduce-scatters,
exchanges without sizes of parts, broadcasts and barriers are kernels of MACO's, as far as MACO has the dtype and the reduction. All else is
done by gloo on the CPU and by NCCL on GPUs, over the same store; messages too: who receives from any rank has to see all of them.

`patch_torch_distributed()` redirects the functions of a process group of another backend.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from . import collectives, eager, groups
from .errors import Error, Unavailable
from .groups import Group
from .program import stream_getter

__all__ = ["ProcessGroupMaco", "patch_torch_distributed"]

_c10d = dist.distributed_c10d
_raw = torch._C._distributed_c10d
_TIMEOUT = timedelta(minutes=10)


# ---- what both have in common: torch's calls, with results put where the caller says


def reduction(op: Any) -> str | None:
    """The name of a ReduceOp; None of those that MACO has no name for."""
    for name, theirs in (("sum", "SUM"), ("mean", "AVG"), ("max", "MAX"), ("min", "MIN")):
        if op == getattr(dist.ReduceOp, theirs):
            return name
    for name, theirs in (("prod", "PRODUCT"), ("band", "BAND"), ("bor", "BOR"), ("bxor", "BXOR")):
        if op == getattr(dist.ReduceOp, theirs):
            return name
    return None


current_stream = stream_getter()
_REPEATED = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "mean", dist.ReduceOp.MAX: "max", dist.ReduceOp.MIN: "min"}


def _plain(*tensors: Any) -> bool:
    """Whether these are tensors that MACO's kernels can read and write."""
    return (
        all(
            isinstance(one, torch.Tensor) and one.layout is torch.strided and one.device.type in ("cpu", "cuda") and not one.is_quantized
            for one in tensors
        )
        and len({one.device for one in tensors} | {tensors[0].device}) == 1
    )


def _reducible(x: torch.Tensor, op: Any) -> str | None:
    """How MACO reduces it; None: it can't."""
    name = reduction(op)
    # What torch says about sums of truth values is for torch to say.
    if name is None or x.dtype is torch.bool or not eager.takes(x.dtype, name):
        return None
    return name


def _put(out: torch.Tensor, result: torch.Tensor) -> None:
    with torch.no_grad():
        out.detach().copy_(result.view(out.shape))


def _all_reduce(x: torch.Tensor, reduce: str, group: Group) -> None:
    if not (x.is_cuda and eager.all_reduce_in_place(x, reduce, group)):
        _put(x, eager.all_reduce(x, reduce, group))


def _all_gather(out: torch.Tensor, x: torch.Tensor, group: Group) -> None:
    _put(out, eager.all_gather(x, group))


def _all_gather_list(outs: list[torch.Tensor], x: torch.Tensor, group: Group) -> None:
    for out, part in zip(outs, eager.all_gather(x, group), strict=True):
        _put(out, part)


def _reduce_scatter(out: torch.Tensor, x: torch.Tensor, reduce: str, group: Group) -> None:
    _put(out, eager.reduce_scatter(x.contiguous().view(group.size, -1), reduce, group))


def _reduce_scatter_list(out: torch.Tensor, xs: list[torch.Tensor], reduce: str, group: Group) -> None:
    _put(out, eager.reduce_scatter(torch.stack([x.detach() for x in xs]), reduce, group))


def _all_to_all(out: torch.Tensor, x: torch.Tensor, group: Group) -> None:
    _put(out, eager.all_to_all(x.contiguous().view(group.size, -1), group))


def _broadcast(x: torch.Tensor, root: int, group: Group) -> None:
    result = eager.broadcast(x, root, group)
    if group.rank != root:
        _put(x, result)


def _barrier(group: Group, device: torch.device | None) -> None:
    eager.barrier(group, device)


def _alike(parts: list[Any], x: torch.Tensor, count: int) -> bool:
    return len(parts) == count and _plain(x, *parts) and all(one.shape == x.shape and one.dtype == x.dtype for one in parts)


class _Work(dist.Work):
    """A collective of MACO's for torch.distributed, ended or in the hands of another thread."""

    def __init__(self, tensors: list[torch.Tensor], own: collectives.Work | None) -> None:
        super().__init__()
        self._tensors = tensors
        self._own = own
        # The handle of the stream on a GPU that it is on. A future takes longer to make than a small collective runs.
        self._stream = current_stream(tensors[0].device.index) if tensors and tensors[0].is_cuda else None
        self._future: Any = None if own is None else torch.futures.Future()

    def wait(self, timeout: Any = None) -> bool:
        """Waits for it; on a GPU the current stream does. Raises what MACO raised."""
        if self._own is not None:
            self._own.wait()
            self._future.wait()
        elif self._stream is not None:
            device = self._tensors[0].device
            if current_stream(device.index) != self._stream:
                torch.cuda.current_stream(device).wait_stream(self._stream_object())
        return True

    def _stream_object(self) -> torch.cuda.Stream:
        assert self._stream is not None
        return torch.cuda.ExternalStream(self._stream, device=self._tensors[0].device)

    def is_completed(self) -> bool:
        """Whether it has ended."""
        if self._own is not None:
            return bool(self._future.done()) and self._own.is_completed()
        return self._stream is None or bool(self._stream_object().query())

    def is_success(self) -> bool:
        """Whether it has ended without an error."""
        return self.is_completed() and (self._own is None or self._own._error is None)

    def exception(self) -> BaseException | None:
        """What MACO raised, if it has."""
        return None if self._own is None else self._own._error

    def result(self) -> list[torch.Tensor]:
        """The tensors that were written."""
        return self._tensors

    def get_future(self) -> Any:
        """torch's future of the tensors that are written."""
        if self._future is None:
            if self._stream is None:
                self._future = torch.futures.Future()
                self._future.set_result(self._tensors)
            else:
                with torch.cuda.stream(self._stream_object()):
                    self._future = torch.futures.Future(devices=[self._tensors[0].device])
                    self._future.set_result(self._tensors)
        return self._future

    def synchronize(self) -> None:
        """The same as `wait()`."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same as `wait()`."""
        self.wait()


def _work(tensors: list[torch.Tensor], run: Callable[[], None], later: bool) -> _Work:
    """A Work of torch's for what `run` writes into `tensors`; `later`: in another thread, if that is of use."""
    if not later or any(one.is_cuda for one in tensors):
        collectives._queue.drain()
        run()
        return _Work(tensors, None)
    made: list[_Work] = []
    ready = threading.Event()

    def work() -> Any:
        ready.wait()
        try:
            run()
        except BaseException as error:
            made[0]._future.set_exception(error)
            raise
        made[0]._future.set_result(tensors)
        return tensors

    made.append(_Work(tensors, collectives._queue.put(work)))
    ready.set()
    return made[0]


# ---- the backend


class ProcessGroupMaco(dist.ProcessGroup):
    """A process group of torch.distributed's whose collectives are MACO's; what MACO doesn't have, gloo and NCCL do."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta = _TIMEOUT) -> None:
        if torch.__version__.startswith("2.6."):
            # It keeps C++'s part of a Work alone, and waits for ever when Python's is gone.
            raise Unavailable("process groups of MACO need PyTorch 2.7 or later: update it, or take maco.patch_torch_distributed()")
        super().__init__(rank, size)
        # None: torch's default, half an hour. MACO's own are shorter.
        self.maco_timeout = None if timeout == default_pg_timeout else timeout.total_seconds()
        self._theirs = dist.ProcessGroup(store, rank, size)
        self._under_way: list[Any] = []
        backend = dist.ProcessGroup.BackendType
        if dist.is_gloo_available():
            gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo/", store), rank, size, timeout=timeout)
            for one in (self, self._theirs):
                one._register_backend(torch.device("cpu"), backend.GLOO, gloo)
                one._set_default_backend(backend.GLOO)
        if torch.cuda.is_available() and dist.is_nccl_available():
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl/", store), rank, size, options)
            for one in (self, self._theirs):
                one._register_backend(torch.device("cuda"), backend.NCCL, nccl)

    def getBackendName(self) -> str:
        """The backend's name in torch."""
        return "maco"

    def _group(self) -> Group:
        return groups.of(self)

    def _other(self, name: str, *arguments: Any) -> Any:
        """Runs a collective by gloo or NCCL."""
        collectives._queue.drain()
        work = getattr(self._theirs, name)(*arguments)
        if torch.cuda.is_initialized():
            self._under_way = [one for one in self._under_way if not one.is_completed()] + [work]
        return work

    def _own(self, tensors: list[Any], opts: Any, run: Callable[[Group], None]) -> Any:
        """Runs a collective by MACO. Kernels that wait for other ranks mustn't wait for each other's SMs."""
        group = self._group()
        if self._under_way and any(one.is_cuda for one in tensors):
            for work in self._under_way:
                work.wait()
            self._under_way.clear()
        return _work(tensors, lambda: run(group), bool(getattr(opts, "asyncOp", True)))

    # Names and arguments are torch's. Overloads of theirs that take a tensor in place of a list are served, too.

    def allreduce(self, tensors: Any, opts: Any = None, *rest: Any, **named: Any) -> Any:
        ones = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        opts = _options(_raw.AllreduceOptions, opts, "reduceOp", named.get("op"))
        if len(ones) == 1 and ones[0].is_cuda and not self._under_way and (again := self._again(ones, opts)) is not None:
            return again
        reduce = _reducible(ones[0], opts.reduceOp) if len(ones) == 1 and _plain(*ones) else None
        if reduce is None:
            return self._other("allreduce", ones, opts)
        return self._own(ones, opts, lambda group: _all_reduce(ones[0], reduce, group))

    def _again(self, ones: list[Any], opts: Any) -> Any:
        """An all-reduce of a tensor on a GPU such as there were often; None: it isn't one."""
        reduce = _REPEATED.get(opts.reduceOp.op)
        if reduce is None or not eager.reduce_again(ones[0], reduce, self._group()):
            return None
        return _Work(ones, None)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts if opts is not None else _raw.AllreduceCoalescedOptions()
        reduces = [_reducible(one, opts.reduceOp) if _plain(one) else None for one in tensors]
        if None in reduces:
            return self._other("allreduce_coalesced", tensors, opts)

        def run(group: Group) -> None:
            for one, reduce in zip(tensors, reduces, strict=True):
                assert reduce is not None
                _all_reduce(one, reduce, group)

        return self._own(tensors, opts, run)

    def broadcast(self, tensors: Any, opts: Any = None, *rest: Any, **named: Any) -> Any:
        ones = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        opts = _options(_raw.BroadcastOptions, opts, "rootRank", named.get("root"))
        if len(ones) != 1 or not _plain(*ones):
            return self._other("broadcast", ones, opts)
        return self._own(ones, opts, lambda group: _broadcast(ones[0], opts.rootRank, group))

    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        opts = opts if opts is not None else _raw.AllgatherOptions()
        if not _plain(output, input) or output.dtype != input.dtype or output.numel() != input.numel() * self.size():
            return self._other("_allgather_base", output, input, opts)
        return self._own([output], opts, lambda group: _all_gather(output, input, group))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, *rest: Any, **named: Any) -> Any:
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = opts if isinstance(opts, _raw.AllgatherOptions) else _raw.AllgatherOptions()
        if len(inputs) != 1 or not _alike(outputs[0], inputs[0], self.size()):
            return self._other("allgather", outputs, inputs, opts)
        return self._own(outputs[0], opts, lambda group: _all_gather_list(outputs[0], inputs[0], group))

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = opts if opts is not None else _raw.AllgatherOptions()
        size = self.size()
        if not all(_plain(o, i) and o.dtype == i.dtype and o.numel() == i.numel() * size for o, i in zip(outputs, inputs, strict=True)):
            return self._other("allgather_into_tensor_coalesced", outputs, inputs, opts)

        def run(group: Group) -> None:
            for out, one in zip(outputs, inputs, strict=True):
                _all_gather(out, one, group)

        return self._own(outputs, opts, run)

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        opts = opts if opts is not None else _raw.ReduceScatterOptions()
        fits = _plain(output, input) and output.dtype == input.dtype and input.numel() == output.numel() * self.size()
        reduce = _reducible(input, opts.reduceOp) if fits else None
        if reduce is None:
            if fits and output.is_contiguous() and input.is_contiguous():
                output, input = output.detach().view(-1), input.detach().view(-1)  # gloo takes no parts that are stacked
            return self._other("_reduce_scatter_base", output, input, opts)
        return self._own([output], opts, lambda group: _reduce_scatter(output, input, reduce, group))

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *rest: Any, **named: Any) -> Any:
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = _options(_raw.ReduceScatterOptions, opts, "reduceOp", named.get("op"))
        fits = len(outputs) == 1 and _alike(inputs[0], outputs[0], self.size())
        reduce = _reducible(outputs[0], opts.reduceOp) if fits else None
        if reduce is None:
            return self._other("reduce_scatter", outputs, inputs, opts)
        return self._own(outputs, opts, lambda group: _reduce_scatter_list(outputs[0], inputs[0], reduce, group))

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = opts if opts is not None else _raw.ReduceScatterOptions()
        size, pairs = self.size(), list(zip(outputs, inputs, strict=True))
        fits = all(_plain(o, i) and o.dtype == i.dtype and i.numel() == o.numel() * size for o, i in pairs)
        reduces = [_reducible(i, opts.reduceOp) for _, i in pairs] if fits else [None]
        if None in reduces:
            return self._other("reduce_scatter_tensor_coalesced", outputs, inputs, opts)

        def run(group: Group) -> None:
            for (out, one), reduce in zip(pairs, reduces, strict=True):
                assert reduce is not None
                _reduce_scatter(out, one, reduce, group)

        return self._own(outputs, opts, run)

    def alltoall_base(self, output: Any, input: Any, output_splits: Any, input_splits: Any, opts: Any = None, **named: Any) -> Any:
        opts = opts if isinstance(opts, _raw.AllToAllOptions) else _raw.AllToAllOptions()
        if not _equal_parts(output, input, output_splits, input_splits, self.size()):
            outs, ins = _parts(output, output_splits, self.size()), _parts(input, input_splits, self.size())
            if outs and ins and _plain(output, input) and not input.is_cuda and output.dtype == input.dtype:
                return self._own([output], opts, lambda group: self._exchange(outs, ins))
            return self._other("alltoall_base", output, input, output_splits, input_splits, opts)
        return self._own([output], opts, lambda group: _all_to_all(output, input, group))

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None, **named: Any) -> Any:
        opts = opts if isinstance(opts, _raw.AllToAllOptions) else _raw.AllToAllOptions()
        both = [*outputs, *inputs]
        if len(both) == 2 * self.size() and _plain(*both) and not inputs[0].is_cuda and len({one.dtype for one in both}) == 1:
            return self._own(outputs, opts, lambda group: self._exchange(outputs, inputs))
        return self._other("alltoall", outputs, inputs, opts)

    def _exchange(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
        """Exchanges tensors of any sizes on the CPU by gloo. Gloo exchanges parts of one tensor and moves few dtypes, so it gets bytes."""
        size = inputs[0].element_size()
        sizes, given = [one.numel() * size for one in outputs], [one.numel() * size for one in inputs]
        out = torch.empty(sum(sizes), dtype=torch.uint8)
        flat = torch.cat([one.detach().reshape(-1) for one in inputs]).resolve_conj().resolve_neg().view(torch.uint8)
        self._theirs.alltoall_base(out, flat, sizes, given, _raw.AllToAllOptions()).wait()
        for one, part in zip(outputs, out.split(sizes), strict=True):
            _put(one, part.clone().view(inputs[0].dtype))

    def barrier(self, opts: Any = None, **named: Any) -> Any:
        opts = opts if isinstance(opts, _raw.BarrierOptions) else _raw.BarrierOptions()
        device = opts.device if opts.device is not None and opts.device.type == "cuda" else None
        if device is None and opts.device_ids and torch.cuda.is_available():
            device = torch.device("cuda", opts.device_ids[0])
        return self._own([], opts, lambda group: _barrier(group, device))

    # Calls that MACO doesn't have.

    def reduce(self, *arguments: Any) -> Any:
        return self._other("reduce", *arguments)

    def gather(self, *arguments: Any) -> Any:
        return self._other("gather", *arguments)

    def scatter(self, *arguments: Any) -> Any:
        return self._other("scatter", *arguments)

    def allgather_coalesced(self, *arguments: Any) -> Any:
        return self._other("allgather_coalesced", *arguments)

    def gather_single(self, *arguments: Any) -> Any:
        return self._other("gather_single", *arguments)

    # The names of later versions of PyTorch.

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base
    gather_into_tensor = gather_single

    def send(self, *arguments: Any) -> Any:
        return self._theirs.send(*arguments)

    def recv(self, *arguments: Any) -> Any:
        return self._theirs.recv(*arguments)

    def recv_anysource(self, *arguments: Any) -> Any:
        return self._theirs.recv_anysource(*arguments)

    def shutdown(self) -> None:
        """Waits for what is under way, and ends gloo and NCCL."""
        collectives._queue.drain()
        self._theirs.shutdown()

    def abort(self) -> None:
        """Ends gloo and NCCL."""
        self._theirs.abort()


def _options(kind: Any, given: Any, attribute: str, value: Any) -> Any:
    """Options of torch's; `given` may be the value of one of them."""
    if isinstance(given, kind):
        return given
    made = kind()
    value = given if given is not None else value
    if value is not None:
        setattr(made, attribute, value)
    return made


def _parts(x: torch.Tensor, splits: Any, size: int) -> list[torch.Tensor]:
    """Axis 0 in parts of these sizes, without any in equal ones; none if that can't be."""
    rows = x.shape[0] if x.dim() else -1
    sizes = list(splits) if splits else [rows // size] * size
    if rows < 0 or len(sizes) != size or sum(sizes) != rows or min(sizes) < 0:
        return []
    return list(x.detach().split(sizes))


def _equal_parts(output: Any, input: Any, output_splits: Any, input_splits: Any, size: int) -> bool:
    if not _plain(output, input) or output.dtype != input.dtype or output.numel() != input.numel():
        return False
    # Parts that are equal on this rank needn't be so on another, and all have to go the same way.
    if output_splits or input_splits:
        return False
    return bool(input.dim() and output.dim()) and not input.shape[0] % size and not output.shape[0] % size


# ---- the patch


class Patch:
    """What `patch_torch_distributed` gives: called, or left as a context, it puts torch's functions back. Doing so twice is allowed."""

    def __init__(self, min_bytes: int, max_bytes: int | None) -> None:
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes

    def takes(self, x: torch.Tensor, parts: int = 1) -> bool:
        """Whether `parts` tensors like x together have a size that goes to MACO."""
        size = parts * x.numel() * x.element_size()
        return size >= self.min_bytes and (self.max_bytes is None or size <= self.max_bytes)

    def __call__(self) -> None:
        _undo(self)

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self()


_lock = threading.Lock()
_patches: list[Patch] = []
_originals: dict[str, Callable[..., Any]] = {}


def _group_for(group: Any, *tensors: Any, parts: int = 1) -> Group | None:
    """The Group of a call that MACO takes: of all ranks, on plain tensors of the size that the last patch names."""
    if not _patches or not dist.is_initialized():
        return None
    if group is not None and group is not dist.group.WORLD:
        return None
    if not _plain(*tensors) or any(type(one) not in (torch.Tensor, torch.nn.Parameter) for one in tensors):
        return None
    if not _patches[-1].takes(tensors[0], parts):
        return None
    return groups.default()


def _done(tensors: list[Any], run: Callable[[], None], async_op: bool) -> Any:
    work = _work(tensors, run, async_op)
    if async_op:
        return work
    work.wait()
    return None


def _all_reduce_call(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    own = _group_for(group, tensor)
    reduce = _reducible(tensor, op) if own is not None else None
    if own is None or reduce is None:
        return _originals["all_reduce"](tensor, op, group, async_op)
    return _done([tensor], lambda: _all_reduce(tensor, reduce, own), async_op)


def _all_gather_into_tensor_call(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    own = _group_for(group, input_tensor, output_tensor)
    if own is None or output_tensor.dtype != input_tensor.dtype or output_tensor.numel() != input_tensor.numel() * own.size:
        return _originals["all_gather_into_tensor"](output_tensor, input_tensor, group, async_op)
    return _done([output_tensor], lambda: _all_gather(output_tensor, input_tensor, own), async_op)


def _all_gather_call(tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    own = _group_for(group, tensor)
    if own is None or not _alike(list(tensor_list), tensor, own.size):
        return _originals["all_gather"](tensor_list, tensor, group, async_op)
    return _done(list(tensor_list), lambda: _all_gather_list(list(tensor_list), tensor, own), async_op)


def _reduce_scatter_tensor_call(output: Any, input: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    own = _group_for(group, input, output)
    fits = own is not None and output.dtype == input.dtype and input.numel() == output.numel() * own.size
    reduce = _reducible(input, op) if fits else None
    if own is None or reduce is None:
        return _originals["reduce_scatter_tensor"](output, input, op, group, async_op)
    return _done([output], lambda: _reduce_scatter(output, input, reduce, own), async_op)


def _reduce_scatter_call(output: Any, input_list: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    own = _group_for(group, output, parts=len(input_list))
    fits = own is not None and _alike(list(input_list), output, own.size)
    reduce = _reducible(output, op) if fits else None
    if own is None or reduce is None:
        return _originals["reduce_scatter"](output, input_list, op, group, async_op)
    return _done([output], lambda: _reduce_scatter_list(output, list(input_list), reduce, own), async_op)


def _all_to_all_single_call(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    own = _group_for(group, input, output)
    if own is None or not _equal_parts(output, input, output_split_sizes, input_split_sizes, own.size):
        return _originals["all_to_all_single"](output, input, output_split_sizes, input_split_sizes, group, async_op)
    return _done([output], lambda: _all_to_all(output, input, own), async_op)


def _broadcast_call(tensor: Any, src: Any = None, group: Any = None, async_op: bool = False, group_src: Any = None) -> Any:
    own = _group_for(group, tensor)
    root = src if src is not None else group_src
    if own is None or root is None or (src is not None and group_src is not None) or not 0 <= root < own.size:
        return _originals["broadcast"](tensor, src, group, async_op, group_src)
    return _done([tensor], lambda: _broadcast(tensor, root, own), async_op)


# By function name, as any version of PyTorch calls it.
_CALLS: dict[str, Callable[..., Any]] = {
    "all_reduce": _all_reduce_call,
    "all_gather_into_tensor": _all_gather_into_tensor_call,
    "all_gather_single": _all_gather_into_tensor_call,
    "all_gather": _all_gather_call,
    "reduce_scatter_tensor": _reduce_scatter_tensor_call,
    "reduce_scatter_single": _reduce_scatter_tensor_call,
    "reduce_scatter": _reduce_scatter_call,
    "all_to_all_single": _all_to_all_single_call,
    "broadcast": _broadcast_call,
}


def _wrapped(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    own = _CALLS[name]

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        # Dynamo knows torch's function, and makes a graph's collective of it.
        if torch.compiler.is_compiling():
            return original(*arguments, **named)
        try:
            return own(*arguments, **named)
        except TypeError:
            _signature(original, arguments, named)
            raise

    return call


def _signature(original: Callable[..., Any], arguments: Any, named: Any) -> None:
    """Raises torch's TypeError if the arguments don't fit torch's function."""
    import inspect

    inspect.signature(inspect.unwrap(original)).bind(*arguments, **named)


def patch_torch_distributed(min_bytes: int = 0, max_bytes: int | None = None) -> Patch:
    """Has torch.distributed's collectives run in MACO's kernels; gives what undoes that when it is called or left as a context.

    Redirected are `all_reduce`, `all_gather`, `all_gather_into_tensor`, `reduce_scatter`, `reduce_scatter_tensor` (`all_gather_single` and
    `reduce_scatter_single` in later versions of PyTorch), `all_to_all_single` and `broadcast` of the default group, for tensors from
    `min_bytes` to `max_bytes` bytes (of what one rank gives; None: no limit). Calls on sub-groups, with dtypes or reductions that MACO
    doesn't have, and of other functions go on as before. All ranks patch alike. Names that were imported from torch.distributed before
    stay as they are. Of several patches the last one's limits hold, and torch's functions are back when all are undone.
    """
    if not dist.is_available():
        raise Unavailable("this PyTorch has no torch.distributed")
    for key, value in (("min_bytes", min_bytes), ("max_bytes", max_bytes)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{key} is a number of bytes, not a {type(value).__name__}")
    if min_bytes < 0 or (max_bytes is not None and max_bytes < min_bytes):
        raise Error(f"bytes from {min_bytes} to {max_bytes} are none")
    import torch.distributed._functional_collectives  # noqa: F401 - it keeps torch's functions by what they are, not by name

    patch = Patch(min_bytes, max_bytes)
    with _lock:
        if not _patches:
            for name in (one for one in _CALLS if hasattr(dist, one)):
                _originals[name] = getattr(dist, name)
                call = _wrapped(name, _originals[name])
                setattr(dist, name, call)
                setattr(_c10d, name, call)
        _patches.append(patch)
    return patch


def _undo(patch: Patch) -> None:
    with _lock:
        if patch not in _patches:
            return
        _patches.remove(patch)
        if not _patches:
            for name, original in _originals.items():
                setattr(dist, name, original)
                setattr(_c10d, name, original)
