"""Collectives and messages on torch tensors.

Each gives a new tensor and leaves its operand as it is; all ranks of the group call them in one order, with equal shapes, dtypes and
words. Tensors on GPUs are reduced on their GPU, on torch's current stream, others on the CPU. `group` is None for all ranks, a
`maco.Group`, a ProcessGroup of torch.distributed, or a list of ranks; ranks are counted within it.

Keywords that collectives have in common:

- `async_op`: gives a `Work` at once, whose `wait()` gives the tensor. On the CPU another thread runs it, in the order of the calls, and
  the operand may be changed meanwhile.
- `priority` ("high", "normal", "low"), `overlap_group` (a name) and `overlap_with_next` (True: ops behind may run beside it, tile by tile;
  False: they wait for it; None: as the context says) order it among the ops of the kernel that it becomes part of, where a context or a
  compiled function makes one. By itself it is a kernel of one op, which they leave as it is.
- `use_ring`: True: by a ring, False: by one or two hops, None: as the compiler chooses.
"""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, overload

from . import groups, meeting
from .errors import Error, Unavailable
from .groups import GroupLike
from .words import suggestion

try:
    import torch

    from . import eager, torch_ops  # noqa: F401 - defines the operators
except ImportError:
    torch = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "AVG",
    "BAND",
    "BOR",
    "BXOR",
    "MAX",
    "MIN",
    "PROD",
    "SUM",
    "Work",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "recv",
    "reduce_scatter",
    "ring",
    "send",
]

SUM, AVG, MAX, MIN, PROD, BAND, BOR, BXOR = "sum", "mean", "max", "min", "prod", "band", "bor", "bxor"
"""Reductions. MACO's kernels have the first four; the others are torch.distributed's."""

PRIORITIES = ("high", "normal", "low")
Priority = Literal["high", "normal", "low"]


class Work:
    """A collective that was begun. `wait()` gives its result."""

    def __init__(self, run: Callable[[], Tensor] | None = None, result: Tensor | None = None) -> None:
        self._run = run
        self._result = result
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._event: Any = None
        if run is None:
            self._ended.set()
            if result is not None and result.is_cuda:
                self._event = torch.cuda.Event()
                self._event.record(torch.cuda.current_stream(result.device))

    def wait(self) -> Tensor:
        """Its result. For a tensor on a GPU the current stream waits, not the host. Raises what the collective raises."""
        _queue.wait(self)
        if self._error is not None:
            raise self._error
        if self._event is not None:
            torch.cuda.current_stream(self._result.device).wait_event(self._event)  # type: ignore[union-attr]
        return self._result  # type: ignore[return-value]

    def result(self) -> Tensor:
        """The same as `wait()`."""
        return self.wait()

    def is_completed(self) -> bool:
        """Whether it has ended, with a result or an error."""
        return self._ended.is_set() and (self._event is None or bool(self._event.query()))

    def _do(self) -> None:
        try:
            assert self._run is not None
            self._result = self._run()
        except BaseException as error:  # noqa: BLE001 - for the one who waits
            self._error = error
        self._run = None
        self._ended.set()

    def _fail(self, error: BaseException) -> None:
        self._run, self._error = None, error
        self._ended.set()

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.Work: pickle its result")

    def __repr__(self) -> str:
        return f"<maco.Work, {'ended' if self.is_completed() else 'under way'}>"


class _Ended(Work):
    """A Work that has its result from the start. Dynamo traces this one."""

    def __init__(self, result: Tensor) -> None:
        self._result = result

    def wait(self) -> Tensor:
        """Its result."""
        return self._result  # type: ignore[return-value]

    def result(self) -> Tensor:
        """Its result."""
        return self._result  # type: ignore[return-value]

    def is_completed(self) -> bool:
        """True."""
        return True


