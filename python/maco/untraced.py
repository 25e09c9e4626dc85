"""Functions that torch.compile runs as they are, between two graphs, in place of looking into them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["untraced"]

Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """A decorator: `torch.compiler.disable` where torch is loaded, else what it leaves on a function."""
    torch = sys.modules.get("torch")
    if torch is not None:
        made: Function = torch.compiler.disable(function)
        return made
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function
