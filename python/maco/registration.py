"""Makes the backends "maco" known to torch.distributed and torch.compile when these are imported, before or after this package."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

__all__ = ["register", "when_imported"]

_MODULE = "torch.distributed.distributed_c10d"
_COMPILERS = "torch._dynamo.backends.registry"


def register() -> None:
    """Registers the backend, once a process. torch.distributed has to be there."""
    backend = sys.modules[_MODULE].Backend
    if not hasattr(backend, "MACO"):
        backend.register_backend("maco", _create, devices=["cpu", "cuda"])


def register_compiler() -> None:
    """Names the backend of torch.compile where no entry point does. It is loaded at its first use; the registry has to be there."""
    from importlib.metadata import EntryPoint

    known = sys.modules[_COMPILERS]._BACKENDS
    if "maco" not in known:
        known["maco"] = EntryPoint("maco", "maco.backend:maco_backend", "torch_dynamo_backends")


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from .distributed import ProcessGroupMaco

    return ProcessGroupMaco(store, rank, size, timeout)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets others find torch's modules, and registers once they are loaded."""

    def __init__(self) -> None:
        self.busy = False

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name not in (_MODULE, _COMPILERS) or self.busy:
            return None
        self.busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            _loaded(name, module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _loaded(name: str, module: Any) -> bool:
    """Registers with a module of torch's. Whether it is loaded: half a module, and a torch that was built without it, has nothing."""
    if not hasattr(module, "Backend" if name == _MODULE else "_BACKENDS"):
        return False
    if name == _MODULE:
        register()
    else:
        register_compiler()
    return True


def when_imported() -> None:
    """Registers now, or when torch.distributed and the compiler are imported."""
    waiting = [name for name in (_MODULE, _COMPILERS) if not _loaded(name, sys.modules.get(name))]
    if waiting and not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