class _Queue:
    """Runs what is put into it in another thread, one after the other. What runs in the caller's waits for all before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.jobs: deque[Work] = deque()
        self.there = threading.Semaphore(0)
        self.thread: threading.Thread | None = None
        self.last: Work | None = None
        self.running: Work | None = None

    def put(self, run: Callable[[], Tensor]) -> Work:
        work = Work(run)
        with self.lock:
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self.work, name="maco-collectives", daemon=True)
                self.thread.start()
            self.jobs.append(work)
            self.last = work
            self.there.release()
        return work

    def work(self) -> None:
        while True:
            self.there.acquire()
            with self.lock:
                if not self.jobs:
                    continue  # they were cancelled
                work = self.running = self.jobs.popleft()
            work._do()
            self.running = None

    def drain(self) -> None:
        """Waits for the calls in the queue, whether they fail or not."""
        last = self.last
        if last is not None and threading.current_thread() is not self.thread:
            self.wait(last)

    def wait(self, work: Work) -> None:
        """Waits until `work` has ended. Ctrl-C ends the wait, and cancels all calls in the queue."""
        try:
            while not work._ended.wait(0.2):  # so that Ctrl-C comes through
                pass
        except KeyboardInterrupt:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Ends what waits for other ranks, and what stands behind it, with an error."""
        with self.lock:
            while self.jobs:
                self.jobs.popleft()._fail(Error("Ctrl-C has ended the wait for a collective before this one"))
        meeting.cancelled.set()
        try:
            running = self.running
            if running is not None:
                running._ended.wait(10)
        finally:
            meeting.cancelled.clear()


_queue = _Queue()
groups.on_finalize(_queue.drain)
groups.on_settle(_queue.drain)


# ---- words


def _reduction(op: Any) -> str:
    """The name of a reduction, given by it or by torch.distributed's ReduceOp."""
    if isinstance(op, str):
        return op if op in ("sum", "mean", "max", "min") else eager.check_reduce(op)
    name = str(op).rsplit(".", 1)[-1].lower()
    if "ReduceOp" not in str(type(op)) and "RedOpType" not in str(type(op)):
        raise TypeError(f"a reduction is maco.SUM and the like, not a {type(op).__name__}")
    return eager.check_reduce(name)


def _attributes(kind: str, priority: str, overlap_group: str | None, use_ring: bool | None, overlap_with_next: bool | None) -> str:
    """JSON of the op's attributes; "" if there are none. Written by hand, since Dynamo traces this."""
    if priority == "normal" and overlap_group is None and use_ring is None and overlap_with_next is None:
        return ""
    told = []
    if priority not in PRIORITIES:
        if not isinstance(priority, str):
            raise TypeError(f"a priority is a word, not a {type(priority).__name__}")
        raise Error(f"there is no priority '{priority}'; {suggestion(priority, PRIORITIES)}")
    if priority != "normal":
        told.append(f'"priority": "{priority}"')
    if overlap_group is not None:
        if not isinstance(overlap_group, str):
            raise TypeError(f"an overlap group is a name, not a {type(overlap_group).__name__}")
        if not overlap_group.isascii() or not _is_name(overlap_group):
            raise Error(f"an overlap group is a name of letters, digits, _ and dots, not '{overlap_group}'")
        told.append(f'"overlap_group": "{overlap_group}"')
    if use_ring is not None:
        if not isinstance(use_ring, bool):
            raise TypeError(f"use_ring is True, False or None, not {use_ring!r}")
        if use_ring and kind in ("alltoall", "broadcast"):
            raise Error(f"MACO has no ring for '{kind}'; leave use_ring out")
        if use_ring:
            told.append('"algorithm": "ring"')
        elif kind == "allreduce" or kind == "broadcast":
            told.append('"algorithm": "twoshot"')
        elif kind != "alltoall":
            told.append('"algorithm": "oneshot"')
    if overlap_with_next is not None:
        if not isinstance(overlap_with_next, bool):
            raise TypeError(f"overlap_with_next is True, False or None, not {overlap_with_next!r}")
        told.append('"overlap": "aggressive"' if overlap_with_next else '"overlap": "none"')
    return "{" + ", ".join(told) + "}"


def _is_name(text: str) -> bool:
    """Whether a graph's language takes it for a name: letters, digits, _ and dots."""
    first, *others = text.split(".")
    return first.isidentifier() and all(("_" + other).isidentifier() and other != "" for other in others)


def _name(group: GroupLike) -> str:
    return "" if group is None else groups.of(group).name


def _tensor(x: Any, kind: str) -> Tensor:
    if torch is None:
        raise Unavailable(f"{kind}() works on torch tensors; install PyTorch (pip install torch)")
    if isinstance(x, torch.Tensor):
        if not torch.compiler.is_compiling():
            eager.check_tensor(x)
        return x
    if hasattr(x, "wait") and hasattr(x, "result"):
        return _tensor(x.result(), kind)
    raise TypeError(f"{kind}() takes a torch.Tensor, not a {type(x).__name__}")


# ---- how they run


def _traced(x: Tensor) -> bool:
    """Whether a mode of torch's records the calls of this thread; it wouldn't see those of another thread."""
    if type(x) not in (torch.Tensor, torch.nn.Parameter):
        return True
    from torch.overrides import _get_current_function_mode
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    return _get_current_function_mode() is not None or _get_current_dispatch_mode() is not None


