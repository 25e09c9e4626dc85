#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/frontend.h"
#include "ir/to_raw.h"
#include "tests/catch.h"
#include "tests/unit/random_graph.h"

using namespace maco;
using frontend::Raw;

namespace {

/// A tree as text, without places. Where order means nothing (keys), it is sorted; an op's empty
/// 'in' or 'out' is left out.
std::string show(const Raw& raw) {
  std::vector<std::string> items;
  switch (raw.kind) {
    case Raw::Kind::Null: return "null";
    case Raw::Kind::Bool: return raw.boolean ? "true" : "false";
    case Raw::Kind::Int: return std::to_string(raw.integer);
    case Raw::Kind::Float: return ir::print_float(raw.number);
    case Raw::Kind::String: return "'" + raw.text + "'";
    case Raw::Kind::List:
      for (const Raw& item : raw.list) items.push_back(show(item));
      return fmt::format("[{}]", fmt::join(items, ", "));
    case Raw::Kind::Map:
      for (const Raw::Entry& e : raw.map) {
        const bool operands = e.key == "in" || e.key == "out";
        if (!operands || e.value.kind != Raw::Kind::List || !e.value.list.empty())
          items.push_back(e.key + ": " + show(e.value));
      }
      std::sort(items.begin(), items.end());
      return fmt::format("{{{}}}", fmt::join(items, ", "));
  }
  return "";
}

std::optional<Raw> parse_dsl(int32_t file, ir::Diagnostics& d) {
  return frontend::parse_dsl_raw(file, d);
}
Raw parse(const std::string& text,
          std::optional<Raw> (*how)(int32_t, ir::Diagnostics&) = parse_dsl) {
  ir::Diagnostics d;
  auto raw = how(d.add_file("g", text), d);
  INFO(text << "\n" << d.render());
  REQUIRE(raw);
  CHECK(d.all().empty());
  return *raw;
}

/// The value of `key` for a graph with these statements.
std::string key_of(const std::string& statements, const std::string& key) {
  const Raw raw = parse("graph g {\n" + statements + "\n}\n");
  const Raw* value = raw.find(key);
  return value == nullptr ? "" : show(*value);
}
std::string op_of(const std::string& statement) {
  const Raw raw = parse("graph g {\n" + statement + "\n}\n");
  REQUIRE(raw.find("ops")->list.size() == 1);
  return show(raw.find("ops")->list[0]);
}

std::string errors_of(const std::string& text) {
  ir::Diagnostics d;
  CHECK_FALSE(frontend::parse_dsl_raw(d.add_file("g", text), d));
  std::string out;
  for (const ir::Diagnostic& x : d.all())
    out += fmt::format("{}:{}+{} {}{}\n", x.loc.line, x.loc.column, x.loc.length,
                       x.severity == ir::Severity::Note ? "note: " : "", x.message);
  return out;
}
std::string errors_in(const std::string& statements) {
  return errors_of("graph g {\n" + statements + "\n}\n");
}

}  // namespace

TEST_CASE("the DSL example gives the tree of the JSON example", "[dsl]") {
  const char* dsl = R"(# a comment
graph tp_mlp(world = 2) {
  input  x  : bf16[64, 1024]
  param  w1 : bf16[2048, 1024]   # another
  param  w2 : bf16[1024, 2048]
  h = matmul(x, w1, transpose_b = true)
  a = silu(h)
  p = matmul(a, w2, transpose_b = true) @down
  output y : bf16[64, 1024] = allreduce(p, reduce = sum, overlap_group = "mlp")

  set sm_roles = auto
  set overlap = aggressive
})";
  const char* json = R"({
  "maco": 1,
  "name": "tp_mlp",
  "world": 2,
  "tensors": {
    "x":  {"kind": "input",  "dtype": "bf16", "shape": [64, 1024]},
    "w1": {"kind": "param",  "dtype": "bf16", "shape": [2048, 1024]},
    "w2": {"kind": "param",  "dtype": "bf16", "shape": [1024, 2048]},
    "y":  {"kind": "output", "dtype": "bf16", "shape": [64, 1024]}
  },
  "ops": [
    {"op": "matmul", "in": ["x", "w1"], "out": "h", "transpose_b": true},
    {"op": "silu", "in": ["h"], "out": "a"},
    {"op": "matmul", "in": ["a", "w2"], "out": "p", "transpose_b": true, "name": "down"},
    {"op": "allreduce", "in": ["p"], "out": "y", "reduce": "sum", "overlap_group": "mlp"}
  ],
  "sm_roles": "auto",
  "overlap": "aggressive"
})";
  CHECK(show(parse(dsl)) == show(parse(json, frontend::parse_json_raw)));
}

