"""Whether the messages of a graph's collectives are as large as their programs say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._recording import Where, wrong

_DIM = re.compile(r"  dim (?:(\d+) <= )?(\S+) <= \d+(?: typical \d+)?\Z")


@dataclass(frozen=True)
class Limit:
    """What the program `name` takes: from `low` to `high` bytes of input on each rank. The op's operand is called `operand`."""

    operand: str
    where: Where | None
    name: str
    low: int
    high: int


def check_sizes(lines: Sequence[str], name: str, limits: Sequence[Limit], collectives: Sequence[str], options: Mapping[str, Any]) -> None:
    """Raises `maco.GraphError` where an operand is larger or smaller. `lines` are the graph's, which can be compiled with `options`."""
    smallest, largest = (_sizes(lines, name, limits, collectives, options, least) for least in (True, False))
    for limit, low, high in zip(limits, smallest, largest, strict=True):
        if low < limit.low or high > limit.high:
            found = f"{low}" if low == high else f"{low} to {high}"
            text = (
                f"the algorithm '{limit.name}' takes {limit.low} to {limit.high} bytes of each rank (min_message_size, max_message_size), "
            )
            raise wrong(f"{text}but '{limit.operand}' has {found}", limit.where)


def _sizes(
    lines: Sequence[str], name: str, limits: Sequence[Limit], collectives: Sequence[str], options: Mapping[str, Any], least: bool
) -> list[int]:
    """The operands' bytes, with dims as small as can be, or as large."""
    from ..graph import Graph

    made = [_DIM.sub(r"  dim \2 <= 1", line) if least and _lowest(line) == "1" else line for line in lines[:-1]]
    made = [_DIM.sub(r"  dim \1 <= \2 <= \1", line) if least and _lowest(line) else line for line in made]
    made += [f"  output maco_size_{i} = copy({limit.operand})" for i, limit in enumerate(limits)]
    kernel = Graph.parse("\n".join([*made, lines[-1], ""]), name, collectives).compile(**options)
    bytes_of = {tensor.name: tensor.bytes for tensor in kernel.tensors}
    return [bytes_of[f"maco_size_{i}"] for i in range(len(limits))]


def _lowest(line: str) -> str:
    """The least that a dim may be; "" of lines that declare none."""
    dim = _DIM.match(line)
    return (dim.group(1) or "1") if dim else ""
