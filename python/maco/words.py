"""Checks arguments of callers: words from a list, with a suggestion for one that is misspelt, and integers."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from typing import Any

from .errors import Error

__all__ = ["chosen", "integer", "suggestion"]


def suggestion(word: str, words: Iterable[str]) -> str:
    """What to say of a word that isn't among `words`: "did you mean 'comm'? It is one of ..."."""
    known = list(words)
    near = difflib.get_close_matches(word.lower(), [one.lower() for one in known], n=1, cutoff=0.5)
    found = next((one for one in known if near and one.lower() == near[0]), None)
    names = ", ".join(f"'{one}'" for one in known)
    if not known:
        return "there is none yet"
    return f"did you mean '{found}'? It is one of {names}" if found else f"it is one of {names}"


def chosen(word: object, words: Iterable[str], what: str) -> str:
    """The word, if it is one of `words`. Raises TypeError for what is no string, and `maco.Error` with a suggestion for another word."""
    known = list(words)
    if not isinstance(word, str):
        raise TypeError(f"{what} is a word, not a {type(word).__name__}: {', '.join(map(repr, known))}")
    if word not in known:
        raise Error(f"{what} can't be '{word}'; {suggestion(word, known)}")
    return word


def integer(value: Any, name: str, least: int | None = None, what: str = "an integer") -> int:
    """An integer, at least `least`. Raises TypeError for what is none, as bools and floats, and `maco.Error` for one that is less.

    `what` it is called in errors.
    """
    if isinstance(value, bool):
        raise TypeError(f"{name} is {what}, not a bool")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {what}, not a {type(value).__name__}") from None
    if least is not None and number < least:
        raise Error(f"{name} is at least {least}, not {number}")
    return number
