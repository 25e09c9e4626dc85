// What is printed can be read: every graph in both spellings, the graph or Program behind each
// pass, the parts of these that a kernel and a Program carry, and the story of every op. From the
// text behind a pass, the following passes make the same as without it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "compiler/api/explain.h"
#include "compiler/api/match.h"
#include "compiler/cost/machine.h"
#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/unit_text.h"
#include "ir/manifest.h"
#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/examples.h"
#include "tests/fuzz/pipelines.h"
#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/random_layers.h"
#include "tests/fuzz/random_values.h"
#include "tests/paths.h"
#include "tests/tier.h"

namespace maco::fuzz {
namespace {

/// What went wrong with one graph.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

ir::Graph read(const std::string& what, const std::string& text) {
  ir::Diagnostics d;
  auto graph = api::read_graph(what, text, d);
  if (!graph) throw Wrong(fmt::format("{} isn't read:\n{}\n{}", what, d.render(), text));
  return std::move(*graph);
}
passes::Unit read_unit(const std::string& what, const std::string& text) {
  ir::Diagnostics d;
  auto unit = passes::parse_unit(d.add_file(what, text), d);
  if (!unit) throw Wrong(fmt::format("{} isn't read:\n{}\n{}", what, d.render(), text));
  return std::move(*unit);
}

/// Prints the graph in both spellings, and reads it.
void check_spellings(const ir::Graph& graph) {
  const std::string dsl = frontend::print_dsl(graph), json = frontend::print_json(graph);
  for (const std::string& text : {dsl, json}) {
    const ir::Graph again = read("a print of the graph", text);
    if (again != graph) throw Wrong("another graph is read than was printed:\n" + text);
    if (frontend::print_dsl(again) != dsl || frontend::print_json(again) != json)
      throw Wrong("another print of the same graph:\n" + text);
  }
}

/// A graph among passes, in JSON: the dumps are DSL, which `reparse` reads.
void check_json(const passes::Unit& unit, const std::string& pass) {
  const auto* graph = std::get_if<ir::Graph>(&unit);
  if (graph && read_unit("JSON behind " + pass, frontend::print_json(*graph)) != unit)
    throw Wrong("JSON behind " + pass + " loses something");
}

/// The dumps of the passes that the pipeline runs.
struct Dumps {
  std::vector<passes::Dump> list;
  /// Runs the passes behind pass `i` on its text; returns the last one's result.
  std::string from(size_t i, const api::Options& options) const {
    ir::Diagnostics d;
    passes::Unit unit = read_unit("the dump of " + list[i].pass, list[i].text);
    passes::PassManager manager(passes::make_context(unit, options, d), options, d);
    for (size_t k = i + 1; k < list.size(); ++k) unit = manager.run(list[k].pass, std::move(unit));
    if (!manager.ok())
      throw Wrong(
          fmt::format("from the dump of {}:\n{}\n{}", list[i].pass, d.render(), list[i].text));
    return passes::to_text(unit);
  }
};

/// Checks everything about a graph's kernel.
void check_compiled(const api::Compiled& compiled, const ir::Program& unpruned,
                    const api::Options& options) {
  const ir::Graph& graph = compiled.graph;
  const passes::Unit program = read_unit("the Program", ir::print(compiled.program));
  ir::Diagnostics d;
  if (!api::check_program(graph, std::get<ir::Program>(program), options, d))
    throw Wrong("its Program isn't taken for the graph:\n" + d.render() +
                ir::print(compiled.program));
  const auto manifest = ir::parse_manifest(compiled.kernel).manifest;
  if (!manifest || read("the graph in the kernel", manifest->graph) != graph)
    throw Wrong("the kernel holds another graph");
  for (const ir::Op& op : graph.ops) {
    std::string error;
    const auto story = api::explain_op(compiled, unpruned, op.name, nullptr, error);
    if (!story || story->empty()) throw Wrong(fmt::format("no story of '{}': {}", op.name, error));
  }
}

enum class Outcome : uint8_t { Right, Refused };

/// Checks everything that is printed of a graph. `random` chooses from which texts passes continue.
Outcome check_printed(const std::string& text, api::Options options, Random& random) {
  ir::Diagnostics d;
  const auto graph = api::read_graph("g.maco", text, d);
  if (!graph) return Outcome::Refused;
  check_spellings(*graph);
  Dumps dumps;
  ir::Program unpruned;
  options.reparse = true;
  options.dump = [&](const passes::Dump& dump) { dumps.list.push_back(dump); };
  options.after_pass = [&](const passes::Pass& pass, passes::Unit& unit) {
    check_json(unit, pass.name);
    if (pass.name == "insert-sync") unpruned = std::get<ir::Program>(unit);
  };
  const auto compiled = api::compile(*graph, options, d);
  options.reparse = false;
  options.dump = {};
  options.after_pass = {};
  if (!compiled && dumps.list.empty()) return Outcome::Refused;
  std::vector<std::string> ran;
  for (const passes::Dump& dump : dumps.list) ran.push_back(dump.pass);
  if (compiled && compiled->variants.empty()) {
    if (ran != passes::pipeline_passes(options)) throw Wrong("maco-opt --to runs other passes");
    check_compiled(*compiled, unpruned, options);
    const std::string whole = ir::print(compiled->program);
    for (int i = 0; i < 3; ++i) {
      const size_t at = random.below(dumps.list.size());
      if (dumps.from(at, options) != whole)
        throw Wrong(fmt::format("from the dump of {} comes another Program", dumps.list[at].pass));
    }
  }
  return compiled ? Outcome::Right : Outcome::Refused;
}

/// Checks a graph, and says with which text something went wrong.
Outcome check(const std::string& name, const std::string& text, const api::Options& options,
              uint64_t seed) {
  Random random(seed);
  try {
    return check_printed(text, options, random);
  } catch (const std::exception& e) {
    FAIL_CHECK(name << ", " << options.target << ": " << e.what() << "\nof\n" << text);
    return Outcome::Right;
  }
}

api::Options random_options(uint64_t seed) {
  Random random(seed + 1000);
  api::Options options;
  std::vector<std::string> targets;
  for (const cost::Machine& m : cost::all_machines()) targets.push_back(m.target);
  options.target = random.chance(60) ? "sm_90a" : random.pick(targets);
  options.fuse = random.chance(85);
  options.prune = random.chance(85);
  options.packets = random.chance(85);
  options.load_ahead = random.chance(85);
  return options;
}

}  // namespace

TEST_CASE("random layers are read as they are printed") {
  const test::Share share = test::share(3);
  int right = 0, refused = 0;
  for (uint64_t seed = 0; seed < 560; ++seed) {
    if (!share.has(seed)) continue;
    std::string text = random_layers(seed);
    ir::Diagnostics d;
    if (seed % 5 == 4 && api::read_graph("g.maco", text, d)) text = with_pipeline(text, seed);
    const Outcome o = check(fmt::format("layers {}", seed), text, random_options(seed), seed);
    ++(o == Outcome::Right ? right : refused);
  }
  CAPTURE(right, refused);
  CHECK(right > refused);
}

TEST_CASE("random graphs are read as they are printed") {
  const test::Share share = test::share(3);
  int right = 0, refused = 0;
  for (uint64_t seed = 0; seed < kCoveringSeeds; ++seed) {
    if (!share.has(seed)) continue;
    const RandomGraph graph = random_graph(seed);
    const Outcome o = check(fmt::format("seed {}", seed), graph.text(), random_options(seed), seed);
    ++(o == Outcome::Right ? right : refused);
  }
  CAPTURE(right, refused);
  CHECK(right > 9 * refused);
}

TEST_CASE("the examples are read as they are printed") {
  uint64_t index = 0;
  for (const char* folder : {"examples/graphs", "tests/e2e", "tests/fuzz/regressions"}) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(test::source_path(folder)))
      if (entry.path().extension() == ".maco" || entry.path().extension() == ".json")
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    REQUIRE(!paths.empty());
    for (const auto& path : paths)
      for (const char* target : {"sm_90a", "cpu"}) {
        ++index;
        api::Options options;
        options.target = target;
        std::string text = test::example_text(path);
        // All layers of a model are alike.
        for (const char* layers : {"16", "36"}) {
          test::replace(text, fmt::format("in 0..{} ", layers), "in 0..2 ");
          test::replace(text, fmt::format("x_{}", layers), "x_2");
        }
        check(path.filename().string(), text, options, index);
      }
  }
}

}  // namespace maco::fuzz
