"""A part of a traced graph that one launch computes: its graph in MACO, and how torch's tensors become its inputs and outputs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

from .dtypes import DType
from .errors import Error, GraphError
from .fx_collectives import is_collective
from .fx_lower import DTYPES, VIEWS, Dense, Extent, Lowering, Shape, Unsupported, extents, physical, python_text, written
from .fx_report import source_place
from .fx_state import appended
from .fx_views import permuted
from .graph import Graph, Value
from .program import Program, program
from .roles import SMConfig, of_one_rank, roles_of

if TYPE_CHECKING:
    from .fx_plan import Plan

__all__ = ["Part", "declared", "device_of", "is_view", "tensor_of", "values_of"]

TORCH = {own: theirs for theirs, own in DTYPES.items()}


@dataclass
class _In:
    """An input. `prepare` makes of torch's tensor what MACO binds; None: it is that."""

    node: Node
    name: str
    prepare: Callable[[Any], Any] | None
    scalar: bool = False


@dataclass
class _Out:
    """An output. `make` gives torch's tensor and what MACO binds, for the values of dims; `want` is torch's dtype.

    `place` gives what MACO binds of memory that is there for torch's tensor, None if it doesn't suit.
    """

    node: Node
    name: str
    make: Callable[[Mapping[str, int]], tuple[Any, Any]]
    want: torch.dtype | None
    place: Callable[[Any], Any]


class _Offers(threading.local):
    """Memory for outputs, by their nodes, that the caller of this thread has."""

    def __init__(self) -> None:
        self.memory: dict[Node, Any] = {}


offers = _Offers()


class _Traced(Graph):
    """A graph whose diagnostics have the lines of what was traced."""

    place: tuple[str, int] | None = None

    def _open(self) -> Any:
        where = super()._open()
        return where if self.place is None else where._replace(file=self.place[0], line=self.place[1])


