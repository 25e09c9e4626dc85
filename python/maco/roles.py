"""Which SMs do what: roles, configurations of them, and how many SMs there are."""

from __future__ import annotations

import ctypes
import operator
import os
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple, Union

from . import _native
from .errors import Diagnostic, Error, GraphError
from .ops import Ops
from .words import chosen, integer, suggestion

__all__ = [
    "COLLECTIVES",
    "Role",
    "SMConfig",
    "auto_config",
    "counts",
    "current_device",
    "device_sms",
    "fits",
    "of_one_rank",
    "reworded",
    "roles_of",
]

CPU_SMS = 8
"""SMs of the CPU target, unless MACO_CPU_SMS says otherwise."""


class Role(Enum):
    """What an SM does: compute, communicate with other ranks, or schedule tasks."""

    COMPUTE = "compute"
    COMM = "comm"
    LOCAL_SCHEDULER = "local_scheduler"
    REMOTE_SCHEDULER = "remote_scheduler"  # another name for COMM


COLLECTIVES = ("allreduce", "reduce_scatter", "allgather", "alltoall", "broadcast", "ring_shift", "send", "recv", "barrier")
_KINDS = tuple(sorted(name for name in vars(Ops) if not name.startswith("_")))

# SMs of the largest GPU of an architecture, and of single GPUs.
_ARCHITECTURES = {
    "volta": 80,
    "turing": 72,
    "ampere": 108,
    "ada": 142,
    "hopper": 132,
    "blackwell": 148,
    "v100": 80,
    "t4": 40,
    "a100": 108,
    "l40s": 142,
    "h100": 132,
    "h200": 132,
    "b200": 148,
    "sm_70": 80,
    "sm_75": 72,
    "sm_80": 108,
    "sm_89": 142,
    "sm_90": 132,
    "sm_90a": 132,
    "sm_100": 148,
    "sm_100a": 148,
}


class _Range(NamedTuple):
    begin: int
    end: int
    role: Role
    tasks: tuple[str, ...] | None


class SMConfig:
    """What each SM of a GPU does. SMs without a role stay idle.

    `total_sms` is how many there are; that of the device at hand if it isn't given.
    """

    def __init__(self, total_sms: int | None = None) -> None:
        self.total_sms = device_sms(*current_device()) if total_sms is None else integer(total_sms, "total_sms", 1, "a number of SMs")
        self._ranges: list[_Range] = []
        self._schedulers: dict[int, str] = {}  # where SMs got the role LOCAL_SCHEDULER, by the first of them

    def assign_role(self, sm_range: Sequence[int], role: Role | str, task_types: Sequence[str] | None = None) -> None:
        """Gives SMs `sm_range[0]` up to `sm_range[1]`, which is excluded, a role.

        `task_types` are kinds of ops, those that run there and nowhere else in ranges that have other kinds; all of the role's, if None.
        Raises `maco.Error` for SMs that aren't there or have a role, and for words that mean nothing. Warns of LOCAL_SCHEDULER,
        which kernels refuse: it comes with the schedule 'dynamic', which this version doesn't have.
        """
        begin, end = _pair(sm_range)
        known = _role(role)
        if not 0 <= begin < end <= self.total_sms:
            raise Error(f"the range of SMs [{begin}, {end}) isn't within [0, {self.total_sms}), or is empty")
        for other in self._ranges:
            if begin < other.end and other.begin < end:
                raise Error(f"SMs [{begin}, {end}) overlap [{other.begin}, {other.end}), which have the role {other.role.name}")
        self._ranges.append(_Range(begin, end, known, _tasks(known, task_types)))
        self._ranges.sort()
        if known is Role.LOCAL_SCHEDULER:
            frame = sys._getframe(1)
            self._schedulers[begin] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            warnings.warn(f"{_local(begin, end)}; kernels refuse them", stacklevel=2)

    @property
    def compute_sms(self) -> int:
        """How many SMs compute."""
        return self._total(Role.COMPUTE)

    @property
    def comm_sms(self) -> int:
        """How many SMs communicate."""
        return self._total(Role.COMM, Role.REMOTE_SCHEDULER)

    @property
    def roles(self) -> tuple[tuple[int, int, Role, tuple[str, ...] | None], ...]:
        """The ranges: first SM, the one behind the last, role, kinds of ops (None: all)."""
        return tuple((one.begin, one.end, one.role, one.tasks) for one in self._ranges)

    def sm_roles(self) -> list[dict[str, Any]]:
        """The same as the setting `sm_roles` of a graph. Raises `maco.Error` for what kernels can't have."""
        made: list[dict[str, Any]] = []
        for one in self._ranges:
            if one.role is Role.LOCAL_SCHEDULER:
                raise Error(f"{_local(one.begin, one.end)}; leave them without a role (they got it at {self._schedulers[one.begin]})")
            kind = "compute" if one.role is Role.COMPUTE else "comm"
            entry: dict[str, Any] = {"sms": [one.begin, one.end], "role": kind}
            if one.tasks is not None:
                entry["tasks"] = list(one.tasks)
            made.append(entry)
        if not made:
            raise Error("the SMConfig gives no SM a role; assign_role() does")
        return made

    def _total(self, *roles: Role) -> int:
        return sum(one.end - one.begin for one in self._ranges if one.role in roles)

    def __repr__(self) -> str:
        parts = [
            f"[{one.begin}, {one.end}) {one.role.name}" + (f" of {', '.join(one.tasks)}" if one.tasks is not None else "")
            for one in self._ranges
        ]
        return f"<maco.SMConfig of {self.total_sms} SMs: {', '.join(parts) or 'no roles'}>"


