"""Settings of the whole process: `maco.config.set(overlap_strategy="none")`.

| key | values | what it does |
|---|---|---|
| `backend` | "auto", "p2p", "nccl", "nccl_optimized", "nvshmem", "gloo" | what `maco.init()` takes if it isn't told |
| `sm_policy` | "auto" | the compiler says which SMs compute and communicate, where nobody else does |
| | "manual" | a kernel of several ops with a collective, of which nobody said it, is an error |
| | "dynamic" | of such a kernel that a dim counts rows of: fewer SMs communicate in launches of many rows than of few |
| `overlap_strategy` | "none", "conservative", "aggressive" | the setting `overlap` of graphs that don't set it (docs/language.md) |
| `comm_buffer_size` | None, bytes, "256MB" | their `comm_buffer_bytes`: the most symmetric memory of a kernel on a rank; None: no limit |
| `use_pinned_memory` | True, False | what goes from GPUs to ranks by way of the host goes through page-locked memory |
| `debug` | True, False | ranks compare each collective over their store before it begins, and say what differs |
| `profile` | True, False | kernels stamp their tasks' times from the start, so that a later profiler needn't open them again |

Graphs that a `Session` runs stay as they are written: settings are for what functions, modules and collectives become. They hold for what
is compiled after they were set. MB are 2^20 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import Error
from .words import chosen, suggestion

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["get", "patch", "reset", "set"]

BACKENDS = ("auto", "p2p", "nccl", "nccl_optimized", "nvshmem", "gloo")
_UNITS = {"": 0, "B": 0, "K": 10, "KB": 10, "KIB": 10, "M": 20, "MB": 20, "MIB": 20, "G": 30, "GB": 30, "GIB": 30}


def _word(*words: str) -> Callable[[str, Any], str]:
    return lambda key, value: chosen(value, words, key)


def _truth(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{key} is True or False, not {value!r}")
    return value


def _bytes(key: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        if not found or found.group(2).upper() not in _UNITS:
            raise Error(f"{key} can't be '{value}': it is a number of bytes, or a text as '256MB', '64KB' or '1GB'")
        number = int(float(found.group(1)) * (1 << _UNITS[found.group(2).upper()]))
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise TypeError(f"{key} is a number of bytes, a text as '256MB', or None, not a {type(value).__name__}")
    if number <= 0:
        raise Error(f"{key} is above 0, not {value!r}; None is no limit")
    return number


_KEYS: dict[str, tuple[Any, Callable[[str, Any], Any]]] = {
    "backend": ("auto", _word(*BACKENDS)),
    "sm_policy": ("auto", _word("auto", "manual", "dynamic")),
    "overlap_strategy": ("aggressive", _word("none", "conservative", "aggressive")),
    "comm_buffer_size": (None, _bytes),
    "use_pinned_memory": (True, _truth),
    "debug": (False, _truth),
    "profile": (False, _truth),
}
_values: dict[str, Any] = {key: default for key, (default, _) in _KEYS.items()}  # as they were given
_meanings: dict[str, Any] = dict(_values)

changed: list[Callable[[], None]] = []
"""Called when settings have changed, by who has made something of them."""


def _known(key: str) -> None:
    if key not in _KEYS:
        raise Error(f"there is no setting '{key}'; {suggestion(key, _KEYS)}")


def set(**settings: Any) -> None:
    """Changes settings; all of them or, if one is wrong, none.

    Raises `maco.Error` for an unknown key or value, with a suggestion, and for another backend than that of a call of `maco.init`.
    """
    meanings = {}
    for key, value in settings.items():
        _known(key)
        meanings[key] = _KEYS[key][1](key, value)
    if "backend" in meanings:
        from . import groups

        groups.check_switch(meanings["backend"])
    _values.update(settings)
    _meanings.update(meanings)
    for one in changed:
        one()


def get(key: str | None = None) -> Any:
    """The value of a setting, as it was given; without a key, all of them by key."""
    if key is None:
        return dict(_values)
    _known(key)
    return _values[key]


def reset() -> None:
    """Sets all settings to their defaults; but the backend with which `maco.init` has begun stays until `maco.finalize()`."""
    from . import groups

    kept = {"backend"} if groups.begun() else frozenset()
    set(**{key: default for key, (default, _) in _KEYS.items() if key not in kept})


@contextmanager
def patch(**settings: Any) -> Iterator[None]:
    """Settings for a block; those that were there come back behind it."""
    before = {key: _values[key] for key in settings if key in _KEYS}
    set(**settings)
    try:
        yield
    finally:
        set(**before)


def meaning(key: str) -> Any:
    """The value as the package uses it: a size in bytes."""
    return _meanings[key]


# ---- graphs


def effective(device: str) -> tuple[Any, ...]:
    """The settings on which the graph of one op for a device depends."""
    from . import groups

    return (meaning("overlap_strategy"), meaning("comm_buffer_size"), groups.graph_backend() if device == "cuda" else None)


def apply(graph: Graph, device: str, index: int = 0) -> None:
    """Gives a graph that was built call by call, for `device`, the settings that it doesn't set itself."""
    from .graph import _Op, _Setting

    if graph._parsed is not None or graph._frozen is not None or graph.world == 1:
        return
    told = {item.key for _, item in graph._items if isinstance(item, _Setting)}
    ops = [item for _, item in graph._items if isinstance(item, _Op)]
    new: dict[str, Any] = {}
    if (overlap := meaning("overlap_strategy")) != "aggressive":
        new["overlap"] = overlap
    if (limit := meaning("comm_buffer_size")) is not None:
        new["comm_buffer_bytes"] = limit
    if device == "cuda":
        from . import groups

        if chosen := groups.graph_backend():
            new["backend"] = chosen
    policy = meaning("sm_policy")
    if policy != "auto" and "sm_roles" not in told and len(ops) > 1:
        from .roles import COLLECTIVES

        if any(op.kind in COLLECTIVES for op in ops):
            if policy == "manual":
                raise Error(
                    f"sm_policy is 'manual', and nobody said which SMs of '{graph.name}' compute and which communicate: "
                    f"give numbers of SMs to the context or decorator, or set sm_policy to 'auto'"
                )
            if roles := _variants(graph, device, index):
                new["sm_roles"] = roles
    for key, value in new.items():
        if key not in told:
            graph.set(key, value)


def _variants(graph: Graph, device: str, index: int) -> dict[str, Any] | None:
    """Variants of roles by a launch's number of rows; None if the graph has no dims."""
    from .roles import device_sms

    found = [re.match(r"dim (?:\d+ <= )?(\w+) <= (\d+)", item) for _, item in graph._items if isinstance(item, str)]
    rows = [(match.group(1), int(match.group(2))) for match in found if match]
    if not rows or rows[0][1] < 2:
        return None
    name, most = rows[0]
    sms = device_sms(device, index)
    few, many = max(1, sms * 2 // 5), max(1, sms // 11)  # as in the parts 52 and 12 of 132
    if sms < 2:
        return None
    return {
        "when": [
            {"if": f"{name} <= {max(1, most // 8)}", "roles": {"compute": sms - few, "comm": few}},
            {"else": {"compute": sms - many, "comm": many}},
        ]
    }