TEST_CASE("each statement has its key", "[dsl]") {
  CHECK(key_of("dim tokens <= 64\n dim 4 <= rows <= world * 16", "dims") ==
        "{rows: {max: 'world * 16', min: 4}, tokens: {max: 64}}");
  CHECK(key_of("scalar pos in [-1, 4096)", "tensors") ==
        "{pos: {kind: 'scalar', range: [-1, 4096]}}");
  CHECK(key_of("state k_cache : bf16[4096, world * 2]", "tensors") ==
        "{k_cache: {dtype: 'bf16', kind: 'state', shape: [4096, 'world * 2']}}");
  CHECK(key_of("output y : f32[4]", "tensors") ==
        "{y: {dtype: 'f32', kind: 'output', shape: [4]}}");
  CHECK(key_of("output y = relu(x)", "tensors") == "{y: {kind: 'output'}}");
  CHECK(key_of("output l : f32[4], r = split(x)", "tensors") ==
        "{l: {dtype: 'f32', kind: 'output', shape: [4]}, r: {kind: 'output'}}");
  CHECK(key_of("phase qkv\n phase out depends_on qkv, mlp", "phases") ==
        "[{name: 'qkv'}, {depends_on: ['qkv', 'mlp'], name: 'out'}]");
  CHECK(key_of("region r = [a, b.c]", "overlap_regions") == "[{name: 'r', ops: ['a', 'b.c']}]");
  CHECK(key_of("pipeline [[attn], [ar, ffn]] microbatches 4", "pipeline") ==
        "{microbatches: 4, stages: [['attn'], ['ar', 'ffn']]}");
  CHECK(key_of("set comm_buffer_bytes = 1024 * 1024", "comm_buffer_bytes") == "'1024 * 1024'");
  CHECK(key_of("set world = 4", "world") == "4");
  CHECK(
      key_of("set sm_roles = {when: [{if: tokens <= 16 && pos > 0, roles: {compute: 4, comm: 2}},\n"
             "  {else: [{sms: [0, 96], role: compute, tasks: [matmul]}]}]}",
             "sm_roles") ==
      "{when: [{if: 'tokens <= 16 && pos > 0', roles: {comm: 2, compute: 4}}, "
      "{else: [{role: 'compute', sms: [0, 96], tasks: ['matmul']}]}]}");
  CHECK(parse("graph g(world = 8, schedule = dynamic) {}").find("schedule")->text == "dynamic");
  CHECK(key_of("set maco = 2", "maco") == "2");
}

TEST_CASE("ops in the DSL", "[dsl]") {
  CHECK(op_of("barrier()") == "{op: 'barrier'}");
  CHECK(op_of("send(x, dst = (rank + 1) % world, if = rank == 0 || !(rank < 2))") ==
        "{dst: '(rank + 1) % world', if: 'rank == 0 || !(rank < 2)', in: ['x'], op: 'send'}");
  CHECK(op_of("l, r = split(e, axis = -1)") ==
        "{axis: -1, in: ['e'], op: 'split', out: ['l', 'r']}");
  CHECK(op_of("y = matmul(x, w, b, activation = gelu, dtype = f32) @layers.0.down") ==
        "{activation: 'gelu', dtype: 'f32', in: ['x', 'w', 'b'], name: 'layers.0.down', op: "
        "'matmul', out: 'y'}");
  CHECK(op_of("y = rope(x,  # over\n  scaling = {factor: 8, low_freq_factor: 1.5},\n  eps = 1e-5, "
              "at = pos + 1,\n)") ==
        "{at: 'pos + 1', eps: 1e-05, in: ['x'], op: 'rope', out: 'y', scaling: {factor: 8, "
        "low_freq_factor: 1.5}}");
  CHECK(op_of("y = f(x, after = [a, \"b\"], phase = \"p \\\"\\u00e4\\n\", s = [4, -1, world * 2], "
              "k = [])") ==
        "{after: ['a', 'b'], in: ['x'], k: [], op: 'f', out: 'y', phase: 'p \"\xc3\xa4\n', s: [4, "
        "-1, 'world * 2']}");
  CHECK(op_of("y = f(x, a = true, b = false, c = true_, d = -9223372036854775808, e = -0.5, g = - "
              "3)") ==
        "{a: true, b: false, c: 'true_', d: -9223372036854775808, e: -0.5, g: '- 3', in: ['x'], "
        "op: 'f', out: 'y'}");
}

