"""Stages that overlap: while one microbatch is in a stage, the next is in the stage before."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .errors import Error
from .lazy import plain
from .recorder import Recorder
from .untraced import untraced
from .words import integer

__all__ = ["Pipeline"]

Stage = Callable[[Any], Any]
Given = TypeVar("Given", bound=Stage)


class Pipeline:
    """A pipeline of `num_stages` functions of one tensor; `stage(i)` names each, and calling it runs all.

    A call cuts axis 0 of its tensor into microbatches, and puts them through the stages: all of it becomes one graph, in which a stage of
    one microbatch overlaps with other stages of others. The result is what the stages give without microbatches, if they treat rows alike.
    """

    def __init__(self, num_stages: int) -> None:
        self.num_stages = integer(num_stages, "num_stages", 1)
        self._stages: dict[int, Stage] = {}
        self._recorder = Recorder("pipeline")

    def stage(self, index: int) -> Callable[[Given], Given]:
        """A decorator: the function is stage `index`, from 0. Raises `maco.Error` if there is no such stage, or it is given already."""
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise TypeError(f"a stage is named by its number, not by a {type(index).__name__}: @pipeline.stage(0)")
        number = operator.index(index)
        if not 0 <= number < self.num_stages:
            raise Error(f"there is no stage {number}: the pipeline has {self.num_stages}, from 0 to {self.num_stages - 1}")

        def given(function: Given) -> Given:
            if not callable(function):
                raise TypeError(f"a stage is a function, not a {type(function).__name__}")
            if number in self._stages:
                raise Error(f"stage {number} is given twice")
            self._stages[number] = function
            return function

        return given

    @untraced
    def __call__(self, x: Any, microbatches: int | None = None) -> Any:
        """What the last stage gives for the rows of x, in their order.

        `microbatches`: how many parts axis 0 is cut into, `num_stages` if it isn't given. They may be uneven; there are at most as many as
        rows. What a stage raises, this raises.
        """
        missing = [i for i in range(self.num_stages) if i not in self._stages]
        if missing:
            raise Error(f"the pipeline has no stage {missing[0]}: @pipeline.stage({missing[0]}) gives it")
        count = self.num_stages if microbatches is None else integer(microbatches, "microbatches", 1)
        x = plain(x)
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"a pipeline takes a torch.Tensor, not a {type(x).__name__}")
        if x.dim() == 0:
            raise Error("a pipeline cuts axis 0 into microbatches, but the tensor has no axes")
        with self._recorder:
            parts: list[Any] = list(torch.tensor_split(x, min(count, max(x.shape[0], 1))))
            if len(parts) == 1:
                for i in range(self.num_stages):
                    parts[0] = self._stages[i](parts[0])
                return parts[0]
            for step in range(len(parts) + self.num_stages - 1):
                # Later stages first: those are of earlier microbatches.
                for i in reversed(range(self.num_stages)):
                    if 0 <= step - i < len(parts):
                        parts[step - i] = self._stages[i](parts[step - i])
            for one in parts:
                if not isinstance(plain(one), torch.Tensor) or plain(one).dim() == 0:
                    what = "a tensor without axes" if isinstance(one, torch.Tensor) else f"a {type(one).__name__}"
                    raise Error(f"the last stage gave {what}: it gives a tensor with a row for each of its operand's")
            return torch.cat([plain(one) for one in parts])

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco.Pipeline: pickle its stages, and make another")

    def __repr__(self) -> str:
        return f"<maco.Pipeline of {self.num_stages} stages, {len(self._stages)} given>"
