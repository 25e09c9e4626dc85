"""What became of a traced graph: which ops run in MACO, which in torch, and why."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Report", "op_name", "source_line", "source_place"]


@dataclass
class Report:
    """What runs where.

    `table` has a dict for each op: "op", "source" (file:line of the caller's Python, "" if it isn't known), "runs" ("maco" or "torch"),
    "launch" (which of the launches of its graph, None in torch), "reason" (why it is left to torch, "" else), "name" and "graph" (the
    number of the traced graph that it belongs to, of which those of the backward pass stand behind the others; "pass" says which). `graphs`
    are MACO's graphs as text, one a launch. `fallbacks` are the rows of what is left to torch for a reason.
    """

    table: list[dict[str, Any]] = field(default_factory=list)
    graphs: list[str] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    """Why torch.compile cut the function into several graphs."""
    backward_launches: int = 0
    """Launches of the backward pass of one call."""

    @property
    def fallbacks(self) -> list[dict[str, Any]]:
        """Rows of ops that torch runs for want of something in MACO."""
        return [row for row in self.table if row["reason"]]

    @property
    def launches(self) -> int:
        """Launches of kernels of MACO's in one call, without those of a backward pass."""
        return len(self.graphs) - self.backward_launches

    def add(self, other: Report) -> None:
        """Appends the report of another traced graph."""
        number = 1 + max((row["graph"] for row in self.table), default=-1)
        before = len(self.graphs)
        for row in other.table:
            launch = None if row["launch"] is None else row["launch"] + before
            self.table.append({**row, "graph": number, "launch": launch})
        self.graphs += other.graphs
        self.backward_launches += other.backward_launches
        self.breaks += other.breaks

    def __str__(self) -> str:
        inside = sum(row["runs"] == "maco" for row in self.table)
        graphs = len({row["graph"] for row in self.table})
        launches = _count(self.launches, "launch", "launches")
        if self.backward_launches:
            launches += f" and {self.backward_launches} of the backward pass"
        lines = [
            f"{_count(inside, 'op')} in {launches} of MACO's, {_count(len(self.fallbacks), 'op')} left to torch, "
            f"of {_count(graphs, 'traced graph')}"
        ]
        if self.table:
            rows = [("op", "source", "runs", "reason")]
            for row in self.table:
                where = "torch" if row["runs"] == "torch" else f"maco, launch {row['launch'] + 1}"
                if row["pass"] == "backward":
                    where += " (backward)"
                rows.append((row["op"], row["source"], where, row["reason"]))
            widths = [max(len(one[i]) for one in rows) for i in range(3)]
            lines += ["  ".join([*(cell.ljust(width) for cell, width in zip(one, widths, strict=False)), one[3]]).rstrip() for one in rows]
        lines += [f"break between graphs: {one}" for one in self.breaks]
        return "\n".join(lines)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ')


def source_line(node: Any) -> str:
    """file:line of the Python that a node comes from: the innermost frame outside of torch; "" if it isn't known."""
    place = source_place(node)
    return "" if place is None else f"{place[0]}:{place[1]}"


def source_place(node: Any) -> tuple[str, int] | None:
    """File and line of the Python that a node comes from, those of torch's where no other called it; None if they aren't known."""
    frames = [one for one in _FRAME.findall(node.meta.get("stack_trace") or "") if not one[0].startswith(_PACKAGE)]
    own = [one for one in frames if "/torch/" not in one[0] and not one[0].startswith("<")]
    if not frames:
        return None
    file, line = (own or frames)[-1]
    return file, int(line)


def op_name(node: Any) -> str:
    """What an op is called: torch's name, or that of a pattern of several."""
    target = node.target
    if isinstance(target, str):
        return target
    module = getattr(target, "__module__", "") or ""
    if module.startswith("maco."):
        return f"{target.__name__} (matched)"
    return str(target) if hasattr(target, "overloadpacket") else getattr(target, "__name__", str(target))