TEST_CASE("words of statements can be names", "[dsl]") {
  CHECK(op_of("input = relu(output)") == "{in: ['output'], op: 'relu', out: 'input'}");
  CHECK(op_of("set, phase = split(dim)") == "{in: ['dim'], op: 'split', out: ['set', 'phase']}");
  CHECK(key_of("input input : f32[1]\n scalar in in [0, 1)", "tensors") ==
        "{in: {kind: 'scalar', range: [0, 1]}, input: {dtype: 'f32', kind: 'input', shape: [1]}}");
}

TEST_CASE("repeat keeps its braces for the builder", "[dsl]") {
  CHECK(op_of("repeat i in 0..16 {\n param w_{i} : f32[4, {i + 1}]\n x_{i+1} = add(x_{i}, "
              "layers.{i}.r, axis = {i}) @a{i}_b\n}") ==
        "{from: 0, ops: [{axis: '{i}', in: ['x_{i}', 'layers.{i}.r'], name: 'a{i}_b', op: 'add', "
        "out: 'x_{i+1}'}], "
        "repeat: 'i', tensors: {w_{i}: {dtype: 'f32', kind: 'param', shape: [4, '{i + 1}']}}, to: "
        "16}");
  CHECK(op_of("repeat i in 0..world * 2 { repeat j in {i}..{i+2}{\n barrier() } }") ==
        "{from: 0, ops: [{from: '{i}', ops: [{op: 'barrier'}], repeat: 'j', to: '{i+2}'}], repeat: "
        "'i', to: 'world * 2'}");
  CHECK(
      op_of("y = f(x, a = 1{i}, b = {i}0 + x{i}.y, c = {i: 1}, d = {i} % world)") ==
      "{a: '1{i}', b: '{i}0 + x{i}.y', c: {i: 1}, d: '{i} % world', in: ['x'], op: 'f', out: 'y'}");
}

TEST_CASE("values know their places", "[dsl]") {
  const Raw raw = parse("graph g {\n  y = f(x, a = pos + 1, b = \"p\")\n}\n");
  const Raw& op = raw.find("ops")->list[0];
  const Raw* a = op.find("a");
  CHECK(
      (a->loc.line == 2 && a->loc.column == 16 && a->loc.length == 7 && a->text_column_shift == 0));
  const Raw* b = op.find("b");
  CHECK((b->loc.column == 29 && b->loc.length == 3 && b->text_column_shift == 1));
  CHECK((op.map[0].value.loc.column == 7 && op.find("in")->list[0].loc.column == 9));
}

TEST_CASE("all syntax errors of a file are reported, each at its place", "[dsl]") {
  CHECK(errors_in("inptu x : f32[4]\ny = relu(x\nz = relu(x) @\nh = add(x, 2)\noutput o") ==
        "2:1+5 unknown statement 'inptu'; did you mean 'input'?\n"
        "3:11+1 expected ',' or ')' before the end of the line\n"
        "4:14+1 expected the op's name after '@', found the end of the line\n"
        "5:12+1 expected the name of a tensor or 'attribute = value', found '2'; numbers are "
        "attributes: 'value = 2'\n"
        "6:9+1 expected ':' and the type of 'o', or '=' and the op that gives it, found the end of "
        "the line\n");
  // A broken statement of several lines is skipped as a whole.
  CHECK(
      errors_in("y = f(x,\n  a = ,\n  b = [1, 2],\n)\nz = 3") ==
      "3:7+1 expected a value, found ','\n"
      "6:5+1 expected a call of an op after '=', found '3'; a constant is a param: declare it and "
      "bind its values\n");
  CHECK(errors_in("repeat i from 0 to 3 {\n y = f(x)\n}\nrepeat j in 0..2 {\n dim t <= 4\n a "
                  "b\n}\nset x") ==
        "2:10+4 expected 'in' after 'i'\n"
        "6:2+3 'dim' belongs to the graph and can't stand in 'repeat'\n"
        "7:2+1 unknown statement 'a'\n"
        "9:6+1 expected '=' after 'x', found the end of the line\n");
}

