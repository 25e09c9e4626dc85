"""Every op of MACO's as a method of `Graph`; docs/ops.md says more of each.

`[M,N]` stands for `[..., N]`: leading axes are kept. An op computes in f32, or in i32 if its operands are integers, and rounds once, to
the dtype of its result. The calls check nothing of shapes and dtypes: `Graph.check` and `Graph.compile` do, and say at which call of the
caller's something is wrong. Wrong Python types and unknown keywords are a TypeError at the call.

Each method takes these keywords besides its own:

- `name`: what the result is called; of an op without one, the op.
- `dtype`: that of the result; else it is the first operand's.
- `into`: the state that the result becomes.
- `after`: values or names of ops that have to end before, whatever their data.
- `phase`: the name of a phase of the graph.
- `overlap`: "none", "conservative" or "aggressive", in place of the graph's.
- `overlap_group`: a collective with a group overlaps only with ops of the same group or none.
- `priority`: "high", "normal" or "low".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from .dtypes import DTypeLike
from .expressions import ExprLike

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .graph import Value
    from .mscclpp.program import CollectiveProgram

Number = Union[int, float]
Algorithm = Union[str, "CollectiveProgram"]
Reduce = Literal["sum", "max", "min", "avg"]
Overlap = Literal["none", "conservative", "aggressive"]
Priority = Literal["high", "normal", "low"]


class CommonButDtype(TypedDict, total=False):
    """What any op may be told beside its own attributes, without the dtype of its result."""

    name: str
    into: Value
    after: Sequence[Value | str]
    phase: str
    overlap: Overlap
    overlap_group: str
    priority: Priority


class Common(CommonButDtype, total=False):
    """Attributes that any op may have besides its own."""

    dtype: DTypeLike


COMMON = ("name", "dtype", "into", "after", "phase", "overlap", "overlap_group", "priority")


def _but(value: Any, default: Any) -> Any:
    """The value; None if it is the default."""
    return None if type(value) is type(default) and value == default else value


class Ops:
    """The ops; a base of `Graph`, which writes them down."""

    def _ops(self, kind: str, operands: Sequence[Any], results: int, attributes: Mapping[str, Any], common: Any) -> tuple[Value, ...]:
        raise NotImplementedError

    def _one(self, kind: str, operands: Sequence[Any], attributes: Mapping[str, Any], common: Any) -> Value:
        return self._ops(kind, operands, 1, attributes, common)[0]

    def _binary(self, kind: str, x: Value, y: Value | Number | None, value: Number | None, common: Any) -> Value:
        if isinstance(y, (int, float)):
            if value is not None:
                raise TypeError(f"{kind}() got a number as second operand and 'value'")
            y, value = None, y
        if (y is None) == (value is None):
            raise TypeError(f"{kind}() takes a second operand or 'value', and one of them")
        return self._one(kind, [x] if y is None else [x, y], {"value": value}, common)

    # ---- elementwise

    def add(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """x[M,N] + y: y has x's shape, or is [N] or [1], or the number `value`."""
        return self._binary("add", x, y, value, common)

    def sub(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """x[M,N] - y: y has x's shape, or is [N] or [1], or the number `value`."""
        return self._binary("sub", x, y, value, common)

    def mul(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """x[M,N] * y, element by element: y has x's shape, or is [N] or [1], or the number `value`."""
        return self._binary("mul", x, y, value, common)

    def div(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """x[M,N] / y: y has x's shape, or is [N] or [1], or the number `value`. Floats."""
        return self._binary("div", x, y, value, common)

    def pow(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """x[M,N] to the power y, as C's pow: y has x's shape, or is [N] or [1], or the number `value`. Floats."""
        return self._binary("pow", x, y, value, common)

    def maximum(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """The larger of x[M,N] and y: y has x's shape, or is [N] or [1], or the number `value`. NaN where one is."""
        return self._binary("maximum", x, y, value, common)

    def minimum(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """The smaller of x[M,N] and y: y has x's shape, or is [N] or [1], or the number `value`. NaN where one is."""
        return self._binary("minimum", x, y, value, common)

    def eq(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """u8 1 where x[M,N] is y, else 0: y has x's shape, or is [N] or [1], or the number `value`."""
        return self._binary("eq", x, y, value, common)

    def ne(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """u8 1 where x[M,N] isn't y, else 0: y has x's shape, or is [N] or [1], or the number `value`."""
        return self._binary("ne", x, y, value, common)

    def lt(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """u8 1 where x[M,N] is below y, else 0: y has x's shape, or is [N] or [1], or the number `value`."""
        return self._binary("lt", x, y, value, common)

    def le(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """u8 1 where x[M,N] is y or below, else 0: y has x's shape, or is [N] or [1], or the number `value`."""
        return self._binary("le", x, y, value, common)

    def gt(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """u8 1 where x[M,N] is above y, else 0: y has x's shape, or is [N] or [1], or the number `value`."""
        return self._binary("gt", x, y, value, common)

    def ge(self, x: Value, y: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]) -> Value:
        """u8 1 where x[M,N] is y or above, else 0: y has x's shape, or is [N] or [1], or the number `value`."""
        return self._binary("ge", x, y, value, common)

    def relu(self, x: Value, **common: Unpack[Common]) -> Value:
        """max(x, 0), of x's shape. Floats and i32."""
        return self._one("relu", [x], {}, common)

    def silu(self, x: Value, **common: Unpack[Common]) -> Value:
        """x * sigmoid(x), of x's shape. Floats."""
        return self._one("silu", [x], {}, common)

    def gelu(self, x: Value, *, approximate: Literal["none", "tanh"] = "none", **common: Unpack[Common]) -> Value:
        """gelu of x's shape, by erf or by tanh. Floats."""
        return self._one("gelu", [x], {"approximate": approximate}, common)

    def sigmoid(self, x: Value, **common: Unpack[Common]) -> Value:
        """1 / (1 + exp(-x)), of x's shape. Floats."""
        return self._one("sigmoid", [x], {}, common)

    def tanh(self, x: Value, **common: Unpack[Common]) -> Value:
        """tanh(x), of x's shape. Floats."""
        return self._one("tanh", [x], {}, common)

    def exp(self, x: Value, **common: Unpack[Common]) -> Value:
        """exp(x), of x's shape. Floats."""
        return self._one("exp", [x], {}, common)

    def log(self, x: Value, **common: Unpack[Common]) -> Value:
        """The natural logarithm, of x's shape. Floats."""
        return self._one("log", [x], {}, common)

    def sqrt(self, x: Value, **common: Unpack[Common]) -> Value:
        """The square root, of x's shape; NaN below 0. Floats."""
        return self._one("sqrt", [x], {}, common)

    def rsqrt(self, x: Value, **common: Unpack[Common]) -> Value:
        """1 / sqrt(x), of x's shape. Floats."""
        return self._one("rsqrt", [x], {}, common)

    def sin(self, x: Value, **common: Unpack[Common]) -> Value:
        """sin(x), of x's shape; x in radians. Floats."""
        return self._one("sin", [x], {}, common)

    def cos(self, x: Value, **common: Unpack[Common]) -> Value:
        """cos(x), of x's shape; x in radians. Floats."""
        return self._one("cos", [x], {}, common)

    def erf(self, x: Value, **common: Unpack[Common]) -> Value:
        """The error function, of x's shape. Floats."""
        return self._one("erf", [x], {}, common)

    def neg(self, x: Value, **common: Unpack[Common]) -> Value:
        """-x, of x's shape. Floats and i32."""
        return self._one("neg", [x], {}, common)

    def abs(self, x: Value, **common: Unpack[Common]) -> Value:
        """|x|, of x's shape. Floats and i32."""
        return self._one("abs", [x], {}, common)

    def clamp(self, x: Value, *, min: Number | None = None, max: Number | None = None, **common: Unpack[Common]) -> Value:
        """minimum(maximum(x, min), max) of x's shape, with one bound or both. Floats and i32."""
        if min is None and max is None:
            raise TypeError("clamp() takes 'min', 'max' or both")
        return self._one("clamp", [x], {"min": min, "max": max}, common)

    def where(
        self, condition: Value, a: Value, b: Value | Number | None = None, *, value: Number | None = None, **common: Unpack[Common]
    ) -> Value:
        """a where the condition, a u8, isn't 0, else b or the number `value`; all tensors are [M,N]. A temporary has a's dtype."""
        if isinstance(b, (int, float)):
            if value is not None:
                raise TypeError("where() got a number as third operand and 'value'")
            b, value = None, b
        if (b is None) == (value is None):
            raise TypeError("where() takes a third operand or 'value', and one of them")
        return self._one("where", [condition, a] if b is None else [condition, a, b], {"value": value}, common)

    def swiglu(self, gate: Value, up: Value, **common: Unpack[Common]) -> Value:
        """silu(gate) * up, both [M,N]. Floats."""
        return self._one("swiglu", [gate, up], {}, common)

    def geglu(self, gate: Value, up: Value, *, approximate: Literal["none", "tanh"] = "none", **common: Unpack[Common]) -> Value:
        """gelu(gate) * up, both [M,N]. Floats."""
        return self._one("geglu", [gate, up], {"approximate": approximate}, common)

    def cast(self, x: Value, dtype: DTypeLike | None = None, **common: Unpack[CommonButDtype]) -> Value:
        """x in another dtype; that of `into`, if none is given. Float to integer truncates and saturates, NaN becomes 0."""
        return self._one("cast", [x], {}, {**common, **({} if dtype is None else {"dtype": dtype})})

    def copy(self, x: Value, **common: Unpack[Common]) -> Value:
        """The same elements in a tensor of its own."""
        return self._one("copy", [x], {}, common)

    # ---- movement

    def reshape(self, x: Value, shape: Sequence[ExprLike], **common: Unpack[Common]) -> Value:
        """The same elements in row-major order under another shape, of which one entry may be -1."""
        return self._one("reshape", [x], {"shape": list(shape)}, common)

    def transpose(self, x: Value, perm: Sequence[int] | None = None, **common: Unpack[Common]) -> Value:
        """Axis i of the result is x's axis perm[i]; without `perm` axes are reversed."""
        return self._one("transpose", [x], {"perm": None if perm is None else list(perm)}, common)

    def slice(
        self,
        x: Value,
        axis: int,
        begin: ExprLike | None = None,
        end: ExprLike | None = None,
        step: int = 1,
        **common: Unpack[Common],
    ) -> Value:
        """Indices begin, begin + step, ... below `end` of one axis. Negative ones count from the end. The bounds may use dims and rank."""
        return self._one("slice", [x], {"axis": axis, "begin": begin, "end": end, "step": _but(step, 1)}, common)

    def concat(self, *xs: Value, axis: int, **common: Unpack[Common]) -> Value:
        """The operands one behind the other along an axis; they are equal in all others."""
        return self._one("concat", xs, {"axis": axis}, common)

    def split(self, x: Value, parts: int, *, axis: int, **common: Unpack[Common]) -> tuple[Value, ...]:
        """`parts` equal parts along an axis. With `name` the second is called "name.1", and so on."""
        return self._ops("split", [x], parts, {"axis": axis}, common)

    def embedding(self, table: Value, ids: Value, **common: Unpack[Common]) -> Value:
        """Rows of table[V,N] by ids i32 of one to three axes: [M,N]. An id outside of [0, V) ends the launch with a LaunchError."""
        return self._one("embedding", [table, ids], {}, common)

    def kv_append(self, cache: Value, x: Value, *, at: ExprLike, **common: Unpack[Common]) -> Value:
        """Rows at .. at + T of cache[S,W], a state, become x[T,W]. Gives the state.

        `at` may use scalars and dims. That 0 <= at and at + T <= S for all of their values is checked when compiling.
        """
        return self._one("kv_append", [cache, x], {"at": at}, {"into": cache, **common})

    # ---- products, norms, rows

    def matmul(
        self,
        a: Value,
        b: Value,
        bias: Value | None = None,
        *,
        transpose_b: bool = False,
        activation: Literal["none", "relu", "silu", "gelu"] = "none",
        **common: Unpack[Common],
    ) -> Value:
        """a[M,K] times b[K,N], with `transpose_b` b[N,K], plus bias[N]: [M,N].

        The activation is applied to the sum with the bias before anything is rounded. Floats in any mix, or i32 with i32.
        """
        operands = [a, b] if bias is None else [a, b, bias]
        return self._one("matmul", operands, {"transpose_b": transpose_b, "activation": activation}, common)

    def rmsnorm(self, x: Value, weight: Value, *, eps: float = 1e-6, **common: Unpack[Common]) -> Value:
        """x / sqrt(mean(x^2) + eps) * weight over the last axis: x[M,N], weight[N]. Floats."""
        return self._one("rmsnorm", [x, weight], {"eps": eps}, common)

    def layernorm(self, x: Value, weight: Value, bias: Value, *, eps: float = 1e-5, **common: Unpack[Common]) -> Value:
        """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis: x[M,N], weight[N], bias[N]. Floats."""
        return self._one("layernorm", [x, weight, bias], {"eps": eps}, common)

    def softmax(self, x: Value, **common: Unpack[Common]) -> Value:
        """exp(x - max) / sum(exp(x - max)) over the last axis, of x's shape. Floats."""
        return self._one("softmax", [x], {}, common)

    def sum(self, x: Value, **common: Unpack[Common]) -> Value:
        """The sum of each row: [M,N] to [M], [N] to [1]. Integers wrap around."""
        return self._one("sum", [x], {}, common)

    def mean(self, x: Value, **common: Unpack[Common]) -> Value:
        """The mean of each row: [M,N] to [M], [N] to [1]. Floats."""
        return self._one("mean", [x], {}, common)

    def max(self, x: Value, **common: Unpack[Common]) -> Value:
        """The largest element of each row, NaN if it has one: [M,N] to [M], [N] to [1]."""
        return self._one("max", [x], {}, common)

    def argmax(self, x: Value, **common: Unpack[Common]) -> Value:
        """The index of each row's largest element, the first of equals, as i32: [M,N] to [M], [N] to [1]."""
        return self._one("argmax", [x], {}, common)

    # ---- attention

    def rope(
        self,
        x: Value,
        positions: Value | None = None,
        *,
        head_dim: int,
        position: ExprLike | None = None,
        theta: float = 10000.0,
        interleaved: bool = False,
        scaling: Mapping[str, Number] | None = None,
        cosines: Value | None = None,
        sines: Value | None = None,
        rotary_dim: int | None = None,
        attention_factor: float = 1.0,
        frequencies: Value | None = None,
        **common: Unpack[Common],
    ) -> Value:
        """Rotary embedding of x[M,H*head_dim], of x's shape. Floats.

        Either `positions`, i32 and one a row, or `position`: row i stands at position + i; it may use scalars, dims and rank. `scaling`
        is Llama 3.1's: factor, low_freq_factor, high_freq_factor, original_max_position. `rotary_dim`, an even number: how many of the
        first elements of each head are rotated; pairs are within them, and the others are kept. In place of `theta` and `scaling`:
        `frequencies`, f32 [rotary_dim/2], by how many radians each pair rotates from one position to the next; or `cosines` and `sines`,
        floats [S,rotary_dim] or [S,rotary_dim/2], with a row for each position and a column for each rotated element or for each pair.
        Cosines and sines are multiplied by `attention_factor`.
        """
        if (cosines is None) != (sines is None):
            raise TypeError("rope() takes cosines and sines, or neither")
        if cosines is not None and frequencies is not None:
            raise TypeError("rope() takes frequencies, or cosines and sines, not both")
        attributes = {
            "head_dim": head_dim,
            "position": position,
            "theta": theta,
            "interleaved": interleaved,
            "scaling": None if scaling is None else dict(scaling),
            "rotary_dim": rotary_dim,
            "attention_factor": None if attention_factor == 1.0 else attention_factor,
        }
        given = [one for one in (cosines, sines, frequencies) if one is not None]
        if given and theta == 10000.0:
            del attributes["theta"]
        inputs = [x, *([] if positions is None else [positions]), *given]
        return self._one("rope", inputs, attributes, common)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        head_dim: int,
        causal: bool = False,
        scale: float | None = None,
        length: ExprLike | None = None,
        window: int | None = None,
        softcap: float | None = None,
        **common: Unpack[Common],
    ) -> Value:
        """softmax(q k^T * scale) v for each head: q[T,Hq*D], k and v[S,Hkv*D] give [T,Hq*D]. Floats.

        Query head h reads head h / (Hq / Hkv). `length` (S if not given; it may use scalars and dims) says how many rows of k and v
        count; with `causal` query i stands at length - T + i. `scale` is 1/sqrt(head_dim) if not given. With `causal`, `window` = n is how
        many keys a query sees, itself the last of them. With `softcap` = c scores s become c * tanh(s / c).
        """
        attributes = {"head_dim": head_dim, "causal": causal, "scale": scale, "length": length, "window": window, "softcap": softcap}
        return self._one("attention", [q, k, v], attributes, common)

    # ---- collectives: all ranks run them, in one order

    def allreduce(self, x: Value, reduce: Reduce = "sum", *, algorithm: Algorithm = "auto", **common: Unpack[Common]) -> Value:
        """The reduction of x over all ranks, on every rank.

        `algorithm`: auto, oneshot, twoshot, ring, nccl, a collective of the graph by name, or a program of `maco.mscclpp`.
        """
        return self._one("allreduce", [x], {"reduce": _but(reduce, "sum"), "algorithm": algorithm}, common)

    def reduce_scatter(self, x: Value, reduce: Reduce = "sum", *, algorithm: Algorithm = "auto", **common: Unpack[Common]) -> Value:
        """Rank r gets block r of the reduction: x[world*n,...] to [n,...]. `algorithm` as of `allreduce`."""
        return self._one("reduce_scatter", [x], {"reduce": _but(reduce, "sum"), "algorithm": algorithm}, common)

    def allgather(self, x: Value, *, algorithm: Algorithm = "auto", **common: Unpack[Common]) -> Value:
        """All ranks' blocks in rank order: x[n,...] to [world*n,...]. `algorithm` as of `allreduce`."""
        return self._one("allgather", [x], {"algorithm": algorithm}, common)

    def alltoall(self, x: Value, *, algorithm: Algorithm = "auto", **common: Unpack[Common]) -> Value:
        """Block i of rank r becomes block r of rank i: x[world*n,...], and the result as well. `algorithm`: auto, nccl, or a name."""
        return self._one("alltoall", [x], {"algorithm": algorithm}, common)

    def broadcast(self, x: Value, *, root: ExprLike, algorithm: Algorithm = "auto", **common: Unpack[Common]) -> Value:
        """The root's x on every rank; `root` is the same on all. `algorithm`: auto, oneshot, twoshot, nccl, or a name."""
        return self._one("broadcast", [x], {"root": root, "algorithm": algorithm}, common)

    def ring_shift(self, x: Value, by: ExprLike = 1, **common: Unpack[Common]) -> Value:
        """x of rank - by, taken modulo world."""
        return self._one("ring_shift", [x], {"by": _but(by, 1)}, common)

    def send(self, x: Value, *, dst: ExprLike, tag: ExprLike = 0, if_: ExprLike | None = None, **common: Unpack[Common]) -> None:
        """Sends x to rank `dst`: the n-th send with a tag meets the n-th recv of it.

        `dst`, `tag` and `if_` are over rank and world; ranks on which `if_` is 0 take no part.
        """
        self._ops("send", [x], 0, {"dst": dst, "tag": tag, "if": if_}, common)

    def recv(
        self,
        *,
        src: ExprLike,
        shape: Sequence[ExprLike] | None = None,
        tag: ExprLike = 0,
        if_: ExprLike | None = None,
        **common: Unpack[Common],
    ) -> Value:
        """What rank `src` sent; zeros on ranks on which `if_` is 0. Needs `shape` and `dtype`, unless it goes `into` a state."""
        attributes = {"src": src, "shape": None if shape is None else list(shape), "tag": tag, "if": if_}
        return self._one("recv", [], attributes, common)

    def barrier(self, **common: Unpack[Common]) -> None:
        """All earlier ops have ended on all ranks before a later op starts on any."""
        self._ops("barrier", [], 0, {}, common)

    # ---- kernels of the user's

    def cuda(
        self,
        *operands: Value,
        source: str,
        kernel: str,
        grid: Sequence[ExprLike],
        block: Sequence[ExprLike],
        args: Sequence[Any],
        types: Mapping[str, Any] | None = None,
        template: Sequence[Any] | None = None,
        options: str | None = None,
        shared: ExprLike | None = None,
        reads: Mapping[Any, Any] | None = None,
        writes: Mapping[Any, Any] | None = None,
        **common: Any,
    ) -> Value | tuple[Value, ...]:
        """A CUDA kernel of the user's, of which blocks become tasks; docs/cuda-kernels.md says how.

        `types` has the results by name, in order: `{"y": (maco.f32, [1000])}`; a state in place of the pair is updated in place. One result
        gives a Value, several a tuple. `args` are the kernel's parameters: values, names of results, expressions, numbers. `source` is
        relative to the current folder or, if it isn't there, to that of the calling file.
        """
        raise NotImplementedError
