"""Python code that runs a plan: torch's ops and MACO's parts one after the other, values let go of behind their last use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from .fx_lower import VIEWS

if TYPE_CHECKING:
    from .fx_parts import Part
    from .fx_plan import Plan

__all__ = ["Code", "attribute"]


def attribute(root: Any, path: str) -> Any:
    """What a dotted path names."""
    for one in path.split("."):
        root = getattr(root, one)
    return root


class Code:
    """Writes the function that runs a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.names: dict[Node, str] = {}
        self.scope: dict[str, Any] = {"inf": float("inf"), "nan": float("nan")}
        self.count = 0
        self.lines: list[tuple[str, str]] = []  # the name that a line defines, and the line

    def function(self) -> Callable[..., list[Any]]:
        plan = self.plan
        for i, node in enumerate(plan.placeholders):
            self.names[node] = f"i{i}"
        numbers = sorted({plan.phases[node] for node in plan.phases})
        parts = {plan.phases[part.nodes[0]]: part for part in plan.parts}
        eager = [node for node in plan.nodes if node in plan.phases and node not in plan.inside]
        for number in sorted({*numbers, -1}):
            if number in parts:
                self._part(parts[number])
            for node in eager:
                if plan.phases[node] == number:
                    self._node(node)
        for node in plan.last:
            self._node(node)
        outputs = torch.fx.node.map_arg(plan.output.args[0], lambda node: _Name(self._name(node)))
        result = self._text(outputs if isinstance(outputs, (list, tuple)) else [outputs])
        head = "".join(f"{self.names[node]}, " for node in plan.placeholders)
        used = {name for part in plan.parts for name in part.dims}
        body = "".join(f"    {symbol} = {place}\n" for symbol, place in plan.places.items() if symbol in used)
        body += "".join(f"    {line}\n" for line in self._freed(result)) + f"    return {result}\n"
        exec(compile(f"def run({head}):\n{body}", "<maco.fx>", "exec"), self.scope)
        made: Callable[..., list[Any]] = self.scope["run"]
        return made

    def _freed(self, result: str) -> list[str]:
        """The lines, with names dropped behind their last use."""
        last: dict[str, int] = {}
        for i, (_, line) in enumerate(self.lines):
            for name in re.findall(r"\bv\d+\b", line):
                if int(name[1:]) <= self.count:  # others stand in texts
                    last[name] = i
        kept = set(re.findall(r"\bv\d+\b", result))
        found = []
        for i, (_, line) in enumerate(self.lines):
            found.append(line)
            gone = sorted(name for name, at in last.items() if at == i and name not in kept)
            if gone:
                found.append(f"del {', '.join(gone)}")
        return found

    def _part(self, part: Part) -> None:
        arguments = ", ".join(self._name(one.node) for one in part.inputs)
        results = []
        for out in part.outputs:
            self.names[out.node] = self._fresh()
            results.append(self.names[out.node])
        for node in part.nodes:
            if node in self.plan.updates:
                self.names[node] = self._name(self.plan.updates[node].input)
        self.scope[f"part{part.number}"] = part
        target = f"[{', '.join(results)}] = " if results else ""
        values = ", ".join(f"{name!r}: {name}" for name in part.dims)
        self.lines.append(("", f"{target}part{part.number}({{{values}}}, {arguments})"))

    def _name(self, node: Node) -> str:
        """The variable that holds a node's value; views are made where they are needed."""
        found = self.names.get(node)
        if found is None:
            if node in self.plan.folded:
                found = self._kept(self.plan.folded[node])
                if self._escapes(node):
                    self.names[node] = name = self._fresh()
                    self.lines.append((name, f"{name} = {found}.clone()"))
                    return name
            elif node.op == "get_attr":
                found = self._kept(attribute(self.plan.gm, str(node.target)))
            else:
                self._node(node)
                return self.names[node]
            self.names[node] = found
        return found

    def _escapes(self, node: Node) -> bool:
        """Whether the caller gets the value, or a view of it."""
        stack = [node]
        while stack:
            for user in stack.pop().users:
                if user.op == "output":
                    return True
                if user.op == "call_function" and user.target in VIEWS:
                    stack.append(user)
        return False

    def _update(self, node: Node) -> None:
        """An update in place: the node's value is the input itself."""
        update = self.plan.updates[node]

        def emit(expression: str) -> str:
            name = self._fresh()
            self.lines.append((name, f"{name} = {expression}"))
            return name

        def text(value: Any) -> str:
            return self._text(torch.fx.node.map_arg(value, lambda n: _Name(self._name(n))))

        base = self._name(update.input)
        update.write(base, emit, text, self._kept)
        self.names[node] = base

    def _node(self, node: Node) -> None:
        if node in self.plan.updates:
            self._update(node)
            return
        arguments = [self._text(torch.fx.node.map_arg(one, lambda n: _Name(self._name(n)))) for one in node.args]
        arguments += [f"{key}={self._text(torch.fx.node.map_arg(one, lambda n: _Name(self._name(n))))}" for key, one in node.kwargs.items()]
        if node.op == "call_method":
            call = f"{arguments[0]}.{node.target}({', '.join(arguments[1:])})"
        else:
            target = self.plan.gm.get_submodule(str(node.target)) if node.op == "call_module" else node.target
            call = f"{self._kept(target)}({', '.join(arguments)})"
        name = self.names[node] = self._fresh()
        self.lines.append((name, f"{name} = {call}"))

    def _fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _kept(self, value: Any) -> str:
        name = f"k{len(self.scope)}"
        self.scope[name] = value
        return name

    def _text(self, value: Any) -> str:
        if isinstance(value, _Name):
            return value.name
        if isinstance(value, (list, tuple)) and type(value).__name__ in ("list", "tuple", "immutable_list"):
            inner = ", ".join(self._text(one) for one in value)
            return f"({inner},)" if isinstance(value, tuple) and value else f"[{inner}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self._text(key)}: {self._text(one)}" for key, one in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self._text(value.start)}, {self._text(value.stop)}, {self._text(value.step)})"
        if value is None or type(value) in (bool, int, str, float):
            return repr(value)
        return self._kept(value)


class _Name:
    """A variable, among arguments."""

    def __init__(self, name: str) -> None:
        self.name = name
