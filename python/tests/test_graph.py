"""Building, text, pickling, and mistakes at the caller's line."""

import inspect
import pickle

import numpy as np
import pytest

import maco
from conftest import relu_graph


def here(offset=0):
    return inspect.currentframe().f_back.f_lineno + offset


def test_a_layer_by_calls_is_the_one_of_its_text():
    g = maco.Graph("layer", 2)
    tokens = g.dim("tokens", 64, min=2, typical=8)
    pos = g.scalar("pos", 0, 4032, typical=7)
    x = g.input("x", maco.bf16, [tokens, 128])
    w = g.param("w", "bf16", (128, 128))
    cache = g.state("cache", "bfloat16", [4096, 128])
    g.phase("first")
    g.phase("second", depends_on="first")
    q = g.rope(
        x,
        head_dim=64,
        position=pos + 1,
        scaling={"factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4.0, "original_max_position": 32},
        name="q",
        phase="first",
    )
    kept = g.kv_append(cache, x, at=pos, name="keep")
    a = g.attention(q, kept, kept, head_dim=64, causal=True, length=pos + tokens, window=16, softcap=2.5)
    p = g.matmul(a, w, transpose_b=True, name="down", after=[kept], priority="high", phase="second")
    y = g.allreduce(p, overlap_group="mlp", dtype="f32")
    g.output("y", y)
    last = g.slice(x, axis=0, begin=-1)
    g.output("last", last)
    g.set(overlap="conservative", sm_roles={"compute": 6, "comm": 2})
    g.region("r", [y, "down"])
    text = """graph layer(world = 2) {
  dim 2 <= tokens <= 64 typical 8
  scalar pos in [0, 4032) typical 7
  input x : bf16[tokens, 128]
  param w : bf16[128, 128]
  state cache : bf16[4096, 128]
  phase first
  phase second depends_on first
  q = rope(x, head_dim = 64, position = pos + 1, scaling = {factor: 8.0, low_freq_factor: 1, high_freq_factor: 4.0,
    original_max_position: 32}, phase = "first")
  cache = kv_append(cache, x, at = pos) @keep
  attention.0 = attention(q, cache, cache, head_dim = 64, causal = true, length = pos + tokens, window = 16, softcap = 2.5)
  down = matmul(attention.0, w, transpose_b = true, after = [keep], priority = high, phase = "second")
  output y = allreduce(down, overlap_group = "mlp", dtype = f32)
  output last = slice(x, axis = 0, begin = -1)
  set overlap = conservative
  set sm_roles = {compute: 6, comm: 2}
  region r = [y, down]
}
"""
    assert g.text(canonical=True) == maco.Graph.parse(text).text(canonical=True)


def test_operators():
    g = maco.Graph("g")
    x, y = g.input("x", "f32", [4, 4]), g.input("y", "f32", [4, 4])
    made = [x + y, x + 1, 2 + x, x - y, x - 0.5, 1 - x, x * y, 3 * x, x * 2, -x, x @ y]
    for i, one in enumerate(made):
        g.output(f"o{i}", one)
    s = maco.Session(g.compile(target="cpu"))
    s.allocate()
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 8, (4, 4)).astype(np.float32) for _ in "ab")
    s.write("x", a)
    s.write("y", b)
    s.run()
    for i, want in enumerate([a + b, a + 1, 2 + a, a - b, a - 0.5, 1 - a, a * b, 3 * a, a * 2, -a, a @ b]):
        np.testing.assert_array_equal(s.read(f"o{i}"), want)
    for wrong in (lambda: x + "1", lambda: x * True, lambda: x @ 2, lambda: "1" - x):
        with pytest.raises(TypeError, match="unsupported operand|can't multiply"):
            wrong()
    for wrong, words in ((lambda: x / 2, "multiply by 1 / number"), (lambda: bool(x), "truth value"), (lambda: list(x), "iterated")):
        with pytest.raises(TypeError, match=words):
            wrong()


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda a, b: a + b, "a + b"),
        (lambda a, b: a + b - 1, "(a + b) - 1"),
        (lambda a, b: 2 * (a - b), "2 * (a - b)"),
        (lambda a, b: 7 - a, "7 - a"),
        (lambda a, b: a // 2 % b, "(a / 2) % b"),
        (lambda a, b: 9 // a, "9 / a"),
        (lambda a, b: 9 % a, "9 % a"),
        (lambda a, b: -a, "-a"),
        (lambda a, b: (a == 0) & ~(b < 3), "(a == 0) && (!(b < 3))"),
        (lambda a, b: (a != 0) | (b >= 3), "(a != 0) || (b >= 3)"),
        (lambda a, b: a + "b * 2", "a + (b * 2)"),
        (lambda a, b: (a > 1) + (a <= b), "(a > 1) + (a <= b)"),
        (lambda a, b: a + -1, "a + (-1)"),
        (lambda a, b: a + np.int64(3), "a + 3"),
    ],
)
def test_expressions(make, text):
    assert str(make(maco.Expr("a"), maco.Expr("b"))) == text


