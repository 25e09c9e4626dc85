"""The ranks that run graphs together: which one this process is, of how many, and how they agree before they do.

A process runs one rank. `default()` is the group of all of them: that of torch.distributed where it is initialised, else the one that the
environment names (torchrun's variables, Slurm's and MPI's), else this process alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from .errors import Error, MismatchError

__all__ = ["Group", "default"]

TIMEOUT = 300.0
"""Seconds in which all ranks must have come to a comparison."""


class Group:
    """Ranks that call MACO's functions in one order.

    `rank` is this process's among `size`. `name` is the same on all ranks of the group, and another for every other group on this host.
    `store` is torch's, for `exchange`; None only where `size` is 1 or torch is missing. Calls are collective and not thread safe.
    """

    def __init__(self, rank: int, size: int, name: str, store: Any = None, torch_group: Any = None) -> None:
        self.rank = rank
        self.size = size
        self.name = name
        self.store = store
        self.torch_group = torch_group
        self._count = 0

    def exchange(self, text: str, timeout: float = TIMEOUT) -> list[str]:
        """What each rank gave, by rank. Raises `maco.Error` that names the ranks that haven't come within `timeout` seconds."""
        if self.size == 1:
            return [text]
        if self.store is None:
            raise Error("ranks can compare what they do only with torch installed")
        self._count += 1
        key = f"maco/{self.name}/{self._count}"
        self.store.set(f"{key}/{self.rank}", text.encode())
        keys = [f"{key}/{rank}" for rank in range(self.size)]
        found = []
        for rank, one in enumerate(keys):
            try:
                self.store.wait([one], timedelta(seconds=timeout))
                found.append(self.store.get(one).decode())
            except RuntimeError as error:
                why = str(error).splitlines()[0]
                raise Error(f"rank {rank} hasn't come within {timeout:g} seconds to where rank {self.rank} is: {why}") from None
        return found

    def compare(self, text: str, what: str, timeout: float = TIMEOUT) -> None:
        """Raises `maco.MismatchError` on all ranks, with the first line that differs, unless all give the same text."""
        if self.size == 1:
            return
        digests = self.exchange(hashlib.sha256(text.encode()).hexdigest(), timeout)
        if len(set(digests)) == 1:
            return
        texts = self.exchange(text, timeout)
        # The store may end with the first rank that leaves.
        with contextlib.suppress(Error):
            self.exchange("", 10)
        mine = texts[0].splitlines()
        for rank, other in enumerate(texts):
            if other == texts[0]:
                continue
            theirs = other.splitlines()
            line = next((i for i in range(max(len(mine), len(theirs))) if mine[i : i + 1] != theirs[i : i + 1]), 0)
            raise MismatchError(
                f"{what} differs between ranks: line {line + 1} is '{_line(mine, line)}' on rank 0 "
                f"and '{_line(theirs, line)}' on rank {rank}"
            )

    def __repr__(self) -> str:
        return f"<maco.Group rank {self.rank} of {self.size}>"


def _line(lines: Sequence[str], index: int) -> str:
    return lines[index].strip() if index < len(lines) else ""


_lock = threading.Lock()
_default: Group | None = None


def default() -> Group:
    """The group of all processes, made at the first call."""
    global _default
    with _lock:
        if _default is None:
            _default = _make()
        return _default


def _make() -> Group:
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size == 1:
        return Group(0, 1, "alone")
    from torch.distributed import TCPStore

    store = TCPStore(
        os.environ.get("MASTER_ADDR", "localhost"),
        int(os.environ.get("MASTER_PORT", 29500)),
        size,
        rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        multi_tenant=True,
    )
    return Group(rank, size, "world", store)
