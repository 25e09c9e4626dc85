"""Traced PyTorch graphs in MACO: what MACO computes becomes programs, torch runs the rest in between.

`compile_fx` takes an ATen graph, of AOT autograd or make_fx. The ops that MACO has are cut into as few parts as data allows: everything
that can run before the first op of torch's is one part, then what can run before the next, and so on. Each part is one launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .errors import Error
from .fx_match import matched
from .fx_parts import offers
from .fx_plan import Plan, changes, weight
from .fx_report import Report
from .program import because

__all__ = ["Compiled", "Options", "compile_fx", "compile_prepared", "prepared"]

SMALLEST_DIM = 32
"""Where nothing is said of the largest size, kernels are compiled for at least as many rows, and then for twice as many each."""

STATIC_VERSIONS = 4
"""So many kernels for sizes that can't be dims; for further sizes what needs them is left to torch."""


@dataclass(frozen=True)
class Options:
    """How graphs are compiled.

    `strict`: what MACO can't compute is a `maco.Error` that names op, line and reason. `dynamic`: False: another kernel for each size that
    varies; else they stay open in the kernel, where products, norms and the like can have them. `sm_roles` and `overlap` are settings of
    `Graph.set`; the former may be a `maco.SMConfig`, and `roles_from` is what errors call it. `min_ops`: parts of fewer ops are left to
    torch, unless they have a product or a collective. `name` is that of the graphs; `timeout` in seconds of a launch without progress,
    None: the group's. `dry`: nothing is compiled, for reports. `variants` are settings `sm_roles` that each kernel has all of; `variant()`
    gives the number of the one that a launch takes. With `alike` ranks whose graphs differ are a `maco.MismatchError`; else collectives
    become kernels of their own then. `guarded`: calls have inputs of the dtypes, shapes and strides that were traced, which torch sees to.
    """

    strict: bool = False
    dynamic: bool | None = None
    sm_roles: Any = None
    roles_from: str = "'sm_roles'"
    min_ops: int = 1
    overlap: str | None = None
    name: str = "fx"
    timeout: float | None = None
    dry: bool = False
    variants: Sequence[Any] = ()
    alike: bool = False
    variant: Callable[[], int] | None = None
    guarded: bool = False


class Compiled:
    """A compiled graph: called with the flat inputs, gives the list of outputs.

    `report` says what runs where, `parts` are the launches; of a graph with sizes that vary those for the sizes of the example.
    """

    def __init__(self, run: Callable[..., list[Any]], plan: Plan) -> None:
        self.run = run
        self.report: Report = plan.report
        self.parts = tuple(plan.parts)
        self.in_place = bool(plan.updates)
        """Whether it changes parts of inputs where they are, so that a call can't be begun anew."""
        found = plan.output.args[0]
        self._outputs = list(found) if isinstance(found, (list, tuple)) else [found]

    def run_into(self, inputs: Sequence[Any], memory: Sequence[Any]) -> list[Any]:
        """As a call, with a tensor for each output, or None, in which it may be put: what is given back says where it is."""
        offers.memory = {node: one for node, one in zip(self._outputs, memory, strict=True) if one is not None}
        try:
            return self.run(*inputs)
        finally:
            offers.memory = {}

    def __call__(self, *inputs: Any) -> list[Any]:
        if torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in inputs):
            raise Error("a compiled graph gives no gradients: call it under torch.no_grad(), or compile the function by maco.compile()")
        return self.run(*inputs)

    def __reduce__(self) -> Any:
        raise TypeError("can't pickle a compiled graph: pickle the function or module that it was compiled from")


def compile_fx(gm: GraphModule, example_inputs: Sequence[Any], *, options: Options | None = None, static: Sequence[int] = ()) -> Compiled:
    """Compiles an ATen graph.

    `example_inputs` have the shapes, dtypes and devices of the inputs (fake tensors do). `static` are the numbers of inputs that are
    parameters, mostly the same tensors at each call. Raises `maco.Error` with `Options.strict` if something is left to torch, and
    `maco.MismatchError` if ranks compile different graphs with collectives.
    """
    return compile_prepared(prepared(gm, example_inputs), options=options or Options(), static=static)


def prepared(gm: GraphModule, example_inputs: Sequence[Any]) -> GraphModule:
    """What `compile_prepared` takes: the graph with shapes, without changes in place, and with patterns as one op."""
    return matched(_functional(gm, example_inputs))


def compile_prepared(gm: GraphModule, *, options: Options, static: Sequence[int] = ()) -> Compiled:
    """`compile_fx` of a graph that was prepared; this part of it needs nothing of torch's tracing, and may come later."""
    symbols = _symbols(gm)
    if not symbols:
        plan = Plan(gm, options, frozenset(static))
        return Compiled(plan.compile(), plan)
    versions = _Versions(gm, options, frozenset(static), symbols)
    plan, run = versions.of({symbol: one.hint for symbol, one in symbols.items()})
    return Compiled(run if options.dry else versions.run, plan)


# ---- the graph before it is cut --------------------------------------------------------------------------------------------------------


