"""The plan of the program that is open."""

from __future__ import annotations

from ._recording import current

__all__ = ["JSON"]


def JSON(indent: int | None = 2) -> str:
    """`CollectiveProgram.json` of the program of the `with` that this stands in."""
    return current().json(indent=indent)
