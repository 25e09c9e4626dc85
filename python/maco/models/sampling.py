"""An id from logits, as transformers' generate takes it: a penalty for ids that were there, then temperature, top_k, top_p, min_p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import Error
from ..words import integer
from .engine import need_numpy

__all__ = ["Sampler", "Sampling"]


def _number(value: Any, name: str, least: float, most: float = math.inf, *, above: bool = False) -> float:
    if isinstance(value, bool) or not hasattr(type(value), "__float__"):
        raise TypeError(f"{name} is a number, not a {type(value).__name__}")
    number = float(value)
    if not least <= number <= most or not math.isfinite(number) or (above and number == least):
        upper = "" if math.isinf(most) else f" to {most:g}"
        raise Error(f"{name} is a number {f'above {least:g}' if above else f'from {least:g}'}{upper or ' on'}, not {value}")
    return number


@dataclass(frozen=True)
class Sampling:
    """How ids are taken. `temperature` 0: the most likely one, whatever top_k, top_p and min_p say. `penalty` 1: none."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    penalty: float

    @classmethod
    def checked(cls, temperature: Any, top_k: Any, top_p: Any, min_p: Any, penalty: Any) -> Sampling:
        """Makes one from a caller's arguments. Raises TypeError and `maco.Error` that name the wrong argument."""
        return cls(
            _number(temperature, "temperature", 0),
            integer(top_k, "top_k", 0),
            _number(top_p, "top_p", 0, 1),
            _number(min_p, "min_p", 0, 1),
            _number(penalty, "repetition_penalty", 0, above=True),
        )

    @property
    def on_device(self) -> bool:
        """Whether the kernel's own choice is meant."""
        return self.temperature == 0 and self.penalty == 1


class Sampler:
    """Takes the ids of one answer behind a prompt, one after the other. `seed`: the same numbers give the same ids."""

    def __init__(self, how: Sampling, prompt: Sequence[int], vocabulary: int, seed: Sequence[int]) -> None:
        self._numpy = numpy = need_numpy()
        self._how = how
        self._random = numpy.random.Generator(numpy.random.PCG64(list(seed)))
        self._there = numpy.zeros(vocabulary, bool)
        self._there[list(prompt)] = True

    def __call__(self, logits: Any) -> int:
        """The next id, of f32[vocabulary], which is overwritten. Raises `maco.Error` where a logit is NaN or plus infinity."""
        numpy, how = self._numpy, self._how
        if how.penalty != 1:
            there = logits[self._there]
            penalty = numpy.float32(how.penalty)
            logits[self._there] = numpy.where(there < 0, there * penalty, there / penalty)
        if how.temperature == 0:
            token = int(numpy.argmax(logits))
            self._check(logits[token])
        else:
            ids, weights = self.candidates(logits)
            sums = numpy.cumsum(weights)
            at = int(numpy.searchsorted(sums, self._random.random() * sums[-1], side="right"))
            token = int(ids[min(at, len(ids) - 1)])
        self._there[token] = True
        return token

    def candidates(self, logits: Any) -> tuple[Any, Any]:
        """The ids that may be taken, and numbers in proportion to their probabilities (f64)."""
        numpy, how = self._numpy, self._how
        scores = logits if how.temperature == 1 else logits / numpy.float32(how.temperature)
        highest = scores.max()
        self._check(highest)
        ids = None  # all
        if 0 < how.top_k < len(scores):
            least = numpy.partition(scores, -how.top_k)[-how.top_k]
            ids = numpy.flatnonzero(scores >= least)
            scores = scores[ids]
        weights = numpy.exp(scores - highest).astype(numpy.float64)  # summed in f64
        if how.top_p < 1:
            kept = self._likeliest(weights)
            ids, weights = kept if ids is None else ids[kept], weights[kept]
        if how.min_p > 0:
            kept = numpy.flatnonzero(weights >= how.min_p * weights.max())
            ids, weights = kept if ids is None else ids[kept], weights[kept]
        return numpy.arange(len(weights)) if ids is None else ids, weights

    def _likeliest(self, weights: Any) -> Any:
        """Places of the likeliest, ahead of which less than top_p of all lies; the first one always."""
        numpy, total = self._numpy, weights.sum()
        count = 256
        while True:
            if count < len(weights):
                least = numpy.partition(weights, -count)[-count]
                some = numpy.flatnonzero(weights >= least)
            else:
                some = numpy.arange(len(weights))
            order = some[numpy.argsort(-weights[some], kind="stable")]
            sums = numpy.cumsum(weights[order])
            if sums[-1] >= self._how.top_p * total or len(order) == len(weights):
                before = sums - weights[order]
                kept = before < self._how.top_p * total
                kept[0] = True
                return order[kept]
            count *= 16

    def _check(self, highest: Any) -> None:
        if not self._numpy.isfinite(highest):
            raise Error(f"the highest logit is {highest}: no id can be taken")