class Part:
    """Ops that one launch computes."""

    def __init__(self, number: int, nodes: list[Node], plan: Plan) -> None:
        self.number = number
        self.nodes = nodes
        self.plan = plan
        self.inputs: list[_In] = []
        self.outputs: list[_Out] = []
        self.constants: list[tuple[str, Any]] = []
        self.device = next(device_of(node) for node in nodes)
        self.collective = any(is_collective(node) for node in nodes)
        self.group = plan.group if self.collective else None
        self.graph = _Traced(plan.options.name, self.group.size if self.group is not None else 1)
        self.dims: tuple[str, ...] = ()
        self.program: Program | None = None
        self.known = False

    def build(self, wanted: Sequence[Node]) -> None:
        """Writes the graph; nodes outside need the values of `wanted`. Raises Unsupported and `maco.GraphError`."""
        self._set(self.graph)
        used = self._symbols()
        self.dims = tuple(self.plan.symbols[symbol].name for symbol in used)
        for symbol in used:
            self.graph.dim(self.plan.symbols[symbol].name, self.plan.dims[symbol], 1, self.plan.typical(symbol))
        lo = Lowering(self.graph, self._given, self._constant, self.graph.world)
        lo.hard = self.plan.hard
        for node in self.nodes:
            self.graph.place = source_place(node)
            if node in self.plan.updates:
                lo.refs[node] = appended(lo, self.plan.updates[node])
            else:
                lo.lower(node)
        for node in wanted:
            if node not in self.plan.updates:
                self._output(lo, node)
        self.graph.check()

    def _set(self, graph: Graph) -> None:
        """The settings of the options."""
        options = self.plan.options
        roles = options.sm_roles
        if options.variants:
            graph.scalar(VARIANT, 0, len(options.variants))
            roles = _chosen_by_launch(options.variants)
        elif isinstance(roles, SMConfig):
            roles = roles_of(roles, self.device.type, self.device.index)
        if roles is not None:
            graph.set(sm_roles=of_one_rank(roles) if self.graph.world == 1 else roles)
        if options.overlap is not None:
            graph.set(overlap=options.overlap)

    def check_settings(self, wrong: GraphError) -> None:
        """Raises `maco.Error` if no graph can have the settings, or if `wrong` is about the roles of SMs."""
        text = _first_text(wrong)
        if "'sm_roles'" not in text:
            graph = Graph("settings")
            self._set(graph)
            graph.output("y", graph.relu(graph.input("x", "f32", [4])))
            try:
                graph.compile(target="cpu" if self.device.type == "cpu" else None)
                return
            except GraphError as error:
                text = _first_text(error)
                if "gives no range of role" in text or "no range of 'sm_roles'" in text:
                    return  # only for this graph's op
        raise Error(text.replace("'sm_roles'", self.plan.options.roles_from), code=wrong.code) from None

    def compile(self) -> None:
        """Makes the program."""
        options = self.plan.options
        index = self.device.index or 0
        self.program = program(self.graph, group=self.group, device=self.device.type, index=index, timeout=options.timeout)
        # Where torch has compared inputs with those that were traced, they aren't looked at again.
        self.known = options.guarded and not self.dims and all(one.node.op == "placeholder" for one in self.inputs)
        self.program.from_end = tuple(one.name for one in self.inputs if one.scalar)

    def _symbols(self) -> list[Any]:
        """The dims that its tensors have."""
        if not self.plan.dims:
            return []
        found: set[Any] = set()
        seen: set[Node] = set()
        stack = list(self.nodes)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            value = node.meta.get("val")
            for size in [value, *(size for one in values_of(node) for size in one.shape)]:
                if isinstance(size, torch.SymInt):
                    found |= size.node.expr.free_symbols
            if node in self.nodes or is_view(node) or node in self.plan.gone:
                stack += node.all_input_nodes
        return [symbol for symbol in self.plan.dims if symbol in found]

    def _given(self, node: Node, kind: Any) -> Any:
        value = tensor_of(node)
        name = f"x{len(self.inputs)}"
        declare = self.graph.param if node in self.plan.static_nodes else self.graph.input
        if kind[0] == "position":
            self.inputs.append(_In(node, name, _position(kind[1]), scalar=True))
            return self.graph.scalar(name, 0, kind[1])
        if kind[0] == "state":
            declare = self.graph.state
        found, form, prepare, dtype = declared(value, self.device, kind, self.plan)
        made = declare(name, dtype, [written(one) for one in form])
        self.inputs.append(_In(node, name, prepare))
        return found(made, node)

    def _constant(self, key: Any, dtype: DType, form: Shape, make: Callable[[Any], Any]) -> Dense:
        name = f"c{len(self.constants)}"
        made = self.graph.param(name, dtype, list(form))
        self.constants.append((name, _kept_constant((key, dtype, form, str(self.device)), dtype, form, make, self.device)))
        return Dense(made, form, form, dtype)

    def _output(self, lo: Lowering, node: Node) -> None:
        value = tensor_of(node)
        name = f"y{len(self.outputs)}"
        order = memory_order(value, self.plan)
        dense = lo.dense(permuted(lo.ref(node), order, node))
        self.graph.output(name, dense.value)
        want = None if TORCH[dense.dtype] == value.dtype else value.dtype
        make = _maker(extents(value.shape), order, dense.form, TORCH[dense.dtype], self.device)
        self.outputs.append(_Out(node, name, make, want, _placer(order, dense.form)))

    def __call__(self, values: Mapping[str, int], *tensors: Any) -> list[Any]:
        """Runs it with the tensors of its inputs, and values of its dims."""
        given = dict(self.constants)
        for one, tensor in zip(self.inputs, tensors, strict=True):
            if one.scalar:
                values = {**values, one.name: one.prepare(tensor)}  # type: ignore[misc]
            else:
                given[one.name] = tensor if one.prepare is None else one.prepare(tensor)
        made: list[Any] = []
        for out in self.outputs:
            offered = offers.memory.get(out.node)
            bound = out.place(offered) if offered is not None and out.want is None else None
            result, given[out.name] = out.make(values) if bound is None else (offered, bound)
            made.append(result)
        assert self.program is not None
        if (variant := self.plan.options.variant) is not None:
            values = {**values, VARIANT: variant()}
        self.program(given, values, known=self.known)
        return [tensor if out.want is None else tensor.to(out.want) for out, tensor in zip(self.outputs, made, strict=True)]