def _begin(x: Tensor, async_op: bool, run: Callable[[Tensor], Tensor]) -> Any:
    """The result of `run`, or a Work that has it."""
    if torch.compiler.is_compiling():
        return _Ended(run(x)) if async_op else run(x)
    if not async_op or x.is_cuda or _traced(x):
        _queue.drain()
        result = run(x)
        return Work(result=result) if async_op else result
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    copied = x.clone() if x.numel() else x

    def work() -> Tensor:
        with torch.inference_mode(inference), torch.set_grad_enabled(grad):
            return run(copied)

    return _queue.put(work)


@overload
def allreduce(x: Any, op: str | Any = ..., *, async_op: Literal[False] = ..., priority: Priority = ..., overlap_group: str | None = ...,
              use_ring: bool | None = ..., overlap_with_next: bool | None = ..., group: GroupLike = ...) -> Tensor: ...  # fmt: skip
@overload
def allreduce(x: Any, op: str | Any = ..., *, async_op: bool, priority: Priority = ..., overlap_group: str | None = ...,
              use_ring: bool | None = ..., overlap_with_next: bool | None = ..., group: GroupLike = ...) -> Any: ...  # fmt: skip


def allreduce(
    x: Any,
    op: str | Any = SUM,
    *,
    async_op: bool = False,
    priority: Priority = "normal",
    overlap_group: str | None = None,
    use_ring: bool | None = None,
    overlap_with_next: bool | None = None,
    group: GroupLike = None,
) -> Any:
    """The reduction of x over all ranks, of x's shape and dtype.

    `op` is maco.SUM, AVG, MAX, MIN (PROD, BAND, BOR and BXOR by torch.distributed). Sums add rank 0, 1, 2, ... in f32 and are rounded once
    (by a ring maybe at each rank). Its gradient is that of a result with which all ranks go on alike: the identity, for SUM.
    """
    x, reduce = _tensor(x, "allreduce"), _reduction(op)
    told, name = _attributes("allreduce", priority, overlap_group, use_ring, overlap_with_next), _name(group)
    return _begin(x, async_op, lambda one: torch.ops.maco.all_reduce(one, reduce, name, told))


def allgather(
    x: Any,
    *,
    async_op: bool = False,
    priority: Priority = "normal",
    overlap_group: str | None = None,
    use_ring: bool | None = None,
    overlap_with_next: bool | None = None,
    group: GroupLike = None,
) -> Any:
    """What each rank has, [world, *x.shape]."""
    x = _tensor(x, "allgather")
    told, name = _attributes("allgather", priority, overlap_group, use_ring, overlap_with_next), _name(group)
    return _begin(x, async_op, lambda one: torch.ops.maco.all_gather(one, name, told))


def reduce_scatter(
    x: Any,
    op: str | Any = SUM,
    *,
    async_op: bool = False,
    priority: Priority = "normal",
    overlap_group: str | None = None,
    use_ring: bool | None = None,
    overlap_with_next: bool | None = None,
    group: GroupLike = None,
) -> Any:
    """This rank's part of the reduction of x over all ranks: x[world * n, ...] gives [n, ...]. `op` as of `allreduce`."""
    x, reduce = _tensor(x, "reduce_scatter"), _reduction(op)
    told, name = _attributes("reduce_scatter", priority, overlap_group, use_ring, overlap_with_next), _name(group)
    return _begin(x, async_op, lambda one: torch.ops.maco.reduce_scatter(one, reduce, name, told))


def alltoall(
    x: Any,
    *,
    async_op: bool = False,
    priority: Priority = "normal",
    overlap_group: str | None = None,
    use_ring: bool | None = None,
    overlap_with_next: bool | None = None,
    group: GroupLike = None,
) -> Any:
    """x[world * n, ...] gives the same shape: part i comes from rank i, of which it was the part of this rank's number."""
    x = _tensor(x, "alltoall")
    told, name = _attributes("alltoall", priority, overlap_group, use_ring, overlap_with_next), _name(group)
    return _begin(x, async_op, lambda one: torch.ops.maco.all_to_all(one, name, told))


def broadcast(
    x: Any,
    root: int = 0,
    *,
    async_op: bool = False,
    priority: Priority = "normal",
    overlap_group: str | None = None,
    use_ring: bool | None = None,
    overlap_with_next: bool | None = None,
    group: GroupLike = None,
) -> Any:
    """x of rank `root`. The other ranks give a tensor of the same shape and dtype."""
    x = _tensor(x, "broadcast")
    root = _integer(root, "root")
    told, name = _attributes("broadcast", priority, overlap_group, use_ring, overlap_with_next), _name(group)
    return _begin(x, async_op, lambda one: torch.ops.maco.broadcast(one, root, name, told))


