// Mutations of a good graph: each is a graph, or is told why not, with a place.
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "compiler/frontend/frontend.h"
#include "tests/catch.h"

using namespace maco;
using Json = nlohmann::ordered_json;

namespace {

const std::string kGraph = R"({
  "maco": 1, "name": "g", "world": 2, "dims": {"tokens": {"max": 8, "min": 2}},
  "tensors": {
    "x": {"kind": "input", "dtype": "bf16", "shape": ["tokens", 32]},
    "w": {"kind": "param", "dtype": "bf16", "shape": [32, 32]},
    "cache": {"kind": "state", "dtype": "bf16", "shape": [64, 32]},
    "pos": {"kind": "scalar", "range": [0, 16]},
    "y": {"kind": "output", "dtype": "bf16", "shape": ["tokens", 32]}
  },
  "ops": [
    {"op": "matmul", "in": ["x", "w"], "out": "h_0", "transpose_b": true, "phase": "p", "priority": "high"},
    {"op": "rope", "in": ["h_0"], "out": "k", "head_dim": 8, "position": "pos", "theta": 1e4},
    {"op": "kv_append", "in": ["cache", "k"], "out": "cache", "at": "pos + 0"},
    {"repeat": "i", "from": 0, "to": 2, "tensors": {"g_{i}": {"kind": "param", "dtype": "bf16", "shape": [32]}}, "ops": [
      {"op": "rmsnorm", "in": ["h_{i}", "g_{i}"], "out": "n_{i}", "eps": 1e-5},
      {"op": "add", "in": ["n_{i}", "h_{i}"], "out": "h_{i + 1}", "after": ["cache"]}
    ]},
    {"op": "attention", "in": ["h_2", "cache", "cache"], "out": "a", "head_dim": 8, "causal": true, "length": "pos + tokens"},
    {"op": "barrier"},
    {"op": "allreduce", "in": ["a"], "out": "y", "reduce": "sum", "overlap_group": "mlp", "name": "ar"}
  ],
  "sm_roles": {"when": [{"if": "tokens <= 4", "roles": {"compute": 6, "comm": 2}}, {"else": "auto"}]},
  "overlap": "aggressive", "backend": "p2p", "comm_buffer_bytes": 1048576,
  "phases": [{"name": "p"}, {"name": "q", "depends_on": ["p"]}],
  "overlap_regions": [{"name": "r", "ops": ["k", "n_0"]}]
})";

void check(const std::string& text) {
  ir::Diagnostics d;
  const auto graph = frontend::parse_json(d.add_file("t.json", text), d);
  INFO(text);
  INFO(d.render());
  REQUIRE(graph.has_value() == !d.has_errors());
  for (const ir::Diagnostic& x : d.all())
    if (x.severity == ir::Severity::Error) REQUIRE(x.loc.known());
}

/// All values of the document, the document itself first.
void collect(Json& value, std::vector<Json*>& all) {
  all.push_back(&value);
  if (value.is_structured())
    for (Json& item : value) collect(item, all);
}

}  // namespace

TEST_CASE("fuzz: the graph that is mutated is good") {
  ir::Diagnostics d;
  const auto graph = frontend::parse_json(d.add_file("t.json", kGraph), d);
  INFO(d.render());
  REQUIRE(graph);
}

TEST_CASE("fuzz: bytes") {
  const std::string bytes = "{}[]:,\"0123456789-+*/%.eE \n_i\\axyz\xff" + std::string(1, '\0');
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    std::string text = kGraph;
    const size_t count = 1 + random() % 3;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = random() % text.size();
      const char byte = bytes[random() % bytes.size()];
      switch (random() % 4) {
        case 0: text.erase(at, 1 + random() % 4); break;
        case 1: text.insert(at, 1, byte); break;
        case 2: text[at] = byte; break;
        case 3:
          text = random() % 8 == 0
                     ? text.substr(0, at + 1)
                     : text.insert(at, text.substr(random() % text.size(), random() % 20));
          break;
      }
      if (text.empty()) text = "{";
    }
    check(text);
  }
}