def _local(begin: int, end: int) -> str:
    return f"SMs [{begin}, {end}) are LOCAL_SCHEDULER: those come with the schedule 'dynamic', which this version hasn't"


def auto_config(compute_intensity: str = "medium", comm_intensity: str = "medium", gpu_arch: str | None = None) -> SMConfig:
    """A split of a device's SMs into those that compute and those that communicate, by how much of each there is.

    The intensities are "high", "medium" or "low"; the higher that of communication, and the lower that of computation, the more SMs
    communicate. `gpu_arch` is an architecture, a GPU or a target ("hopper", "h200", "sm_90a"); the device at hand if it isn't given.
    """
    words = ("high", "medium", "low")
    compute = chosen(compute_intensity, words, "compute_intensity")
    comm = chosen(comm_intensity, words, "comm_intensity")
    if gpu_arch is None:
        total = device_sms(*current_device())
    elif isinstance(gpu_arch, str):
        key = gpu_arch.lower().replace("-", "_")
        if key != "cpu":
            chosen(key, [*_ARCHITECTURES, "cpu"], "gpu_arch")
        total = device_sms("cpu") if key == "cpu" else _ARCHITECTURES[key]
    else:
        raise TypeError(f"gpu_arch is a word, not a {type(gpu_arch).__name__}")
    config = SMConfig(total)
    if total == 1:
        config.assign_role((0, 1), Role.COMPUTE)
        return config
    share = {"low": 0.12, "medium": 0.24, "high": 0.4}[comm] * {"high": 1.0, "medium": 1.25, "low": 1.5}[compute]
    split = total - min(total - 1, max(1, round(total * share)))
    config.assign_role((0, split), Role.COMPUTE)
    config.assign_role((split, total), Role.REMOTE_SCHEDULER)
    return config


# ---- what a graph's setting is made of

Roles = Union[str, Mapping[str, Any], list[dict[str, Any]]]
"""The value of a graph's `sm_roles`."""


def counts(compute: int | None, comm: int | None, device: str, index: int | None, names: tuple[str, str]) -> Roles | None:
    """The setting `sm_roles` for these numbers of SMs; None if both are None. `names` are the caller's names of the two.

    Raises `maco.Error` if the device has fewer SMs.
    """
    if compute is None and comm is None:
        return None
    total = device_sms(device, index)
    made = {}
    if compute is not None:
        made["compute"] = integer(compute, names[0], 1, "a number of SMs")
    if comm is not None:
        made["comm"] = integer(comm, names[1], 0, "a number of SMs")
    asked = sum(made.values())
    if asked > total:
        parts = " and ".join(f"{name}={value}" for name, value in zip(names, (compute, comm), strict=True) if value is not None)
        raise Error(f"{parts} needs {asked} SMs, but {_place(device, index)} has {total}{_more(device, asked)}")
    return made


def fits(config: SMConfig, device: str, index: int | None = None) -> None:
    """Raises `maco.Error` if a configuration's SMs aren't those of the device."""
    total = device_sms(device, index)
    used = max((one.end for one in config._ranges), default=0)
    if used > total:
        raise Error(f"the SMConfig gives roles to {used} SMs, but {_place(device, index)} has {total}{_more(device, used)}")


def roles_of(config: SMConfig, device: str, index: int | None = None) -> Roles:
    """The setting for a configuration. Raises `maco.Error` if the device can't have it."""
    if not isinstance(config, SMConfig):
        raise TypeError(f"sm_config is a maco.SMConfig, not a {type(config).__name__}")
    roles = config.sm_roles()
    fits(config, device, index)
    return roles