def barrier(group: GroupLike = None) -> None:
    """Returns when all ranks have come, and on a GPU what they had put on their current streams has ended."""
    whole = groups.of(group)
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.current_stream().synchronize()
    if whole.size == 1:
        return
    _queue.drain()
    eager.barrier(whole)


# ---- messages


_own: dict[tuple[str, int], deque[Any]] = {}
"""What this rank sent to itself, by group and tag."""


def send(x: Any, dst: int, tag: int = 0, *, group: GroupLike = None) -> None:
    """Sends x to rank `dst`, which calls `recv`. x was read when this returns.

    Waits until the other one has come, but in a `ring` block. Has no gradient.
    """
    x, whole = _tensor(x, "send"), groups.of(group)
    other, tag = _peer(dst, whole, "dst"), _tag(tag)
    block = _ring_of()
    if block is not None:
        block.send(x, other, tag, whole)
        return
    _queue.drain()
    if other == whole.rank:
        _own.setdefault((whole.name, tag), deque()).append(x.detach().clone())
        return
    pair = groups.pair(whole, other)
    eager.message(x, pair.rank, tag, pair)


def recv(
    src: int, shape: Sequence[int] | None = None, dtype: Any = None, tag: int = 0, *, device: Any = None, group: GroupLike = None
) -> Tensor:
    """What rank `src` sends, of this shape and dtype (torch's, f32 if it isn't given).

    `device`: where the tensor is, as the sender's; if it isn't given, where the last tensor of a collective was, else this rank's GPU. In
    a `ring` block all three are those of the tensor that was sent, unless they are given.
    """
    if torch is None:
        raise Unavailable("recv() gives a torch tensor; install PyTorch (pip install torch)")
    whole = groups.of(group)
    other, tag = _peer(src, whole, "src"), _tag(tag)
    extents = None if shape is None else _shape(shape)
    block = _ring_of()
    if block is not None:
        return block.recv(other, extents, dtype, device, tag, whole)
    _queue.drain()
    if other == whole.rank:
        sent = _own.get((whole.name, tag))
        if not sent:
            raise Error(f"this rank, {other}, has sent itself nothing with the tag {tag}, so there is nothing to receive")
        return _checked(sent.popleft(), extents, dtype, device)
    if extents is None:
        raise Error("recv() needs the shape of what comes, outside of a ring block: recv(src, shape, dtype)")
    like = _like(extents, dtype, device)
    pair = groups.pair(whole, other)
    return eager.message(like, 1 - pair.rank, tag, pair)


def _like(shape: Sequence[int], dtype: Any, device: Any) -> Tensor:
    return torch.zeros(tuple(shape), dtype=_torch_dtype(dtype), device=eager.usual_device() if device is None else device)


def _torch_dtype(dtype: Any) -> Any:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype or torch.get_default_dtype()
    from .dtypes import as_dtype

    return as_dtype(dtype).torch()


def _shape(shape: Any) -> tuple[int, ...]:
    extents = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
    if any(extent < 0 for extent in extents):
        raise Error(f"a shape has no extents below 0: {list(extents)}")
    return extents


