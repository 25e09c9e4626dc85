"""Which ops of a traced graph run in MACO and which in torch, and in which order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from . import fx_choices, fx_norms, fx_pointwise, fx_rows, fx_turns, groups  # noqa: F401  what ops become is in their tables
from .dtypes import DType
from .errors import Error, GraphError, MismatchError
from .fx_code import Code
from .fx_collectives import group_of, is_collective
from .fx_lower import DTYPES, VIEWS, Dense, Lowering, Shape, Unsupported, lowering_of, sizes, written
from .fx_match import attention
from .fx_parts import Part, declared, device_of, is_view, tensor_of, values_of
from .fx_reasons import unknown
from .fx_report import Report, op_name, source_line
from .fx_state import appended, updates
from .graph import Graph

if TYPE_CHECKING:
    from .fx import Options

__all__ = ["Plan", "changes", "is_view", "weight"]

FOLDED_BYTES = 64 << 20
"""What doesn't depend on inputs is computed once if it takes at most so many bytes."""

PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default, torch.ops.aten.linear.default}


def changes(node: Node) -> bool:
    """Whether the node changes a tensor in place, other than by a copy to an input."""
    if node.op != "call_function" or not _mutable(node):
        return False
    return not (node.target is torch.ops.aten.copy_.default and isinstance(node.args[0], Node) and node.args[0].op == "placeholder")


