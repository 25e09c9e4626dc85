"""The plainest graph of each op, as JSON documents: what tests/e2e/keys_test.py varies, and tools/op-table.py tries with every dtype."""


def tensor(kind, shape, dtype="f32"):
    return {"kind": kind, "dtype": dtype, "shape": shape}


def op(kind, ins, out, **attrs):
    made = {"op": kind, "in": ins.split(), "out": out.split() if " " in out else out}
    made.update({k.rstrip("_"): v for k, v in attrs.items()})
    return made


def graph(tensors, ops, **keys):
    made = {"maco": 1, "name": "g", "world": 2}
    made.update(keys)
    made["tensors"], made["ops"] = tensors, ops
    return {k: v for k, v in made.items() if v is not None}


def one(kind, shapes, out, dtypes=None, out_dtype="f32", dims=None, scalars=None, world=2, kinds=None, **attrs):
    """A graph of one op: inputs a, b, ... of `shapes`, output y of shape `out` (a list of them: y0, y1, ...)."""
    names = "abcdefg"[: len(shapes)]
    tensors = {n: tensor((kinds or {}).get(n, "input"), s, (dtypes or {}).get(n, "f32")) for n, s in zip(names, shapes)}
    for name, (lo, hi) in (scalars or {}).items():
        tensors[name] = {"kind": "scalar", "range": [lo, hi]}
    if out is None:
        outs = ""
    elif isinstance(out, str):
        outs = out  # a state
    elif out and isinstance(out[0], list):
        outs = " ".join(f"y{i}" for i in range(len(out)))
        for i, shape in enumerate(out):
            tensors[f"y{i}"] = tensor("output", shape, out_dtype)
    else:
        outs = "y"
        tensors["y"] = tensor("output", out, out_dtype)
    return graph(tensors, [op(kind, " ".join(names), outs, **attrs)], dims=dims, world=world)


OPERAND = F = [8, 16]
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def message(send, recv, first="send", world=2):
    """Input a goes to output y, by a send with these attributes and a recv with those."""
    ops = [{"op": "send", "in": ["a"], **send}, {"op": "recv", "out": "y", **recv}]
    return graph({"a": tensor("input", F), "y": tensor("output", F)}, ops if first == "send" else ops[::-1], world=world)


PLAIN = {
    "matmul": one("matmul", [[8, 16], [16, 16]], F),
    **{k: one(k, [F, F], F) for k in ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "swiglu", "geglu")},
    **{k: one(k, [F, F], F, out_dtype="u8") for k in COMPARISONS},
    **{k: one(k, [F], F) for k in ("relu", "silu", "gelu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "erf", "neg",
                                   "abs", "softmax", "copy", "allreduce", "alltoall", "ring_shift")},
    "clamp": one("clamp", [F], F, min=-1, max=1),
    "where": one("where", [F, F, F], F, dtypes={"a": "u8"}),
    "rmsnorm": one("rmsnorm", [F, [16]], F),
    "layernorm": one("layernorm", [F, [16], [16]], F),
    "rope": one("rope", [F], F, head_dim=8, position=0),
    "attention": one("attention", [F, F, F], F, head_dim=8),
    "kv_append": one("kv_append", [[32, 16], F], "a", kinds={"a": "state"}, at=0),
    "embedding": one("embedding", [[32, 16], [8]], F, dtypes={"b": "i32"}),
    "argmax": one("argmax", [F], [8], out_dtype="i32"),
    **{k: one(k, [F], [8]) for k in ("sum", "mean", "max")},
    "cast": one("cast", [F], F, out_dtype="f16", dtype="f16"),
    "reshape": one("reshape", [F], [16, 8], shape=[16, 8]),
    "transpose": one("transpose", [F], [16, 8]),
    "slice": one("slice", [F], [8, 8], axis=1, begin=0, end=8),
    "concat": one("concat", [F, F], [16, 16], axis=0),
    "split": one("split", [F], [[4, 16], [4, 16]], axis=0),
    "allgather": one("allgather", [F], [16, 16]),
    "reduce_scatter": one("reduce_scatter", [F], [4, 16]),
    "broadcast": one("broadcast", [F], F, root=0),
    "send": message({"dst": 1, "if": "rank == 0"}, {"src": 0, "if": "rank == 1"}),
    "recv": message({"dst": "rank"}, {"src": "rank"}, first="recv"),
    "barrier": graph({"x": tensor("input", F), "y": tensor("output", F), "z": tensor("output", F)},
                     [op("relu", "x", "y"), {"op": "barrier"}, op("silu", "x", "z")]),
}
