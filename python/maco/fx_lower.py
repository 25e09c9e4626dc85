"""ATen ops as ops of MACO: one function an op, which writes it into a `Graph` or raises `Unsupported` with the reason.

A torch tensor's elements in row-major order are what a MACO tensor holds, under a shape of 1 to 4 axes that may be another: views that keep
that order cost nothing. Permutations, slices and expansions are written down when an op needs their elements.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Union

import sympy
import torch
from torch.fx import Node

from .dtypes import DType
from .expressions import Expr
from .graph import Graph, Value

__all__ = [
    "Dense",
    "Lowering",
    "Ref",
    "Unsupported",
    "VIEWS",
    "extent",
    "extents",
    "lowering_of",
    "operand_of",
    "physical",
    "product",
    "result_of",
]

aten = torch.ops.aten

Extent = Union[int, sympy.Expr]
Shape = tuple[Extent, ...]

MOST_COPIES = 64
"""So many copies of what is broadcast are written out."""

DTYPES = {
    torch.float32: DType.f32,
    torch.float16: DType.f16,
    torch.bfloat16: DType.bf16,
    torch.int32: DType.i32,
    torch.uint8: DType.u8,
    torch.float8_e4m3fn: DType.f8e4m3,
    torch.float8_e5m2: DType.f8e5m2,
}
FLOATS = (DType.f32, DType.f16, DType.bf16, DType.f8e4m3, DType.f8e5m2)
LARGEST_I32 = 2**31 - 1
LARGEST_F32 = 3.4028234663852886e38


class Unsupported(Exception):
    """What MACO doesn't compute, and why. `node`: the view that is to blame, if it isn't the op that was asked for."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


# ---- shapes ----------------------------------------------------------------------------------------------------------------------------


class _Sizes(threading.local):
    """Sizes that stand for symbols while a graph is lowered, and the symbols that are dims of MACO's."""

    def __init__(self) -> None:
        self.known: Mapping[Any, int] = {}
        self.dims: Mapping[Any, Any] = {}


_sizes = _Sizes()


@contextlib.contextmanager
def sizes(known: Mapping[Any, int], dims: Mapping[Any, Any]) -> Iterator[None]:
    """A context in which symbols of `known` have these values and those of `dims` become these dims of MACO's; others are unknown."""
    before = _sizes.known, _sizes.dims
    _sizes.known, _sizes.dims = known, dims
    try:
        yield
    finally:
        _sizes.known, _sizes.dims = before


def extent(size: Any) -> Extent:
    """A size of a traced tensor as an integer, or an expression over symbols."""
    if isinstance(size, int):
        return size
    if isinstance(size, Node):
        size = size.meta.get("val")
    if not isinstance(size, (int, torch.SymInt)):
        raise Unsupported(f"a number that is known only at run time ({type(size).__name__})")
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if _sizes.known:
        expression = expression.xreplace({key: sympy.Integer(value) for key, value in _sizes.known.items()})
    if expression.is_number:
        return int(expression)
    if not expression.free_symbols <= _sizes.dims.keys():
        raise Unsupported("a size that is known only at run time")
    return expression.xreplace(_sizes.dims)


def plain_size(size: Any) -> Extent:
    """A size as an integer, if it is one."""
    return int(size) if isinstance(size, sympy.Expr) and size.is_number else size


def extents(sizes: Sequence[Any]) -> Shape:
    """Sizes of a traced tensor."""
    return tuple(extent(size) for size in sizes)


def product(shape: Sequence[Extent]) -> Extent:
    """How many elements."""
    count: Extent = 1
    for one in shape:
        count = count * one
    return count


def physical(shape: Sequence[Extent]) -> Shape:
    """The shape under which MACO has a tensor: at most 4 axes, a size that launches decide in axis 0 only."""
    found = tuple(shape)
    if any(one == 0 for one in found):
        raise Unsupported("a tensor without elements")
    last = max((i for i, one in enumerate(found) if not isinstance(one, int)), default=-1)
    keep = max(last, len(found) - 4, 0)
    return (product(found[: keep + 1]), *found[keep + 1 :]) if found else (1,)


