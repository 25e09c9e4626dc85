"""Graphs as JSON: repeats unrolled, expressions evaluated, tensors in safetensors files. Written from the graph format alone."""

import json
import re

import ml_dtypes
import numpy as np

DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i32": np.dtype(np.int32),
    "u8": np.dtype(np.uint8),
}
FILE_DTYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F8_E4M3": "f8e4m3", "F8_E5M2": "f8e5m2", "I32": "i32", "U8": "u8"}
F8_LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}


def is_float(dtype):
    return dtype not in ("i32", "u8")


def rounded(values, dtype):
    """float64 or wrapping integers, rounded once to `dtype`."""
    values = np.asarray(values)
    if values.dtype.kind in "iu":
        if dtype == "i32":
            return values.astype(np.int64).astype(np.int32)
        if dtype == "u8":
            return (values.astype(np.int64) & 255).astype(np.uint8)
        values = values.astype(np.float64)
    if not is_float(dtype):
        info = np.iinfo(DTYPES[dtype])
        whole = np.trunc(np.nan_to_num(values, nan=0.0, posinf=2.0**40, neginf=-(2.0**40)))
        return np.clip(whole, info.min, info.max).astype(DTYPES[dtype])
    with np.errstate(all="ignore"):
        if dtype in F8_LARGEST:
            values = np.clip(values, -F8_LARGEST[dtype], F8_LARGEST[dtype])
        return values.astype(DTYPES[dtype])


def wide(tensor):
    """What ops compute in: float64 for floats, int64 for integers."""
    return tensor.astype(np.int64 if tensor.dtype.kind in "iu" else np.float64)


# --- expressions --------------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*(?:\.\w+)*)|(&&|\|\||[=!<>]=|[-+*/%()<>!]))")
LEVELS = [["||"], ["&&"], ["==", "!=", "<", "<=", ">", ">="], ["+", "-"], ["*", "/", "%"]]


def evaluate(text, names):
    """An integer expression over `names`; an integer or boolean stands for itself."""
    if not isinstance(text, str):
        return int(text)
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise ValueError(f"'{text}' is no expression")
        tokens.append(match.group(match.lastindex))
        at = match.end()
    tokens.append("")

    def binary(level, live):
        if level == len(LEVELS):
            return unary(live)
        left = binary(level + 1, live)
        while tokens[0] in LEVELS[level]:
            op = tokens.pop(0)
            needed = live and not (op == "&&" and not left) and not (op == "||" and left)
            right = binary(level + 1, needed)
            left = apply(op, left, right) if needed else (int(bool(left)) if op in ("&&", "||") else 0)
        return left

    def unary(live):
        token = tokens.pop(0)
        if token == "-":
            return -unary(live)
        if token == "!":
            return int(not unary(live))
        if token == "(":
            value = binary(0, live)
            if tokens.pop(0) != ")":
                raise ValueError(f"'{text}' lacks a ')'")
            return value
        if token.isdigit():
            return int(token)
        if token not in names:
            raise ValueError(f"'{text}' names '{token}', which nothing is called")
        return names[token] if live else 1

    value = binary(0, True)
    if tokens != [""]:
        raise ValueError(f"'{text}' has '{tokens[0]}' left over")
    return value


def apply(op, a, b):
    if op in ("&&", "||"):
        return int(bool(b))
    return int({
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a // b, "%": lambda: a % b,
        "==": lambda: a == b, "!=": lambda: a != b, "<": lambda: a < b, "<=": lambda: a <= b, ">": lambda: a > b,
        ">=": lambda: a >= b,
    }[op]())


# --- graphs -------------------------------------------------------------------------------------------------------------------


def fill_in(value, names):
    """Replaces every {expression} of a repeat's body."""
    if isinstance(value, str):
        return re.sub(r"\{([^{}]*)\}", lambda m: str(evaluate(m.group(1), names)), value)
    if isinstance(value, list):
        return [fill_in(v, names) for v in value]
    if isinstance(value, dict):
        return {fill_in(k, names): v if k in ("ops", "tensors") and "repeat" in value else fill_in(v, names) for k, v in value.items()}
    return value


def unroll(tensors, ops, names, graph):
    for name, tensor in tensors.items():
        graph["tensors"][fill_in(name, names)] = fill_in(tensor, names)
    for op in ops:
        if "repeat" not in op:
            graph["ops"].append(fill_in(op, names))
            continue
        first, last = (evaluate(fill_in(op[key], names), names) for key in ("from", "to"))
        for i in range(first, last):
            unroll(op.get("tensors", {}), op.get("ops", []), {**names, op["repeat"]: i}, graph)


def load_graph(path):
    with open(path, encoding="utf-8") as file:
        source = json.load(file)
    world = source.get("world", 1)
    graph = {"name": source["name"], "world": world, "dims": source.get("dims", {}), "tensors": {}, "ops": []}
    unroll(source["tensors"], source["ops"], {"world": world}, graph)
    for op in graph["ops"]:
        for key in ("in", "out"):
            names = op.get(key, [])
            op[key] = [names] if isinstance(names, str) else names
    return graph


def shape_of(tensor, names):
    return tuple(evaluate(entry, names) for entry in tensor["shape"])


# --- files --------------------------------------------------------------------------------------------------------------------


def rank_file(pattern, rank):
    return pattern.replace("{rank}", str(rank))


def load_tensors(path):
    from safetensors import deserialize

    with open(path, "rb") as file:
        entries = deserialize(file.read())
    return {
        name: np.frombuffer(bytes(entry["data"]), DTYPES[FILE_DTYPES[entry["dtype"]]]).reshape(entry["shape"])
        for name, entry in entries
        if entry["dtype"] in FILE_DTYPES
    }


def save_tensors(path, tensors):
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, path)
