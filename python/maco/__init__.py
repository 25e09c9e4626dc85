"""MACO for Python: task graphs, in which communication is an operation like others, compiled to one persistent kernel.

`Graph` is what to compute, `Kernel` what it was compiled to, `Session` a kernel with its memory, ready to run. Importing needs neither
PyTorch nor NumPy nor a GPU, and loads no library; the first call that needs libmaco.so does. What fails raises `Error` or one of its
kinds.
"""

from __future__ import annotations

import importlib
from typing import Any

from .dtypes import DType, bf16, f8e4m3, f8e5m2, f16, f32, i32, u8
from .errors import Diagnostic, Error, ErrorCode, GraphError, LaunchError, MismatchError, Unavailable
from .expressions import Expr
from .graph import Graph, Value, compile_graph
from .kernel import Kernel, Profile, Session, TensorInfo, VariableInfo

__version__ = "0.1.0"

# Names of modules that are loaded at their first use, since they need torch or take time: name -> module.
_LAZY: dict[str, str] = {}

__all__ = [
    "DType",
    "Diagnostic",
    "Error",
    "ErrorCode",
    "Expr",
    "Graph",
    "GraphError",
    "Kernel",
    "LaunchError",
    "MismatchError",
    "Profile",
    "Session",
    "TensorInfo",
    "Unavailable",
    "Value",
    "VariableInfo",
    "bf16",
    "compile_graph",
    "f8e4m3",
    "f8e5m2",
    "f16",
    "f32",
    "i32",
    "u8",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'maco' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"maco.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
