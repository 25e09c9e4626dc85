"""Which SMs compute and which communicate, chosen anew in each call of a function.

All configurations that a function may choose are variants of one kernel; a launch is told which it takes.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from .errors import Error
from .recorder import Recorder
from .roles import SMConfig, counts, current_device, roles_of
from .untraced import untraced

__all__ = ["dynamic_sm_config", "set_config"]

Function = TypeVar("Function", bound=Callable[..., Any])


class _Counts(NamedTuple):
    compute: int | None
    comm: int | None


class _Call:
    """One call of a function that dynamic_sm_config decorates."""

    def __init__(self, owner: _Dynamic) -> None:
        self.owner = owner
        self.chosen: int | None = None  # the index of the owner's configuration
        self.recorder = Recorder("dynamic", self.options)

    def options(self, device: torch.device) -> dict[str, Any]:
        if self.chosen is None:
            return {}
        own = _roles(self.owner.known[self.chosen], device.type, device.index)
        # What the source names may be for another device.
        roles = [_fitting(one, device, own) for one in self.owner.known]
        if len(roles) == 1:
            return {"sm_roles": roles[0], "roles_from": "set_config()"}
        _local.variant = self.chosen  # for the launch that follows in this thread
        return {"variants": tuple(roles), "variant": _variant, "roles_from": "set_config()"}


_local = threading.local()


def _current() -> _Call | None:
    return getattr(_local, "call", None)


def _variant() -> int:
    return getattr(_local, "variant", 0)


class _Dynamic:
    """A function that chooses configurations, and those that it has chosen or will."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.known: list[Any] = []
        self.read = False
        self.lock = threading.Lock()

    def choose(self, config: Any) -> int:
        """A configuration's number. Those that the source names come first, so that one kernel has them all."""
        with self.lock:
            if not self.read:
                self.read = True
                self.known += [one for one in _named(self.function) if one not in self.known]
            if config not in self.known:
                self.known.append(config)
            return self.known.index(config)

    @untraced
    def __call__(self, args: Any, kwargs: Any) -> Any:
        outer = _current()
        call = _Call(self)
        try:
            with call.recorder:
                _local.call = call
                return self.function(*args, **kwargs)
        finally:
            _local.call = outer


def dynamic_sm_config(function: Function) -> Function:
    """A decorator for functions that call `maco.set_config`: the ops behind such a call run with its SMs.

    What the function does runs as in `maco.auto_overlap`. Configurations that its source names as numbers become variants of one kernel;
    one that appears later makes another kernel.
    """
    if not callable(function):
        raise TypeError(f"dynamic_sm_config decorates a function, not a {type(function).__name__}")
    own = _Dynamic(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return own(args, kwargs)

    return run  # type: ignore[return-value]


@untraced
def set_config(compute_sms: int | None = None, comm_sms: int | None = None, *, sm_config: SMConfig | None = None) -> None:
    """Within a function of `dynamic_sm_config`: sets how many SMs compute, and how many communicate, for the rest of this call.

    `sm_config` says it SM by SM instead. Raises `maco.Error` outside of such a function, and if the device has fewer SMs.
    """
    call = _current()
    if call is None:
        raise Error("set_config() chooses SMs within a function that is decorated with maco.dynamic_sm_config")
    if sm_config is not None:
        if compute_sms is not None or comm_sms is not None:
            raise Error("sm_config says what every SM does: leave compute_sms and comm_sms out")
        if not isinstance(sm_config, SMConfig):
            raise TypeError(f"sm_config is a maco.SMConfig, not a {type(sm_config).__name__}")
        config: Any = sm_config.roles, sm_config.sm_roles()
    elif compute_sms is None and comm_sms is None:
        raise TypeError("set_config() takes compute_sms and comm_sms, or sm_config")
    else:
        config = _Counts(compute_sms, comm_sms)
    device = call.recorder.device or torch.device(*_device())
    _roles(config, device.type, device.index)
    chosen = call.owner.choose(config)
    if chosen != call.chosen:
        call.recorder.flush()
        call.chosen = chosen


def _device() -> tuple[str, int] | tuple[str]:
    kind, index = current_device()
    return (kind,) if index is None else (kind, index)


def _roles(config: Any, device: str, index: int | None) -> Any:
    if isinstance(config, _Counts):
        return counts(config.compute, config.comm, device, index, ("compute_sms", "comm_sms"))
    ranges, roles = config
    checked = SMConfig(max(one[1] for one in ranges))
    for begin, end, role, tasks in ranges:
        checked.assign_role((begin, end), role, tasks)
    roles_of(checked, device, index)
    return roles


def _fitting(config: Any, device: torch.device, other: Any) -> Any:
    """A configuration's roles; `other` if the device can't have them, which nobody will choose."""
    try:
        return _roles(config, device.type, device.index)
    except Error:
        return other


def _named(function: Callable[..., Any]) -> Sequence[_Counts]:
    """The configurations that a function's source names as numbers."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return []
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name != "set_config":
            continue
        told: dict[str, Any] = dict(zip(("compute_sms", "comm_sms"), node.args, strict=False))
        told.update({one.arg: one.value for one in node.keywords if one.arg})
        numbers = {key: one.value for key, one in told.items() if isinstance(one, ast.Constant) and type(one.value) is int}
        if numbers and len(numbers) == len(told) and set(numbers) <= {"compute_sms", "comm_sms"}:
            found.append(_Counts(numbers.get("compute_sms"), numbers.get("comm_sms")))
    return found
