// Checkpoints imported: expressions and statements of .arch files, cuts, and the table of weights.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/frontend/huggingface/architecture.h"
#include "compiler/frontend/huggingface/checkpoint.h"
#include "compiler/frontend/huggingface/cuts.h"
#include "compiler/frontend/huggingface/expression.h"
#include "compiler/frontend/huggingface/rope.h"
#include "tests/catch.h"

using namespace maco;
using namespace maco::frontend::huggingface;
using test::Contains;

namespace {

Scope names() {
  Scope scope;
  scope.set(
      "config",
      Value::parse(
          R"({"hidden": 48, "heads": 4, "eps": 1e-5, "none": null, "kinds": ["a", "b"], "inner": {"x": 7}})"));
  scope.set("n", Value(5));
  scope.set("twice", Function([](const std::vector<Value>& a) -> Value {
              if (a.size() != 1) throw Wrong{"one argument is wanted"};
              return 2 * integer(a[0], "the argument");
            }));
  return scope;
}
std::string text_of(std::string_view expression) { return as_text(evaluate(expression, names())); }
std::string wrong(std::string_view expression) {
  try {
    evaluate(expression, names());
  } catch (const Wrong& w) {
    return w.message;
  }
  return "";
}

// A checkpoint of one file, all tensors F32 and one behind the other.
struct Fixture {
  Checkpoint checkpoint;
  ImportOptions options;
  std::string arch;
  std::string errors;

  explicit Fixture(const std::string& graph, const std::string& head = "") {
    checkpoint.config =
        R"({"architectures": ["Mine"], "model_type": "mine", "vocab_size": 10, "hidden_size": 6, "dtype": "float32"})";
    checkpoint.files = {{"model.safetensors", 4096}};
    add("emb", {10, 6});
    arch =
        "architectures Mine\nlet vocabulary = even(config.vocab_size)\n" + head +
        "graph {\n  param e : $T[10, 6]\n    from emb\n" + graph +
        "  x = embedding(e, tokens)\n  if kind == \"prefill\" {\n    last = slice(x, axis = 0, "
        "begin = -1)\n  }\n"
        "  param h : $T[${vocabulary.local}, 6]\n    from emb rows vocabulary\n"
        "  $logits = matmul(${kind == \"prefill\" ? \"last\" : \"x\"}, h, transpose_b = true)\n}\n";
  }
  void add(const std::string& name, std::vector<int64_t> shape, const std::string& dtype = "F32") {
    checkpoint.sources[name] = {.dtype = dtype, .shape = std::move(shape), .file = 0, .begin = 128};
  }
  std::optional<ImportedModel> run() {
    options.own = {{"mine.arch", arch}};
    ir::Diagnostics d;
    auto model = import_checkpoint(checkpoint, options, d);
    errors = d.render();
    CHECK(model.has_value() == !d.has_errors());
    return model;
  }
  nlohmann::json weights() {
    const auto model = run();
    INFO(errors);
    REQUIRE(model);
    return nlohmann::json::parse(model->weights);
  }
  // What it is refused with.
  std::string refusal() {
    CHECK_FALSE(run());
    return errors;
  }
};

}  // namespace

TEST_CASE("Expressions compute as Python does, and know what isn't there") {
  CHECK(text_of("config.hidden / config.heads") == "12");
  CHECK(text_of("config.hidden / 5") == "9.6");
  CHECK(text_of("-7 // 2") == "-4");
  CHECK(text_of("-7 % 4") == "1");
  CHECK(text_of("2 + 3 * 4 - 1") == "13");
  CHECK(text_of("(2 + 3) * 4") == "20");
  CHECK(text_of("config.none ?? 3") == "3");
  CHECK(text_of("config.missing.too ?? config.heads") == "4");
  CHECK(text_of("config.inner.x") == "7");
  CHECK(text_of("config.kinds[1]") == "b");
  CHECK(text_of("config.eps") == "1e-05");
  CHECK(text_of("n > 4 && config.none == null ? \"yes\" : \"no\"") == "yes");
  CHECK(text_of("!config.none || n / 0") == "true");         // the right side isn't needed
  CHECK(text_of("n ? twice(n) : config.kinds[9]") == "10");  // nor is the other branch
  CHECK(text_of("\", eps = \" + config.eps") == ", eps = 1e-05");
  CHECK(text_of("1.5e3") == "1500");
  CHECK(text_of("[1, n][1]") == "5");
}