TEST_CASE("fuzz: values") {
  const std::vector<Json> others = {nullptr,
                                    true,
                                    0,
                                    -1,
                                    3,
                                    65,
                                    INT64_MAX,
                                    INT64_MIN,
                                    1.5,
                                    1e300,
                                    "",
                                    "x",
                                    "pos",
                                    "rank",
                                    "tokens",
                                    "{i}",
                                    "1 / rank",
                                    "no such name",
                                    "relu",
                                    "allreduce",
                                    Json::array(),
                                    Json::object(),
                                    Json::array({1, 2}),
                                    Json{{"name", "x"}}};
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    Json document = Json::parse(kGraph);
    const size_t count = 1 + random() % 3;
    for (size_t i = 0; i < count; ++i) {
      std::vector<Json*> all;
      collect(document, all);
      Json& value = *all[random() % all.size()];
      const size_t what = random() % 5;
      if (what == 0) {
        value = others[random() % others.size()];
      } else if (what == 1) {
        const Json copy = *all[random() % all.size()];
        value = copy;
      } else if (what == 2 && value.is_structured() && !value.empty()) {
        auto it = value.begin();
        std::advance(it, static_cast<std::ptrdiff_t>(random() % value.size()));
        value.erase(it);
      } else if (what == 3 && value.is_array() && !value.empty()) {
        const Json copy = value[random() % value.size()];
        value.push_back(copy);
      } else if (value.is_object()) {
        const Json copy = *all[random() % all.size()];
        value["extra"] = copy;
      }
    }
    check(document.dump(1));
  }
}

TEST_CASE("fuzz: a slip in a good graph is one error") {
  const auto errors = [](const std::string& text) {
    ir::Diagnostics d;
    CHECK_FALSE(frontend::parse_json(d.add_file("t.json", text), d));
    INFO(text);
    INFO(d.render());
    CHECK(std::count_if(d.all().begin(), d.all().end(),
                        [](const auto& x) { return x.severity == ir::Severity::Error; }) == 1);
  };
  bool in_string = false;
  for (size_t i = 0; i < kGraph.size(); ++i) {
    const char c = kGraph[i];
    const std::string before = kGraph.substr(0, i), after = kGraph.substr(i);
    const bool in_word = i > 0 && std::isalpha(static_cast<unsigned char>(kGraph[i - 1])) != 0;
    if (in_string || !in_word) errors(before);  // half a word is a second slip
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if (c == ',' || c == ':') errors(before + after.substr(1));
    if (c == '}' || c == ']') errors(before + "," + after);
    if (c == '\n') errors(before + " // why" + after);
    if (!in_word && c != '"') errors(before + "@" + after);
  }
}

TEST_CASE("fuzz: behind a repair the next slip is told, once") {
  const auto first_errors = [](const std::string& text) {
    ir::Diagnostics d;
    CHECK_FALSE(frontend::parse_json(d.add_file("t.json", text), d));
    std::string said;
    for (size_t i = 0; i < std::min<size_t>(2, d.all().size()); ++i)
      said += d.all()[i].message + "; ";
    return said;
  };
  CHECK(first_errors("{\"maco\" 1e999}") ==
        "expected ':' after the key, found '1e999'; the number is too large; ");
  CHECK(first_errors("{\"maco\": 1 \"name: 2}") ==
        "expected ',' or '}', found \"name: 2}; the string has no closing '\"' on its line; ");
  CHECK(first_errors("{\"maco\" -}") ==
        "expected ':' after the key, found '-'; the number is malformed; ");
  // A byte more or less anywhere: nothing is said twice.
  for (size_t i = 0; i < kGraph.size(); ++i)
    for (const std::string& text :
         {kGraph.substr(0, i) + kGraph.substr(i + 1), kGraph.substr(0, i) + "-" + kGraph.substr(i),
          kGraph.substr(0, i) + "\"" + kGraph.substr(i)}) {
      ir::Diagnostics d;
      (void)frontend::parse_json(d.add_file("t.json", text), d);
      std::set<std::string> told;
      INFO(d.render());
      for (const ir::Diagnostic& x : d.all())
        if (x.severity == ir::Severity::Error)
          CHECK(told.insert(std::to_string(x.loc.line) + ":" + std::to_string(x.loc.column) +
                            x.message)
                    .second);
    }
}