def _mutable(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def weight(nodes: set[Node]) -> int:
    """How many of the nodes are worth a kernel of their own: products, attention, norms, collectives."""
    words = ("norm", "softmax", "embedding")
    return sum(
        node.target in PRODUCTS or node.target is attention or is_collective(node) or any(word in str(node.target) for word in words)
        for node in nodes
    )


_RANDOM = {torch.Tag.nondeterministic_seeded}


def foldable(node: Node) -> bool:
    """Whether the node gives the same result each time."""
    if node.op != "call_function" or _mutable(node) or not isinstance(node.target, torch._ops.OpOverload):
        return False
    tags = getattr(node.target, "tags", ())
    namespace = getattr(node.target, "namespace", "aten")
    return not any(tag in _RANDOM for tag in tags) and namespace in ("aten", "prims")


# ---- the plan --------------------------------------------------------------------------------------------------------------------------


class Plan:
    """Which nodes run where, in which order."""

    def __init__(
        self,
        gm: GraphModule,
        options: Options,
        static: frozenset[int],
        *,
        known: Mapping[Any, int] | None = None,
        dims: Mapping[Any, int] | None = None,
        places: Mapping[Any, str] | None = None,
        usual: Mapping[Any, int] | None = None,
    ) -> None:
        self.gm = gm
        self.usual = usual or {}
        self.known = known or {}
        self.dims = dims or {}
        # The same names on all ranks, and in all graphs.
        self.symbols = {symbol: sympy.Symbol(f"d{i}", integer=True, positive=True) for i, symbol in enumerate(self.dims)}
        self.places = {self.symbols[symbol].name: text for symbol, text in (places or {}).items()}
        self.report = Report()
        self.options = options
        self.nodes = list(gm.graph.nodes)
        self.placeholders = [node for node in self.nodes if node.op == "placeholder"]
        self.output = next(node for node in self.nodes if node.op == "output")
        self.static_nodes = {self.placeholders[i] for i in static if i < len(self.placeholders)}
        self.static_nodes |= {node for node in self.nodes if node.op == "get_attr"}
        self.hard: set[Node] = set()
        self.reasons: dict[Node, str] = {}
        self.folded: dict[Node, Any] = {}
        self.last = [node for node in self.nodes if node.op == "call_function" and node.target is torch.ops.aten.copy_.default]
        self.updates, self.gone = updates(self.nodes)
        gone = self.gone
        self.nodes = [node for node in self.nodes if node not in gone]
        self.last = [node for node in self.last if node not in gone]
        self.idle = {node.name for node in self.nodes if _without_elements(node)}
        self.group: Any = None
        self.apart = False  # whether collectives have parts of their own
        self.parts: list[Part] = []

    # ---- what MACO can compute

    def compile(self) -> Callable[..., list[Any]]:
        """Cuts, compiles, and gives the function that runs all."""
        with sizes(self.known, self.symbols):
            inside = self._possible()
            while True:
                self._cut(inside)
                self.report = self._report()
                if self.options.strict and (left := [row for row in self.report.fallbacks if row["name"] not in self.idle]):
                    raise Error(_strict_message(left))
                try:
                    failed = self._compile_parts()
                except MismatchError as error:
                    if self.apart or self.options.alike or "differs between ranks" not in str(error):
                        raise
                    # Ranks may differ in the other ops, so the collectives alone become graphs.
                    warnings.warn(f"{error}; collectives become kernels of their own, which nothing overlaps", stacklevel=2)
                    self.apart = True
                    continue
                if not failed:
                    return Code(self).function()
                inside -= failed

    def possible(self) -> set[Node]:
        """Nodes that MACO can compute."""
        with sizes(self.known, self.symbols):
            return self._possible()

    def typical(self, symbol: Any) -> int:
        """The size that the compiler chooses for."""
        if symbol in self.usual:
            return self.usual[symbol]
        hints = {one: value for node in self.placeholders for one, value in _hints(node.meta.get("val"))}
        rounded = 1 << max(0, hints.get(symbol, self.dims[symbol]) - 1).bit_length()
        return min(rounded, self.dims[symbol])

    def hinted(self, numbers: Sequence[Any]) -> tuple[int, ...]:
        """Sizes or strides as the example has them. Raises Unsupported for those that it doesn't have."""
        found = []
        for one in numbers:
            if isinstance(one, torch.SymInt):
                if one.node.hint is None:
                    raise Unsupported("a size that is known only at run time")
                one = one.node.hint
            found.append(int(one))
        return tuple(found)

    def _compile_parts(self) -> set[Node]:
        """Makes the programs; gives the nodes of one that MACO's compiler refuses."""
        if self.options.dry:
            return set()
        with _disable_current_modes():
            for part in self.parts:
                try:
                    part.compile()
                except GraphError as error:
                    part.check_settings(error)
                    reason = error.diagnostics[0].text if error.diagnostics else str(error)
                    self.reasons.update(dict.fromkeys(part.nodes, reason))
                    return set(part.nodes)
        return set()

    def _possible(self) -> set[Node]:
        if any(changes(node) for node in self.nodes):
            for node in self.nodes:
                if node.op == "call_function":
                    self.reasons[node] = "the graph changes tensors in place, in ways that can't be told apart from its other ops"
            return set()
        self._fold()
        return self._try()

    def _cut(self, inside: set[Node]) -> None:
        """Cuts what is inside into parts; takes out what can't be in any."""
        while True:
            phases = self._fewest(inside)
            dropped = self._small(phases, inside)
            dropped |= self._build(phases, inside) if not dropped else set()
            if not dropped:
                break
            inside -= dropped

    def _fold(self) -> None:
        """Computes what depends on no input."""
        known: set[Node] = set()
        for node in self.nodes:
            if foldable(node) and isinstance(node.meta.get("val"), torch.Tensor) and all(one in known for one in node.all_input_nodes):
                value = node.meta["val"]
                if node.target in (torch.ops.aten.full.default, torch.ops.aten.scalar_tensor.default) and value.dtype in DTYPES:
                    continue
                if any(not isinstance(one, int) for one in value.shape) or value.numel() * value.element_size() > FOLDED_BYTES:
                    continue
                known.add(node)
        for node in self.nodes:
            if node in known:
                try:
                    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self.folded.__getitem__)
                    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
                        self.folded[node] = node.target(*args, **kwargs)
                except (RuntimeError, TypeError, ValueError, KeyError):
                    known.discard(node)
        self.static_nodes |= set(self.folded)

    def _try(self) -> set[Node]:
        """Nodes that MACO computes; `reasons` has why not, of the others."""
        while True:
            hard = len(self.hard)
            inside = self._tried()
            if len(self.hard) == hard:
                return inside

    def _tried(self) -> set[Node]:
        inside: set[Node] = set()
        self.reasons = {}
        graph = Graph("trial", 1)
        count = 0

        def name() -> str:
            nonlocal count
            count += 1
            return f"t{count}"

        def given(node: Node, kind: Any) -> Any:
            if kind[0] == "position":
                return graph.scalar(name(), 0, kind[1])
            found, form, _, dtype = declared(tensor_of(node), self._at, kind, self)
            if kind[0] == "state":
                return found(graph.state(name(), dtype, list(form)), node)
            return found(graph.input(name(), dtype, [written(one) for one in form]), node)

        def constant(_key: Any, dtype: DType, form: Shape, _make: Any) -> Dense:
            return Dense(graph.param(name(), dtype, list(form)), form, form, dtype)

        self.group = self._first_group()
        lo = Lowering(graph, given, constant)
        lo.hard = self.hard
        for node in self.nodes:
            if node.op != "call_function" or node in self.last or node in self.folded:
                continue
            if node.target in VIEWS and node not in self.hard:
                continue
            if not values_of(node) and _is_number(node):
                continue
            if lowering_of(node) is None and node not in self.updates:
                self.reasons[node] = unknown(node)
                continue
            try:
                self._at = device_of(node)
                if self._at.type not in ("cpu", "cuda"):
                    raise Unsupported(f"the device '{self._at.type}'")
                if node in self.hard:
                    continue
                self._check_group(node)
                lo.world = self.group.size if self.group is not None else 1
                if node in self.updates:
                    self._try_update(lo, node)
                else:
                    lo.lower(node)
                inside.add(node)
            except Unsupported as error:
                if error.node is not None and error.node is not node and error.node in self.nodes and error.node not in self.hard:
                    self.hard.add(error.node)
                    return inside
                self.reasons[node] = error.reason
            except (Error, TypeError, ValueError, KeyError, IndexError, AttributeError, StopIteration) as error:
                self.reasons[node] = f"{type(error).__name__}: {error}"
            if node not in inside:
                lo.refs.pop(node, None)
        return inside

    _at = torch.device("cpu")

    def _try_update(self, lo: Lowering, node: Node) -> None:
        try:
            lo.refs[node] = appended(lo, self.updates[node])
        except Unsupported:
            # What is read of it may be given.
            self.reasons[node] = "a change in place"
            raise

    def _first_group(self) -> Any:
        """The group whose collectives MACO runs: that of all ranks, if a collective is of it, so that ranks with other ops agree; else
        the first one's."""
        first = None
        for node in self.nodes:
            try:
                group = group_of(node)
            except Unsupported:
                continue
            if group is not None:
                if group.name == groups.default().name:
                    return group
                first = first or group
        return first

    def _check_group(self, node: Node) -> None:
        group = group_of(node)
        if group is None:
            return
        if self.group is None:
            self.group = group
        elif group.name != self.group.name:
            raise Unsupported("a collective of another group than others of this graph")

    # ---- order

    def sources(self, node: Node) -> list[Node]:
        """The nodes that compute the operands, directly or through views."""
        found: list[Node] = []
        update = self.updates.get(node)
        stack = list(node.all_input_nodes) if update is None else [node.args[0], *update.sources()]
        while stack:
            one = stack.pop()
            if one in self.folded:
                continue
            if is_view(one) and one not in self.hard:
                stack += one.all_input_nodes
            else:
                found.append(one)
        return found

    def _phases(self, inside: set[Node]) -> dict[Node, int]:
        """When each node runs: equal numbers are one part of MACO's, or ops of torch's in a row (-1: ahead of all).

        Numbers take turns: parts of each device, with `apart` those of collectives, and then torch.
        """
        turns: list[Any] = sorted({(str(device_of(node)), self.apart and is_collective(node)) for node in inside})
        turns.append("torch")
        phases: dict[Node, int] = {}
        for node in self.nodes:
            if node.op in ("placeholder", "get_attr", "output") or node in self.folded or node in self.last:
                continue
            if is_view(node) and node not in self.hard:
                continue
            own = turns.index((str(device_of(node)), self.apart and is_collective(node)) if node in inside else "torch")
            earliest = max((phases[one] for one in self.sources(node) if one in phases), default=-1)
            phases[node] = earliest + (own - earliest) % len(turns)
        return phases

    def _fewest(self, inside: set[Node]) -> dict[Node, int]:
        """Phases; ops that only feed torch's are taken out of `inside` where that saves a launch."""
        phases = self._phases(inside)
        count = len({phases[node] for node in inside})
        if count < 2:
            return phases
        feeding: set[Node] = set()
        for node in reversed(self.nodes):
            if node in inside and not weight({node}) and all(one in feeding or one not in inside for one in self._readers(node)):
                feeding.add(node)
        others = self._phases(inside - feeding)
        if len({others[node] for node in inside - feeding}) >= count:
            return phases
        self.reasons.update(dict.fromkeys(feeding, "it only feeds ops of torch's, and would need another launch"))
        inside -= feeding
        return others

    def _readers(self, node: Node) -> list[Node]:
        """Who reads a node's results, views looked through; the node itself where the caller does."""
        found: list[Node] = []
        stack = list(node.users)
        while stack:
            user = stack.pop()
            if user in self.gone or (is_view(user) and user not in self.hard):
                stack += user.users
            else:
                found.append(node if user.op == "output" else user)
        return found

    def _small(self, phases: Mapping[Node, int], inside: set[Node]) -> set[Node]:
        """Nodes of parts that aren't worth a launch."""
        dropped: set[Node] = set()
        for number in {phases[node] for node in inside}:
            nodes = [node for node in inside if phases[node] == number]
            if len(nodes) < self.options.min_ops and not any(node.target in PRODUCTS or is_collective(node) for node in nodes):
                dropped |= set(nodes)
        for node in dropped:
            self.reasons[node] = f"a part of fewer than {self.options.min_ops} ops (min_ops)"
        return dropped

    def _build(self, phases: Mapping[Node, int], inside: set[Node]) -> set[Node]:
        """Makes the parts; gives the nodes of those that can't be."""
        self.phases = phases
        self.inside = inside
        self.parts = []
        for number in sorted({phases[node] for node in inside}):
            nodes = [node for node in self.nodes if node in inside and phases[node] == number]
            part = Part(len(self.parts), nodes, self)
            try:
                part.build(self._wanted(nodes, number))
            except Unsupported as error:
                if error.node is not None and error.node not in self.hard and is_view(error.node):
                    self.hard.add(error.node)
                    self.reasons[error.node] = error.reason
                    return set(nodes) & self._blamed(nodes, error.reason)
                return self._blamed(nodes, error.reason)
            except GraphError as error:
                part.check_settings(error)
                return self._blamed(nodes, error.diagnostics[0].text if error.diagnostics else str(error))
            self.parts.append(part)
        return set()

    def _blamed(self, nodes: Sequence[Node], reason: str) -> set[Node]:
        """The nodes of a part that can't be built even alone; if there are none, all nodes."""
        found: dict[Node, str] = {}
        for node in nodes:
            try:
                part = Part(0, [node], self)
                results = [user for user in node.users if is_view(user)] if isinstance(node.meta["val"], (list, tuple)) else [node]
                part.build(results)
            except GraphError as error:
                found[node] = error.diagnostics[0].text if error.diagnostics else str(error)
            except Unsupported as error:
                found[node] = error.reason
        found = found or dict.fromkeys(nodes, reason)
        self.reasons.update(found)
        return set(found)

    def _wanted(self, nodes: Sequence[Node], number: int) -> list[Node]:
        """The nodes of a part that are read outside of it, directly or through views: by torch, by the output, by later parts."""
        found: list[Node] = []
        for node in nodes:
            tops = [node]
            if isinstance(node.meta["val"], (list, tuple)):
                tops = [user for user in node.users if is_view(user)]
            found += [top for top in tops if self._read_outside(top, number)]
        return found

    def _read_outside(self, node: Node, number: int) -> bool:
        stack = list(node.users)
        while stack:
            user = stack.pop()
            if user in self.gone or (is_view(user) and user not in self.hard):
                stack += user.users
            elif user not in self.inside or self.phases[user] != number:
                return True
        return False

    # ---- putting together

    def _report(self) -> Report:
        report = Report()
        where = {node: part.number for part in self.parts for node in part.nodes}
        for node in self.nodes:
            if node.op != "call_function" or node in self.folded or (is_view(node) and node not in self.hard):
                continue
            if not values_of(node) and _is_number(node):
                continue
            inside = node in where
            report.table.append(
                {
                    "op": op_name(node),
                    "name": node.name,
                    "source": source_line(node),
                    "runs": "maco" if inside else "torch",
                    "launch": where.get(node),
                    "reason": "" if inside else self.reasons.get(node, ""),
                    "graph": 0,
                    "pass": "forward",
                }
            )
        report.graphs = [part.graph.text() for part in self.parts]
        return report


def _without_elements(node: Node) -> bool:
    """Whether one of the node's operands, or its result, has no elements."""
    tensors = [one.meta.get("val") for one in (node, *node.all_input_nodes)]
    return any(isinstance(one, torch.Tensor) and any(isinstance(size, int) and size == 0 for size in one.shape) for one in tensors)


def _is_number(node: Node) -> bool:
    """Whether the node computes a size."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def _hints(value: Any) -> list[tuple[Any, int]]:
    """Symbols of a traced input with their sizes in the example."""
    values = value.shape if isinstance(value, torch.Tensor) else [value]
    found = [one for one in values if isinstance(one, torch.SymInt) and one.node.hint is not None]
    return [(one.node.expr, int(one.node.hint)) for one in found if one.node.expr.is_Symbol]


def _strict_message(left: Sequence[Mapping[str, Any]]) -> str:
    first, more = left[0], len(left) - 1
    place = f" at {first['source']}" if first["source"] else ""
    rest = f" (and {more} more: maco.explain lists them)" if more else ""
    return f"'{first['op']}'{place} can't run in MACO, and strict is set: {first['reason']}{rest}"
