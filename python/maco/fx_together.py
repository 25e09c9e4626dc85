"""Compiled functions with collectives, where ranks come to different things.

Torch compiles again where a rank's inputs have other shapes, as in an uneven last batch, while the others run what they have. So graphs
with collectives are compiled when they are called, where all ranks meet, and ranks that find each other elsewhere let torch run that
call, op by op, with each collective as a kernel of its own.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from .errors import MismatchError
from .fx import Options, compile_prepared, prepared
from .fx_collectives import group_of, is_collective
from .fx_lower import Unsupported
from .meeting import told_apart
from .program import because

__all__ = ["Together", "together"]

ADVICE = (
    "batches of one size on all ranks (drop_last=True of the DataLoader, or padding) keep one kernel; with "
    "torch._dynamo.mark_dynamic(x, 0) from the first call on other sizes need none of their own"
)


def together(gm: GraphModule) -> bool:
    """Whether other ranks have to run a graph, too."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and is_collective(node):
            try:
                group = group_of(node)
            except Unsupported:
                continue
            if group is not None and group.size > 1:
                return True
    return False


class Together:
    """A graph with collectives. `why` says what it is compiled for, where it is not the first for a function."""

    def __init__(self, gm: GraphModule, inputs: Sequence[Any], options: Options, static: Sequence[int], why: str) -> None:
        self.gm = gm
        self.prepared: GraphModule | None = prepared(gm, inputs)
        self.options = options
        self.static = static
        self.why = why
        self.made: Callable[..., list[Any]] | None = None
        self.in_place = False
        self.warned = False
        self.lock = threading.Lock()

    def run(self, *inputs: Any) -> Any:
        """Runs it, compiling it first if that hasn't been done, or not been possible since the other ranks were elsewhere."""
        try:
            if self.made is None:
                self._compile()
                assert self.made is not None
            return self.made(*inputs)
        except MismatchError as error:
            if not told_apart(error) or self.in_place:
                raise MismatchError(f"{error}; {ADVICE}") from error
            return self._by_torch(inputs, error)

    def _compile(self) -> None:
        with self.lock, _disable_current_modes(), because(self.why):
            if self.prepared is None:
                return  # another thread has done it
            compiled = compile_prepared(self.prepared, options=self.options, static=self.static)
            self.in_place = compiled.in_place
            self.made, self.prepared = compiled.run, None

    def _by_torch(self, inputs: Sequence[Any], error: MismatchError) -> Any:
        if not self.warned:
            self.warned = True
            warnings.warn(f"{error}. Their collectives run one by one in this call, and nothing overlaps; {ADVICE}", stacklevel=2)
        try:
            results = self.gm.forward(*inputs)
        except MismatchError as second:
            raise MismatchError(f"{error}; one by one their collectives differ, too: {second}; {ADVICE}") from second
        if error.__cause__ is not None:
            raise error.__cause__  # an earlier launch failed; this call was made, as by the other ranks
        return results