TEST_CASE("A wrong expression says what is wrong with which part") {
  CHECK(wrong("config.missing * 2") ==
        "'config.missing' is missing or null, but a number is needed");
  CHECK(wrong("config.kinds + 1") == "'config.kinds' is a list, but a number is needed");
  CHECK(wrong("\", window = \" + config.none") ==
        "'config.none' is missing or null, but a text or a number is needed");
  CHECK(wrong("confg.hidden") == "unknown name 'confg'; did you mean 'config'?");
  CHECK(wrong("n / (n - 5)") == "division by zero");
  CHECK(wrong("config.kinds[2]") == "index 2 of a list of 2");
  CHECK(wrong("twise(1)") == "there is no function 'twise'; did you mean 'twice'?");
  CHECK(wrong("twice(config.none)") ==
        "'twice': the argument is missing or null, but must be an integer");
  CHECK(wrong("9223372036854775807 + 1") == "the result is too large");
  CHECK(wrong("1 +") == "expected a value");
  CHECK(wrong("n n") == "'n' can't stand here");
  CHECK(wrong(std::string(1000, '(')) == "the expression is nested too deeply");
  CHECK(wrong(std::string(1000, '-')) == "the expression is nested too deeply");
  CHECK(wrong("\"open") == "a text without its closing quote");
  CHECK(wrong("n ? 1") == "expected ':' of 'condition ? a : b'");
}

TEST_CASE("Cuts give each rank whole heads, and zeros where there are too few") {
  const auto runs = [](const Value& cut, int64_t rank) {
    std::string s;
    for (const Run& r : runs_of(cut, rank)) s += fmt::format("{}-{}<{} ", r.begin, r.end, r.from);
    return s;
  };
  const Value even = even_cut(12, 3);
  CHECK(even["local"] == 4);
  CHECK(runs(even, 2) == "0-4<8 ");
  const Value padded = even_cut(40, 3);  // 14, rounded up to 16
  CHECK(padded["local"] == 16);
  CHECK(runs(padded, 2) == "0-8<32 ");
  CHECK(runs(even_cut(3, 2), 1).empty());

  const Value keys = key_cut(8, 4, 3);  // 3, 3, and 2 and a head of zeros
  CHECK(keys["local"] == 12);
  CHECK(runs(keys, 2) == "0-8<24 ");
  CHECK(runs(query_cut(16, 8, 4, 3), 2) == "0-16<48 ");
  const Value shared = key_cut(2, 4, 4);  // two ranks have each
  CHECK(shared["copies"] == 2);
  CHECK(runs(shared, 1) == "0-4<0 ");
  CHECK(runs(shared, 2) == "0-4<4 ");
  CHECK(runs(query_cut(6, 2, 4, 4), 0) == "0-8<0 ");  // two queries of three
  CHECK(runs(query_cut(6, 2, 4, 4), 1) == "0-4<8 ");  // and the third
  CHECK(runs(key_cut(2, 4, 3), 2).empty());
  CHECK_THROWS_AS(query_cut(6, 4, 8, 1), Wrong);
}

TEST_CASE("The parts of all ranks together are the whole, once or as often as there are copies") {
  for (int64_t world = 1; world <= 9; ++world)
    for (int64_t kv = 1; kv <= 9; ++kv)
      for (int64_t group = 1; group <= 4; ++group) {
        const Value q = query_cut(kv * group, kv, 3, world), k = key_cut(kv, 3, world);
        std::vector<int> of_q(static_cast<size_t>(kv * group * 3)),
            of_k(static_cast<size_t>(kv * 3));
        for (int64_t r = 0; r < world; ++r) {
          for (const Run& run : runs_of(k, r))
            for (int64_t i = run.begin; i < run.end; ++i)
              ++of_k[static_cast<size_t>(run.from + i - run.begin)];
          // The queries of a key's group lie on the key's rank, head by head behind each other.
          const int64_t each = q["local"].get<int64_t>() / k["local"].get<int64_t>();
          std::vector<int64_t> keys(static_cast<size_t>(k["local"].get<int64_t>() / 3), -1);
          for (const Run& run : runs_of(k, r))
            for (int64_t i = run.begin; i < run.end; i += 3)
              keys[static_cast<size_t>(i / 3)] = (run.from + i - run.begin) / 3;
          for (const Run& run : runs_of(q, r))
            for (int64_t i = run.begin; i < run.end; ++i) {
              ++of_q[static_cast<size_t>(run.from + i - run.begin)];
              CHECK(keys[static_cast<size_t>(i / 3 / each)] ==
                    (run.from + i - run.begin) / 3 / group);
            }
        }
        CHECK(std::all_of(of_q.begin(), of_q.end(), [](int n) { return n == 1; }));
        const int copies = k["copies"].get<int>();
        CHECK(std::all_of(of_k.begin(), of_k.end(), [&](int n) { return n == copies; }));
      }
}

