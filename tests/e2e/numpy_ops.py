"""Every op in NumPy float64. An op of one rank is f(op, inputs, names) -> values; `names` has dims, scalars, rank and world.
A collective is f(op, inputs of all ranks, rank, names) -> value on that rank. Values are rounded by the caller."""

import math

import numpy as np

from numpy_graph import evaluate, rounded, wide


def integers(*arrays):
    return all(a.dtype.kind in "iu" for a in arrays)


def wrap(values):
    return np.asarray(values).astype(np.int64).astype(np.int32).astype(np.int64)


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def matmul(op, ins, names):
    a, b = wide(ins[0]), wide(ins[1])
    y = a @ (b.T if op.get("transpose_b", False) else b)
    if len(ins) > 2:
        y = y + wide(ins[2])
    if integers(*ins):
        y = wrap(y)
    activation = op.get("activation", "none")
    return {"none": lambda v: v, "relu": lambda v: np.maximum(v, 0), "silu": silu, "gelu": gelu}[activation](y)


def binary(op, ins, names):
    a = wide(ins[0])
    if len(ins) > 1:
        b = wide(ins[1])
    else:
        b = evaluate(op["value"], names) if isinstance(op["value"], str) else op["value"]
        b = np.int64(b) if integers(ins[0]) else np.float64(np.float32(b))
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "maximum": np.maximum,
                "minimum": np.minimum, **COMPARISONS}[op["op"]]
    with np.errstate(all="ignore"):
        y = function(a, b)
    if op["op"] in COMPARISONS:
        return y.astype(np.int64)
    return wrap(y) if integers(*ins) else y


COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


def own_dtype(op, dtypes):
    """The dtype of an op's temporary, from the dtypes of its inputs; None without inputs."""
    if op["op"] == "argmax":
        return "i32"
    if op["op"] in COMPARISONS:
        return "u8"
    return dtypes[1 if op["op"] == "where" else 0] if dtypes else None


def number(op, key, whole):
    return np.int64(op[key]) if whole else np.float64(np.float32(op[key]))


def clamp(op, ins, names):
    x, whole = wide(ins[0]), integers(ins[0])
    if "min" in op:
        x = np.maximum(x, number(op, "min", whole))
    return np.minimum(x, number(op, "max", whole)) if "max" in op else x


def where(op, ins, names):
    return np.where(wide(ins[0]) != 0, wide(ins[1]), wide(ins[2]) if len(ins) > 2 else number(op, "value", integers(ins[1])))


def unary(op, ins, names):
    x = wide(ins[0])
    if op["op"] == "gelu":
        return gelu(x, op.get("approximate", "none"))
    if op["op"] in ("neg", "abs") and integers(ins[0]):
        return wrap(np.negative(x) if op["op"] == "neg" else np.abs(x))
    with np.errstate(all="ignore"):
        return {
            "relu": lambda: np.maximum(x, 0),
            "silu": lambda: silu(x),
            "sigmoid": lambda: 1 / (1 + np.exp(-x)),
            "tanh": lambda: np.tanh(x),
            "exp": lambda: np.exp(x),
            "log": lambda: np.log(x),
            "sqrt": lambda: np.sqrt(x),
            "rsqrt": lambda: 1 / np.sqrt(x),
            "sin": lambda: np.sin(x),
            "cos": lambda: np.cos(x),
            "erf": lambda: erf(x),
            "neg": lambda: np.negative(x),
            "abs": lambda: np.abs(x),
        }[op["op"]]()


def gated(op, ins, names):
    gate = wide(ins[0])
    return (silu(gate) if op["op"] == "swiglu" else gelu(gate, op.get("approximate", "none"))) * wide(ins[1])


def rmsnorm(op, ins, names):
    x, w = wide(ins[0]), wide(ins[1])
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + op.get("eps", 1e-6)) * w


def layernorm(op, ins, names):
    x, w, b = (wide(i) for i in ins)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + op.get("eps", 1e-5)) * w + b


