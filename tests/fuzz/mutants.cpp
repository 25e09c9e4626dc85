// mutants: writes the synced Programs of examples and random graphs, with and without pruning, into
// a folder for mutation_test.
//   mutants FOLDER EXAMPLES
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "compiler/passes/pipeline.h"
#include "ir/program_text.h"
#include "tests/examples.h"
#include "tests/fuzz/random_graph.h"

namespace maco::fuzz {
namespace {

namespace fs = std::filesystem;

struct Source {
  std::string name, text, target;
};

std::vector<Source> sources(const fs::path& examples) {
  std::vector<Source> list;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(examples)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    if (path.extension() != ".maco" && path.extension() != ".json") continue;
    const std::string text = test::example_text(path);
    for (const char* target : {"cpu", "sm_90a"})
      list.push_back({path.filename().string() + "." + target, text, target});
  }
  // What orders without data: on its own, so that nothing else can.
  list.push_back({"after", R"(graph after(world = 2) {
  input x : f32[40, 64]
  output a = exp(x)
  output b = relu(x, after = [a])
  output c = allreduce(x, after = [b], algorithm = twoshot)
  output d = silu(x, after = [c])
})",
                  "cpu"});
  list.push_back({"barriers", R"(graph barriers(world = 3) {
  input x : f32[40, 64]
  output a = exp(x)
  barrier()
  output b = relu(x)
  barrier()
  output c = ring_shift(x)
})",
                  "cpu"});
  for (const char* overlap : {"none", "conservative"})
    list.push_back({std::string("overlap_") + overlap,
                    fmt::format(R"(graph overlap(world = 3) {{
  input x : f32[40, 64]
  a = exp(x)
  output b = allgather(x)
  output c = silu(a)
  output d = broadcast(a, root = 1)
  output e = softmax(x, phase = "first")
  output f = layernorm(x, w, v, phase = "then")
  param w : f32[64]
  param v : f32[64]
  phase first
  phase then depends_on first
  set overlap = "{}"
}})",
                                overlap),
                    "cpu"});
  // Every 8th of the covering seeds, so that all numbers of ranks, dtypes and settings are met.
  for (uint64_t seed = 0; seed < kCoveringSeeds; seed += 8) {
    const RandomGraph g = random_graph(seed);
    list.push_back({fmt::format("seed_{}", g.seed), g.text(), "cpu"});
  }
  return list;
}

// Every collective and algorithm by itself, at every number of ranks; at some also too large for
// packets.
std::vector<Source> collectives() {
  struct Op {
    const char *name, *call;
    bool blocks;  // of each rank
  };
  constexpr Op kOps[] = {{"oneshot", "allreduce(x, algorithm = oneshot)", false},
                         {"twoshot", "allreduce(x, algorithm = twoshot, reduce = max)", false},
                         {"allgather", "allgather(x)", false},
                         {"reduce_scatter", "reduce_scatter(x)", true},
                         {"alltoall", "alltoall(x)", true},
                         {"broadcast", "broadcast(x, root = {last})", false},
                         {"ring_shift", "ring_shift(x, by = 1)", false}};
  std::vector<Source> list;
  for (int world = 1; world <= 8; ++world)
    for (const Op& op : kOps)
      for (const bool large : {false, true}) {
        if (large && world != 2 && world != 3) continue;
        std::string call = op.call;
        test::replace(call, "{last}", fmt::to_string(world - 1));
        const int rows = (large ? 9 : 3) * (op.blocks || large ? world : 1);
        list.push_back(
            {fmt::format("{}_{}{}", op.name, world, large ? "_large" : ""),
             fmt::format("graph g(world = {}) {{\n  input x : f32[{}, {}]\n  output y = {}\n}}\n",
                         world, rows, large ? 8192 : 24, call),
             "cpu"});
      }
  return list;
}

bool write(const fs::path& folder, size_t number, const Source& s, bool prune) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_graph(diagnostics.add_file(s.name, s.text), diagnostics);
  passes::PipelineOptions options;
  options.target = s.target;
  options.prune = prune;
  passes::PipelineResult result;
  if (graph) result = passes::run_pipeline(*graph, options, diagnostics);
  if (!result.ok) {
    std::cerr << diagnostics.render();
    return false;
  }
  const fs::path path =
      folder / fmt::format("{:03}_{}.{}", number, s.name, prune ? "pruned" : "unpruned");
  std::ofstream(path, std::ios::binary) << ir::print(std::get<ir::Program>(result.unit));
  return true;
}

int run(const fs::path& folder, const fs::path& examples) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  size_t number = 0;
  for (const Source& s : sources(examples)) {
    for (const bool prune : {true, false})
      if (!write(folder, number, s, prune)) return 1;
    ++number;
  }
  // For tests/proofs.
  fs::create_directories(folder / "collectives");
  size_t of_one = 0;
  for (const Source& s : collectives())
    if (!write(folder / "collectives", of_one++, s, true)) return 1;
  std::cout << number << " graphs, each with and without pruning, and " << of_one
            << " collectives, in " << folder << "\n";
  return 0;
}

}  // namespace
}  // namespace maco::fuzz

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: mutants FOLDER EXAMPLES\n";
    return 2;
  }
  return maco::fuzz::run(argv[1], argv[2]);
}