TEST_CASE("Rotary embeddings are read in the spellings of all versions") {
  const auto rope = [](const char* config, const Value& parameters = nullptr,
                       int64_t max_seq = 64) {
    const Value r = rope_of(Value::parse(config), 8, 10000, parameters, max_seq);
    return r["attributes"].get<std::string>() + " " + r["values"].dump();
  };
  CHECK(rope("{}") == ", theta = 10000 null");
  CHECK(rope(R"({"rope_theta": 5e5, "rope_scaling": null})") == ", theta = 500000 null");
  CHECK(rope(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 777.5}})") ==
        ", theta = 777.5 null");
  CHECK(rope(R"({"rope_theta": 100, "rope_scaling": {"type": "linear", "factor": 2}})") ==
        R"( [0.5,0.15811388194561005,0.05000000074505806,0.015811389312148094])");
  CHECK(rope(R"({"rope_parameters": {"rope_theta": 100, "partial_rotary_factor": 0.5}})") ==
        ", theta = 100, rotary_dim = 4 null");
  CHECK_THAT(
      rope(
          R"({"rope_theta": 10, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1, "high_freq_factor": 4,
                     "original_max_position_embeddings": 8192}})"),
      Contains("scaling = {factor: 32, low_freq_factor: 1, high_freq_factor: 4, "
               "original_max_position: 8192}"));
  // What an architecture gives stands for itself.
  CHECK(rope(R"({"rope_theta": 5})", "default") == ", theta = 10000 null");
  CHECK(rope(R"({"rope_theta": 5})", {{"rope_theta", 6}}) == ", theta = 6 null");
  // Frequencies for short and for long texts.
  const char* longrope =
      R"({"max_position_embeddings": 64, "original_max_position_embeddings": 16, "rope_theta": 1,
                             "rope_scaling": {"type": "su", "short_factor": [1, 2, 4, 8], "long_factor": [2, 4, 8, 16]}})";
  CHECK(rope(longrope, nullptr, 16) ==
        ", attention_factor = 1.224744871391589 [1.0,0.5,0.25,0.125]");
  CHECK(rope(longrope, nullptr, 17) ==
        ", attention_factor = 1.224744871391589 [0.5,0.25,0.125,0.0625]");

  const auto refused = [&](const char* config, int64_t max_seq = 64) -> std::string {
    try {
      rope(config, nullptr, max_seq);
    } catch (const Wrong& w) {
      return w.message;
    }
    return "";
  };
  CHECK_THAT(refused(R"({"rope_parameters": {"rope_type": "default"}})"),
             Contains("config.json has no rope_theta"));
  CHECK_THAT(refused(R"({"rope_scaling": {"type": "yarm"}})"),
             Contains("'yarm' aren't known") && Contains("did you mean 'yarn'?"));
  CHECK_THAT(refused(R"({"rope_scaling": {"type": "linear"}})"), Contains("need 'factor'"));
  CHECK_THAT(refused(R"({"rope_parameters": {"full_attention": {"rope_theta": 1}}})"),
             Contains("differ between kinds of layers"));
  CHECK_THAT(
      refused(
          R"({"max_position_embeddings": 32, "rope_scaling": {"type": "dynamic", "factor": 2}})"),
      Contains("a max_seq of at most that"));
  CHECK(refused(
            R"({"max_position_embeddings": 64, "rope_scaling": {"type": "dynamic", "factor": 2}})")
            .empty());
}

