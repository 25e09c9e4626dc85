"""MACO for Python: task graphs, in which communication is an operation like others, compiled to one persistent kernel.

`Graph` is what to compute, `Kernel` what it was compiled to, `Session` a kernel with its memory, ready to run. Importing needs neither
PyTorch nor NumPy nor a GPU, and loads no library; the first call that needs libmaco.so does. What fails raises `Error` or one of its
kinds.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import config
from .dtypes import DType, bf16, f8e4m3, f8e5m2, f16, f32, i32, u8
from .errors import Diagnostic, Error, ErrorCode, GraphError, LaunchError, MismatchError, Unavailable
from .expressions import Expr
from .graph import Graph, Value, compile_graph
from .kernel import Kernel, Profile, Session, TensorInfo, VariableInfo
from .registration import when_imported

__version__ = "0.1.0"

when_imported()

# Names of modules that are loaded at their first use, since they need torch or take time: name -> module.
_LAZY: dict[str, str] = {
    "AVG": "collectives",
    "BAND": "collectives",
    "BOR": "collectives",
    "BXOR": "collectives",
    "CommScheduler": "schedule",
    "Context": "context",
    "Group": "groups",
    "LLM": "models.llm",
    "Lazy": "lazy",
    "MAX": "collectives",
    "MIN": "collectives",
    "Module": "nn",
    "PROD": "collectives",
    "PersistentContext": "optimized",
    "PersistentKernel": "persistent",
    "Pipeline": "pipeline",
    "Role": "roles",
    "SMConfig": "roles",
    "SUM": "collectives",
    "Work": "collectives",
    "allgather": "collectives",
    "allreduce": "collectives",
    "alltoall": "collectives",
    "auto_config": "roles",
    "auto_overlap": "context",
    "barrier": "collectives",
    "broadcast": "collectives",
    "compile": "backend",
    "dynamic_sm_config": "dynamic",
    "explain": "backend",
    "finalize": "groups",
    "get_rank": "groups",
    "get_world_size": "groups",
    "import_model": "models.importing",
    "init": "groups",
    "is_initialized": "groups",
    "optimize": "optimized",
    "optimize_comm": "optimized",
    "optimize_context": "optimized",
    "overlap_region": "context",
    "patch_torch_distributed": "distributed",
    "profiler": "profiling",
    "recv": "collectives",
    "reduce_scatter": "collectives",
    "ring": "collectives",
    "send": "collectives",
    "set_config": "dynamic",
    "task_graph": "optimized",
}

# Modules of the package that are loaded at their first use.
_MODULES = ("distributed", "groups", "models", "mscclpp", "nn")

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
    "config",
    "f8e4m3",
    "f8e5m2",
    "f16",
    "f32",
    "i32",
    "u8",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"maco.{name}")
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'maco' has no attribute '{name}'")
    try:
        value = getattr(importlib.import_module(f"maco.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise Unavailable(f"maco.{name} needs PyTorch, which isn't installed: pip install torch") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})