def test_expressions_have_no_value():
    a = maco.Expr("a")
    for wrong in (lambda: bool(a), lambda: a and 1, lambda: a / 2, lambda: range(a), lambda: a + 1.5, lambda: a + [1]):
        with pytest.raises(TypeError):
            wrong()


def test_outputs():
    g = maco.Graph("g")
    x = g.input("x", "f32", [4, 4])
    named = g.relu(x, name="named")
    assert g.output("y", named) is named
    assert named.name == "y"
    again = g.output("z", named)  # a copy
    assert again.name == "z"
    g.output("same", x)
    low, high = g.split(x, 2, axis=0)
    g.output("high", high)
    both = g.split(x, 2, axis=1, name="p")
    assert [v.name for v in both] == ["p", "p.1"]
    g.output("left", both[0])
    g.output("right", both[1])
    g.exp(low)
    g.silu(named)  # reads the output
    g.relu(x, after=["named"])
    lines = [line.strip() for line in g.text().splitlines()]
    assert "output y = relu(x) @named" in lines
    assert "output z = copy(y)" in lines
    assert "output same = copy(x)" in lines
    assert "split.0, split.1 = split(x, axis = 0)" in lines
    assert "output high = copy(split.1)" in lines
    assert "output left, right = split(x, axis = 1) @p" in lines
    assert "silu.0 = silu(y)" in lines
    g.check()


def test_names_that_are_made_up_keep_clear_of_the_users():
    g = maco.Graph("g")
    x = g.input("relu.0", "f32", [4])
    a = g.relu(x)
    b = g.relu(a)
    g.relu(b, name="relu.2")
    g.output("y", b)
    assert a.name == "relu.1"
    g.check()


def test_states_and_references():
    g = maco.Graph("g")
    x, s = g.input("x", "f32", [2, 4]), g.state("s", "f32", [8, 4])
    one = g.kv_append(s, x, at=0)
    two = g.kv_append(s, x, at=2)
    g.output("y", g.relu(x, after=[one, two]))
    g.add(s, 1, into=s, name="more")
    g.barrier(name="meet", after=two)
    text = g.text()
    assert "s = kv_append(s, x, at = 0) @kv_append.0" in text
    assert 'after = ["kv_append.0", "kv_append.1"]' in text
    assert "s = add(s, value = 1) @more" in text
    assert 'barrier(after = ["kv_append.1"]) @meet' in text
    g.check()
    with pytest.raises(maco.GraphError, match="'x' is a tensor of the caller's: no op makes it"):
        g.relu(x, after=[x])
    with pytest.raises(maco.GraphError, match="'into' of 'relu' is 'x', which is no state"):
        g.relu(x, into=x)


def mistake(make, line, text, notes=()):
    with pytest.raises(maco.GraphError) as raised:
        make()
    error = raised.value
    first = error.diagnostics[0]
    assert (first.severity, first.file, first.line) == ("error", __file__, line), error
    assert text in first.text
    assert f"{__file__}:{line}: error: " in str(error)
    found = [(n.file == __file__, n.line, n.text) for n in first.notes]
    for python, at, words in notes:
        assert any(p is python and (at is None or at == n) and words in t for p, n, t in found), found
    return error


def test_mistakes_are_said_at_the_callers_line():
    g = maco.Graph("wrong", 2)
    a = g.input("a", "f32", [4, 8])
    b = g.param("b", "f32", [9, 3])
    declared = here(-1)
    c = g.matmul(a, b)
    line = here(-1)
    g.relu(c, dtype="i32", after=["nowhere"])
    second = here(-1)
    g.output("y", c)
    error = mistake(
        g.check,
        line,
        "'matmul' cannot multiply a[4,8] by b[9,3]",
        [(True, declared, "'b' is declared here"), (False, 4, "in the graph's text: output y = matmul(a, b)")],
    )
    assert "c = g.matmul(a, b)" in str(error)
    assert second in [d.line for d in error.diagnostics] and len(error.diagnostics) >= 2
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    mistake(g.compile, line, "'matmul' cannot multiply")
    # A graph that was pickled knows the lines still.
    mistake(pickle.loads(pickle.dumps(g)).check, line, "'matmul' cannot multiply")