def of_one_rank(roles: Any) -> Any:
    """The setting for a graph of one rank, where collectives are copies: those run where ops of the role compute do."""
    if isinstance(roles, Mapping) and isinstance(roles.get("when"), list):
        inner = ("roles", "else")
        return {"when": [{key: of_one_rank(value) if key in inner else value for key, value in one.items()} for one in roles["when"]]}
    if not isinstance(roles, list):
        return roles
    compute = [one for one in roles if isinstance(one, dict) and one.get("role") == "compute"]
    if any("tasks" not in one or "copy" in one["tasks"] for one in compute):
        return roles
    return [{**one, "tasks": [*one["tasks"], "copy"]} if one in compute else one for one in roles]


def reworded(error: GraphError, words: str) -> GraphError:
    """The error with what the caller wrote in the place of the setting `sm_roles`."""

    def told(text: str) -> str:
        return text.replace("'sm_roles'", words)

    def said(one: Diagnostic) -> Diagnostic:
        return replace(one, text=told(one.text), notes=tuple(said(note) for note in one.notes))

    made = GraphError(told(str(error)), code=error.code, diagnostics=[said(one) for one in error.diagnostics])
    return made.with_traceback(error.__traceback__)


# ---- devices

_lock = threading.Lock()
_found: dict[int, int] = {}


def current_device() -> tuple[str, int | None]:
    """Where what has no tensors of its own runs: what MACO_DEVICE says, else a GPU if there is one, else the CPU target."""
    told = _native.environment_device()
    if told == "cpu":
        return "cpu", None
    index = _gpu_index()
    if told == "cuda" or _gpu_sms(index):
        return "cuda", index
    return "cpu", None


def _gpu_index() -> int:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdigit() else 0


def device_sms(device: str, index: int | None = None) -> int:
    """How many SMs a device has: "cpu" is the CPU target, "cuda" a GPU. Raises `maco.Error` where it isn't there."""
    if device == "cpu":
        text = os.environ.get("MACO_CPU_SMS", "")
        if not text:
            return CPU_SMS
        if not text.isdigit() or int(text) == 0:
            raise Error(f"MACO_CPU_SMS is a number of SMs, not '{text}'")
        return int(text)
    found = _gpu_sms(index or 0)
    if not found:
        from .errors import Unavailable

        raise Unavailable(f"there is no GPU {index or 0}; MACO_DEVICE=cpu runs on the CPU")
    return found


def _gpu_sms(index: int) -> int:
    """SMs of a GPU; 0 where there is none."""
    with _lock:
        if index not in _found:
            _found[index] = _asked(index)
        return _found[index]


def _asked(index: int) -> int:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    device, value = ctypes.c_int(), ctypes.c_int()
    multiprocessors = 16
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
        return 0
    return 0 if driver.cuDeviceGetAttribute(ctypes.byref(value), multiprocessors, device) else value.value


def _place(device: str, index: int | None) -> str:
    return "the CPU target" if device == "cpu" else f"GPU {index or 0}"


def _more(device: str, asked: int) -> str:
    return f"; MACO_CPU_SMS={asked} gives it {asked}" if device == "cpu" else ""


# ---- arguments


def _pair(sm_range: Sequence[int]) -> tuple[int, int]:
    if isinstance(sm_range, range):
        if sm_range.step != 1:
            raise Error(f"SMs of a range lie side by side; {sm_range} has steps of {sm_range.step}")
        return sm_range.start, sm_range.stop
    try:
        begin, end = sm_range
        return operator.index(begin), operator.index(end)
    except (TypeError, ValueError):
        raise TypeError(f"sm_range is a pair: the first SM and the one behind the last, not {sm_range!r}") from None


def _role(role: Role | str) -> Role:
    if isinstance(role, Role):
        return role
    if not isinstance(role, str):
        raise TypeError(f"a role is a maco.Role, not a {type(role).__name__}")
    found = {one.name.lower(): one for one in Role}.get(role.lower().replace("-", "_"))
    if found is None:
        raise Error(f"there is no role '{role}'; {suggestion(role, [one.name for one in Role])}")
    return found


def _tasks(role: Role, task_types: Sequence[str] | None) -> tuple[str, ...] | None:
    if task_types is None:
        return None
    if isinstance(task_types, str):
        raise TypeError("task_types is a list of kinds of ops, not one string")
    kinds = list(task_types)
    if not kinds:
        raise Error("task_types names no kind of op; leave it out if the SMs run all")
    if role is Role.LOCAL_SCHEDULER:
        raise Error("SMs of the role LOCAL_SCHEDULER run no ops; leave task_types out")
    for at, kind in enumerate(kinds):
        chosen(kind, _KINDS, "a task type")
        if (kind in COLLECTIVES) != (role is not Role.COMPUTE):
            other = "COMM" if kind in COLLECTIVES else "COMPUTE"
            raise Error(f"'{kind}' runs on SMs of the role {other}, not {role.name}")
        if kind in kinds[:at]:
            raise Error(f"'{kind}' is in task_types twice")
    return tuple(kinds)