def static(shape: Sequence[Extent], what: str = "it") -> None:
    if not all(isinstance(one, int) for one in shape):
        raise Unsupported(f"{what} has a size that isn't known when compiling")


# ---- what a node is in a graph that is built ------------------------------------------------------------------------------------------


class Ref:
    """A tensor: its logical shape, which torch has, and its dtype in MACO."""

    shape: Shape
    dtype: DType


class Dense(Ref):
    """A tensor of the graph; `forms` are its values by their shapes in MACO."""

    def __init__(self, value: Value | None, form: Shape, shape: Shape, dtype: DType, forms: dict[Shape, Value] | None = None) -> None:
        self.shape, self.dtype = shape, dtype
        self.forms: dict[Shape, Value] = forms if forms is not None else {form: value}  # type: ignore[dict-item]
        self.form = form

    @property
    def value(self) -> Value:
        return self.forms[self.form]

    def viewed(self, shape: Shape) -> Dense:
        """The same elements under another logical shape."""
        return Dense(None, self.form, shape, self.dtype, self.forms)


class Lazy(Ref):
    """What is written into the graph when its elements are needed."""

    def __init__(self, shape: Shape, dtype: DType, make: Callable[[], Dense], node: Node) -> None:
        self.shape, self.dtype, self.make, self.node = shape, dtype, make, node
        self.made: Dense | None = None
        self.prefix: tuple[Ref, Extent] | None = None  # the tensor of which these are the first rows, and how many


class Gated(Lazy):
    """silu or gelu of `gate`, which a product may take in."""

    gate: Ref
    kind: str
    attributes: Mapping[str, Any]


class Permuted(Ref):
    """Axis i is axis `perm[i]` of `base`."""

    def __init__(self, base: Ref, perm: tuple[int, ...], node: Node) -> None:
        self.base, self.perm, self.node = base, perm, node
        self.shape, self.dtype = tuple(base.shape[p] for p in perm), base.dtype
        self.made: Dense | None = None


class Expanded(Ref):
    """`base`, broadcast."""

    def __init__(self, base: Ref, shape: Shape, node: Node) -> None:
        self.base, self.shape, self.dtype, self.node = base, shape, base.dtype, node
        self.made: Dense | None = None


class Heads(Ref):
    """A tensor that lies in several states, one for each index of its leading axes: a cache, with a state for each head."""

    def __init__(self, parts: Sequence[Dense], axis: int, shape: Shape, node: Node) -> None:
        self.parts, self.axis, self.shape, self.dtype, self.node = tuple(parts), axis, shape, parts[0].dtype, node
        self.made: Dense | None = None


class Number(Ref):
    """A tensor whose elements are all one number."""

    def __init__(self, number: float, shape: Shape, dtype: DType) -> None:
        self.number, self.shape, self.dtype = number, shape, dtype
        self.made: Dense | None = None


Scalar = Union[int, float]
Operand = Union[Ref, Scalar]