TEST_CASE("A table of weights says what goes where") {
  Fixture f(
      "  repeat i in 0..2 {\n    param w_{i} : $T[8, 6]\n      from layer.{i}.a rows q\n      from "
      "layer.{i}.b[2 : 4]\n      from layer.{i}.b[0 : 2]\n  }\n"
      "  param t : f32[6, 4]\n    from t transpose plus 1 columns c\n  param v : f32[3]\n    "
      "values [1, 2.5, 0.1]\n",
      "let q = even(8)\nlet c = even(8)\nignore \"*.inv_freq\"\n");
  f.add("layer.0.a", {8, 6});
  f.add("layer.1.a", {8, 6}, "BF16");
  f.add("layer.0.b", {4, 6});
  f.add("layer.1.b", {4, 6});
  f.add("t", {8, 6});
  f.add("x.inv_freq", {3});
  f.options.world = 2;
  const auto w = f.weights();
  CHECK(w["world"] == 2);
  CHECK(w["dtype"] == "f32");
  CHECK(w["sources"].size() == 6);
  CHECK(w["sources"]["layer.1.a"]["dtype"] == "BF16");
  CHECK(
      w["params"]["w_1"]["ranks"].dump() ==
      R"([[{"from":"layer.1.a","rows":[0,4]},{"from":"layer.1.b","rows":[2,4],"to":[4,0]},{"from":"layer.1.b","rows":[0,2],"to":[6,0]}],)"
      R"([{"from":"layer.1.a","rows":[4,8]},{"from":"layer.1.b","rows":[2,4],"to":[4,0]},{"from":"layer.1.b","rows":[0,2],"to":[6,0]}]])");
  CHECK(
      w["params"]["t"]["ranks"].dump() ==
      R"([[{"from":"t","plus":1.0,"rows":[0,4],"transpose":true}],[{"from":"t","plus":1.0,"rows":[4,8],"transpose":true}]])");
  CHECK(w["params"]["e"]["parts"].dump() == R"([{"from":"emb"}])");
  CHECK(w["params"]["v"]["values"].dump() == "[1,2.5,0.1]");
  CHECK(w["params"]["h"]["shape"].dump() == "[5,6]");
}

TEST_CASE("What a checkpoint lacks, has too much of or has otherwise is told by name") {
  const std::string w = "  param w : $T[8, 6]\n    from a\n";
  SECTION("missing") {
    Fixture f(w);
    f.add("aa", {8, 6});
    CHECK_THAT(
        f.refusal(),
        Contains("mine.arch:7:10: error: the checkpoint has no tensor 'a', from which 'w' comes"));
  }
  SECTION("unknown") {
    Fixture f(w);
    f.add("a", {8, 6});
    f.add("b", {8, 6});
    CHECK_THAT(f.refusal(),
               Contains("error: the checkpoint has a tensor that mine.arch doesn't know: 'b'"));
  }
  SECTION("another shape") {
    Fixture f(w);
    f.add("a", {6, 8});
    CHECK_THAT(f.refusal(), Contains("'a' is F32[6, 8], but 'w' wants [8, 6]"));
  }
  SECTION("other axes") {
    Fixture f("  param w : $T[8]\n    from a\n");
    f.add("a", {8, 1});
    CHECK_THAT(f.refusal(), Contains("'a' is F32[8, 1], but 'w' wants [8]"));
  }
  SECTION("another type") {
    Fixture f(w);
    f.add("a", {8, 6}, "I8");
    CHECK_THAT(f.refusal(), Contains("'a' is I8[8, 6], and only F32, F16 and BF16 can be read"));
  }
  SECTION("rows that go nowhere") {
    Fixture f("  param w : $T[4, 6]\n    from a[2 : 6]\n");
    f.add("a", {6, 6});
    CHECK_THAT(f.refusal(), Contains("rows from 0 on of 'a'"));
  }
  SECTION("rows that it doesn't have") {
    Fixture f("  param w : $T[4, 6]\n    from a[4 : 8]\n");
    f.add("a", {6, 6});
    CHECK_THAT(f.refusal(), Contains("rows 4 to 8 of 'a' are wanted, which is F32[6, 6]"));
  }
  SECTION("parts that aren't the whole") {
    Fixture f("  param w : $T[9, 6]\n    from a\n    from b\n");
    f.add("a", {4, 6});
    f.add("b", {4, 6});
    CHECK_THAT(f.refusal(), Contains("'w' has 9 rows, but 8 come from the checkpoint"));
  }
  SECTION("no origin") {
    Fixture f("  param w : $T[9, 6]\n");
    CHECK_THAT(f.refusal(), Contains("'w' needs lines 'from' or 'values'"));
  }
}

TEST_CASE("config.json is held to what can be had") {
  const auto refused = [](const std::string& config) {
    Fixture f("");
    f.checkpoint.config = config;
    return f.refusal();
  };
  CHECK_THAT(refused("[]"), Contains("config.json: is no JSON object"));
  CHECK_THAT(refused("{}"), Contains("'architectures' must name one architecture"));
  CHECK_THAT(refused(R"({"architectures": ["Mime"]})"),
             Contains("architecture 'Mime' isn't known; did you mean 'Mine'?"));
  CHECK_THAT(refused(R"({"architectures": ["LlamaForCausallM"]})"),
             Contains("did you mean 'LlamaForCausalLM'?"));
  CHECK_THAT(
      refused(R"({"architectures": ["Mine"], "quantization_config": {"quant_method": "awq"}})"),
      Contains("quant_method awq") && Contains("can't be imported"));
  CHECK_THAT(refused(R"({"architectures": ["Mine"], "dtype": "int8"})"),
             Contains("the dtype 'int8'"));
  CHECK_THAT(refused(R"({"architectures": ["Mine"], "dtype": "float32"})"),
             Contains("'even': the extent is missing or null, but must be an integer"));
  CHECK_THAT(refused(std::string(100000, '[')), Contains("is no JSON object"));
  CHECK_THAT(refused(R"({"architectures": ["Mine"], "deep": )" + std::string(1000, '[') +
                     std::string(1000, ']') + "}"),
             Contains("nested too deeply"));
  Fixture f("");
  f.options.kinds = {"decoder"};
  CHECK_THAT(f.refusal(), Contains("there is no kind of graph 'decoder'; did you mean 'decode'?"));
}

