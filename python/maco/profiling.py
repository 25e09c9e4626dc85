"""Where the time of a block goes: what each op of MACO's kernels took, and how much of it was hidden behind the other kind of work."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .errors import Error
from .kernel import Profile
from .program import Program, listeners
from .roles import COLLECTIVES
from .untraced import untraced

__all__ = ["Profiler", "profiler"]

Interval = tuple[float, float]
"""Begin and end in microseconds."""

_COLUMNS = ("Operation", "Time(ms)", "Overlap%", "SM Usage")
_WIDTHS = (15, 8, 8, 8)


@untraced
def profiler() -> Profiler:
    """A profiler: `with maco.profiler() as prof:` measures what MACO's kernels do in the block, those compiled before it included.

    All ranks that run kernels together enter and leave such blocks together. Kernels are stamped there, a few percent slower, and each run
    is waited for.
    """
    return Profiler()


class Profiler:
    """What ran in a `with` block. Entering it again begins anew. May be read in the block, too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[_Run] = []
        self._active = False
        self._begin = 0.0

    @untraced
    def __enter__(self) -> Profiler:
        with self._lock:
            if self._active:
                raise Error("the profiler is in use; nested blocks need one each")
            self._active = True
            self._runs = []
            self._begin = time.perf_counter()
        listeners.append(self._listen)
        return self

    @untraced
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        listeners.remove(self._listen)
        self._active = False

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each op, in the order in which they began.

        "Operation" is its name; "Kind" its kind; "Time(ms)" for how long tasks of it ran on a rank, over all runs, in the mean of ranks;
        "Overlap%" for how many percent of that tasks of the other class, communication or computation, ran on the same rank; "SM Usage" on
        how many SMs of a rank its tasks ran; "Runs" how often.
        """
        rows: dict[str, _Row] = {}
        for run in self._taken():
            run.add(rows)
        return [row.entry(name) for name, row in rows.items()]

    @property
    def overlap_efficiency(self) -> float:
        """Which part of the time in which ranks communicated they computed, too: 0 to 1; 0 where nothing communicated."""
        rows: dict[str, _Row] = {}
        for run in self._taken():
            run.add(rows)
        found = [row for row in rows.values() if row.collective]
        whole = sum(row.time for row in found)
        return sum(row.hidden for row in found) / whole if whole else 0.0

    def summary(self) -> str:
        """What `print_summary` prints."""
        cells = [_COLUMNS]
        for row in self.table:
            used = row["SM Usage"]
            cells.append(
                (row["Operation"], f"{row['Time(ms)']:.2f}", f"{row['Overlap%']:.0f}%", f"{used} SM{'' if used == 1 else 's'}"),
            )
        widths = [max(least, *(len(line[i]) for line in cells)) for i, least in enumerate(_WIDTHS)]

        def rule(left: str, middle: str, right: str) -> str:
            return left + middle.join("─" * (width + 2) for width in widths) + right

        lines = [rule("┌", "┬", "┐")]
        for at, line in enumerate(cells):
            lines.append("│" + "│".join(f" {text:<{width}} " for text, width in zip(line, widths, strict=True)) + "│")
            if at == 0:
                lines.append(rule("├", "┼", "┤"))
        lines.append(rule("└", "┴", "┘"))
        lines.append(f"Total overlap efficiency: {self.overlap_efficiency * 100:.0f}%")
        return "\n".join(lines)

    def print_summary(self) -> None:
        """Prints a table of the ops to standard output."""
        print(self.summary())

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes all tasks as a trace for chrome://tracing and Perfetto; a file that is there is replaced.

        A process is a rank, a thread an SM; runs follow each other as they did. Raises `maco.Error` if it can't be written.
        """
        text = json.dumps({"traceEvents": _merged(self._taken()), "displayTimeUnit": "ms"})
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise Error(f"'{os.fspath(path)}' can't be written: {error}") from error

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a maco profiler: pickle its table, or export a trace")

    def __repr__(self) -> str:
        return f"<maco profiler of {len(self._runs)} runs>"

    def _listen(self, program: Program, profile: Profile) -> None:
        end = (time.perf_counter() - self._begin) * 1e6
        run = _Run(profile.trace, end)
        with self._lock:
            self._runs.append(run)

    def _taken(self) -> list[_Run]:
        with self._lock:
            return list(self._runs)


