"""Blocks of which computation and communication overlap: what is called in them becomes one graph, as far as values allow."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

from . import collectives, groups
from .errors import Error
from .lazy import Lazy, LazyFailure, lazily, plain
from .recorder import Recorder
from .roles import SMConfig, counts, current_device, roles_of
from .untraced import untraced

__all__ = ["AutoOverlap", "Context", "OverlapRegion", "auto_overlap", "overlap_region"]


_COLLECTIVES = (collectives.allreduce, collectives.allgather, collectives.reduce_scatter, collectives.alltoall, collectives.broadcast)


class _Block:
    """A `with` block that records, and the functions that are called through it."""

    _what = "the block"

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @untraced
    def _enter(self) -> None:
        self._recorder.__enter__()

    @untraced
    def _leave(self, kind: Any, error: Any, trace: Any) -> None:
        self._recorder.__exit__(kind, error, trace)

    @untraced
    def _call(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Lazy:
        if not callable(fn):
            raise TypeError(f"{self._what} computes functions, not a {type(fn).__name__}: give it a function, then its arguments")
        if not self._recorder.recording:
            raise Error(f"{self._what} is used in its 'with' block, by the thread that entered it")
        return lazily(self._recorder, fn(*plain(args), **plain(kwargs)))

    def __reduce__(self) -> Any:
        raise TypeError(f"can't pickle {self._what}: make another")


class Context(_Block):
    """SMs for computation and for communication, and a block in which both overlap.

    `world_size` is how many ranks there are, those of `maco.init` if it isn't given. `compute_sms` SMs compute and `comm_sms` communicate;
    the compiler chooses what isn't said. `sm_config` says it SM by SM instead. Without `overlap` communication starts when all before it
    has ended, and what comes behind waits for it.

    In its `with` block the methods, and torch ops on tensors, are written down; when a value is needed, or the block ends, all of them run
    as one graph. May be entered again and again.
    """

    _what = "a maco.Context"

    def __init__(
        self,
        world_size: int | None = None,
        compute_sms: int | None = None,
        comm_sms: int | None = None,
        overlap: bool = True,
        sm_config: SMConfig | None = None,
    ) -> None:
        size = groups.default().size
        if world_size is not None and (isinstance(world_size, bool) or not isinstance(world_size, int)):
            raise TypeError(f"world_size is a number of ranks, not a {type(world_size).__name__}")
        if world_size is not None and world_size != size:
            raise Error(
                f"world_size is {world_size}, but there {'is 1 process' if size == 1 else f'are {size} processes'}: "
                f"start as many, as torchrun --nproc-per-node {world_size} does"
            )
        if not isinstance(overlap, bool):
            raise TypeError(f"overlap is True or False, not a {type(overlap).__name__}")
        if sm_config is not None and not isinstance(sm_config, SMConfig):
            raise TypeError(f"sm_config is a maco.SMConfig, not a {type(sm_config).__name__}")
        if sm_config is not None and (compute_sms is not None or comm_sms is not None):
            raise Error("sm_config says what every SM does: leave compute_sms and comm_sms out")
        self.world_size = size
        self.compute_sms = sm_config.compute_sms if sm_config is not None else compute_sms
        self.comm_sms = sm_config.comm_sms if sm_config is not None else comm_sms
        self.overlap = overlap
        self._counts = (compute_sms, comm_sms, sm_config)
        if current_device()[0] == "cpu":
            self._roles("cpu", None)
        super().__init__(Recorder("context", self._options))

    def compute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Lazy:
        """What `fn(*args, **kwargs)` gives, computed later. It is called now, and once; what it raises, this raises."""
        return self._call(fn, args, kwargs)

    def allreduce(self, x: Any, *args: Any, **kwargs: Any) -> Lazy:
        """`maco.allreduce`, later."""
        return self._collective(collectives.allreduce, x, args, kwargs)

    def allgather(self, x: Any, *args: Any, **kwargs: Any) -> Lazy:
        """`maco.allgather`, later."""
        return self._collective(collectives.allgather, x, args, kwargs)

    def reduce_scatter(self, x: Any, *args: Any, **kwargs: Any) -> Lazy:
        """`maco.reduce_scatter`, later."""
        return self._collective(collectives.reduce_scatter, x, args, kwargs)

    def alltoall(self, x: Any, *args: Any, **kwargs: Any) -> Lazy:
        """`maco.alltoall`, later."""
        return self._collective(collectives.alltoall, x, args, kwargs)

    def broadcast(self, x: Any, *args: Any, **kwargs: Any) -> Lazy:
        """`maco.broadcast`, later."""
        return self._collective(collectives.broadcast, x, args, kwargs)

    def wait(self) -> None:
        """Waits for all that was called in the block so far."""
        self._recorder.flush()

    def __enter__(self) -> Context:
        self._enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(kind, error, trace)

    def __repr__(self) -> str:
        return f"<maco.Context: {self.compute_sms or 'auto'} SMs compute, {self.comm_sms or 'auto'} communicate>"

    def _collective(self, fn: Callable[..., Any], x: Any, args: Any, kwargs: Any) -> Lazy:
        told = dict(kwargs)
        told.pop("async_op", None)  # all of them are
        return self._call(fn, (x, *args), told)

    def _roles(self, device: str, index: int | None) -> Any:
        compute, comm, config = self._counts
        if config is not None:
            return roles_of(config, device, index)
        return counts(compute, comm, device, index, ("compute_sms", "comm_sms"))

    def _options(self, device: torch.device) -> dict[str, Any]:
        made: dict[str, Any] = {}
        roles = self._roles(device.type, device.index)
        if roles is not None:
            made["sm_roles"] = roles
            made["roles_from"] = "'sm_config'" if self._counts[2] is not None else "compute_sms and comm_sms"
        if not self.overlap:
            made["overlap"] = "none"
        return made


class AutoOverlap(_Block, contextlib.ContextDecorator):
    """The block of `auto_overlap`."""

    _what = "the block of auto_overlap"

    def __init__(self) -> None:
        super().__init__(Recorder("auto_overlap"))

    def __enter__(self) -> AutoOverlap:
        self._enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(kind, error, trace)


@untraced
def auto_overlap() -> AutoOverlap:
    """A block of which torch ops and MACO's functions run as one graph, so that communication overlaps with what doesn't depend on it.

    Nothing runs before a value is needed, and then all of it; what can't be written down runs by itself, in its place. Also a decorator.
    """
    return AutoOverlap()


class OverlapRegion(_Block):
    """The block of `overlap_region`: what is submitted in it runs together."""

    _what = "the block of overlap_region"

    def __init__(self) -> None:
        super().__init__(Recorder("overlap_region"))
        self._failures: list[tuple[weakref.ref[LazyFailure], Exception]] = []

    def submit_compute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Lazy:
        """What `fn(*args, **kwargs)` gives, computed later: `result()` gives it, or raises what `fn` raised."""
        return self._submit(fn, args, kwargs)

    def submit_comm(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Lazy:
        """The same for communication: `region.submit_comm(maco.allreduce, x)`. `async_op` of MACO's collectives says nothing here."""
        told = dict(kwargs)
        if fn in _COLLECTIVES:
            told.pop("async_op", None)
        return self._submit(fn, args, told)

    def _submit(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Lazy:
        failed: list[Exception] = []

        def call(*own: Any, **named: Any) -> Any:
            try:
                return fn(*own, **named)
            except Exception as error:  # noqa: BLE001 - for who asks for the result
                failed.append(error)

        found = self._call(call if callable(fn) else fn, args, kwargs)
        if not failed:
            return found
        return self._failed(failed.pop())

    def _failed(self, error: Exception) -> LazyFailure:
        # A function of its own: the error's traceback keeps the caller's variables.
        failure = LazyFailure(self._recorder, error)
        self._failures.append((weakref.ref(failure), error))
        return failure

    def __enter__(self) -> OverlapRegion:
        self._enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(kind, error, trace)
        failures, self._failures = self._failures, []
        if kind is None:
            for held, one in failures:
                if held() is None:
                    raise one  # nobody can ask for it any more


@untraced
def overlap_region() -> OverlapRegion:
    """A block in which what is submitted runs together: `with maco.overlap_region() as region: f = region.submit_compute(fn, x)`."""
    return OverlapRegion()