class Lowering:
    """Writes nodes into a graph.

    `given(node, kind)` declares what comes from outside; `kind` is "plain", or for integers as row numbers ("ids", rows) or
    ("index", rows), or for one integer as the number of a row ("position", rows), which gives an expression, or for what is changed in
    place ("state", rows, width, number), of as many as leading axes have elements.
    `constant(key, make)` declares a tensor that doesn't change, which `make(device)` gives.
    """

    def __init__(
        self,
        graph: Graph,
        given: Callable[[Node, Any], Any],
        constant: Callable[[Any, DType, Shape, Callable[[Any], Any]], Dense],
        world: int = 1,
    ) -> None:
        self.graph = graph
        self.given = given
        self.constant = constant
        self.world = world
        self.refs: dict[Node, Any] = {}
        self.hard: set[Node] = set()  # views that torch has to make
        self.states: dict[Node, list[Dense]] = {}  # inputs that are changed in place
        self.taken: dict[tuple[Node, Any], Any] = {}
        self.wide: dict[tuple[int, Shape], tuple[Dense, Ref]] = {}  # what was broadcast
        self.name = ""

    # ---- nodes

    def lower(self, node: Node) -> Any:
        """Writes what a node computes; what its operands are is known, comes from outside, or is a view."""
        function = lowering_of(node)
        if function is None:
            raise Unsupported("MACO has no such op")
        self.name = _name(node)
        found = function(self, node)
        self.refs[node] = found
        return found

    def ref(self, node: Any) -> Ref:
        """An operand."""
        if not isinstance(node, Node):
            raise Unsupported(f"an operand is a {type(node).__name__}")
        found = self.refs.get(node)
        if found is None:
            if node.target in VIEWS and node not in self.hard:
                name = self.name
                found = self.refs[node] = LOWERED[node.target](self, node)
                self.name = name
            else:
                found = self.refs[node] = self.given(node, "plain")
        if not isinstance(found, Ref):
            raise Unsupported("an operand is a list of tensors")
        return found

    def outside(self, node: Node, kind: Any) -> Any:
        """The integers of kind `kind` that `node` gives from outside the graph; declared once."""
        found = self.taken.get((node, kind))
        if found is None:
            found = self.taken[node, kind] = self.given(node, kind)
        return found

    def operand(self, arg: Any) -> Operand:
        """A tensor or a number."""
        if isinstance(arg, (bool, int, float)):
            return arg
        return self.ref(arg)

    # ---- elements in memory

    def dense(self, ref: Ref) -> Dense:
        """The tensor in the graph, written down if it isn't yet."""
        if isinstance(ref, Dense):
            return ref
        assert isinstance(ref, (Lazy, Permuted, Expanded, Heads, Number))
        if ref.made is None:
            name, self.name = self.name, ""
            try:
                if isinstance(ref, Lazy):
                    ref.made = ref.make()
                elif isinstance(ref, Permuted):
                    ref.made = self._permute(ref)
                elif isinstance(ref, Expanded):
                    ref.made = self._expand(ref)
                elif isinstance(ref, Heads):
                    ref.made = self._joined(ref)
                else:
                    ref.made = self._full(ref)
            except Unsupported as error:
                if error.node is None:
                    error.node = getattr(ref, "node", None)
                raise
            finally:
                self.name = name
        return ref.made

    def shaped(self, ref: Ref, form: Sequence[Extent]) -> Value:
        """The elements of `ref` under a shape of MACO's."""
        found, want = self.dense(ref), tuple(form)
        value = found.forms.get(want)
        if value is None:
            if len(want) > 4 or any(not isinstance(one, int) for one in want[1:]):
                raise Unsupported("a shape that MACO hasn't")
            value = found.forms[want] = self.graph.reshape(found.value, [written(one) for one in want])
        return value

    def shared(self, key: Ref, ref: Ref) -> Ref:
        """`ref`, or one of its shape that was made of `key` before."""
        base = self.dense(key)
        return self.wide.setdefault((id(base.forms), ref.shape), (base, ref))[1]

    def matrix(self, ref: Ref, width: Extent) -> Shape:
        """[elements / width, width]."""
        return (divided(product(ref.shape), width), width)

    def made(self, value: Value, form: Sequence[Extent], shape: Sequence[Extent], dtype: DType) -> Dense:
        """A result."""
        return Dense(value, tuple(form), tuple(shape), dtype)

    def _permute(self, ref: Permuted) -> Dense:
        base = self.dense(ref.base)
        axes = [p for p in ref.perm if base.shape[p] != 1]
        order = sorted(axes)
        place = {p: i for i, p in enumerate(order)}
        groups: list[list[int]] = []
        for p in axes:
            if groups and place[groups[-1][-1]] + 1 == place[p]:
                groups[-1].append(p)
            else:
                groups.append([p])
        if len(groups) <= 1:
            return base.viewed(ref.shape)
        by_place = sorted(range(len(groups)), key=lambda i: groups[i][0])
        form = [product([base.shape[p] for p in groups[i]]) for i in by_place]
        perm = [by_place.index(i) for i in range(len(groups))]
        if len(form) > 4:
            raise Unsupported(f"a permutation of {len(form)} axes: MACO's tensors have at most 4")
        if not isinstance(form[0], int) and perm[0] != 0:
            raise Unsupported("a permutation that moves the axis whose size launches decide")
        value = self.graph.transpose(self.shaped(base, form), perm if perm != list(reversed(range(len(perm)))) else None)
        return self.made(value, [form[p] for p in perm], ref.shape, ref.dtype)

    def _expand(self, ref: Expanded) -> Dense:
        base = self.dense(ref.base)
        shape = (1,) * (len(ref.shape) - len(base.shape)) + base.shape
        runs: list[list[int]] = []
        for i, (have, want) in enumerate(zip(shape, ref.shape, strict=True)):
            if have == want:
                continue
            # Axes of one element between two that are expanded belong to the run.
            if runs and all(ref.shape[j] == 1 for j in range(runs[-1][-1] + 1, i)):
                runs[-1].append(i)
            else:
                runs.append([i])
        now: Ref = base
        form: Shape
        for run in runs:
            first, last = run[0], run[-1]
            before = product(ref.shape[:first])
            times = product(ref.shape[first : last + 1])
            behind = product(shape[last + 1 :])
            done = (*ref.shape[: last + 1], *shape[last + 1 :])
            if not isinstance(before, int) or not isinstance(behind, int):
                # Rows whose number launches decide: copies beside or behind each other.
                value, form = self._copies(now, before, times, behind)
            elif behind == 1 and ref.dtype is not DType.u8:
                static([times])
                ones = self.constant(("ones", ref.dtype, times), ref.dtype, (1, times), partial(_ones, times))
                value = self.graph.matmul(self.shaped(now, (before, 1)), ones.value, dtype=ref.dtype)
                form = (before, times)
            else:
                static([before, times, behind])
                ids = self.constant(
                    ("repeat", before, times),
                    DType.i32,
                    (before * times,),
                    partial(_repeated, before, times),
                )
                value = self.graph.embedding(self.shaped(now, (before, behind)), ids.value)
                form = (before * times, behind)
            now = self.made(value, form, done, ref.dtype)
        return self.dense(now).viewed(ref.shape)

    def _copies(self, ref: Ref, before: Extent, times: Extent, behind: Extent) -> tuple[Value, Shape]:
        if not isinstance(times, int) or times > MOST_COPIES:
            raise Unsupported("what is broadcast to a size that isn't known when compiling")
        if isinstance(behind, int):
            value = self.shaped(ref, (before, behind))
            return self.graph.concat(*[value] * times, axis=1), (before, times * behind)
        if before != 1:
            raise Unsupported("what is broadcast in front of a size that isn't known when compiling")
        form = physical(ref.shape)
        return self.graph.concat(*[self.shaped(ref, form)] * times, axis=0), (form[0] * times, *form[1:])

    def _joined(self, ref: Heads) -> Dense:
        rows, width = ref.parts[0].form
        value = self.graph.concat(*(part.value for part in ref.parts), axis=0)
        return self.made(value, (len(ref.parts) * rows, width), ref.shape, ref.dtype)

    def _full(self, ref: Number) -> Dense:
        static(ref.shape)
        form = physical(ref.shape)
        number = ref.number
        return self.constant(
            ("full", ref.dtype, form, number), ref.dtype, form, lambda device: torch.full(form, number, device=device, dtype=torch.float64)
        ).viewed(ref.shape)