TEST_CASE("brackets that nothing closes cost one error each", "[dsl]") {
  std::string statements;
  for (int i = 0; i < 500; ++i) statements += fmt::format("x{} = add(x, [y\n", i);
  const std::string errors = errors_in(statements);
  CHECK(std::count(errors.begin(), errors.end(), '\n') == 500);
}

TEST_CASE("what is wrong is named", "[dsl]") {
  auto first = [](const std::string& statement) { return errors_in(statement); };
  CHECK(first("y = x") == "2:5+1 expected a call of an op after '=', found 'x'; write 'copy(x)'\n");
  CHECK(first("y = f(x + 1)") ==
        "2:7+1 'f' takes tensors by name, found an expression; write 'add(x, value = 1)' in a line "
        "of "
        "its own before it\n");
  CHECK(first("y_{i + 1} = x_{i + 1} * w_{i}").find("write 'mul(x_{i + 1}, w_{i})'") !=
        std::string::npos);
  CHECK(first("y = 1e-5 - x").find("add(n, value = 1e-5)") != std::string::npos);
  CHECK(first("y = f(x) // a\n z = f(x); // b") ==
        "2:10+2 found '//', but comments begin with '#', and '/' floors\n"
        "3:10+1 a statement ends with its line, without ';'\n");
  CHECK(first("y = f(a = 1, x)") == "2:14+1 operands stand before attributes\n");
  CHECK(first("y = f(x, in = [x])") ==
        "2:10+2 'in' is no attribute: inputs stand first in the parentheses, outputs before '='\n");
  CHECK(first("y = f(x) z") == "2:10+1 expected the end of the line, found 'z'\n");
  CHECK(first("y = f(x, a = 1 +)") == "2:17+1 expected an operand, found ')'\n");
  CHECK(first("y = f(x, a = (1 + 2)") == "2:21+1 expected ',' or ')' before the end of the line\n");
  CHECK(first("y = f(x, a = \"b)") == "2:14+1 the string has no closing '\"' on its line\n");
  for (const char* text : {"\xff", "\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xe2\x82"})
    CHECK(first("y = f(x, a = \"" + std::string(text) + "\")") ==
          "2:15+1 the string isn't UTF-8\n");
  for (const char* text : {"\xc3\xa9", "\xe2\x82\xac", "\xed\x9f\xbf", "\xf0\x9f\x98\x80"})
    CHECK(first("y = f(x, a = \"" + std::string(text) + "\"").find("UTF-8") == std::string::npos);
  CHECK(first("y = f(x, a = \"\\q\")") ==
        "2:15+2 unknown escape in a string; known are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u\n");
  CHECK(first("y = f(x, a = 99999999999999999999)") ==
        "2:14+20 '99999999999999999999' does not fit in 64 bits\n");
  CHECK(first("y = f(x, a = 1e999)") == "2:14+5 '1e999' does not fit in a double\n");
  CHECK(first("y = f(x_{i +})") == "2:13+1 expected an operand, found the end\n");
  CHECK(first("input x") == "2:8+1 expected ':' and the type of 'x', found the end of the line\n");
  CHECK(first("input x : f32") == "2:14+1 expected '[' and the shape, found the end of the line\n");
  CHECK(first("input x : f32[4") == "2:16+1 expected ',' or ']' before the end of the line\n");
  CHECK(first("scalar pos = 4") != "");
  CHECK(first("scalar pos in [0, 4]") ==
        "2:20+1 expected ')' (a scalar's range does not include its end), found ']'\n");
  CHECK(first("dim t") ==
        "2:6+1 expected '<=' and the maximum of 't', found the end of the line\n");
  CHECK(first("phase a needs b") == "2:9+5 expected 'depends_on' or the end of the line\n");
  CHECK(first("set ops = []") == "2:5+3 'ops' is not set but follows from the statements\n");
  CHECK(first("x") == "2:1+1 expected '=' or '(' after 'x'\n");
  CHECK(first("7") == "2:1+1 expected a statement, found '7'\n");
  CHECK(first("set x = " + std::string(200, '[')).find("nested too deeply") != std::string::npos);
}

