"""Collectives on tensors: each is a program of one op, compiled at the first call of its kind and kept.

A call runs on the tensor's device and gives a new contiguous tensor. Programs take a dim for the number of elements, so that one serves
all sizes up to a power of two; on GPUs a size that comes often gets a program of its own, which needs no copies. What MACO can't do (64-bit
numbers, products) goes to torch.distributed: the group's own where it has one for the device, else gloo over the group's store.
"""

from __future__ import annotations

import difflib
import json
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch

from . import config, groups
from .dtypes import as_dtype
from .errors import Error, GraphError, LaunchError, MismatchError
from .graph import Graph, Value
from .groups import Group
from .program import Program, Repeated
from .tensors import ALIGNMENT, shape_text

__all__ = ["all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "check_parts", "reduce_scatter", "shift", "takes"]

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "band", "bor", "bxor")
_OWN_REDUCTIONS = {"sum": "sum", "mean": "avg", "max": "max", "min": "min"}
ATTRIBUTES = ("algorithm", "priority", "overlap_group", "overlap")
_FLOATS = tuple(getattr(torch, name) for name in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2") if hasattr(torch, name))
_NARROW = tuple(getattr(torch, name) for name in ("int8", "int16", "uint16") if hasattr(torch, name))

MOST_PROGRAMS = 128
"""How many programs are kept; the one that wasn't used for longest goes first, on all ranks alike."""
MOST_AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 27}
"""How many elements of a part one launch has, so that memory for communication doesn't grow with a tensor."""
OFTEN = 16
"""From so many calls of one size on a GPU it has a program of its own."""