def _ones(count: int, device: Any) -> torch.Tensor:
    return torch.ones(1, count, device=device)


def _repeated(count: int, times: int, device: Any) -> torch.Tensor:
    return torch.arange(count, device=device, dtype=torch.int32).repeat_interleave(times)


def divided(count: Extent, by: Extent) -> Extent:
    """The quotient, which is whole."""
    if isinstance(count, int) and isinstance(by, int):
        return count // by
    found = sympy.cancel(sympy.sympify(count) / sympy.sympify(by))
    return int(found) if found.is_number else found


def python_text(size: sympy.Expr, whole: str = "//") -> str:
    """An expression in Python; with `whole` "/" in MACO's language."""
    if size.is_Integer:
        return str(int(size))
    if size.is_Symbol:
        return str(size.name)
    if size.is_Add or size.is_Mul and not any(one.is_Rational and not one.is_Integer for one in size.args):
        return "(" + (" + " if size.is_Add else " * ").join(python_text(one, whole) for one in size.args) + ")"
    if type(size).__name__ in ("FloorDiv", "CleanDiv"):
        return f"({python_text(size.args[0], whole)} {whole} {python_text(size.args[1], whole)})"
    if size.is_Mul:
        numerator, denominator = size.as_numer_denom()
        return f"({python_text(numerator, whole)} {whole} {python_text(denominator, whole)})"
    raise Unsupported(f"the size {size}")