TEST_CASE("a graph has a beginning and an end", "[dsl]") {
  CHECK(errors_of("") ==
        "1:1+1 expected 'graph NAME {' at the beginning, found the end of the file\n");
  CHECK(errors_of("graf g {}") == "1:1+4 expected 'graph NAME {' at the beginning, found 'graf'\n");
  CHECK(errors_of("graph g {\n y = f(x)\n") ==
        "3:1+1 expected '}', found the end of the file\n1:1+5 note: the graph begins here\n");
  CHECK(errors_of("graph g {\n}\n}\n") ==
        "3:1+1 expected the end of the file after the graph's '}', found '}'\n");
  CHECK(errors_of("graph g(world = ) {\n x\n}") ==
        "1:17+1 expected a value, found ')'\n2:2+1 expected '=' or '(' after 'x'\n");
}

TEST_CASE("no text makes the parser hang or crash", "[dsl]") {
  std::mt19937_64 rng(23);
  const std::string good =
      "graph g(world = 2) {\n dim t <= 4\n input x : f32[t, {i}]\n repeat i in 0..2 { y_{i} = f(x, "
      "a = \"q\") @n }\n"
      " set r = {a: [1, {b: c + 1}]}\n output y : f32[4] = g(x)\n}\n";
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (uint64_t k = rng() % 6; k > 0; --k) {
      const size_t at = rng() % text.size();
      const char* pieces[] = {"{", "}", "(", ")", "[",  "]", "\"", "\\",   "\n", "#",
                              "=", ",", ":", "@", "..", "-", "!",  "\xff", "",   "i"};
      text.replace(at, rng() % 3, pieces[rng() % 20]);
    }
    ir::Diagnostics d;
    const bool parsed = frontend::parse_dsl_raw(d.add_file("g", text), d).has_value();
    CHECK(parsed != d.has_errors());
    CHECK((parsed || !d.render().empty()));
  }
}

TEST_CASE("what is left of a broken text is built as far as it goes", "[dsl]") {
  std::mt19937_64 rng(29);
  const std::string good =
      "graph g(world = 2) {\n dim t <= 4\n input x : f32[t, 8]\n state s : f32[8, 8]\n scalar p in "
      "[0, 4)\n phase q\n"
      " repeat i in 0..2 {\n  y_{i} = silu(x, phase = q) @n_{i}\n }\n s = kv_append(s, y_1, at = "
      "p)\n"
      " output z = allreduce(y_0, after = [n_1], reduce = max)\n output v, w = split(x, axis = "
      "1)\n region r = [n_0, z]\n}\n";
  ir::Diagnostics whole;
  const auto graph = frontend::parse_dsl(whole.add_file("g", good), whole);
  INFO(whole.render());
  REQUIRE(graph);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (uint64_t k = 1 + rng() % 3; k > 0; --k) {
      const size_t at = rng() % text.size();
      const char* pieces[] = {"{", "}",  "(", ")", "[", "]", "\"",
                              ",", "\n", "=", ":", "@", "x", ""};
      text.replace(at, rng() % 3, pieces[rng() % 14]);
    }
    ir::Diagnostics d;
    const bool parsed = frontend::parse_dsl(d.add_file("g", text), d).has_value();
    CHECK(parsed != d.has_errors());
  }
}

