"""Integer expressions over dims, scalars, `rank` and `world`, as texts of MACO's language."""

from __future__ import annotations

import operator
from typing import SupportsIndex, Union

__all__ = ["Expr", "ExprLike", "expression"]


class Expr:
    """An integer expression that a graph's launches or ranks decide: an extent, a position, a condition.

    `+ - * // %` and comparisons give expressions; `&`, `|` and `~` are and, or and not of conditions. `//` and `%` round down. It has no
    value in Python, and so no truth value. Immutable.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"maco.Expr({self.text!r})"

    def __hash__(self) -> int:
        return hash(self.text)

    def __bool__(self) -> bool:
        raise TypeError(f"'{self.text}' is known when a graph is launched, and has no truth value here; use & | ~ for and, or, not")

    def __index__(self) -> int:
        raise TypeError(f"'{self.text}' is known when a graph is launched, and is no integer here")

    def _join(self, sign: str, other: object, swapped: bool = False) -> Expr:
        if not isinstance(other, (Expr, str)) and not _is_integer(other):
            return NotImplemented  # type: ignore[no-any-return]
        a, b = _factor(self), _factor(expression(other))
        return Expr(f"{b} {sign} {a}" if swapped else f"{a} {sign} {b}")

    def __add__(self, other: ExprLike) -> Expr:
        return self._join("+", other)

    def __radd__(self, other: ExprLike) -> Expr:
        return self._join("+", other, True)

    def __sub__(self, other: ExprLike) -> Expr:
        return self._join("-", other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return self._join("-", other, True)

    def __mul__(self, other: ExprLike) -> Expr:
        return self._join("*", other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return self._join("*", other, True)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return self._join("/", other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return self._join("/", other, True)

    def __mod__(self, other: ExprLike) -> Expr:
        return self._join("%", other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return self._join("%", other, True)

    def __truediv__(self, other: object) -> Expr:
        raise TypeError("expressions are integers: use //, which rounds down")

    __rtruediv__ = __truediv__

    def __neg__(self) -> Expr:
        return Expr(f"-{_factor(self)}")

    def __lt__(self, other: ExprLike) -> Expr:
        return self._join("<", other)

    def __le__(self, other: ExprLike) -> Expr:
        return self._join("<=", other)

    def __gt__(self, other: ExprLike) -> Expr:
        return self._join(">", other)

    def __ge__(self, other: ExprLike) -> Expr:
        return self._join(">=", other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._join("==", other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._join("!=", other)

    def __and__(self, other: ExprLike) -> Expr:
        return self._join("&&", other)

    def __or__(self, other: ExprLike) -> Expr:
        return self._join("||", other)

    def __invert__(self) -> Expr:
        return Expr(f"!{_factor(self)}")


ExprLike = Union[Expr, SupportsIndex, str]
"""An `Expr`, an integer, or the text of an expression: "pos + 1"."""


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, (bool, Expr))


def expression(value: object) -> str:
    """The text of an expression. Raises TypeError for what is none."""
    if isinstance(value, Expr):
        return value.text
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(int(value))
    return str(operator.index(value))  # type: ignore[arg-type]


def _factor(value: Expr | str) -> str:
    text = value.text if isinstance(value, Expr) else value
    return text if all(c.isalnum() or c in "_." for c in text) else f"({text})"
