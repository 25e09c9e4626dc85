"""Words that callers choose among: what is misspelt gets a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from .errors import Error

__all__ = ["chosen", "suggestion"]


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