def written(size: Extent) -> Any:
    """An extent for a graph of MACO's."""
    return size if isinstance(size, int) else Expr(python_text(size, "/"))


def _name(node: Node) -> str:
    return node.name if node.name and node.name.replace("_", "a").isalnum() and not node.name[0].isdigit() else ""


# ---- the table -------------------------------------------------------------------------------------------------------------------------

LOWERED: dict[Any, Callable[[Lowering, Node], Any]] = {}
NAMED: dict[str, Callable[[Lowering, Node], Any]] = {}
"""Of ops that may not be defined yet, by their names."""
VIEWS: set[Any] = set()


def lowering_of(node: Node) -> Callable[[Lowering, Node], Any] | None:
    """The function that lowers a node, or None."""
    if node.op != "call_function":
        return None
    return LOWERED.get(node.target) or NAMED.get(str(node.target))


def lowers(*targets: Any, view: bool = False) -> Callable[[Callable[[Lowering, Node], Any]], Callable[[Lowering, Node], Any]]:
    def register(function: Callable[[Lowering, Node], Any]) -> Callable[[Lowering, Node], Any]:
        for target in targets:
            LOWERED[target] = function
            if view:
                VIEWS.add(target)
        return function

    return register


def operand_of(node: Node, position: int, name: str, default: Any = None) -> Any:
    """An argument by place or name."""
    if len(node.args) > position:
        return node.args[position]
    return node.kwargs.get(name, default)


def result_of(node: Node, index: int | None = None, bools: bool = False) -> tuple[Shape, DType]:
    """Shape and dtype of what a node gives. Truth values, u8 0 and 1, are for those who ask for `bools`: others would count with them."""
    value = node.meta.get("val")
    if index is not None:
        value = value[index]
    if not isinstance(value, torch.Tensor):
        raise Unsupported("it gives no tensor" if value is not None else "nothing is known of its result")
    truths = bools and value.dtype is torch.bool
    if value.dtype not in DTYPES and not truths:
        raise Unsupported(f"MACO has no dtype {str(value.dtype).removeprefix('torch.')}")
    shape = extents(value.shape)
    if any(one == 0 for one in shape):
        raise Unsupported("a tensor without elements")
    return shape, DType.u8 if truths else DTYPES[value.dtype]


def common_of(lo: Lowering, dtype: DType | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
    if lo.name:
        found["name"] = lo.name
        lo.name = ""
    return found
