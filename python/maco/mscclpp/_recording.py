"""The program that is being written, and the checks of what operations are given."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Diagnostic, GraphError
from ..graph import _caller, _shown, _Where
from ..words import integer
from .types import BufferType, Chunk, SyncType

if TYPE_CHECKING:
    from .loop import LoopIterationContext
    from .program import CollectiveProgram
    from .thread_block_group import ThreadBlockGroup

Where = _Where
caller = _caller
shown = _shown
MAX_BLOCKS = 1024  # thread blocks of a rank; all of them are on the GPU at once

_open: ContextVar[CollectiveProgram | None] = ContextVar("maco.mscclpp", default=None)
W = TypeVar("W", bound=Enum)


def wrong(message: str, where: Where | None = None, notes: Iterable[tuple[str, Where]] = ()) -> GraphError:
    """The exception for a mistake at the caller's line."""
    place = where or caller()
    more = tuple(Diagnostic("note", at.file, at.line, 0, text) for text, at in notes)
    one = Diagnostic("error", place.file, place.line, 0, message, more)
    return GraphError(_shown([one]), diagnostics=[one])


def current() -> CollectiveProgram:
    """The program of the `with` that is open in this thread."""
    program = _open.get()
    if program is None:
        raise wrong("no program is open here: this has to stand in 'with CollectiveProgram(...):'")
    return program


def opened(program: CollectiveProgram) -> None:
    if (other := _open.get()) is not None:
        raise wrong(f"the program '{other.name}' is open: 'with CollectiveProgram(...)' can't be inside of another")
    _open.set(program)


def closed() -> None:
    _open.set(None)


# ---- values


def a_number(value: Any, what: str, low: int, high: int | None = None) -> int:
    """An integer from `low` to `high`. Raises TypeError, or `maco.GraphError` where it is outside."""
    number = integer(value, what)
    if number < low or (high is not None and number > high):
        raise wrong(
            f"{what} must be {low} to {high}, found {number}" if high is not None else f"{what} must be at least {low}, found {number}"
        )
    return number


def a_bool(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{what} is True or False, not {value!r}")
    return value


def a_rank(value: Any, world: int, what: str) -> int:
    """The number of a rank, which may be given as a `Rank`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what} is the number of a rank, not {type(value).__name__}")
    number = operator.index(value)
    if not 0 <= number < world:
        raise wrong(f"{what} is rank {number}, but the ranks are 0 to {world - 1}")
    return number


def a_word(value: Any, kind: type[W], what: str) -> W:
    """A member of an enumeration, or its name."""
    if isinstance(value, kind):
        return value
    names = [one.name for one in kind]
    if not isinstance(value, str):
        raise TypeError(f"{what} is a {kind.__name__}, not {type(value).__name__}")
    if value not in names:
        near = difflib.get_close_matches(value, names, n=1)
        raise wrong(f"{what} can't be '{value}': it is {', '.join(names)}" + (f"; did you mean '{near[0]}'?" if near else ""))
    return kind[value]


def a_sync(data_sync: Any, sync: Any) -> SyncType:
    """`sync` is another word for `data_sync`."""
    return a_word(data_sync if sync is None else sync, SyncType, "data_sync" if sync is None else "sync")


def a_chunk(value: Any, what: str, rank: int | None, owner: str = "") -> Chunk:
    """A chunk within its buffer, of rank `rank`."""
    if not isinstance(value, Chunk):
        raise TypeError(f"{what} is a chunk, a slice of a buffer such as buffer[0:1], not {type(value).__name__}")
    program = current()
    a_rank(value.rank, program.num_ranks, f"the rank of {what}")
    if rank is not None and value.rank != rank:
        raise wrong(f"{what} is {value}, but must be of rank {rank}" + (f", {owner}" if owner else ""))
    extent = program._extent(value.rank, value.buffer)
    if value.size < 1 or value.index < 0 or value.index + value.size > extent:
        raise wrong(f"{what} is {value}, whose {value.buffer.name} has {extent} chunks")
    return value


def chunks_of(values: Any, what: str, rank: int, owner: str = "") -> list[Chunk]:
    """One chunk or a list of them."""
    several = [values] if isinstance(values, Chunk) else values
    if isinstance(several, (str, bytes)) or not isinstance(several, Iterable):
        raise TypeError(f"{what} is a chunk or a list of chunks, not {type(values).__name__}")
    found = [a_chunk(one, f"{what}[{i}]" if several is values else what, rank, owner) for i, one in enumerate(several)]
    if not found:
        raise wrong(f"{what} is empty: there is nothing to reduce with")
    return found


def of_one_size(name: str, first: Chunk, others: Sequence[Chunk]) -> None:
    for other in others:
        if other.size != first.size:
            raise wrong(f"all chunks of '{name}' must be of one size: {first} has {first.size} and {other} has {other.size}")


def in_scratch(name: str, chunk: Chunk) -> None:
    """Packets lie in scratch memory."""
    if chunk.buffer is not BufferType.scratch:
        raise wrong(f"packets of '{name}' must be in scratch memory, but {chunk} is not: make a Buffer(rank, size) for them")


def a_block(tb: Any) -> int:
    return a_number(tb, "tb", 0, MAX_BLOCKS - 1)


def blocks_of(tb: Any, tb_group: ThreadBlockGroup | None) -> list[tuple[int, tuple[int, int] | None]]:
    """The thread blocks that do an operation, each with its part of it: (number, of how many), None of one that does all."""
    if (tb is None) == (tb_group is None):
        raise wrong("an operation is done by a thread block, 'tb', or by a group of them, 'tb_group': give one of the two")
    if tb_group is None:
        return [(a_block(tb), None)]
    from .thread_block_group import ThreadBlockGroup

    if not isinstance(tb_group, ThreadBlockGroup):
        raise TypeError(f"tb_group is a ThreadBlockGroup, not {type(tb_group).__name__}")
    return [(one, (i, len(tb_group.tb_list))) for i, one in enumerate(tb_group.tb_list)]


def in_loop(iter_context: LoopIterationContext | None) -> None:
    """Checks that a loop that an operation names is the one it stands in."""
    if iter_context is None:
        return
    from .loop import LoopIterationContext

    if not isinstance(iter_context, LoopIterationContext):
        raise TypeError(f"iter_context is what 'with Loop.iteration(...) as it' gives, not {type(iter_context).__name__}")
    if current()._loop is not iter_context:
        raise wrong("iter_context is of a loop that this operation doesn't stand in")