def test_names_used_twice_and_wrong_values():
    g = maco.Graph("wrong")
    x = g.input("x", "f32", [4, 8])
    g.input("x", "f32", [4])
    line = here(-1)
    mistake(g.check, line, "'x'")
    g = maco.Graph("wrong")
    low, _ = g.split(g.input("x", "f32", [4, 8]), 2, axis=0)
    g.output("x", low)
    mistake(g.check, here(-1), "'x'")
    g = maco.Graph("wrong")
    x = g.input("x", "f32", [4, 8])
    g.allreduce(x, reduce="summ")
    line = here(-1)
    mistake(g.check, line, "summ")
    g = maco.Graph("wrong")
    x = g.input("x", "f32", ["rows", 8])
    mistake(g.check, here(-1), "rows")
    g = maco.Graph("wrong")
    g.output("y", g.input("x", "f32", [4, 8]))
    g.set(schedul="dynamic")
    mistake(g.check, here(-1), "schedul")


def test_refused_when_compiled():
    g = relu_graph()
    g.set("schedule", "dynamic")
    error = mistake(lambda: g.compile(target="cpu"), here(-1), "schedule 'dynamic' can't be compiled by this version")
    assert error.code is maco.ErrorCode.INVALID_GRAPH
    with pytest.raises(maco.Error, match="unknown target 'sm_1'"):
        relu_graph().compile(target="sm_1")


@pytest.mark.parametrize("name", ["", "1x", "a b", "a\nb", "x}", "a..b", "ä"])
def test_names_that_are_none(name):
    g = maco.Graph("g")
    with pytest.raises(maco.GraphError, match="can't be called") as raised:
        g.input(name, "f32", [4])
    assert raised.value.diagnostics[0].line == here(-1)
    with pytest.raises(maco.GraphError, match="can't be called"):
        maco.Graph(name)


def test_wrong_types_are_told_at_once():
    g = maco.Graph("g")
    x = g.input("x", "f32", [4])
    other = maco.Graph("other").input("z", "f32", [4])
    for wrong, words in [
        (lambda: g.relu(3), r"relu\(\): operand 1 is a int, not a tensor"),
        (lambda: g.relu(x, nam="y"), r"relu\(\) has no keyword 'nam'; did you mean 'name'"),
        (lambda: g.matmul(x), "missing 1 required positional argument"),
        (lambda: g.attention(x, x, x), "head_dim"),
        (lambda: g.add(x), "takes a second operand or 'value'"),
        (lambda: g.add(x, 1, value=2), "a number as second operand and 'value'"),
        (lambda: g.input("w", "f32", 4), "the shape of 'w' is a list of extents"),
        (lambda: g.input("w", "f32", [4.5]), "integer"),
        (lambda: g.set("sm_roles", object()), "a value of a graph can't be a object"),
        (lambda: g.split(x, "2", axis=0), "a number of results"),
        (lambda: maco.Graph("g", "2"), "world is a number of ranks"),
        (lambda: g.rope(x, head_dim=x.__class__), "a value of a graph can't be"),
    ]:
        with pytest.raises(TypeError, match=words):
            wrong()
    with pytest.raises(maco.GraphError, match="operand 1 of 'relu' is 'z' of another graph, 'other'"):
        g.relu(other)
    with pytest.raises(maco.Error, match="no dtype 'f23'; did you mean"):
        g.input("w", "f23", [4])
    with pytest.raises(maco.Error, match="can't be nan"):
        g.add(x, float("nan"))
    with pytest.raises(maco.Error, match="is no expression"):
        g.input("w", "f32", ["4]\n}"])


def test_numbers_come_through():
    g = maco.Graph("g")
    x = g.input("x", "f32", [4])
    for i, number in enumerate([1e-5, 1e22, 1.5e-300, -0.0, np.float32(0.1), np.int32(7), 2**31]):
        x = g.mul(x, value=number, name=f"m{i}")
    g.output("y", x)
    g.check()
    assert "value = 1e-05" in g.text() and "value = 7)" in g.text()


def test_parse_and_read(tmp_path):
    text = "graph g(world = 3) {\n  input x : f32[4]\n  output y = allreduce(x)\n}\n"
    g = maco.Graph.parse(text)
    assert (g.name, g.world, g.text()) == ("g", 3, text)
    assert maco.Graph.parse('{"maco": 1, "name": "j", "tensors": {}, "ops": []}').name == "j"
    (tmp_path / "g.maco").write_text(text)
    assert maco.Graph.read(tmp_path / "g.maco").text(canonical=True) == g.text(canonical=True)
    with pytest.raises(maco.Error, match="'/nowhere' can't be read: .*No such file"):
        maco.Graph.read("/nowhere")
    with pytest.raises(TypeError, match="parsed from a string, not a PosixPath; Graph.read"):
        maco.Graph.parse(tmp_path)
    with pytest.raises(maco.GraphError) as raised:
        maco.Graph.parse(text.replace("allreduce", "alreduce"), "my.maco")
    one = raised.value.diagnostics[0]
    assert (one.file, one.line, one.column) == ("my.maco", 3, 14)
    assert "did you mean 'allreduce'" in one.text
    with pytest.raises(maco.Error, match="was parsed, and can't be built further"):
        g.input("z", "f32", [4])