TEST_CASE("random graphs print to texts that read back, in both spellings", "[dsl]") {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    const ir::Graph g = test::RandomGraph(seed).make();
    Raw tree = ir::to_raw(g);
    const std::string expected = show(tree);
    Raw dsl = parse(frontend::print_dsl(g));
    if (dsl.find("world") == nullptr) {
      Raw one;
      one.kind = Raw::Kind::Int;
      one.integer = 1;
      dsl.map.push_back({"world", {}, one});
    }
    CHECK(show(dsl) == expected);
    CHECK(show(parse(frontend::print_json(g), frontend::parse_json_raw)) == expected);
  }
}

TEST_CASE("graphs are equal whatever the order of their tensors", "[graph]") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const ir::Graph g = test::RandomGraph(seed).make();
    ir::Graph other = g;
    const size_t n = g.tensors.size();
    for (size_t i = 0; i < n; ++i) other.tensors[n - 1 - i] = g.tensors[i];
    auto turn = [n](ir::TensorId& id) { id = ir::id_of<ir::TensorId>(n - 1 - ir::index(id)); };
    for (ir::Op& op : other.ops) {
      std::for_each(op.in.begin(), op.in.end(), turn);
      std::for_each(op.out.begin(), op.out.end(), turn);
    }
    CHECK(g == other);
    other.tensors.emplace_back();  // a temporary that no op mentions
    CHECK(g == other);
  }
}

TEST_CASE("every field counts when graphs are compared", "[graph]") {
  ir::Graph g;
  g.name = "g";
  g.dims.push_back({"t", 1, 4, {}});
  ir::Tensor x;
  x.name = "x";
  x.kind = ir::TensorKind::Input;
  x.shape = {4};
  ir::Tensor y = x;
  y.name = "y";
  y.kind = ir::TensorKind::Temp;
  g.tensors = {x, y};
  ir::Op op;
  op.kind = "relu";
  op.in = {ir::id_of<ir::TensorId>(0)};
  op.out = {ir::id_of<ir::TensorId>(1)};
  g.ops = {op};
  const auto differs = [&](auto change) {
    ir::Graph other = g;
    change(other);
    return !(g == other) && !(other == g);
  };
  CHECK(differs([](ir::Graph& o) { o.name = "h"; }));
  CHECK(differs([](ir::Graph& o) { o.world = 2; }));
  CHECK(differs([](ir::Graph& o) { o.dims[0].min = 2; }));
  CHECK(differs([](ir::Graph& o) { o.dims[0].max = 5; }));
  CHECK(differs([](ir::Graph& o) { o.tensors[0].name = "z"; }));
  CHECK(differs([](ir::Graph& o) { o.tensors[1].name = "z"; }));
  CHECK(differs([](ir::Graph& o) { o.tensors[0].dtype = ir::DType::U8; }));
  CHECK(differs([](ir::Graph& o) { o.tensors[0].shape = {5}; }));
  CHECK(differs([](ir::Graph& o) { o.tensors[0].kind = ir::TensorKind::Param; }));
  CHECK(differs([](ir::Graph& o) { o.tensors[0].range_hi = 1; }));
  CHECK(differs([](ir::Graph& o) { o.ops.clear(); }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].kind = "exp"; }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].name = "q"; }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].named = true; }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].in[0] = ir::id_of<ir::TensorId>(1); }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].out.clear(); }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].attrs["a"] = {true, {}}; }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].dtype = ir::DType::F32; }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].after = {"a"}; }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].phase = "p"; }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].overlap = ir::Overlap::None; }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].overlap_group = "p"; }));
  CHECK(differs([](ir::Graph& o) { o.ops[0].priority = ir::Priority::High; }));
  CHECK(differs([](ir::Graph& o) { o.sm_roles.value = ir::Roles(ir::RoleCounts{}); }));
  CHECK(differs([](ir::Graph& o) { o.schedule = ir::Schedule::Dynamic; }));
  CHECK(differs([](ir::Graph& o) { o.overlap = ir::Overlap::None; }));
  CHECK(differs([](ir::Graph& o) { o.overlap_regions.emplace_back(); }));
  CHECK(differs([](ir::Graph& o) { o.phases.emplace_back(); }));
  CHECK(differs([](ir::Graph& o) { o.pipeline.emplace(); }));
  CHECK(differs([](ir::Graph& o) { o.backend = ir::Backend::Nccl; }));
  CHECK(differs([](ir::Graph& o) { o.comm_buffer_bytes = 0; }));
}