def _first_text(error: GraphError) -> str:
    return error.diagnostics[0].text if error.diagnostics else str(error)


VARIANT = "sm_config"
"""The scalar that says which of `Options.variants` a launch takes."""


def _chosen_by_launch(variants: Sequence[Any]) -> dict[str, Any]:
    """Roles that a scalar chooses among."""
    cases: list[dict[str, Any]] = [{"if": f"{VARIANT} == {i}", "roles": roles} for i, roles in enumerate(variants[:-1])]
    return {"when": [*cases, {"else": variants[-1]}]}


# ---- tensors from and for outside ------------------------------------------------------------------------------------------------------


def _evaluated(shape: Sequence[Extent]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """The shape for values of dims."""
    if all(isinstance(one, int) for one in shape):
        fixed = tuple(int(one) for one in shape)
        return lambda _: fixed
    names = sorted({str(symbol) for one in shape if not isinstance(one, int) for symbol in one.free_symbols})
    inner = "".join(f"{python_text(one) if not isinstance(one, int) else one}, " for one in shape)
    function = eval(f"lambda {', '.join(names)}: ({inner})")
    return lambda values: function(*[values[name] for name in names])


def _maker(
    shape: Shape, order: tuple[int, ...], form: Shape, dtype: torch.dtype, device: torch.device
) -> Callable[[Mapping[str, int]], tuple[Any, Any]]:
    """Allocates an output of torch's shape, in memory of MACO's."""
    straight = order == tuple(range(len(order)))
    if straight and form == shape and all(isinstance(one, int) for one in shape):

        def make_plain(_: Mapping[str, int]) -> tuple[Any, Any]:
            tensor = torch.empty(shape, dtype=dtype, device=device)
            return tensor, tensor

        return make_plain
    base, back = _evaluated([shape[i] for i in order]), tuple(order.index(i) for i in range(len(order)))
    inner = _evaluated(form)

    def make(values: Mapping[str, int]) -> tuple[Any, Any]:
        memory = torch.empty(base(values), dtype=dtype, device=device)
        bound = memory.view(inner(values))
        return (memory if straight else memory.permute(back)), bound

    return make


def _placer(order: tuple[int, ...], form: Shape) -> Callable[[Any], Any]:
    """MACO's view of memory that torch has for an output."""
    fixed = tuple(int(one) for one in form if isinstance(one, int))
    if len(fixed) != len(form):
        return lambda _: None

    def place(tensor: Any) -> Any:
        straight = tensor.permute(order)
        return straight.view(fixed) if straight.is_contiguous() else None

    return place


def declared(value: Any, device: torch.device, kind: Any, plan: Plan) -> tuple[Any, Shape, Callable[[Any], Any] | None, DType]:
    """How a tensor from outside is declared: what makes its Ref, its shape in MACO, what to do with torch's tensor, its dtype."""
    if value.layout is not torch.strided:
        raise Unsupported(f"a tensor of the layout {str(value.layout).removeprefix('torch.')}")
    if value.device != device:
        raise Unsupported(f"an operand on {value.device}, where others are on {device}")
    if type(value) is not torch.Tensor and not isinstance(value, (torch._subclasses.FakeTensor, torch.nn.Parameter)):
        raise Unsupported(f"a tensor of the class {type(value).__name__}")
    shape = extents(value.shape)
    if kind[0] == "state":
        if not value.is_contiguous() or value.dtype not in DTYPES:
            raise Unsupported("a change in place of a tensor that isn't contiguous, or of another dtype than MACO's")
        place, number = (kind[1], kind[2]), kind[3]
        dtype = DTYPES[value.dtype]
        straight = shape == place
        return (lambda made, _: Dense(made, place, place, dtype)), place, None if straight else _viewed(place, number), dtype
    if kind != "plain":
        form = physical(shape)
        word, rows = kind
        return (lambda made, _: Dense(made, form, shape, DType.i32)), form, _numbers(word, rows, _torch_form(form)), DType.i32
    masks = value.dtype is torch.bool
    if value.dtype not in DTYPES and not masks:
        raise Unsupported(f"MACO has no dtype {str(value.dtype).removeprefix('torch.')}")
    dtype = DType.u8 if masks else DTYPES[value.dtype]
    order = memory_order(value, plan)
    base = tuple(shape[i] for i in order)
    form = physical(base)
    straight = order == tuple(range(len(order)))
    back = tuple(order.index(i) for i in range(len(order)))
    bound = _torch_form(form)

    def found(made: Value, node: Node) -> Any:
        return permuted(Dense(made, form, base, dtype), back, node)

    if straight and form == shape and not masks:
        return found, form, None, dtype

    def prepare(tensor: Any) -> Any:
        if masks:
            tensor = tensor.view(torch.uint8)
        return (tensor if straight else tensor.permute(order)).reshape(bound)

    return found, form, prepare, dtype


def _torch_form(form: Shape) -> tuple[int, ...]:
    """The shape for torch's reshape."""
    return tuple(one if isinstance(one, int) else -1 for one in form)


def memory_order(value: Any, plan: Plan) -> tuple[int, ...]:
    """The axes in the order in which they lie in memory, if the tensor is dense; else in their own."""
    own = tuple(range(value.dim()))
    try:
        shape, stride = plan.hinted(value.shape), plan.hinted(value.stride())
    except Unsupported:
        return own
    order = tuple(sorted(own, key=lambda i: (-stride[i], i)))
    step = 1
    for axis in reversed(order):
        if shape[axis] != 1 and stride[axis] != step:
            return own
        step *= shape[axis]
    if [i for i in order if shape[i] != 1] == [i for i in own if shape[i] != 1]:
        return own
    return order


def _viewed(form: tuple[int, ...], number: int) -> Callable[[Any], Any]:
    """Rows of one of several states in a tensor, kept for as long as calls give the same tensor."""
    last: list[Any] = [None, 0, None]

    def prepare(tensor: Any) -> Any:
        if last[0] is not tensor or last[1] != tensor.data_ptr():
            last[:] = tensor, tensor.data_ptr(), tensor.detach().view(-1, *form)[number]
        return last[2]

    return prepare


def _position(rows: int) -> Callable[[Any], Any]:
    """The number of a row, which may count from the end. Of a tensor on a GPU it is that: the launch reads it."""

    def prepare(tensor: Any) -> Any:
        if tensor.is_cuda:
            return tensor
        number = int(tensor)
        return number + rows if number < 0 else number

    return prepare


def _numbers(word: str, rows: int, form: tuple[int, ...]) -> Callable[[Any], Any]:
    """Row numbers as i32: those that fit in no table stay out of it."""

    def prepare(tensor: Any) -> Any:
        if word == "index":
            tensor = torch.where(tensor < 0, tensor + rows, tensor)
        if tensor.dtype != torch.int32:
            tensor = tensor.clamp(-1, rows).to(torch.int32)
        return tensor.reshape(form)

    return prepare


_constants: dict[Any, Any] = {}
_constants_lock = threading.Lock()


def _kept_constant(key: Any, dtype: DType, form: Shape, make: Callable[[Any], Any], device: torch.device) -> Any:
    with _constants_lock:
        found = _constants.get(key)
        if found is None:
            with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
                found = _constants[key] = make(device).to(TORCH[dtype]).reshape(form).contiguous()
        return found


def values_of(node: Node) -> list[Any]:
    """The traced tensors that a node gives."""
    value = node.meta.get("val")
    return [one for one in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(one, torch.Tensor)]


def is_view(node: Node) -> bool:
    """Whether the node is a view that both MACO, as part of an op's operand, and torch, as a tensor, can make."""
    return node.op == "call_function" and node.target in VIEWS


def tensor_of(node: Node) -> Any:
    """The traced tensor that a node gives."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise Unsupported("an operand that is no tensor")
    return value


def device_of(node: Node) -> torch.device:
    """Where a node computes."""
    found: torch.device = values_of(node)[0].device
    return found