TEST_CASE("A config that nests what concerns texts, and either spelling of the dtype, are read") {
  Fixture f("");
  f.checkpoint.config =
      R"({"architectures": ["Mine"], "torch_dtype": "bfloat16", "eos_token_id": 3, "text_config": {"vocab_size": 10}})";
  f.checkpoint.generation = R"({"eos_token_id": [5, 3]})";
  const auto w = f.weights();
  CHECK(w["dtype"] == "bf16");
  CHECK(w["eos"].dump() == "[5,3]");
}

TEST_CASE("Statements of an .arch file") {
  const auto lines = [](const std::string& text) {
    ir::Diagnostics d;
    const Scope base = names();
    const auto expanded = expand(d.add_file("a.arch", text), base, d);
    if (!expanded) return d.render();
    return fmt::format("{}", fmt::join(expanded->graph, "\n"));
  };
  CHECK(lines("graph {\n  if n == 5 {\n    a\n  } else {\n    b\n  }\n  if n == 4 {\n    c\n  } "
              "else if n == 5 {\n    d\n  } else {\n    e\n  }\n}\n") == "  a\n  d");
  CHECK(lines("let m = n + 1  # six\ngraph {\n  for i in 1..3 {\n    let k = i * m\n    x_$i = "
              "f(${k + 1})  # a comment\n  }\n}\n") == "  x_1 = f(7)\n  x_2 = f(13)");
  CHECK(lines("graph {\n  repeat i in 0..$n {\n    y_{i} = g(x_{i})\n  }\n}\n") ==
        "  repeat i in 0..5 {\n    y_{i} = g(x_{i})\n  }");
  CHECK_THAT(lines("refuse if n > 4 : \"n is ${n}\"\ngraph {\n}\n"),
             Contains("a.arch:1:8: error: n is 5"));
  CHECK(lines("refuse if n > 5 : \"n is ${n}\"\ngraph {\n}\n").empty());
  CHECK_THAT(lines("graph {\n  if n {\n    a\n}\n"),
             Contains("a.arch:1:1: error: the '{' of this block isn't closed"));
  CHECK_THAT(lines("graph {\n  x = $m\n}\n"), Contains("a.arch:2:8: error: unknown name 'm'"));
  CHECK_THAT(lines("graph {\n  x = ${n\n}\n"), Contains("expected '}' behind the expression"));
  CHECK_THAT(lines("lets m = 1\n"), Contains("expected 'let'") && Contains("did you mean 'let'?"));
  CHECK_THAT(lines("let m = 1\n"), Contains("the file has no 'graph { ... }'"));
  CHECK_THAT(lines("graph {\n  from a\n}\n"), Contains("'from' belongs behind a 'param'"));
  CHECK_THAT(lines("graph {\n  param w : f32[2]\n    from a row q\n}\n"),
             Contains("found 'row'; did you mean 'rows'?"));
  CHECK_THAT(lines("graph {\n  param w : f32[2]\n    from a rows n\n}\n"),
             Contains("'rows' wants the name of a cut"));
  CHECK_THAT(
      lines("graph {\n  for i in 0..99999 {\n    for j in 0..99999 {\n      x\n    }\n  }\n}\n"),
      Contains("the file comes to more than 1000000 lines"));
  CHECK_THAT(lines("graph {\n  repeat i in 0..999999999 {\n    param w_{i} : f32[2]\n  }\n}\n"),
             Contains("more than 65536 params"));
  CHECK_THAT(lines("graph {\n  x = ${config.kinds}\n}\n"), Contains("a placeholder is a list"));
}

TEST_CASE("Every architecture that MACO has is listed") {
  const auto all = architecture_names();
  for (const char* name :
       {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
        "Phi3ForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "Olmo2ForCausalLM",
        "GraniteForCausalLM", "SmolLM3ForCausalLM"})
    CHECK(std::find(all.begin(), all.end(), name) != all.end());
}