def _functional(gm: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """The graph with the shapes of what it computes, and without changes in place but of inputs at its end."""
    if any(node.op == "call_function" and "val" not in node.meta for node in gm.graph.nodes):
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.passes.fake_tensor_prop import FakeTensorProp

        mode = next((one.fake_mode for one in inputs if hasattr(one, "fake_mode")), None) or FakeTensorMode(allow_non_fake_inputs=True)
        FakeTensorProp(gm, mode).propagate(*inputs)
    if not any(changes(node) or _early(node) for node in gm.graph.nodes):
        return gm
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.fx.traceback.preserve_node_meta():
        traced = make_fx(torch.func.functionalize(torch.fx.Interpreter(gm).run, remove="mutations"), tracing_mode="fake")(*inputs)
    traced.graph.eliminate_dead_code()
    return traced


def _early(node: Node) -> bool:
    """Whether the node copies to an input that a later node reads or changes again."""
    if node.op != "call_function" or node.target is not torch.ops.aten.copy_.default:
        return False
    later = {one for one in [*node.args[0].users, *node.users] if one is not node and one.op != "output"}
    return any(node < one for one in later)


# ---- sizes that vary -------------------------------------------------------------------------------------------------------------------


@dataclass
class _Symbol:
    """A size that varies from call to call: the input and axis that have it, its value in the example, and its maximum (0: unknown)."""

    input: int
    axis: int | None
    hint: int
    largest: int


def _symbols(gm: GraphModule) -> dict[Any, _Symbol]:
    """The symbols in the sizes of inputs."""
    found: dict[Any, _Symbol] = {}
    for i, node in enumerate(node for node in gm.graph.nodes if node.op == "placeholder"):
        value = node.meta.get("val")
        sizes: list[tuple[int | None, Any]] = [(None, value)] if isinstance(value, torch.SymInt) else []
        if isinstance(value, torch.Tensor):
            sizes = list(enumerate(value.shape))
        for axis, size in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and size.node.expr not in found and size.node.hint is not None:
                symbol, environment = size.node.expr, size.node.shape_env
                bounds = environment.var_to_range.get(symbol)
                upper = bounds.upper if bounds is not None else None
                largest = int(upper) if upper is not None and getattr(upper, "is_Integer", False) and int(upper) < 2**20 else 0
                found[symbol] = _Symbol(i, axis, int(size.node.hint), largest)
    for node in gm.graph.nodes:
        if node.target is torch.ops.aten.slice_scatter.default and len(node.args) > 4:
            _limit(found, node)
    return found


def _limit(symbols: Mapping[Any, _Symbol], node: Node) -> None:
    """A symbol that says where rows are written can't be larger than the last place for them."""
    first, last = (one.meta.get("val") if isinstance(one, Node) else one for one in node.args[3:5])
    size = node.meta["val"].shape[int(node.args[2])]  # type: ignore[arg-type]
    if not isinstance(first, torch.SymInt) or not isinstance(size, int):
        return
    symbol = symbols.get(first.node.expr)
    count = (last.node.expr if isinstance(last, torch.SymInt) else last) - first.node.expr
    if symbol is not None and count.is_Integer and 0 < int(count) <= size:
        symbol.largest = min(symbol.largest or size, size - int(count))


class _Versions:
    """A graph with sizes that vary, compiled for those that came."""

    def __init__(self, gm: GraphModule, options: Options, static: frozenset[int], symbols: Mapping[Any, _Symbol]) -> None:
        self.gm = gm
        self.options = options
        self.static = static
        self.symbols = symbols
        self.places = [(one.input, one.axis) for one in symbols.values()]
        self.made: dict[tuple[Any, ...], Callable[..., list[Any]]] = {}
        self.lock = threading.Lock()
        self.fixed: bool | None = None  # whether each size has a kernel of its own

    def run(self, *inputs: Any) -> list[Any]:
        """Runs the version for the sizes of these inputs."""
        values = tuple(inputs[i] if axis is None else inputs[i].shape[axis] for i, axis in self.places)
        found = self.made.get(values)
        if found is None:
            with self.lock:
                found = self.made.get(values)
                if found is None:
                    others = ", ".join(str(one) for one in self.made if one[0] != "dims")
                    with because(f" again, for sizes {values}, where it had {others}" if others else ""):
                        _, found = self.of(dict(zip(self.symbols, values, strict=True)))
        return found(*inputs)

    def of(self, values: Mapping[Any, int]) -> tuple[Plan, Callable[..., list[Any]]]:
        """Compiles for some sizes, or finds what was."""
        exact = tuple(values.values())
        if self.fixed is None:
            self.fixed = self._fixed(values)
        if self.fixed and len(self.made) < STATIC_VERSIONS:
            plan = Plan(self.gm, self.options, self.static, known=values)
            run = plan.compile()
            self.made[exact] = run
            return plan, run
        dims = {symbol: self._largest(one, values[symbol]) for symbol, one in self.symbols.items()}
        key = ("dims", *dims.values())
        run_dims = self.made.get(key)
        if run_dims is None:
            # Where the maximum is twice the one before it, sizes are near to it, whatever the first call's was.
            usual = {symbol: dims[symbol] for symbol, one in self.symbols.items() if not one.largest}
            plan = Plan(self.gm, self.options, self.static, dims=dims, places=self._texts(), usual=usual)
            run_dims = plan.compile()
            self.made[key] = run_dims
            self.plan = plan
        self.made[exact] = run_dims
        return self.plan, run_dims

    def _fixed(self, values: Mapping[Any, int]) -> bool:
        if self.options.dynamic is False:
            return True
        dims = {symbol: self._largest(one, values[symbol]) for symbol, one in self.symbols.items()}
        opened = Plan(self.gm, self.options, self.static, dims=dims, places=self._texts()).possible()
        closed = Plan(self.gm, self.options, self.static, known=values).possible()
        return weight(opened) < weight(closed) or (not opened and bool(closed))

    def _largest(self, symbol: _Symbol, value: int) -> int:
        if symbol.largest:
            return symbol.largest
        largest = SMALLEST_DIM
        while largest < value:
            largest *= 2
        return largest

    def _texts(self) -> dict[Any, str]:
        return {symbol: f"i{one.input}" if one.axis is None else f"i{one.input}.shape[{one.axis}]" for symbol, one in self.symbols.items()}