def check_reduce(reduce: str) -> str:
    """The reduction's own name. Raises `maco.Error` for what is none."""
    if not isinstance(reduce, str):
        raise TypeError(f"a reduction is maco.SUM and the like, or its name, not a {type(reduce).__name__}")
    name = reduce.lower()
    name = {"avg": "mean", "average": "mean", "product": "prod"}.get(name, name)
    if name not in REDUCTIONS:
        near = difflib.get_close_matches(name, REDUCTIONS, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise Error(f"there is no reduction '{reduce}'; {hint}There are {', '.join(REDUCTIONS)}")
    return name


def check_parts(x: torch.Tensor, size: int, what: str) -> None:
    """Raises `maco.Error` unless axis 0 can be cut into as many equal parts as there are ranks."""
    if x.dim() == 0 or x.shape[0] % size:
        had = "no axis" if x.dim() == 0 else f"{x.shape[0]} rows"
        raise Error(f"{what}: axis 0 is cut into {size} equal parts, one for each rank, but the tensor has {had}")


def words(attributes: str) -> dict[str, Any]:
    """The attributes of a text of JSON. Raises `maco.Error` for unknown ones."""
    if not attributes:
        return {}
    found: dict[str, Any] = json.loads(attributes)
    for key in found:
        if key not in ATTRIBUTES:
            near = difflib.get_close_matches(key, ATTRIBUTES, n=1)
            raise Error(f"a collective has no attribute '{key}'" + (f"; did you mean '{near[0]}'?" if near else ""))
    return found


def takes(dtype: torch.dtype, reduce: str | None = None) -> bool:
    """Whether MACO's own kernels do it: move this dtype, or with `reduce` reduce it."""
    if reduce is None:
        return True
    if dtype is torch.bool:
        return reduce in ("sum", "max", "min", "prod", "band", "bor")
    if reduce not in _OWN_REDUCTIONS:
        return False
    if dtype in _FLOATS:
        return True
    if dtype is torch.complex64:
        return reduce in ("sum", "mean")
    return reduce != "mean" and (dtype in (torch.int32, torch.uint8) or dtype in _NARROW)


# ---- the collectives


def all_reduce(x: torch.Tensor, reduce: str, group: Group, attributes: str = "") -> torch.Tensor:
    """The reduction over all ranks, of x's shape."""
    reduce, chosen = check_reduce(reduce), words(attributes)
    flat = _flat(x)
    check_reducible(x.dtype, reduce)
    if group.size == 1 or not x.numel():
        return flat.clone().view(x.shape)
    if not takes(x.dtype, reduce):
        return _by_torch("allreduce", flat, reduce, group).view(x.shape)
    call = _call(x, f"allreduce by {reduce}")
    return _reduced(flat, reduce, lambda own, how: _run("allreduce", own, call, group, 1, 1, chosen, reduce=how)).view(x.shape)


def all_reduce_in_place(x: torch.Tensor, reduce: str, group: Group) -> bool:
    """Reduces a tensor on a GPU where it is, by a kernel for its size alone; False: there is none, or none yet."""
    if type(x) is not torch.Tensor or not x.is_contiguous() or x.data_ptr() % ALIGNMENT:
        return False
    return reduce_again(x, reduce, group) or _often_in_place(x, reduce, group)


def reduce_again(x: torch.Tensor, reduce: str, group: Group) -> bool:
    """The same; False also where such a kernel would have to be made."""
    found = _kept.in_place.get((group.name, reduce, x.dtype, x.shape, x.device))
    if found is None or type(x) is not torch.Tensor or not x.is_contiguous():
        return False
    address = x.data_ptr()
    return address % ALIGNMENT == 0 and found(address)


def _often_in_place(x: torch.Tensor, reduce: str, group: Group) -> bool:
    n, own = x.numel(), _OWN_REDUCTIONS.get(reduce)
    if own is None or x.dtype not in _FLOATS or not n or group.size == 1 or config.get("debug") or groups.backend() == "gloo":
        return False
    same = _Same("allreduce", x, group, None, {"reduce": own})
    often = ("in place", same.key, n)
    with _kept.lock:
        _kept.counts[often] = count = _kept.counts.get(often, 0) + 1
        if count < OFTEN or n > _kept.most.get(same.key, MOST_AT_ONCE["cuda"]):
            return False
        groups.settle()
        call = f"calls {_call(x, f'allreduce by {reduce}')}"
        key = (same.key, n, "in place")
        if key not in _kept.programs:
            group.meet(call)
        try:
            program = _kept.find(key, lambda: _make_in_place(same, n))
        except GraphError as error:
            if "comm_buffer_bytes" not in str(error):
                raise
            _kept.counts[often] = -(10**9)  # it is too much at once
            return False
        values = {"call": zlib.crc32(call.encode()) % (2**31 - 1)}
        program({"x": x.detach().view(-1)}, values, call)
        _kept.in_place[group.name, reduce, x.dtype, x.shape, x.device] = Repeated(program, "x", values, call)
    return True


def reduce_scatter(x: torch.Tensor, reduce: str, group: Group, attributes: str = "") -> torch.Tensor:
    """This rank's part of the reduction: axis 0 of x is cut into as many parts as there are ranks."""
    reduce, chosen = check_reduce(reduce), words(attributes)
    check_parts(x, group.size, "reduce_scatter")
    shape = (x.shape[0] // group.size, *x.shape[1:])
    flat = _flat(x)
    check_reducible(x.dtype, reduce)
    if group.size == 1 or not x.numel():
        return flat.clone().view(shape)
    if not takes(x.dtype, reduce):
        return _by_torch("reduce_scatter", flat, reduce, group).view(shape)
    size, call = group.size, _call(x, f"reduce_scatter by {reduce}")
    return _reduced(flat, reduce, lambda own, how: _run("reduce_scatter", own, call, group, size, 1, chosen, reduce=how)).view(shape)


def all_gather(x: torch.Tensor, group: Group, attributes: str = "") -> torch.Tensor:
    """[world, *x.shape]: what each rank has."""
    chosen, shape = words(attributes), (group.size, *x.shape)
    flat = _flat(x)
    if group.size == 1 or not x.numel():
        return flat.clone().view(shape)
    call = _call(x, "allgather")
    return _moved(flat, 1, lambda own: _run("allgather", own, call, group, 1, group.size, chosen)).view(shape)


def all_to_all(x: torch.Tensor, group: Group, attributes: str = "") -> torch.Tensor:
    """x's shape: part i of axis 0 comes from rank i, of which it was the part of this rank's number."""
    chosen = words(attributes)
    check_parts(x, group.size, "alltoall")
    flat = _flat(x)
    if group.size == 1 or not x.numel():
        return flat.clone().view(x.shape)
    call = _call(x, "alltoall")
    return _moved(flat, group.size, lambda own: _run("alltoall", own, call, group, group.size, group.size, chosen)).view(x.shape)


def broadcast(x: torch.Tensor, root: int, group: Group, attributes: str = "") -> torch.Tensor:
    """x of rank `root`."""
    chosen = words(attributes)
    if not 0 <= root < group.size:
        raise Error(f"broadcast: there is no rank {root}: there are {group.size}, from 0 to {group.size - 1}")
    flat = _flat(x)
    if group.size == 1 or not x.numel():
        return flat.clone().view(x.shape)
    call = _call(x, f"broadcast from rank {root}")
    return _moved(flat, 1, lambda own: _run("broadcast", own, call, group, 1, 1, chosen, root=root)).view(x.shape)


def shift(x: torch.Tensor, by: int, group: Group, attributes: str = "") -> torch.Tensor:
    """x of rank (rank - by) mod world."""
    chosen = words(attributes)
    flat = _flat(x)
    if group.size == 1 or not x.numel() or by % group.size == 0:
        return flat.clone().view(x.shape)
    chosen.pop("algorithm", None)
    call = _call(x, f"shift by {by}")
    return _moved(flat, 1, lambda own: _run("ring_shift", own, call, group, 1, 1, chosen, by=by % group.size)).view(x.shape)


def message(x: torch.Tensor, src: int, tag: int, pair: Group) -> torch.Tensor:
    """In a group of two: what rank `src` gives as x; the other one gives a tensor of the same shape and dtype."""
    flat, shape = _flat(x), x.shape
    if not flat.numel():
        return flat.view(shape)
    call = _call(x, f"message with tag {tag} from rank {pair.ranks[src]}")
    return _moved(flat, 1, lambda own: _run("broadcast", own, call, pair, 1, 1, {}, root=src)).view(shape)


def barrier(group: Group, device: torch.device | None = None) -> None:
    """Returns when all ranks have come."""
    if group.size == 1:
        return
    token = torch.zeros(1, dtype=torch.int32, device=device or torch.device("cpu"))
    _run("allreduce", token, "barrier", group, 1, 1, {}, reduce="sum")
    if token.is_cuda:
        torch.cuda.current_stream(token.device).synchronize()


def _call(x: torch.Tensor, what: str) -> str:
    """The text by which ranks compare their calls."""
    return f"{what} of {_word(x.dtype)}{shape_text(x.shape)}"


# ---- dtypes and memory


def check_tensor(x: torch.Tensor) -> None:
    """Raises `maco.Error` for tensors that no collective takes."""
    if x.layout is not torch.strided:
        raise Error(f"a collective takes dense tensors, not {str(x.layout).rsplit('.', 1)[-1]}; call .to_dense()")
    if x.is_quantized:
        raise Error("a collective takes no quantized tensors; call .dequantize() or .int_repr()")
    if x.device.type not in ("cpu", "cuda", "meta"):
        raise Error(f"a collective takes tensors on the CPU or a CUDA GPU, not on '{x.device}'")


def _flat(x: torch.Tensor) -> torch.Tensor:
    """The elements of x in one contiguous axis, without a gradient."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"a collective takes a torch.Tensor, not a {type(x).__name__}")
    check_tensor(x)
    if x.device.type != "meta":
        _seen.device = x.device
    return x.detach().resolve_conj().resolve_neg().contiguous().view(-1)


class _Seen(threading.local):
    device: torch.device | None = None  # of the last tensor that a collective of this thread was given


_seen = _Seen()


def usual_device() -> torch.device:
    """Where a tensor is made that a collective gives and no argument says so: where the last collective's was, else torch's default
    device if one was set, else this rank's GPU, if collectives run on GPUs here."""
    if _seen.device is not None:
        return _seen.device
    chosen = torch.get_default_device()
    if chosen.type != "cpu" or os.environ.get("MACO_DEVICE") == "cpu" or groups.backend() == "gloo" or not torch.cuda.is_available():
        return chosen
    return torch.device("cuda", torch.cuda.current_device())


def _on_host(flat: torch.Tensor) -> torch.Tensor:
    """A copy in memory of the host of what is on a GPU."""
    if not config.get("use_pinned_memory"):
        return flat.cpu()
    host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
    host.copy_(flat, non_blocking=True)
    torch.cuda.current_stream(flat.device).synchronize()
    return host


def check_reducible(dtype: torch.dtype, reduce: str) -> None:
    """Raises `maco.Error` for a reduction that has no meaning for the dtype."""
    if dtype.is_complex and reduce not in ("sum", "mean", "prod"):
        raise Error(f"complex numbers have no order, so '{reduce}' can't reduce {_word(dtype)}")
    if reduce == "mean" and not dtype.is_floating_point and not dtype.is_complex:
        raise Error(f"'mean' can't reduce {_word(dtype)}: means of integers aren't integers; convert the tensor to floats, or use 'sum'")
    if reduce in ("band", "bor", "bxor") and (dtype.is_floating_point or dtype.is_complex):
        raise Error(f"'{reduce}' combines bits of integers, not of {_word(dtype)}")


def _word(dtype: torch.dtype) -> str:
    return str(dtype).rsplit(".", 1)[-1]


def _reduced(flat: torch.Tensor, reduce: str, run: Callable[[torch.Tensor, str], torch.Tensor]) -> torch.Tensor:
    """Reduces by `run`, in a dtype of MACO's."""
    dtype = flat.dtype
    if dtype is torch.bool:
        # 0 and 1, of which a sum is "or", as torch adds.
        how = "min" if reduce in ("min", "prod", "band") else "max"
        return run(flat.view(torch.uint8), how).view(torch.bool)
    own = _OWN_REDUCTIONS[reduce]
    if dtype is torch.complex64:
        return torch.view_as_complex(run(torch.view_as_real(flat).reshape(-1), own).view(-1, 2))
    if dtype in _NARROW:
        return run(flat.to(torch.int32), own).to(dtype)
    return run(flat, own)


def _moved(flat: torch.Tensor, parts: int, run: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Moves by `run`, as words of 4 bytes where each part is a whole number of them, else as bytes: few programs serve all dtypes."""
    size = flat.element_size()
    whole = flat.numel() // parts * size % 4 == 0 and flat.storage_offset() * size % 4 == 0
    return run(flat.view(torch.uint8).view(torch.int32) if whole else flat.view(torch.uint8)).view(flat.dtype)


# ---- programs


class _Kept:
    """Programs by key, the one used last at the end."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.programs: OrderedDict[Any, Program] = OrderedDict()
        self.counts: dict[Any, int] = {}
        self.most: dict[Any, int] = {}  # elements at once, where memory for communication is limited
        self.in_place: dict[Any, Repeated] = {}  # for `all_reduce_in_place`, by shape

    def find(self, key: Any, make: Callable[[], Program]) -> Program:
        found = self.programs.get(key)
        if found is None:
            found = self.programs[key] = make()
            while len(self.programs) > MOST_PROGRAMS:
                self.in_place.clear()
                self.programs.popitem(last=False)[1].close()
        self.programs.move_to_end(key)
        return found

    def clear(self) -> None:
        with self.lock:
            for one in self.programs.values():
                one.close()
            self.programs.clear()
            self.in_place.clear()
            self.counts.clear()
            self.most.clear()


_kept = _Kept()
groups.on_finalize(_kept.clear)
config.changed.append(_kept.in_place.clear)


_ROOM = 256
"""For how many elements the smallest programs are."""


def _room(n: int) -> int:
    """For how many elements a program is that runs n."""
    room = _ROOM
    while room < n:
        room *= 4 if room < 65536 else 2
    return room


def _run(
    kind: str, flat: torch.Tensor, call: str, group: Group, parts: int, times: int, chosen: Mapping[str, Any], **arguments: Any
) -> torch.Tensor:
    """Runs one op on `parts` * n elements in a row, and gives `times` * n; `call` says what all ranks have to call alike.

    Attributes that order ops among each other have nothing to order here.
    """
    group.check_usable()
    if flat.is_cuda and groups.backend() == "gloo":
        return _run(kind, _on_host(flat), call, group, parts, times, chosen, **arguments).to(flat.device)
    n = flat.numel() // parts
    same = _Same(kind, flat, group, chosen.get("algorithm"), arguments)
    most = _kept.most.get(same.key, MOST_AT_ONCE[same.device])
    out = torch.empty(n * times, dtype=flat.dtype, device=flat.device)
    groups.settle()
    with _kept.lock:
        if same.device == "cuda" and config.get("debug"):
            group.compare(call, "the collective that is called")
        begin = 0
        while begin < n:
            end = min(n, begin + most)
            try:
                program, values = _program(same, end - begin, parts, call)
            except GraphError as error:
                # It is too much at once for comm_buffer_size; so say all ranks.
                if "comm_buffer_bytes" not in str(error) or _room(end - begin) <= _ROOM:
                    raise
                most = _kept.most[same.key] = _room(end - begin) // 4
                continue
            whole = end - begin == n
            x = flat if whole else flat.view(parts, n)[:, begin:end].reshape(-1)
            rows = out.view(times, n)[:, begin:end]
            y = rows.view(-1) if rows.is_contiguous() else torch.empty(rows.shape, dtype=out.dtype, device=out.device).view(-1)
            try:
                program({"x": x, "y": y}, values, f"calls {call}")
            except LaunchError as error:
                if "other dims or scalars" not in str(error):
                    raise
                told = f"the ranks call different collectives, or with different shapes or dtypes; here: {call}"
                raise MismatchError(told) from error
            if not rows.is_contiguous():
                rows.copy_(y.view(rows.shape))
            begin = end
    return out


class _Same:
    """What programs of one op have in common, whatever their size."""

    def __init__(self, kind: str, flat: torch.Tensor, group: Group, algorithm: str | None, arguments: Mapping[str, Any]) -> None:
        self.kind, self.dtype, self.group, self.algorithm, self.arguments = kind, flat.dtype, group, algorithm, arguments
        self.device, self.index = flat.device.type, flat.device.index or 0
        told = tuple(sorted(arguments.items()))
        self.key = (kind, flat.dtype, group.name, self.device, self.index, algorithm, config.effective(self.device), told)


def _program(same: _Same, n: int, parts: int, call: str) -> tuple[Program, dict[str, int]]:
    """A program for n elements, and its launch values: launches on GPUs compare these among the ranks."""
    exact = False
    if same.device == "cuda":
        often = (same.key, n)
        _kept.counts[often] = _kept.counts.get(often, 0) + 1
        exact = _kept.counts[often] >= OFTEN
    room = n if exact else _room(n)
    key = (same.key, room, exact)
    if key not in _kept.programs:
        # Whoever calls something else is told before anything is compiled.
        same.group.meet(f"calls {call}")
    values = {"call": zlib.crc32(call.encode()) % (2**31 - 1)} | ({} if exact else {"n": n})
    return _kept.find(key, lambda: _make(same, parts, room, exact)), values


def _make(same: _Same, parts: int, room: int, exact: bool) -> Program:
    graph = Graph(same.kind, same.group.size)
    rows: Any = room if exact else graph.dim("n", room)
    graph.scalar("call", 0, 2**31 - 1)
    x = graph.input("x", as_dtype(same.dtype), [rows * parts if parts > 1 else rows])
    told = {**same.arguments, **({"algorithm": same.algorithm} if same.algorithm else {})}
    op: Callable[..., Value] = getattr(graph, same.kind)
    graph.output("y", op(x, name=same.kind, **told))  # the name that profiles show
    return Program(graph, group=same.group, device=same.device, index=same.index)


def _make_in_place(same: _Same, n: int) -> Program:
    graph = Graph(same.kind, same.group.size)
    graph.scalar("call", 0, 2**31 - 1)
    x = graph.state("x", as_dtype(same.dtype), [n])
    graph.allreduce(x, name=same.kind, into=x, **same.arguments)
    return Program(graph, group=same.group, device=same.device, index=same.index)


# ---- what MACO can't


_gloo: dict[str, Any] = {}


def _by_torch(kind: str, flat: torch.Tensor, reduce: str, group: Group) -> torch.Tensor:
    """All-reduce, or reduce-scatter of as many parts as there are ranks, by torch.distributed."""
    import torch.distributed as dist

    group.check_usable()
    if not dist.is_available():
        raise Error(f"MACO has no {_word(flat.dtype)} and no '{reduce}' of it, and this PyTorch has no torch.distributed to do it")
    theirs = group.torch_group
    if theirs is not None and flat.device.type not in {one.type for one in theirs._device_types}:
        theirs = None
    names = {"sum": "SUM", "mean": "AVG", "max": "MAX", "min": "MIN", "prod": "PRODUCT", "band": "BAND", "bor": "BOR", "bxor": "BXOR"}
    divide = reduce == "mean"
    op = getattr(dist.ReduceOp, "SUM" if divide else names[reduce])
    whole = flat.clone() if theirs is not None or not flat.is_cuda else _on_host(flat)
    real = torch.view_as_real(whole) if whole.is_complex() and reduce != "prod" else whole
    try:
        if theirs is not None:
            dist.all_reduce(real, op, group=theirs)
        else:
            options = torch._C._distributed_c10d.AllreduceOptions()
            options.reduceOp = op
            _gloo_of(group).allreduce([real], options).wait()
    except RuntimeError as error:
        raise Error(
            f"neither MACO nor torch.distributed can reduce {_word(flat.dtype)} by '{reduce}': {str(error).splitlines()[0]}"
        ) from error
    if divide:
        whole = whole / group.size
    result = whole.to(flat.device)
    return result if kind == "allreduce" else result.view(group.size, -1)[group.rank].clone()


def _gloo_of(group: Group) -> Any:
    """A process group of gloo's over the group's store."""
    found = _gloo.get(group.name)
    if found is None:
        from torch.distributed import PrefixStore, ProcessGroupGloo

        store = PrefixStore(f"maco/{group.name}/gloo", group.store)
        found = _gloo[group.name] = ProcessGroupGloo(store, group.rank, group.size, timedelta(seconds=group.timeout))
    return found


groups.on_finalize(_gloo.clear)