TEST_CASE("ranges and sizes of a graph", "[graph]") {
  ir::Graph g;
  g.world = 4;
  g.dims.push_back({"tokens", 2, 64, {}});
  ir::Tensor pos;
  pos.name = "pos";
  pos.kind = ir::TensorKind::Scalar;
  pos.range_hi = 4096;
  g.tensors = {pos};
  CHECK(g.range_of("rank") == ir::Interval{0, 3});
  CHECK(g.range_of("world") == ir::Interval{4, 4});
  CHECK(g.range_of("tokens") == ir::Interval{2, 64});
  CHECK(g.range_of("pos") == ir::Interval{0, 4095});
  CHECK_FALSE(g.range_of("nothing"));
  const ir::Expr tokens = ir::Expr::var("tokens");
  CHECK(ir::max_elements(g, {tokens * ir::Expr::var("world"), 8}) == 64 * 4 * 8);
  CHECK(ir::max_elements(g, {int64_t{1} << 40, int64_t{1} << 40}) ==
        std::numeric_limits<int64_t>::max());
}

TEST_CASE("canonical text looks as a person would write it", "[dsl]") {
  ir::Graph g;
  g.name = "tp";
  g.world = 2;
  g.dims.push_back({"tokens", 1, 64, {}});
  auto add = [&](std::string name, ir::TensorKind kind, ir::Shape shape) {
    ir::Tensor t;
    t.name = std::move(name);
    t.kind = kind;
    t.dtype = ir::DType::BF16;
    t.shape = std::move(shape);
    g.tensors.push_back(t);
    return ir::id_of<ir::TensorId>(g.tensors.size() - 1);
  };
  const auto x = add("x", ir::TensorKind::Input, {ir::Expr::var("tokens"), 1024});
  const auto w = add("w1", ir::TensorKind::Param, {2048, 1024});
  const auto y = add("y", ir::TensorKind::Output, {ir::Expr::var("tokens"), 2048});
  const auto h = add("h", ir::TensorKind::Temp, {});
  ir::Op mm;
  mm.kind = "matmul";
  mm.in = {x, w};
  mm.out = {h};
  mm.attrs["transpose_b"] = {true, {}};
  mm.name = "up";
  mm.named = true;
  ir::Op ar;
  ar.kind = "allreduce";
  ar.in = {h};
  ar.out = {y};
  ar.attrs["reduce"] = {std::string("sum"), {}};
  ar.overlap_group = "mlp";
  g.ops = {mm, ar};
  ir::RoleCounts counts;
  counts.compute = 96;
  counts.comm = 32;
  g.sm_roles.value = ir::Roles(counts);
  CHECK(frontend::print_dsl(g) ==
        R"(graph tp(world = 2) {
  dim tokens <= 64
  input  x  : bf16[tokens, 1024]
  param  w1 : bf16[2048, 1024]
  set sm_roles = {compute: 96, comm: 32}
  h = matmul(x, w1, transpose_b = true) @up
  output y : bf16[tokens, 2048] = allreduce(h, reduce = sum, overlap_group = "mlp")
}
)");
  CHECK(frontend::print_json(g) ==
        R"({
  "maco": 1,
  "name": "tp",
  "world": 2,
  "dims": {
    "tokens": {"max": 64}
  },
  "tensors": {
    "x":  {"kind": "input", "dtype": "bf16", "shape": ["tokens", 1024]},
    "w1": {"kind": "param", "dtype": "bf16", "shape": [2048, 1024]},
    "y":  {"kind": "output", "dtype": "bf16", "shape": ["tokens", 2048]}
  },
  "ops": [
    {"op": "matmul", "in": ["x", "w1"], "out": "h", "transpose_b": true, "name": "up"},
    {"op": "allreduce", "in": ["h"], "out": "y", "reduce": "sum", "overlap_group": "mlp"}
  ],
  "sm_roles": {"compute": 96, "comm": 32}
}
)");
}