def _integer(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is an integer, not {type(value).__name__}") from None


def _peer(rank: Any, group: groups.Group, what: str) -> int:
    at = _integer(rank, what)
    if not 0 <= at < group.size:
        raise Error(f"{what} is {at}, but there are {group.size} ranks, from 0 to {group.size - 1}")
    return at


def _tag(tag: Any) -> int:
    return _integer(tag, "tag")


def _checked(x: Tensor, shape: Sequence[int] | None, dtype: Any, device: Any) -> Tensor:
    if (shape is not None and tuple(shape) != tuple(x.shape)) or (dtype is not None and _torch_dtype(dtype) != x.dtype):
        raise Error(f"what was sent is {x.dtype}{list(x.shape)}, not {dtype or x.dtype}{list(x.shape if shape is None else shape)}")
    where = None if device is None else torch.device(device)
    if where is not None and (where.type != x.device.type or where.index not in (None, x.device.index)):
        raise Error(f"what was sent is on {x.device}, not on {where}: recv() gives it where it is, and .to() moves it")
    return x


# ---- ring


class _Ring:
    """The messages of a `ring` block: each `send` and `recv` of all ranks together are one shift."""

    def __init__(self, direction: str, group: groups.Group) -> None:
        self.group = group
        self.by = 1 if direction == "forward" else -1
        self.direction = direction
        self.sent: deque[tuple[Tensor, int]] = deque()  # without a recv yet
        self.received: deque[tuple[_Late, int]] = deque()  # without a send yet
        self.last: Tensor | None = None

    def _check(self, other: int, by: int, what: str, group: groups.Group) -> None:
        if group is not self.group:
            raise Error("a ring block is of one group: give it to maco.ring(group=...)")
        want = (self.group.rank + by) % self.group.size
        if other != want:
            raise Error(
                f"in a {self.direction} ring rank {self.group.rank} {'sends to' if what == 'dst' else 'receives from'} rank {want}, "
                f"not {other}; messages to others go outside of the block"
            )

    def send(self, x: Tensor, dst: int, tag: int, group: groups.Group) -> None:
        self._check(dst, self.by, "dst", group)
        self.last = x
        if self.received:
            late, other = self.received.popleft()
            if other != tag:
                raise Error(f"in a ring block messages are received in the order in which they are sent: tag {tag} isn't {other}")
            late._fill(self._exchange(x))
        else:
            self.sent.append((x.detach().clone(), tag))

    def recv(self, src: int, shape: Any, dtype: Any, device: Any, tag: int, group: groups.Group) -> Tensor:
        self._check(src, -self.by, "src", group)
        if self.sent:
            x, other = self.sent.popleft()
            if other != tag:
                raise Error(f"in a ring block messages are received in the order in which they are sent: tag {tag} isn't {other}")
            return _checked(self._exchange(x), shape, dtype, device)
        if shape is None and self.last is None:
            raise Error("recv() ahead of any send() of the block needs the shape of what comes: recv(src, shape, dtype)")
        if shape is None:
            assert self.last is not None
            shape, dtype, device = self.last.shape, dtype or self.last.dtype, device or self.last.device
        late = _Late._of(_like(shape, dtype, device))
        self.received.append((late, tag))
        return late

    def _exchange(self, x: Tensor) -> Tensor:
        _queue.drain()
        return eager.shift(x, self.by, self.group)

    def end(self) -> None:
        """Ranks at the ends of a chain only send, or only receive."""
        while self.sent:
            self._exchange(self.sent.popleft()[0])
        while self.received:
            late, _ = self.received.popleft()
            with torch._C.DisableTorchFunctionSubclass():
                late._fill(self._exchange(late))


if torch is not None:

    class _Late(torch.Tensor):
        """What a ring block receives before it sends: no value until then; a plain tensor from then on."""

        @classmethod
        def _of(cls, memory: Tensor) -> _Late:
            return torch.Tensor._make_subclass(cls, memory)  # type: ignore[no-any-return]

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(func, "__name__", "") == "__get__" or func in (torch.Tensor.size, torch.Tensor.dim, torch.Tensor.stride):
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **(kwargs or {}))
            raise Error(
                "what recv() gives ahead of send() in a ring block has no value before this rank has sent; "
                "send first, or receive outside of the block"
            )

        def _fill(self, value: Tensor) -> None:
            with torch._C.DisableTorchFunctionSubclass():
                if value.shape != self.shape or value.dtype != self.dtype:
                    raise Error(f"what was sent is {value.dtype}{list(value.shape)}, not {self.dtype}{list(self.shape)}")
                self.copy_(value)
            self.__class__ = torch.Tensor  # type: ignore[assignment]


_here = threading.local()


def _ring_of() -> _Ring | None:
    blocks: list[_Ring] = getattr(_here, "rings", [])
    return blocks[-1] if blocks else None


@contextmanager
def ring(direction: str = "forward", *, group: GroupLike = None) -> Iterator[None]:
    """A block in which each rank sends to its neighbour and receives from the other one, at once.

    `direction`: "forward": rank r sends to rank r + 1 and receives from r - 1, both modulo the number of ranks; "backward" is the other way
    round. The n-th `send` of all ranks and the n-th `recv` are one exchange, whichever stands first, and can't wait for each other. What
    `recv` gives ahead of `send` has no value before this rank has sent: using it raises `maco.Error`. At the end of the block ranks that
    only sent or only received take part with what they have, as at the ends of a chain.
    """
    if direction not in ("forward", "backward"):
        raise Error(f"a ring has no direction '{direction}'; {suggestion(str(direction), ('forward', 'backward'))}")
    block = _Ring(direction, groups.of(group))
    blocks: list[_Ring] = _here.__dict__.setdefault("rings", [])
    blocks.append(block)
    try:
        yield
        block.end()
    finally:
        blocks.remove(block)