def test_collectives_of_the_users():
    mine = """collective mine(of = allgather, chunks = 1) {
  output[rank] = copy(input[0])
  repeat i in 1..world {
    output[(rank + {i}) % world] = get(input[0] @ (rank + {i}) % world)
  }
}
"""
    text = "graph g(world = 2) {\n  input x : f32[4, 4]\n  output y = allgather(x, algorithm = mine)\n}\n"
    g = maco.Graph("g", 2)
    g.collective(mine)
    g.output("y", g.allgather(g.input("x", "f32", [4, 4]), algorithm="mine"))
    for graph in (g, maco.Graph.parse(text, collectives=[mine]), pickle.loads(pickle.dumps(g))):
        s = maco.Session(graph.compile(target="cpu"))
        s.allocate()
        for rank in range(2):
            s.write("x", np.full((4, 4), rank, np.float32), rank)
        s.run()
        np.testing.assert_array_equal(s.read("y", 1), np.repeat(np.float32([0, 1]), 4)[:, None] * np.ones(4, np.float32))


def test_pickling():
    g = relu_graph(2)
    again = pickle.loads(pickle.dumps(g))
    assert (again.name, again.world, again.text()) == ("g", 2, g.text())
    assert again.compile(target="cpu").world == 2
    parsed = pickle.loads(pickle.dumps(maco.Graph.parse(g.text(), "file.maco")))
    assert parsed.text() == g.text()
    with pytest.raises(maco.Error, match="was unpickled, and can't be built further"):
        again.input("z", "f32", [1])


def test_a_graph_may_grow_after_it_was_compiled():
    g = relu_graph()
    assert len(g.compile(target="cpu").tensors) == 2
    g.output("z", g.exp(g.input("w", "f32", [3])))
    assert len(g.compile(target="cpu").tensors) == 4


def test_compile_options():
    g = maco.Graph("g", 2)
    x = g.input("x", "f32", [256, 64])
    g.output("y", g.exp(g.silu(g.allreduce(x))))
    plain = g.compile(target="cpu")
    assert "in the epilogue" in plain.report or "1 x" in plain.report
    assert plain.source != g.compile(target="cpu", fuse=False).source
    assert "--no-fuse" in g.compile(target="cpu", fuse=False).source
    some = g.compile(target="cpu", no_fuse=["send", "epilogue", "elementwise"]).source
    assert "--no-fuse=elementwise,epilogue,send" in some
    with pytest.raises(maco.GraphError, match="'nrom' is no rule of 'fuse'; did you mean 'norm'"):
        g.compile(target="cpu", no_fuse=["nrom"])
    with pytest.raises(TypeError, match="no_fuse takes a list of rules"):
        g.compile(target="cpu", no_fuse="norm")
    for option, said in [
        ({"prune": False}, "--no-prune"),
        ({"packets": False}, "--no-packets"),
        ({"load_ahead": False}, "--no-load-ahead"),
        ({"sms": 4}, "--sms=4"),
    ]:
        assert said in g.compile(target="cpu", **option).source.split("code_hash")[0], option
    assert g.compile().target == "sm_90a"
    assert maco.compile_graph(g, target="sm_80").target == "sm_80"
    with pytest.raises(TypeError):
        g.compile(fusee=False)
    with pytest.raises(TypeError, match="not one string"):
        g.compile(defines="A=1")


def test_the_environment_chooses_the_cpu(monkeypatch):
    monkeypatch.setenv("MACO_DEVICE", "cpu")
    assert relu_graph().compile().target == "cpu"
    assert relu_graph().compile(target="sm_90a").target == "sm_90a"
    monkeypatch.setenv("MACO_DEVICE", "tpu")
    with pytest.raises(maco.Error, match="MACO_DEVICE is 'tpu'"):
        relu_graph().compile()


def test_compiling_in_threads():
    from concurrent.futures import ThreadPoolExecutor

    g = relu_graph()
    with ThreadPoolExecutor(4) as pool:
        sources = list(pool.map(lambda _: g.compile(target="cpu").source, range(8)))
    assert len(set(sources)) == 1
