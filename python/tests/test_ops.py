"""Every op of the language has a method, and every attribute a keyword: against the docs, the op table and the programs of the checkout."""

import importlib.util
import inspect
import json
import re
import subprocess

import numpy as np
import pytest

import maco
from maco import _native
from maco.ops import COMMON, Common, Ops

KEYWORDS = {"if": "if_"}  # words of Python's


@pytest.fixture
def op_graphs(checkout):
    spec = importlib.util.spec_from_file_location("op_graphs", checkout / "tools/op_graphs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keywords(kind):
    method = getattr(maco.Graph, kind)
    return set(inspect.signature(method).parameters) | set(COMMON)


def listed():
    """The attributes of each op, as `macoc --list-ops` has them."""
    ran = subprocess.run([_native.program("macoc"), "--list-ops"], capture_output=True, text=True, check=True)
    found, kind = {}, ""
    for line in ran.stdout.splitlines():
        if line.strip() and not line.startswith(" "):
            kind = line.split()[0]
            found[kind] = []
        elif line.strip():
            # "2 or 3 operands; transpose_b = false; activation = none (none, relu, silu or gelu)"
            found[kind] += [re.match(r"[a-z_]+", part).group() for part in line.strip().split("; ")[1:]]
    return found


def of_the_docs(checkout):
    """What docs/ops.md has in its tables and of its headings."""
    text = (checkout / "docs/ops.md").read_text()
    ops = set()
    for row in re.findall(r"^\| ((?:`\w+` ?)+)\|", text, re.M):
        ops |= set(re.findall(r"`(\w+)`", row))
    return ops, text


def test_every_op_has_a_method(checkout, op_graphs):
    kinds = set(op_graphs.PLAIN) | set(listed()) | {"cuda"}
    kinds |= set(re.findall(r"(?:= |^  )(\w+)\(", re.sub(r"#.*|graph .*", "", (checkout / "tests/e2e/all_ops.maco").read_text()), re.M))
    assert len(kinds) >= 41
    methods = {name for name in vars(Ops) if not name.startswith("_")}
    assert kinds - methods == set()
    assert methods - kinds == set()  # none that the compiler has not
    ops, text = of_the_docs(checkout)
    assert len(ops) > 25
    attributes = {name for name in ops if name not in methods}
    everywhere = {word for kind in methods for word in keywords(kind)} | {"if"}
    methods_of_matmul = {"method", "dot", "wgmma", "mma", "block", "by_rows"}
    assert attributes - everywhere - methods_of_matmul == set()


def test_every_attribute_that_the_program_lists_has_a_keyword(checkout):
    count = 0
    rows = [row for row in (checkout / "docs/language.md").read_text().splitlines() if "written by the compiler" in row]
    not_for_users = {one for row in rows for one in re.findall(r'"(\w+)":', row.split(" | ")[0])}
    for kind, attributes in listed().items():
        for attribute in set(attributes) - not_for_users:
            assert KEYWORDS.get(attribute, attribute) in keywords(kind), (kind, attribute)
            count += 1
    assert count > 25


def test_every_key_of_ops_in_the_language_has_a_keyword(checkout):
    text = (checkout / "docs/language.md").read_text()
    section = text[text.index("### Of ops") : text.index("### Of collectives")]
    everywhere = {word for kind in vars(Ops) if not kind.startswith("_") for word in keywords(kind)}
    found = set()
    for row in section.splitlines():
        if row.startswith("|") and "written by the compiler" not in row:
            found |= set(re.findall(r'"(\w+)":', row.split(" | ")[0]))
    found -= {"op", "in", "out", "factor", "x", "y"}
    assert {"name", "dtype", "after", "phase", "overlap", "overlap_group", "priority", "source", "types", "if"} <= found
    assert {KEYWORDS.get(one, one) for one in found} - everywhere == set()


def test_every_attribute_of_cuda_has_a_keyword(checkout):
    text = (checkout / "docs/cuda-kernels.md").read_text()
    section = text[text.index("## What the op says") : text.index("**Arguments**")]
    found = {one for row in re.findall(r"^\| (`[^|]*)\|", section, re.M) for one in re.findall(r"`(\w+)`", row)}
    assert len(found) >= 9
    assert found - keywords("cuda") == set()


def test_every_key_of_graphs_can_be_set_or_has_a_method(checkout):
    text = (checkout / "docs/language.md").read_text()
    section = text[text.index("### Of the graph") : text.index("### Of tensors")]
    rows = [row for row in section.splitlines() if row.startswith('| `"') and "written by the compiler" not in row]
    found = {re.match(r'\| `"(\w+)"', row).group(1) for row in rows}
    assert {"sm_roles", "phases", "backend", "dims"} <= found
    methods = {
        "dims": "dim",
        "phases": "phase",
        "overlap_regions": "region",
        "pipeline": "pipeline",
        "collectives": "collective",
        "tensors": "input",
        "ops": "relu",
        "name": "name",
        "world": "world",
    }
    g = maco.Graph("g", 2)
    g.output("y", g.allreduce(g.input("x", "f32", [8, 4])))
    values = {
        "sm_roles": "auto",
        "schedule": "static",
        "overlap": "none",
        "backend": "p2p",
        "comm_buffer_bytes": 1 << 20,
        "maco": 1,
        "cuda_units": None,
    }
    for key in found:
        if key in methods:
            assert hasattr(g, methods[key]), key
        elif values[key] is not None:
            g.set(key, values[key])
    g.check()


def test_the_common_keywords_are_those_of_the_type():
    assert set(COMMON) == set(Common.__annotations__) | set(Common.__mro__[0].__annotations__) or set(COMMON) == Common.__optional_keys__


def built(document):
    """A JSON document of tools/op_graphs.py, by calls."""
    g = maco.Graph(document["name"], document["world"])
    values = {}
    for name, one in (document.get("dims") or {}).items():
        g.dim(name, one["max"], one.get("min", 1))
    for name, t in document["tensors"].items():
        if t["kind"] == "scalar":
            g.scalar(name, *t["range"])
        elif t["kind"] != "output":
            values[name] = getattr(g, t["kind"])(name, t["dtype"], t["shape"])
    for op in document["ops"]:
        attributes = {KEYWORDS.get(k, k): v for k, v in op.items() if k not in ("op", "in", "out")}
        operands = [values[name] for name in op.get("in", [])]
        outs = op.get("out", [])
        outs = [outs] if isinstance(outs, str) else outs
        method = getattr(g, op["op"])
        declared = document["tensors"].get(outs[0], {}) if outs else {}
        if op["op"] == "split":
            made = method(*operands, len(outs), **attributes)
        elif declared.get("kind") == "output" and op["op"] == "recv":
            made = (method(dtype=declared["dtype"], shape=declared["shape"], **attributes),)
        elif declared.get("kind") == "output" and op["op"] not in ("argmax", "cast"):
            made = (method(*operands, **attributes, dtype=declared["dtype"]),)
        else:
            made = method(*operands, **attributes)
            made = made if isinstance(made, tuple) else (made,)
        for name, value in zip([one for one in outs if one], made, strict=False):
            values[name] = g.output(name, value) if document["tensors"][name]["kind"] == "output" else value
    return g


def test_each_op_built_by_calls_is_that_of_the_json(op_graphs):
    """The graph that is built equals the one that is parsed, and compiles to the same kernel."""
    for kind, document in op_graphs.PLAIN.items():
        document = json.loads(json.dumps(document))
        g, parsed = built(document), maco.Graph.parse(json.dumps(document))

        def plain(text):
            # Where the test says the dtype of a declared output, the text has it twice.
            return re.sub(r", dtype = \w+(?=[,)])|(?<=\()dtype = \w+, |, shape = \[[\d, ]+\](?=.*recv|$)", "", text)

        if kind == "recv":
            g.check()
        elif kind not in ("send",):
            assert plain(g.text(canonical=True)) == plain(parsed.text(canonical=True)), kind
        made = g.compile(target="cpu")
        assert [(t.name, t.kind, t.dtype, t.shape) for t in made.tensors] == [
            (t.name, t.kind, t.dtype, t.shape) for t in parsed.compile(target="cpu").tensors
        ], kind


def test_every_keyword_reaches_the_graph():
    """Each attribute with a value that isn't its default stands in the text that the compiler prints."""
    g = maco.Graph("g", 2)
    x, w, b = g.input("x", "f32", [8, 16]), g.param("w", "f32", [16, 16]), g.param("b", "f32", [16])
    made = [
        (g.matmul(x, w, b, transpose_b=True, activation="gelu"), ["transpose_b = true", "activation = gelu"]),
        (g.gelu(x, approximate="tanh"), ["approximate = tanh"]),
        (g.rmsnorm(x, b, eps=0.5), ["eps = 0.5"]),
        (g.layernorm(x, b, b, eps=0.25), ["eps = 0.25"]),
        (
            g.rope(x, head_dim=8, position="rank + 1", theta=500.0, interleaved=True),
            ["position = rank + 1", "theta = 500", "interleaved = true"],
        ),
        (
            g.rope(x, head_dim=8, position=1, rotary_dim=6, attention_factor=1.5),
            ["rotary_dim = 6", "attention_factor = 1.5"],
        ),
        (g.attention(x, x, x, head_dim=8, causal=True, scale=0.125, length=4), ["causal = true", "scale = 0.125", "length = 4"]),
        (g.attention(x, x, x, head_dim=8, causal=True, window=2, softcap=50), ["window = 2", "softcap = 50"]),
        (g.slice(x, 1, 2, 14, 3), ["axis = 1", "begin = 2", "end = 14", "step = 3"]),
        (g.transpose(g.reshape(x, [2, 4, -1]), [2, 0, 1]), ["perm = [2, 0, 1]"]),
        (g.concat(x, x, x, axis=-1), ["axis = -1"]),
        (g.allreduce(x, "max", algorithm="oneshot"), ["reduce = max", "algorithm = oneshot"]),
        (g.reduce_scatter(x, reduce="avg", algorithm="ring"), ["reduce = avg", "algorithm = ring"]),
        (g.allgather(x, algorithm="oneshot"), ["algorithm = oneshot"]),
        (g.broadcast(x, root=1, algorithm="twoshot"), ["root = 1", "algorithm = twoshot"]),
        (g.ring_shift(x, -1), ["by = -1"]),
        (g.cast(x, "f16", priority="low", overlap="none"), ["dtype = f16", "priority = low", "overlap = none"]),
        (g.maximum(x, value=2), ["value = 2"]),
        (g.embedding(w, g.argmax(x)), []),
    ]
    for i, (value, _) in enumerate(made):
        g.output(f"o{i}", value)
    g.send(x, dst=1, tag=3, if_=g.rank == 0)
    g.output("got", g.recv(src=0, tag=3, shape=[8, 16], dtype="f32", if_="rank == 1"))
    text = g.text(canonical=True)
    lines = {line.strip().split(" ")[1]: line for line in text.splitlines() if line.startswith("  output ")}
    for i, (_, words) in enumerate(made):
        for word in words:
            assert word in lines[f"o{i}"], (word, lines[f"o{i}"])
    send = next(line for line in text.splitlines() if "send(" in line)
    assert all(word in send for word in ("dst = 1", "tag = 3", "if = rank == 0"))
    assert all(word in lines["got"] for word in ("src = 0", "tag = 3", "if = rank == 1"))
    g.compile(target="cpu")


def test_rope_by_frequencies():
    """Positions from a scalar and from memory, a part of each head, a factor; and what can't be."""
    g = maco.Graph("g")
    pos, x = g.scalar("pos", 0, 131072), g.input("x", "f32", [3, 192])
    f, p = g.param("f", "f32", [36]), g.input("p", "i32", [3])
    g.output("y", g.rope(x, head_dim=96, position=pos, frequencies=f, rotary_dim=72, attention_factor=1.25))
    g.output("z", g.rope(x, p, head_dim=96, frequencies=f, rotary_dim=72, interleaved=True))
    s = maco.Session(g.compile(target="cpu"))
    s.allocate()
    random = np.random.default_rng(3)
    rows = random.standard_normal((3, 2, 96)).astype(np.float32)
    radians = (random.standard_normal(36) * 3).astype(np.float32)
    positions = np.array([131071, 0, -5], np.int32)
    s.write("x", rows.reshape(3, 192))
    s.write("f", radians)
    s.write("p", positions)
    s.run(pos=131069)

    def turned(where, first, second, factor):
        angles = (where.astype(np.float64)[:, None] * radians.astype(np.float64))[:, None, :]
        want = rows.astype(np.float64)
        a, b = want[..., first].copy(), want[..., second].copy()
        want[..., first] = factor * (a * np.cos(angles) - b * np.sin(angles))
        want[..., second] = factor * (b * np.cos(angles) + a * np.sin(angles))
        return want.reshape(3, 192)

    y = turned(131069 + np.arange(3), slice(0, 36), slice(36, 72), 1.25)
    np.testing.assert_allclose(s.read("y"), y, rtol=0, atol=2e-6)
    np.testing.assert_allclose(s.read("z"), turned(positions, slice(0, 72, 2), slice(1, 72, 2), 1), rtol=0, atol=2e-6)

    # What isn't finite makes no numbers of its pair alone.
    radians[1], radians[2] = np.inf, np.nan
    s.write("f", radians)
    s.run(pos=0)
    bad = np.zeros((3, 2, 96), bool)
    bad[..., [1, 2, 37, 38]] = True
    np.testing.assert_array_equal(np.isnan(s.read("y")), bad.reshape(3, 192))

    with pytest.raises(TypeError, match="frequencies, or cosines and sines, not both"):
        g.rope(x, head_dim=96, position=pos, frequencies=f, cosines=f, sines=f)
    g.output("w", g.rope(x, head_dim=96, position=pos, frequencies=f, theta=500.0))
    with pytest.raises(maco.GraphError, match="'theta' says how 'rope' works out frequencies, but they are an operand here"):
        g.check()


SOURCE = """
template <typename T, int THREADS>
__global__ void saxpy(int n, T a, const T* x, const T* y0, T* y, int shift) {
  int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  y[i] = a * x[i] + y0[i] + T(shift);
}
__global__ void add_one(int n, float* w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) w[i] += STEP;
}
"""


def test_cuda(tmp_path, monkeypatch):
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    g = maco.Graph("g")
    shift = g.scalar("shift", 0, 100)
    x, y0, w = g.input("x", "f32", [1000]), g.input("y0", "f32", [1000]), g.state("w", "f32", [64])
    ranges = [["128 * bx", "128 * bx + 128"]]
    y = g.cuda(
        x,
        y0,
        source="saxpy.cu",
        kernel="saxpy",
        template=["float", 128],
        grid=[(1000 + 127) // 128],
        block=[128],
        args=[1000, 2.5, x, y0, "y", shift + 1],
        types={"y": ("f32", [1000])},
        reads={x: ranges, "y0": ranges},
        writes={"y": ranges},
        name="axpy",
        options="-DUNUSED=1",
        shared=0,
    )
    new = g.cuda(w, source="saxpy.cu", kernel="add_one", grid=[1], block=[64], args=[64, w], types={"w": w}, after=[y])
    g.output("y", y)
    g.output("seen", g.relu(new))
    assert "@axpy" in g.text()
    try:
        kernel = g.compile(target="cpu", include_folders=[tmp_path], defines={"STEP": 3})
    except maco.GraphError as error:
        if "Clang" in str(error):
            pytest.skip("this build of MACO reads no CUDA kernels")
        raise
    s = maco.Session(kernel)
    s.allocate()
    a = np.arange(1000, dtype=np.float32)
    s.write("x", a)
    s.write("y0", a)
    s.run(shift=4)
    np.testing.assert_array_equal(s.read("y"), 3.5 * a + 5)
    s.run(shift=4)
    np.testing.assert_array_equal(s.read("seen"), np.full(64, 6, np.float32))
    with pytest.raises(maco.GraphError, match="STEP"):
        g.compile(target="cpu")