class _Row:
    """An op's, over runs and ranks; times in microseconds, summed over ranks."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.collective = kind in COLLECTIVES
        self.time = 0.0
        self.hidden = 0.0
        self.mean = 0.0  # of ranks
        self.sms = 0
        self.runs = 0

    def entry(self, name: str) -> dict[str, Any]:
        share = self.hidden / self.time if self.time else 0.0
        return {
            "Operation": name,
            "Kind": self.kind,
            "Time(ms)": self.mean / 1000,
            "Overlap%": min(100.0, share * 100),
            "SM Usage": self.sms,
            "Runs": self.runs,
        }


class _Run:
    """One launch with its trace, which is parsed when it is first needed."""

    def __init__(self, trace: str, end: float) -> None:
        self.trace = trace
        self.end = end  # when it had run, in microseconds since the block began
        self._events: list[dict[str, Any]] | None = None

    @property
    def events(self) -> list[dict[str, Any]]:
        if self._events is None:
            self._events = json.loads(self.trace) if self.trace.strip() else []
            self.trace = ""
        return self._events

    def add(self, rows: dict[str, _Row]) -> None:
        """Adds its ops to a table."""
        tasks = [one for one in self.events if one["ph"] == "X" and one["cat"] not in ("wait", "loader")]
        tasks.sort(key=lambda one: float(one["ts"]))
        ranks = sorted({int(one["pid"]) for one in tasks})
        seen: dict[str, dict[int, list[Interval]]] = {}
        classes: dict[tuple[int, bool], list[Interval]] = {}
        sms: dict[tuple[str, int], set[int]] = {}
        for one in tasks:
            name, rank, begin = one["name"], int(one["pid"]), float(one["ts"])
            span = (begin, begin + float(one["dur"]))
            row = rows.setdefault(name, _Row(one["cat"]))
            seen.setdefault(name, {}).setdefault(rank, []).append(span)
            classes.setdefault((rank, row.collective), []).append(span)
            sms.setdefault((name, rank), set()).add(int(one["tid"]))
        united = {key: _union(spans) for key, spans in classes.items()}
        for name, by_rank in seen.items():
            row = rows[name]
            row.runs += 1
            total = 0.0
            for rank, spans in by_rank.items():
                own = _union(spans)
                took = sum(end - begin for begin, end in own)
                total += took
                row.hidden += _common(own, united.get((rank, not row.collective), []))
                row.sms = max(row.sms, len(sms[name, rank]))
            row.time += total
            row.mean += total / max(len(ranks), 1)


def _union(spans: Iterable[Interval]) -> list[Interval]:
    """The same times, without overlaps, in order."""
    made: list[Interval] = []
    for begin, end in sorted(spans):
        if made and begin <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((begin, end))
    return made


def _common(left: Sequence[Interval], right: Sequence[Interval]) -> float:
    """For how long both are on; each in order and without overlaps."""
    total, i, k = 0.0, 0, 0
    while i < len(left) and k < len(right):
        total += max(0.0, min(left[i][1], right[k][1]) - max(left[i][0], right[k][0]))
        if left[i][1] < right[k][1]:
            i += 1
        else:
            k += 1
    return total


def _merged(runs: Sequence[_Run]) -> list[dict[str, Any]]:
    """The events of all runs on one clock."""
    made: list[dict[str, Any]] = []
    lanes: dict[tuple[int, str], int] = {}  # by rank and name
    told: set[int] = set()
    last = 0.0
    flows = 0
    for run in runs:
        events = run.events
        whole = max((float(one["ts"]) + float(one.get("dur", 0)) for one in events if "ts" in one), default=0.0)
        offset = max(last, run.end - whole)
        last = offset + whole
        names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["ph"] == "M" and one["name"] == "thread_name"}
        most = 0
        for one in events:
            rank = int(one["pid"])
            if one["ph"] == "M":
                if one["name"] == "process_name" and rank not in told:
                    told.add(rank)
                    made.append(one)
                continue
            lane = names.get((rank, one["tid"]), f"SM {one['tid']}")
            tid = lanes.get((rank, lane))
            if tid is None:
                tid = lanes[rank, lane] = sum(1 for other, _ in lanes if other == rank)
                made.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": lane}})
            moved = {**one, "tid": tid}
            if "ts" in one:
                moved["ts"] = round(float(one["ts"]) + offset, 3)
            if "id" in one:
                most = max(most, int(one["id"]))
                moved["id"] = int(one["id"]) + flows
            made.append(moved)
        flows += most
    return made