def softmax_of(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax(op, ins, names):
    return softmax_of(wide(ins[0]))


def rope(op, ins, names):
    x = wide(ins[0])
    d = evaluate(op["head_dim"], names)
    r = evaluate(op.get("rotary_dim", d), names)
    rows = x.reshape(-1, x.shape[-1] // d, d)
    where, angles = ([], ins[1:]) if "position" in op else (ins[1:2], ins[2:])
    positions = where[0].reshape(-1).astype(np.float64) if where else evaluate(op["position"], names) + np.arange(len(rows))
    if len(angles) == 2:
        at = positions.astype(np.int64)
        return turned(op, x, rows, r, *(wide(table)[at][:, None, :] for table in angles))
    frequencies = wide(angles[0]) if angles else float(op.get("theta", 10000)) ** (-np.arange(0, r, 2) / r)
    if "scaling" in op:
        s = op["scaling"]
        wavelength = 2 * np.pi / frequencies
        smooth = (s["original_max_position"] / wavelength - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
        mixed = (1 - smooth) * frequencies / s["factor"] + smooth * frequencies
        long = wavelength > s["original_max_position"] / s["low_freq_factor"]
        short = wavelength < s["original_max_position"] / s["high_freq_factor"]
        frequencies = np.where(long, frequencies / s["factor"], np.where(short, frequencies, mixed))
    angles = (positions[:, None] * frequencies)[:, None, :]
    return turned(op, x, rows, r, np.cos(angles), np.sin(angles))


def turned(op, x, rows, r, cosines, sines):
    """Pairs of the first `r` of `rows`; cosines and sines have a column for each pair, or for each element."""
    pairs = (slice(0, r, 2), slice(1, r, 2)) if op.get("interleaved", False) else (slice(0, r // 2), slice(r // 2, r))
    of = pairs if cosines.shape[-1] == r else (slice(None), slice(None))
    cosines, sines = (op.get("attention_factor", 1) * of_angle for of_angle in (cosines, sines))
    a, b = rows[..., pairs[0]], rows[..., pairs[1]]
    y = rows.copy()
    y[..., pairs[0]] = a * cosines[..., of[0]] - b * sines[..., of[0]]
    y[..., pairs[1]] = a * sines[..., of[1]] + b * cosines[..., of[1]]
    return y.reshape(x.shape)


def attention(op, ins, names):
    d = evaluate(op["head_dim"], names)
    q, k, v = (wide(t).reshape(len(t), -1, d).transpose(1, 0, 2) for t in ins)  # head, row, d
    length = evaluate(op.get("length", k.shape[1]), names)
    group = len(q) // len(k)
    k, v = (np.repeat(t[:, :length], group, axis=0) for t in (k, v))
    scores = q @ k.transpose(0, 2, 1) * op.get("scale", 1 / math.sqrt(d))
    if "softcap" in op:
        scores = op["softcap"] * np.tanh(scores / op["softcap"])
    if op.get("causal", False):
        last = length - q.shape[1] + np.arange(q.shape[1])
        first = last - evaluate(op.get("window", length), names) + 1
        at = np.arange(length)
        scores = np.where((first[:, None] <= at) & (at <= last[:, None]), scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.where(np.isneginf(scores).all(-1, keepdims=True), 0.0, softmax_of(scores))
    return (weights @ v).transpose(1, 0, 2).reshape(ins[0].shape)


def kv_append(op, ins, names):
    cache, x = wide(ins[0]).copy(), wide(ins[1])
    at = evaluate(op["at"], names)
    if at < 0 or at + len(x) > len(cache):
        raise ValueError(f"kv_append: rows {at} to {at + len(x)} of {len(cache)}")
    cache[at : at + len(x)] = x
    return cache


def embedding(op, ins, names):
    if ((ins[1] < 0) | (ins[1] >= len(ins[0]))).any():
        raise ValueError("embedding: an id is out of range")
    return wide(ins[0])[ins[1]]


def argmax(op, ins, names):
    return np.argmax(wide(ins[0]), axis=-1).reshape(reduced_shape(ins[0]))


def reduced_shape(x):
    return x.shape[:-1] or (1,)


def reduction(op, ins, names):
    x = wide(ins[0])
    y = {"sum": np.sum, "mean": np.mean, "max": np.max}[op["op"]](x, axis=-1).reshape(reduced_shape(x))
    return wrap(y) if integers(ins[0]) and op["op"] == "sum" else y


def same(op, ins, names):
    return wide(ins[0])


def reshape(op, ins, names):
    return wide(ins[0]).reshape([evaluate(e, names) for e in op["shape"]])


def transpose(op, ins, names):
    perm = [evaluate(p, names) for p in op["perm"]] if "perm" in op else None
    return wide(ins[0]).transpose(perm)


def slice_op(op, ins, names):
    bounds = [evaluate(op[key], names) if key in op else None for key in ("begin", "end", "step")]
    index = [slice(None)] * ins[0].ndim
    index[evaluate(op.get("axis", 0), names)] = slice(*bounds)
    return wide(ins[0])[tuple(index)]


def concat(op, ins, names):
    return np.concatenate([wide(t) for t in ins], axis=evaluate(op.get("axis", 0), names))


def split(op, ins, names):
    return np.split(wide(ins[0]), len(op["out"]), axis=evaluate(op.get("axis", 0), names))


OPS = {
    "matmul": matmul, "swiglu": gated, "geglu": gated, "clamp": clamp, "where": where, "rmsnorm": rmsnorm, "layernorm": layernorm,
    "softmax": softmax, "rope": rope, "attention": attention, "kv_append": kv_append, "embedding": embedding,
    "argmax": argmax, "cast": same, "copy": same,
    "reshape": reshape, "transpose": transpose, "slice": slice_op, "concat": concat, "split": split,
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "maximum", "minimum", *COMPARISONS), binary),
    **dict.fromkeys(("relu", "silu", "gelu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "erf", "neg", "abs"),
                    unary),
    **dict.fromkeys(("sum", "mean", "max"), reduction),
}


def allreduce(op, ins, rank, names):
    stack = np.stack([wide(t) for t in ins])
    how = op.get("reduce", "sum")
    y = {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min}[how](stack, axis=0)
    return wrap(y) if integers(*ins) else y


def reduce_scatter(op, ins, rank, names):
    return np.split(allreduce(op, ins, rank, names), len(ins))[rank]


def allgather(op, ins, rank, names):
    return np.concatenate([wide(t) for t in ins])


def alltoall(op, ins, rank, names):
    return np.concatenate([np.split(wide(t), len(ins))[rank] for t in ins])


def broadcast(op, ins, rank, names):
    return wide(ins[evaluate(op["root"], names)])


def ring_shift(op, ins, rank, names):
    return wide(ins[(rank - evaluate(op.get("by", 1), names)) % len(ins)])


COLLECTIVES = {
    "allreduce": allreduce, "reduce_scatter": reduce_scatter, "allgather": allgather, "alltoall": alltoall,
    "broadcast": broadcast, "ring_shift": ring_shift,
}
MOVES = {"copy", "reshape", "transpose", "slice", "concat", "split", "cast", "embedding", "allgather", "alltoall", "broadcast",
         "ring_shift", "recv", "kv_append"}
