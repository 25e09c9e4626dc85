"""Groups of thread blocks, which share an operation."""

from __future__ import annotations

from collections.abc import Iterable

from ._recording import a_block, wrong

__all__ = ["ThreadBlockGroup"]


class ThreadBlockGroup:
    """Thread blocks that do one operation together, each an equal part of its chunks."""

    def __init__(self, tb_list: Iterable[int]) -> None:
        self.tb_list = [a_block(tb) for tb in tb_list]
        if not self.tb_list:
            raise wrong("a group of thread blocks must have one at least")
        for i, tb in enumerate(self.tb_list):
            if tb in self.tb_list[:i]:
                raise wrong(f"thread block {tb} is in the group twice")

    def get_internal_id(self, tb: int) -> int:
        """Which of the group thread block `tb` is, from 0."""
        if tb not in self.tb_list:
            raise wrong(f"thread block {tb} isn't in the group of {', '.join(map(str, self.tb_list))}")
        return self.tb_list.index(tb)

    def numtb(self) -> int:
        """How many thread blocks are in it."""
        return len(self.tb_list)

    def __repr__(self) -> str:
        return f"ThreadBlockGroup({self.tb_list})"
