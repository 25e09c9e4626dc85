#!/usr/bin/env python3
"""Nothing that a graph can say is ignored: every key and every word of the format changes what macoc makes, or is refused by name.

  keys_test.py --macoc build/bin/macoc [-v]

macoc itself is asked, through its diagnostics, which keys and words there are; one that no case below speaks of fails the test. 'Changes'
means the code of the kernel, its comments and manifest aside; where a key is for the host alone, the manifest without the graph's text.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from op_graphs import COMPARISONS, OPERAND, PLAIN, graph, message, one, op, tensor  # noqa: E402

UNKNOWN = "zzzzzz"

# ---- running macoc -----------------------------------------------------------------------------------------------------------


class Macoc:
    def __init__(self, path):
        self.path = path
        self.known = {}

    def run(self, graph, *options):
        text = json.dumps(graph)
        if (text, options) not in self.known:
            run = subprocess.run([self.path, "-", "--sms", "8", *options], input=text, capture_output=True, text=True)
            self.known[text, options] = (run.returncode, run.stdout, run.stderr)
        return self.known[text, options]

    def outcome(self, graph):
        """('made', code, manifest) or ('refused', the messages)."""
        status, kernel, messages = self.run(graph)
        if status == 1:
            return ("refused", re.findall(r"error: (.*)", messages))
        if status != 0:
            return ("failed", [f"status {status}: {messages}"])
        variants = re.split(r"^//@maco-variant( .*)\n", kernel, flags=re.M)
        conditions, kernels = variants[1::2], variants[2::2] or variants
        manifests, codes = [], list(conditions)
        for variant in kernels:
            lines = variant.splitlines()
            manifest = json.loads("".join(line[8:] for line in lines if line.startswith("//@maco ")))
            for key in ("graph", "code_hash", "program_hash", "options", "sums"):
                manifest.pop(key)
            manifests.append(manifest)
            codes.append(re.sub(r"//[^\n]*", "", "\n".join(line for line in lines if not line.startswith("//@maco "))))
        return ("made", "\n".join(codes), manifests)


# ---- graphs ------------------------------------------------------------------------------------------------------------------


def mlp(**keys):
    """Work for both roles, with a second branch that nothing orders."""
    tensors = {"x": tensor("input", [128, 256], "bf16"), "w": tensor("param", [256, 512], "bf16"), "v": tensor("input", [128, 512], "bf16"),
               "y": tensor("output", [128, 512], "bf16"), "z": tensor("output", [128, 512], "bf16")}
    return graph(tensors, [op("matmul", "x w", "h"), op("allreduce", "h", "y"), op("softmax", "v", "z")], **keys)


def rows(**keys):
    """A collective of rows that are made tile by tile, beside work of another branch."""
    tensors = {"x": tensor("input", [64, 64]), "v": tensor("input", [64, 64]), "y": tensor("output", [64, 64]),
               "z": tensor("output", [64, 64])}
    return graph(tensors, [op("softmax", "x", "s"), op("allreduce", "s", "y"), op("softmax", "v", "z")], **keys)


def with_op(g, index, **attrs):
    copy = json.loads(json.dumps(g))
    copy["ops"][index].update(attrs)
    return copy


def branches(attrs=None, kind="softmax", **keys):
    """Three ops that wait for nothing but their input; `attrs` of the middle one."""
    tensors = {"x": tensor("input", [8, 16])}
    ops = []
    for i in range(3):
        tensors[f"y{i}"] = tensor("output", [8, 16])
        ops.append(op(kind, "x", f"y{i}"))
    ops[1].update(attrs or {})
    return graph(tensors, ops, **keys)


def repeated(to=3, start=0, body=None, tensors=None):
    body = body or [op("relu", "x_{i}", "x_{i+1}")]
    rep = {"repeat": "i", "from": start, "to": to, "ops": body}
    if tensors:
        rep["tensors"] = tensors
    return graph({"x_0": tensor("input", [4, 8]), "y": tensor("output", [4, 8])}, [rep, op("softmax", f"x_{to}", "y")])


def decode(**scalar):
    """Attention over a cache: `pos` decides into how many parts it is cut."""
    cache = tensor("state", [8192, 64], "bf16")
    row = tensor("input", [1, 64], "bf16")
    tensors = {"pos": {"kind": "scalar", "range": [0, 8192], **scalar}, "q": row, "k": row, "v": row, "kc": cache, "vc": cache,
               "y": tensor("output", [1, 64], "bf16")}
    return graph(tensors, [op("kv_append", "kc k", "kc", at="pos"), op("kv_append", "vc v", "vc", at="pos"),
                           op("attention", "q kc vc", "y", head_dim=64, causal=True, length="pos + 1")])


def variants(when):
    return mlp(dims={"tokens": {"max": 8}}, sm_roles={"when": when})


# ---- what is expected --------------------------------------------------------------------------------------------------------

CHANGES = "changes"    # the code differs between any two of the graphs
MANIFEST = "manifest"  # the code is the same or not, the manifest differs
REFUSED = "refused"    # the second graph is refused, naming what it was
SAME = "same"          # another spelling: the second graph gives the same as the first, and both differ from the third
LABEL = "label"        # a name to refer to: renaming changes nothing (first, second), referring to another is refused (third, by name)

# (place, key or key=word) -> (expectation, graphs[, what a refusal must name])
CASES = {}


def case(place, key, expectation, *graphs, names=None):
    assert (place, key) not in CASES, (place, key)
    CASES[place, key] = (expectation, graphs, names or f"'{key.split('=')[-1]}'")


def words(place, key, make, accepted, refused=(), default=None):
    """Each accepted word of a key differs from the others; 'auto' may be like one of them; `default` is what no word means."""
    for word in accepted:
        if word == "auto":
            case(place, f"{key}=auto", SAME, make(None), make("auto"), None)
        else:
            case(place, f"{key}={word}", CHANGES, make(word), *(make(w) for w in accepted if w not in (word, "auto")))
    for word in refused:
        case(place, f"{key}={word}", REFUSED, make(accepted[0]), make(word))
    other = next((w for w in accepted if w not in (default, "auto")), None)
    case(place, key, CHANGES if other else REFUSED, make(default), make(other or refused[0]), names=None if other else f"'{refused[0]}'")


DTYPES = ["f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "u8"]

# -- of the graph
case("graph", "maco", REFUSED, mlp(), mlp(maco=2))
case("graph", "name", MANIFEST, mlp(), mlp(name="other"))
case("graph", "world", CHANGES, mlp(), mlp(world=4))
case("graph", "dims", CHANGES, one("softmax", [[8, 4]], [8, 4]), one("softmax", [["t", 4]], ["t", 4], dims={"t": {"max": 8}}))
case("graph", "tensors", CHANGES, one("softmax", [[8, 4]], [8, 4]), one("softmax", [[8, 6]], [8, 6]))
case("graph", "ops", CHANGES, one("softmax", [[8, 4]], [8, 4]), one("relu", [[8, 4]], [8, 4]))
case("graph", "sm_roles", CHANGES, mlp(), mlp(sm_roles={"compute": 4, "comm": 2}))
case("graph", "sm_roles=auto", SAME, mlp(), mlp(sm_roles="auto"), mlp(sm_roles={"compute": 4, "comm": 2}))
words("graph", "schedule", lambda w: mlp(schedule=w), ["static"], ["dynamic"], default="static")
words("graph", "overlap", lambda w: rows(overlap=w), ["none", "conservative", "aggressive"], default="aggressive")
case("graph", "overlap_regions", CHANGES, branches(), branches(overlap_regions=[{"name": "r", "ops": ["y0", "y1"]}]))
case("graph", "phases", CHANGES, with_op(with_op(branches(phases=[{"name": "p"}, {"name": "q"}]), 0, phase="p"), 2, phase="q"),
     with_op(with_op(branches(phases=[{"name": "p"}, {"name": "q", "depends_on": ["p"]}]), 0, phase="p"), 2, phase="q"))
case("graph", "pipeline", CHANGES, rows(), rows(pipeline={"stages": [["s"], ["y"]], "microbatches": 2}))
words("graph", "backend", lambda w: mlp(backend=w), ["p2p", "nccl"], [], default="p2p")
case("graph", "backend=nvshmem", MANIFEST, mlp(), mlp(backend="nvshmem"))
case("graph", "comm_buffer_bytes", REFUSED, mlp(comm_buffer_bytes=1 << 20), mlp(comm_buffer_bytes=16))

# -- of its parts
case("dim", "max", CHANGES, one("softmax", [["t", 4]], ["t", 4], dims={"t": {"max": 8}}),
     one("softmax", [["t", 4]], ["t", 4], dims={"t": {"max": 64}}))
case("dim", "min", MANIFEST, one("softmax", [["t", 4]], ["t", 4], dims={"t": {"max": 8}}),
     one("softmax", [["t", 4]], ["t", 4], dims={"t": {"max": 8, "min": 3}}))
case("dim", "typical", CHANGES, *(one("matmul", [["t", 4096], [4096, 4096]], ["t", 4096], dtypes={"a": "bf16", "b": "bf16"},
                                      dims={"t": {"max": 512, **typical}}) for typical in ({}, {"typical": 1})))


def of_kind(word):
    if word == "scalar":
        return one("rope", [[4, 8]], [4, 8], head_dim=8, position="p", scalars={"p": (0, 9)})
    if word == "output":
        return {**one("softmax", [[64, 64]], [64, 64])}
    return one("matmul", [[64, 64], [64, 64]], [64, 64], kinds={"b": word or "input"})


KINDS = ["input", "param", "state", "scalar", "output"]
for word in KINDS:
    case("tensor", f"kind={word}", MANIFEST, of_kind(word), *(of_kind(w) for w in KINDS if w != word))
case("tensor", "kind", CHANGES, of_kind("input"), of_kind("param"))  # which may be read ahead
words("tensor", "dtype", lambda w: one("copy", [[8, 16]], [8, 16], dtypes={"a": w}), DTYPES, default="f32")
case("tensor", "shape", CHANGES, one("softmax", [[8, 16]], [8, 16]), one("softmax", [[16, 8]], [16, 8]))
case("scalar", "kind", CHANGES, one("rope", [[4, 8]], [4, 8], head_dim=8, position=0),
     one("rope", [[4, 8]], [4, 8], head_dim=8, position="p", scalars={"p": (0, 9)}))
case("scalar", "range", MANIFEST, one("rope", [[4, 8]], [4, 8], head_dim=8, position="p", scalars={"p": (0, 9)}),
     one("rope", [[4, 8]], [4, 8], head_dim=8, position="p", scalars={"p": (0, 10)}))
case("scalar", "typical", CHANGES, decode(), decode(typical=64))

PQ = [{"name": "p"}, {"name": "q", "depends_on": ["p"]}]
RS = [{"name": "r"}, {"name": "s", "depends_on": ["r"]}]


def phased(phases, first, second):
    return with_op(with_op(branches(phases=phases), 0, phase=first), 2, phase=second)


case("phase", "name", LABEL, phased(PQ, "p", "q"), phased(RS, "r", "s"), phased(RS, "r", "q"), names="'q'")
case("phase", "depends_on", CHANGES, phased([{"name": "p"}, {"name": "q"}], "p", "q"), phased(PQ, "p", "q"))
case("overlap region", "name", LABEL, branches(overlap_regions=[{"name": "r", "ops": ["y0"]}]),
     branches(overlap_regions=[{"name": "s", "ops": ["y0"]}]),
     branches(overlap_regions=[{"name": "s", "ops": ["y0"]}, {"name": "s", "ops": ["y1"]}]), names="'s'")
case("overlap region", "ops", CHANGES, branches(overlap_regions=[{"name": "r", "ops": ["y0"]}]),
     branches(overlap_regions=[{"name": "r", "ops": ["y0", "y1"]}]))
case("pipeline", "stages", CHANGES, rows(pipeline={"stages": [["s"], ["y"]], "microbatches": 4}),
     rows(pipeline={"stages": [["s"], ["z"]], "microbatches": 4}))
case("pipeline", "microbatches", CHANGES, rows(pipeline={"stages": [["s"], ["y"]], "microbatches": 2}),
     rows(pipeline={"stages": [["s"], ["y"]], "microbatches": 4}))

case("sm_roles", "compute", CHANGES, mlp(sm_roles={"compute": 4, "comm": 2}), mlp(sm_roles={"compute": 5, "comm": 2}))
case("sm_roles", "comm", CHANGES, mlp(sm_roles={"compute": 4, "comm": 2}), mlp(sm_roles={"compute": 4, "comm": 3}))
case("sm_roles", "scheduler", REFUSED, mlp(), mlp(sm_roles={"scheduler": 1}))
case("sm_roles", "num_workers", SAME, mlp(sm_roles={"compute": 4, "comm": 2}), mlp(sm_roles={"num_workers": 4, "comm": 2}),
     mlp(sm_roles={"num_workers": 5, "comm": 2}))
case("sm_roles", "num_remote_schedulers", SAME, mlp(sm_roles={"compute": 4, "comm": 2}),
     mlp(sm_roles={"compute": 4, "num_remote_schedulers": 2}),
     mlp(sm_roles={"compute": 4, "num_remote_schedulers": 3}))
case("sm_roles", "num_local_schedulers", REFUSED, mlp(), mlp(sm_roles={"num_local_schedulers": 1}))
WHEN = [{"if": "tokens <= 4", "roles": {"compute": 4, "comm": 2}}, {"else": {"compute": 2, "comm": 4}}]
case("sm_roles", "when", CHANGES, variants([{"else": WHEN[1]["else"]}]), variants(WHEN))
case("variant", "if", CHANGES, variants(WHEN), variants([{"if": "tokens <= 5", "roles": WHEN[0]["roles"]}, WHEN[1]]))
case("variant", "roles", CHANGES, variants(WHEN), variants([{"if": "tokens <= 4", "roles": {"compute": 5, "comm": 2}}, WHEN[1]]))
case("variant", "else", CHANGES, variants(WHEN), variants([WHEN[0], {"else": {"compute": 3, "comm": 4}}]))


def ranges(compute=(0, 4), comm=(4, 6), role="compute", tasks=None):
    first = {"sms": list(compute), "role": role}
    if tasks:
        first["tasks"] = tasks
    rest = [{"sms": [6, 8], "role": "compute"}] if tasks else []
    return mlp(sm_roles=[first, {"sms": list(comm), "role": "comm" if role == "compute" else "compute"}, *rest])


case("range", "sms", CHANGES, ranges(), ranges(compute=(0, 3), comm=(3, 6)), ranges(comm=(4, 8)))
case("range", "sms with a gap", CHANGES, ranges(), ranges(compute=(0, 3)))
words("range", "role", lambda w: ranges(role=w), ["compute", "comm"], ["scheduler"], default="compute")
case("range", "tasks", CHANGES, ranges(), ranges(tasks=["matmul"]), ranges(tasks=["softmax"]))

case("repeat", "repeat", LABEL, repeated(), json.loads(json.dumps(repeated()).replace('"i"', '"j"').replace("{i", "{j")),
     json.loads(json.dumps(repeated()).replace('"i"', '"j"')), names="'i'")
case("repeat", "from", CHANGES, repeated(body=[op("slice", "x_0", "s_{i}", axis=1, begin="{i}"), op("softmax", "s_{i}", "x_{i+1}")], to=2,
                                         tensors=None) | {"tensors": {"x_0": tensor("input", [4, 8]), "y": tensor("output", [4, 7])}},
     repeated(body=[op("slice", "x_0", "s_{i}", axis=1, begin="{i - 2}"), op("softmax", "s_{i}", "x_{i+1}")], to=4, start=3)
     | {"tensors": {"x_0": tensor("input", [4, 8]), "y": tensor("output", [4, 7])}})
case("repeat", "to", CHANGES, repeated(to=1, body=[op("softmax", "x_{i}", "x_{i+1}")]),
     repeated(to=3, body=[op("softmax", "x_{i}", "x_{i+1}")]))
case("repeat", "tensors", MANIFEST, repeated(), repeated(tensors={"p_{i}": tensor("param", [8])}))
case("repeat", "ops", CHANGES, repeated(body=[op("silu", "x_{i}", "x_{i+1}")]), repeated(body=[op("gelu", "x_{i}", "x_{i+1}")]))

# -- of every op
case("op", "op", CHANGES, one("silu", [[8, 4]], [8, 4]), one("gelu", [[8, 4]], [8, 4]))
case("op", "in", CHANGES, one("sub", [[8, 4], [8, 4]], [8, 4]), one("sub", [[8, 4], [8, 4]], [8, 4]) | {"ops": [op("sub", "b a", "y")]})
case("op", "out", CHANGES, one("split", [[8, 4]], [[4, 4], [4, 4]], axis=0),
     one("split", [[8, 4]], [[4, 4], [4, 4]], axis=0) | {"ops": [op("split", "a", "y1 y0", axis=0)]})
case("op", "name", MANIFEST, mlp(), with_op(mlp(), 1, name="sum"))
words("op", "dtype", lambda w: graph({"x": tensor("input", [8, 16]), "y": tensor("output", [8, 16])},
                                     [op("cast", "x", "c", **({"dtype": w} if w else {})), op("cast", "c", "y", dtype="f32")]),
      DTYPES, default="i32")
case("op", "after", CHANGES, branches(), branches({"after": ["y0"]}))
case("op", "phase", CHANGES, branches(phases=PQ), phased(PQ, "p", "q"))


def own_overlap(word):
    return with_op(rows(overlap="aggressive" if word != "aggressive" else "none"), 1, **({"overlap": word} if word else {}))


words("op", "overlap", own_overlap, ["none", "conservative", "aggressive"], default=None)
case("op", "overlap_group", CHANGES, with_op(mlp(), 1, overlap_group="a"),
     with_op(with_op(mlp(), 1, overlap_group="a"), 2, overlap_group="b"))
words("op", "priority", lambda w: branches({"priority": w} if w else {}), ["low", "normal", "high"], default="normal")
words("op of communication", "priority", lambda w: branches({"priority": w} if w else {}, kind="allreduce"), ["low", "normal", "high"],
      default="normal")

# -- ops and their attributes
F = OPERAND
for kind, plain in PLAIN.items():
    # It makes code, and other code than the ops of the same operands.
    shapes = [t["shape"] for t in plain["tensors"].values()]
    alike = [g for k, g in PLAIN.items() if k != kind and [t["shape"] for t in g["tensors"].values()] == shapes]
    if kind == "copy":
        alike = [g for g in alike if g["ops"][0]["op"] not in ("cast",)]
    case("kind", kind, CHANGES, plain, *alike)


def attr(kind, key, *values, expectation=CHANGES, names=None, base=None):
    """Graphs that differ in one attribute; None: without it."""
    base = base or PLAIN[kind]
    made = []
    for value in values:
        g = json.loads(json.dumps(base))
        g["ops"][0].pop(key, None)
        if value is not None:
            g["ops"][0][key] = value
        made.append(g)
    case(kind, key, expectation, *made, names=names)


def attr_words(kind, key, accepted, refused=(), default=None, base=None):
    words(kind, key, lambda w: with_op(base or PLAIN[kind], 0, **({key: w} if w else {})), accepted, refused, default)


attr("matmul", "transpose_b", False, True)
attr_words("matmul", "activation", ["none", "relu", "silu", "gelu"], default="none")
for kind in ("add", "sub", "mul", "div", "pow", "maximum", "minimum"):
    attr(kind, "value", 2, 2.5, base=one(kind, [F], F))
for kind in COMPARISONS:
    attr(kind, "value", 2, 2.5, base=one(kind, [F], F, out_dtype="u8"))
attr("clamp", "min", None, 0, 0.5)
attr("clamp", "max", None, 2, 2.5)
attr("where", "value", 2, 2.5, base=one("where", [F, F], F, dtypes={"a": "u8"}))
for kind in ("gelu", "geglu"):
    attr_words(kind, "approximate", ["none", "tanh"], default="none")
for kind in ("rmsnorm", "layernorm"):
    attr(kind, "eps", None, 0.25)
attr("rope", "head_dim", 8, 16)
attr("rope", "position", 0, 5)
attr("rope", "theta", None, 500000)
attr("rope", "interleaved", False, True)
attr("rope", "scaling", None, {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position": 128})
attr("rope", "rotary_dim", None, 4)
attr("rope", "attention_factor", None, 1.25)
SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position": 128}
for key in SCALING:
    case("scaling", key, CHANGES, with_op(PLAIN["rope"], 0, scaling=SCALING),
         with_op(PLAIN["rope"], 0, scaling={**SCALING, key: SCALING[key] * 1.5}))
attr("attention", "head_dim", 8, 16)
attr("attention", "causal", False, True)
attr("attention", "scale", None, 0.5)
attr("attention", "length", None, 5)
attr("attention", "window", None, 3, 4, base=with_op(PLAIN["attention"], 0, causal=True))
attr("attention", "softcap", None, 2.5)
attr("kv_append", "at", 0, 5)
attr("reshape", "shape", [16, 8], [8, 16], base=graph({"a": tensor("input", F), "y": tensor("output", [1, 8, 16])},
                                                      [op("reshape", "a", "r"), op("softmax", "r", "s"),
                                                       op("reshape", "s", "y", shape=[1, 8, 16])]))
attr("transpose", "perm", [1, 0, 2], [2, 1, 0], base=one("transpose", [[4, 4, 4]], [4, 4, 4]))
attr("slice", "axis", 0, 1, base=one("slice", [[16, 16]], [16, 8], axis=1, begin=0, end=8)
     | {"tensors": {"a": tensor("input", [16, 16]), "y": tensor("output", [2])},
        "ops": [op("slice", "a", "s", begin=0, end=2), op("reshape", "s", "y", shape=[32])]}
     | {"tensors": {"a": tensor("input", [16, 16]), "y": tensor("output", [32])}})
attr("slice", "begin", None, 1, base=graph({"a": tensor("input", F)} | {"y": tensor("output", [8])},
                                           [op("slice", "a", "s", axis=1, end=8), op("sum", "s", "y")]))
attr("slice", "end", None, 8, base=graph({"a": tensor("input", F)} | {"y": tensor("output", [8])},
                                         [op("slice", "a", "s", axis=1), op("sum", "s", "y")]))
attr("slice", "step", None, 2, base=graph({"a": tensor("input", F)} | {"y": tensor("output", [8])},
                                          [op("slice", "a", "s", axis=1), op("sum", "s", "y")]))
SQUARES = graph({"a": tensor("input", [8, 8]), "b": tensor("input", [8, 8]), "y": tensor("output", [128])},
                [op("concat", "a b", "c", axis=0), op("reshape", "c", "y", shape=[128])])
attr("concat", "axis", 0, 1, base=SQUARES)
HALVES = graph({"a": tensor("input", [8, 8]), "y": tensor("output", [32]), "z": tensor("output", [32])},
               [op("split", "a", "l r", axis=0), op("reshape", "l", "y", shape=[32]), op("reshape", "r", "z", shape=[32])])
attr("split", "axis", 0, 1, base=HALVES)
for kind in ("allreduce", "reduce_scatter"):
    attr_words(kind, "reduce", ["sum", "max", "min", "avg"], default="sum")
attr_words("allreduce", "algorithm", ["auto", "oneshot", "twoshot", "ring", "nccl"], default="oneshot")


def direct(kind):
    """The op by an algorithm that the graph defines: what each rank has goes straight to the others."""
    source, target = {"alltoall": ("input[{}]", "output[rank]"), "allgather": ("input[0]", "output[rank]"),
                      "broadcast": ("input[0]", "output[0]")}[kind]
    only = {"if": "rank == 0"} if kind == "broadcast" else {}
    collective = {"name": "direct", "of": kind, "chunks": 2 if kind == "alltoall" else 1,
                  "ops": [{"op": "copy", "in": [source.format("rank")], "out": target, **only},
                          {"op": "put", "in": [source.format("1 - rank")], "out": f"{target} @ 1 - rank", **only}]}
    return {**with_op(PLAIN[kind], 0, algorithm="direct"), "collectives": [collective]}


case("alltoall", "algorithm", CHANGES, PLAIN["alltoall"], direct("alltoall"))
case("broadcast", "algorithm of its own", CHANGES, PLAIN["broadcast"], direct("broadcast"))
case("alltoall", "algorithm=nccl", CHANGES, PLAIN["alltoall"], with_op(PLAIN["alltoall"], 0, algorithm="nccl"), direct("alltoall"))
case("alltoall", "algorithm=auto", SAME, PLAIN["alltoall"], with_op(PLAIN["alltoall"], 0, algorithm="auto"), direct("alltoall"))
attr_words("broadcast", "algorithm", ["auto", "oneshot", "twoshot", "nccl"], default="oneshot")
case("graph", "collectives", CHANGES, PLAIN["allgather"], direct("allgather"))
for kind in ("allgather", "reduce_scatter"):
    attr_words(kind, "algorithm", ["auto", "oneshot", "ring", "nccl"], ["twoshot"], default="oneshot")
attr("broadcast", "root", 0, 1)
attr("ring_shift", "by", None, 2, base=PLAIN["ring_shift"] | {"world": 4})
ROUND = message({"dst": "(rank + 1) % 3"}, {"src": "(rank + 2) % 3"}, world=3)
for kind in ("send", "recv"):
    key = "dst" if kind == "send" else "src"
    case(kind, key, CHANGES, ROUND, message({"dst": "2 - rank"}, {"src": "2 - rank"}, first=kind, world=3))
    case(kind, "if", CHANGES, ROUND,
         message({"dst": "(rank + 1) % 3", "if": "rank < 2"}, {"src": "(rank + 2) % 3", "if": "rank > 0"}, first=kind, world=3))
    # Both ends have the tag, and a tag only says which ends meet.
    case(kind, "tag", SAME, ROUND, message({"dst": "(rank + 1) % 3", "tag": 4}, {"src": "(rank + 2) % 3", "tag": 4}, world=3), None)
    case(kind, "tag of one end", REFUSED, ROUND, with_op(ROUND, int(kind == "recv"), tag=4), names="with tag 4")
case("recv", "shape", SAME, ROUND, with_op(ROUND, 1, shape=F), None)
case("recv", "another shape", REFUSED, ROUND, with_op(ROUND, 1, shape=[16, 8]), names="[16,8]")

# `dtype` of every op that has a result of its own: another type changes the code, or is refused.
CONVERTING = [kind for kind in PLAIN if kind not in ("barrier", "kv_append", "argmax", "send", "recv")]


def typed(kind, dtype):
    g = json.loads(json.dumps(PLAIN[kind]))
    outs = g["ops"][0]["out"]
    for out in outs if isinstance(outs, list) else [outs]:
        g["tensors"][f"{out}_f32"] = tensor("output", g["tensors"].pop(out)["shape"])
        g["ops"].append(op("cast", out, f"{out}_f32", dtype="f32"))
    g["ops"][0]["dtype"] = dtype
    return g


for kind in CONVERTING:
    # 0 and 1 are the same in all of them, so that a cast behind a comparison leaves no trace.
    made = ([one(kind, [F, F], F, out_dtype=t, dtype=t) for t in ("u8", "bf16", "f8e4m3")] if kind in COMPARISONS
            else [typed(kind, t) for t in ("bf16", "f16", "f8e4m3")])
    case(kind, "dtype of its own", CHANGES, *made)
case("barrier", "dtype", REFUSED, PLAIN["barrier"], with_op(PLAIN["barrier"], 1, dtype="f32"))
case("kv_append", "dtype", REFUSED, PLAIN["kv_append"], with_op(PLAIN["kv_append"], 0, dtype="f16"))

# -- users' kernels
CUDA = os.path.join(ROOT, "tests", "cuda", "keys")


def cuda(units=None, second=False, **attrs):
    rows, count = {"x": [["bx", "bx + 1"]]}, 4096 if second else 8
    own = {"source": os.path.join(CUDA, "keys.cu"), "kernel": "scale", "template": ["float", 3], "grid": [count], "block": [32],
           "args": ["x", "y", 32, 0.5], "reads": rows, "writes": {"y": rows["x"]}, **attrs}
    tensors = {"x": tensor("input", [count, 32]), "y": tensor("output", [count, 32])}
    ops = [op("cuda", "x", "y", **{k: v for k, v in own.items() if v is not None})]
    if second:
        tensors["p"] = tensor("input", [count, 32])
        ops.insert(0, op("silu", "p", "x", name="before"))
        tensors.pop("x")
    return graph(tensors, ops, **({"cuda_units": {"u": units}} if units else {}))


def cuda_case(key, *values, expectation=CHANGES, names=None, **more):
    case("cuda", key, expectation, *(cuda(**{key: value}, **more) for value in values), names=names)


case("kind", "cuda", CHANGES, cuda(), PLAIN["copy"])
cuda_case("source", os.path.join(CUDA, "keys.cu"), os.path.join(CUDA, "other.cu"))
cuda_case("kernel", "scale", "shift")
cuda_case("template", ["float", 3], ["float", 5])
cuda_case("options", None, "-DTWICE=2", "-D TWICE=3 -Inowhere")
cuda_case("grid", [8], [8, 2])
cuda_case("block", [32], [64])
cuda_case("shared", None, 64)
cuda_case("args", ["x", "y", 32, 0.5], ["x", "y", 32, 0.25])
cuda_case("types", None, {"y": {"dtype": "f32", "shape": [32, 8]}}, expectation=REFUSED, names="declared")
cuda_case("reads", None, {"x": [["bx", "bx + 1"]]}, second=True)
cuda_case("writes", None, {"y": [["bx", "bx + 1"]]})
UNIT = {"original": "original", "device": "device"}
case("cuda", "unit", REFUSED, cuda(), cuda(unit="nowhere", static_shared=0), names="'nowhere'")
case("cuda", "static_shared", CHANGES, cuda(UNIT, unit="u", static_shared=0), cuda(UNIT, unit="u", static_shared=1024))
case("graph", "cuda_units", CHANGES, cuda(UNIT, unit="u", static_shared=0), cuda({**UNIT, "device": "another"}, unit="u", static_shared=0))

# ---- holding macoc against it ------------------------------------------------------------------------------------------------


def check(macoc, place, key):
    """What is wrong, or None."""
    expectation, graphs, names = CASES[place, key]
    third = graphs[2] if len(graphs) > 2 else None
    outcomes = [None if g is None else macoc.outcome(g) for g in graphs]
    first, second = outcomes[0], outcomes[1] if len(outcomes) > 1 else None
    if first[0] != "made":
        return f"the plain graph is not compiled: {first[1]}"
    if expectation == REFUSED:
        if second[0] == "made":
            return "accepted, and should be refused: " + ("without effect" if second[1:] == first[1:] else "with an effect")
        if second[0] != "refused":
            return f"not refused but {second[1]}"
        if not any(names in message for message in second[1]):
            return f"refused, but not by the name {names}: {second[1]}"
        return None
    made = [o for o in outcomes if o is not None]
    if expectation == LABEL:
        made = made[:2]
    for outcome in made:
        if outcome[0] != "made":
            return f"refused: {outcome[1]}"
    if expectation == CHANGES:
        for i, outcome in enumerate(made[1:], 1):
            if outcome[1] == first[1]:
                manifest = "" if outcome[2] == first[2] else ", only the manifest"
                return f"changes nothing in the kernel's code (graph 0 and graph {i}){manifest}"
    elif expectation == MANIFEST:
        for i, outcome in enumerate(made[1:], 1):
            if outcome[2] == first[2]:
                return f"changes nothing in the manifest (graph 0 and graph {i})"
    elif expectation in (SAME, LABEL):
        if first[1] != second[1]:
            return "another spelling gives another kernel"
        if expectation == SAME and third is not None and outcomes[2][1] == first[1]:
            return "without effect"
        if expectation == LABEL:
            refused = outcomes[2]
            if refused[0] != "refused" or not any(names in message for message in refused[1]):
                return f"a wrong name is not refused by {names}: {refused[:2] if refused[0] != 'made' else 'made'}"
    return None


def listed(text):
    return re.findall(r"'([^']*)'", text)


def discover(macoc):
    """Every (place, key) and (place, key=word) that macoc knows, as its diagnostics list them; and how often the frontend asks."""
    found = set()
    probe = graph(
        {"x": {"kind": UNKNOWN, "dtype": UNKNOWN, "shape": [4]}, "y": {**tensor("output", [4]), UNKNOWN: 1},
         "p": {"kind": "scalar", "range": [0, 2], UNKNOWN: 1}},
        [{"op": "relu", "in": ["x"], "out": "y", "priority": UNKNOWN, "overlap": UNKNOWN, "dtype": UNKNOWN},
         {"repeat": "i", "from": 0, "to": 1, "ops": [], UNKNOWN: 1}],
        **{UNKNOWN: 1}, schedule=UNKNOWN, overlap=UNKNOWN, backend=UNKNOWN, dims={"t": {"max": 4, UNKNOWN: 1}},
        phases=[{"name": "p", UNKNOWN: 1}], overlap_regions=[{"name": "r", "ops": ["y"], UNKNOWN: 1}],
        pipeline={"stages": [["y"]], "microbatches": 1, UNKNOWN: 1}, sm_roles=[{"sms": [0, 1], "role": UNKNOWN, UNKNOWN: 1}])
    places = [("the graph", "graph"), ("dim 't'", "dim"), ("tensor 'y'", "tensor"), ("scalar 'p'", "scalar"), ("a phase", "phase"),
              ("an overlap region", "overlap region"), ("'pipeline'", "pipeline"), ("a range of 'sm_roles'", "range"),
              ("'sm_roles'", "sm_roles"),
              ("a variant of 'when'", "variant"), ("the repeat", "repeat"), ("the variant 'else'", "variant"),
              ("'sm_roles' with 'when'", "sm_roles")]
    messages = []
    for g in (probe, probe | {"sm_roles": {"compute": 1, UNKNOWN: 1}}, probe | {"sm_roles": {"when": [], UNKNOWN: 1}},
              probe | {"sm_roles": {"when": [{"if": "1", "roles": "auto", UNKNOWN: 1}, {"else": "auto", UNKNOWN: 1}]}},
              probe | {"ops": [op("rope", "x", "y", scaling={UNKNOWN: 1})]}):
        status, _, text = macoc.run(g)
        assert status == 1, text
        messages += re.findall(r"error: (.*)", text)
    seen = set()
    for message in messages:
        if match := re.match(rf"unknown key '{UNKNOWN}' in (.*); expected (.*)$", message):
            name = dict(places).get(match[1]) or ("scaling" if "scaling" in match[1] else None)
            assert name, f"a map of keys that this test doesn't know: {message}"
            seen.add(match[1])
            found |= {(name, key) for key in listed(match[2])}
        elif match := re.match(rf"(.*) must be (.*), found '{UNKNOWN}'$", message):
            what = match[1]
            place, key = {"'schedule'": ("graph", "schedule"), "'overlap'": ("graph", "overlap"), "'backend'": ("graph", "backend"),
                          "the kind of tensor 'x'": ("tensor", "kind"), "the dtype of tensor 'x'": ("tensor", "dtype"),
                          "'priority' of 'relu'": ("op", "priority"), "'overlap' of 'relu'": ("op", "overlap"),
                          "'dtype' of 'relu'": ("op", "dtype"),
                          "'role'": ("range", "role")}[what]
            seen.add(what)
            found |= {(place, f"{key}={word}") for word in listed(match[2])}
    unreached = {what for what, _ in places} - seen
    assert not unreached, f"no diagnostic lists the keys of {unreached}"
    # Ops: the attributes of each, and the words of those.
    kinds = subprocess.run([macoc.path, "--list-ops"], capture_output=True, text=True, check=True).stdout
    for kind in re.findall(r"^(\w+)", kinds, re.M):
        found.add(("kind", kind))
        def ask(**attrs):
            g = graph({"x": tensor("input", [4])}, [{"op": kind, **({} if kind in ("recv", "barrier") else {"in": ["x"]}), **attrs}])
            return re.findall(r"error: (.*)", macoc.run(g)[2])
        keys = []
        for message in ask(**{UNKNOWN: 1}):
            if f"has no attribute '{UNKNOWN}'" in message and "its attributes are" in message:
                keys = listed(message.split("its attributes are")[1])
            elif f"has no attribute '{UNKNOWN}'" in message and "has no attributes of its own" not in message:
                sys.exit(f"can't tell the attributes of '{kind}' from: {message}")
        for key in keys:
            if key == "dtype":
                continue
            found.add((kind, key))
            for message in ask(**{key: UNKNOWN}):
                match = re.match(rf"'{key}' of '{kind}' must be (?!a map)(.*), found '{UNKNOWN}'$", message)
                if match:
                    found |= {(kind, f"{key}={word}") for word in listed(match[1])}
    found.add(("graph", "sm_roles=auto"))  # beside maps and lists, so no diagnostic lists it
    return found


def asked_in_sources():
    """How many places of the frontend take a map of keys, or one of several words; and the keys that every op takes."""
    text = {}
    folder = os.path.join(ROOT, "compiler", "frontend")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".cpp"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text[name] = file.read()
    maps = sum(len(re.findall(r"\bcheck_keys\(c, ", t)) for t in text.values())
    enums = sum(len(re.findall(r"\bread_enum<", t)) for t in text.values())
    common = re.search(r"common_op_keys\(\) \{\s*static const std::vector<std::string> keys = \{([^}]*)\}", text["build_ops.cpp"])
    return maps, enums, re.findall(r'"(\w+)"', common[1])


# Cases beyond the keys and words themselves.
MORE = {("range", "sms with a gap"), ("barrier", "dtype"), ("kv_append", "dtype"), ("send", "tag of one end"), ("recv", "tag of one end"),
        ("recv", "another shape"), ("broadcast", "algorithm of its own")} | {(kind, "dtype of its own") for kind in CONVERTING}
# Calls of check_keys and read_enum in the frontend that the probe above reaches, and the one of read_keys, which reads some of a graph's
# keys for the builder. Whoever adds one adds it to the probe, and a case for each key.
MAPS, ENUMS = 17 + 1, 8


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--macoc", required=True)
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    macoc = Macoc(args.macoc)
    problems = []
    found = discover(macoc)
    maps, enums, common = asked_in_sources()
    if (maps, enums) != (MAPS, ENUMS):
        problems.append(f"the frontend reads {maps} kinds of maps and {enums} kinds of words, this test knows {MAPS} and {ENUMS}")
    found |= {("op", key) for key in common}
    if len(found) < 180:
        problems.append(f"macoc told of {len(found)} keys and words only: the diagnostics have changed")
    docs = ""
    for name in ("language.md", "ops.md"):
        with open(os.path.join(ROOT, "docs", name), encoding="utf-8") as file:
            docs += file.read()
    for place, key in sorted(found):
        if (place, key) not in CASES:
            problems.append(f"{place}: no case for '{key}'")
        for word in key.split("="):
            if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", docs):
                problems.append(f"{place}: '{word}' is not in docs/language.md or docs/ops.md")
    for place, key in sorted(CASES):
        if (place, key) not in found and (place, key) not in MORE and place != "op of communication":
            problems.append(f"{place}: there is no '{key}' any more")
    with ThreadPoolExecutor(2) as pool:
        for (place, key), problem in zip(CASES, pool.map(lambda c: check(macoc, *c), CASES)):
            if problem:
                problems.append(f"{place}: '{key}': {problem}")
            elif args.verbose:
                print(f"{place:20} {key:28} {CASES[place, key][0]}")
    for problem in problems:
        print(problem)
    print(f"{len(CASES)} cases, {len(found)} keys and words of macoc's, {len(macoc.known)} runs, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
