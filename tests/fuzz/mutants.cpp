// mutants: writes the synced Programs of examples and random graphs, with and without pruning, into
// a folder for mutation_test. insert-sync inserts few waits that others imply. So some are added to
// the Programs without pruning, and prune-sync has to remove all of them.
//   mutants FOLDER EXAMPLES
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/manager.h"
#include "compiler/pipeline/options.h"
#include "compiler/pipeline/pipeline.h"
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
    // Thousands of tasks a rank: too many for a test that examines each mutant.
    const std::string stem = path.stem().string();
    if (stem.starts_with("llama32_1b_") || stem.starts_with("qwen3_8b_")) continue;
    const std::string text = test::example_text(path);
    for (const char* target : {"cpu", "sm_90a"})
      list.push_back({path.filename().string() + "." + target, text, target});
  }
  // Orders that no data gives: alone, so that nothing else can give them.
  list.push_back({"after", R"(graph after(world = 2) {
  input x : f32[40, 64]
  output a = exp(x)
  output b = relu(x, after = [a])
  output c = allreduce(x, after = [b], algorithm = twoshot)
  output d = silu(x, after = [c])
})",
                  "cpu"});
  // Slots that share a place.
  for (const char* algorithm : {"oneshot", "twoshot"})
    list.push_back({std::string("chain_") + algorithm,
                    fmt::format(R"(graph chain(world = 3) {{
  input x : f32[6, 64]
  param w : f32[64, 64]
  s0 = exp(x)
  repeat i in 0..4 {{
    r{{i}} = allreduce(s{{i}}, algorithm = {})
    s{{i + 1}} = matmul(r{{i}}, w)
  }}
  output y = relu(s4)
}})",
                                algorithm),
                    "cpu"});
  // Matmuls that push their tiles.
  for (const char* algorithm : {"oneshot", "twoshot"})
    list.push_back({std::string("pushed_") + algorithm,
                    fmt::format(R"(graph pushed(world = 3) {{
  input x : bf16[72, 64]
  param w : bf16[136, 64]
  param v : bf16[64, 136]
  p = matmul(x, w, transpose_b = true)
  y = allreduce(p, algorithm = {0})
  q = matmul(y, v, transpose_b = true)
  output z = allreduce(q, algorithm = {0})
}})",
                                algorithm),
                    "cpu"});
  list.push_back({"pushed_added", R"(graph pushed(world = 3) {
  input x : bf16[144, 64]
  param w : bf16[264, 64]
  p = matmul(x, w, transpose_b = true)
  output y = allreduce(p, algorithm = twoshot)
})",
                  "cpu"});
  list.push_back({"gathered", R"(graph gathered(world = 3) {
  input x : bf16[48, 64]
  param w : bf16[264, 64]
  all = allgather(x)
  output y = matmul(all, w, transpose_b = true)
})",
                  "cpu"});
  list.push_back({"pushed_few", R"(graph pushed(world = 3) {
  input x : bf16[2, 64]
  input r : bf16[2, 40]
  param w : bf16[40, 64]
  param v : f16[72, 40]
  p = matmul(x, w, transpose_b = true)
  y = allreduce(p, algorithm = oneshot)
  s = add(y, r, dtype = f16)
  q = matmul(s, v, transpose_b = true)
  output z = allreduce(q, algorithm = oneshot, reduce = max)
})",
                  "cpu"});
  list.push_back({"pushed_scatter", R"(graph pushed(world = 3) {
  input x : f16[384, 64]
  param w : f16[72, 64]
  p = matmul(x, w, transpose_b = true)
  output y = reduce_scatter(p)
  output z = relu(p)
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
  // Messages from rank to rank and back: every rank waits for what the same tasks do on another
  // rank.
  list.push_back({"pipeline", R"(graph pipeline(world = 3) {
  input x : f32[12, 64]
  repeat m in 0..2 {
    a{m} = recv(src = rank - 1, shape = [12, 64], dtype = f32, if = rank > 0)
    b{m} = add(a{m}, x)
    send(b{m}, dst = rank + 1, if = rank < world - 1)
    c{m} = recv(src = rank + 1, tag = 1, shape = [12, 64], dtype = f32, if = rank < world - 1)
    output d{m} = add(c{m}, b{m})
    send(d{m}, dst = rank - 1, tag = 1, if = rank > 0)
  }
})",
                  "cpu"});
  list.push_back({"messages", R"(graph messages(world = 4) {
  dim n <= 9
  input x : f32[n, 64]
  state s : f32[n, 64]
  send(x, dst = 3 - rank)
  send(s, dst = rank, tag = 1)
  s = add(s, x)
  output a = recv(src = 3 - rank, shape = [n, 64], dtype = f32)
  output b = recv(src = rank, tag = 1, shape = [n, 64], dtype = f32)
  send(a, dst = 0, tag = 2, if = rank == 2)
  output c = recv(src = 2, tag = 2, shape = [n, 64], dtype = f32, if = rank == 0)
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
  // Every 8th of the covering seeds, so that all numbers of ranks, dtypes and settings occur.
  for (uint64_t seed = 0; seed < kCoveringSeeds; seed += 8) {
    const RandomGraph g = random_graph(seed);
    list.push_back({fmt::format("seed_{}", g.seed), g.text(), "cpu"});
  }
  return list;
}

// Every collective and algorithm by itself, at every number of ranks; at some numbers also with
// tensors too large for packets.
std::vector<Source> collectives() {
  struct Op {
    const char *name, *call;
    bool blocks;             // of each rank
    const char* first = "";  // what comes before it
    bool receives = false;
  };
  constexpr Op kOps[] = {
      {"oneshot", "allreduce(x, algorithm = oneshot)", false},
      {"twoshot", "allreduce(x, algorithm = twoshot, reduce = max)", false},
      {"allgather", "allgather(x)", false},
      {"reduce_scatter", "reduce_scatter(x)", true},
      {"alltoall", "alltoall(x)", true},
      {"broadcast", "broadcast(x, root = {last})", false},
      {"relayed", "broadcast(x, root = {last}, algorithm = twoshot)", false},
      {"ring_shift", "ring_shift(x, by = 1)", false},
      {"next", "recv(src = rank - 1, if = rank > 0", false,
       "send(x, dst = rank + 1, if = rank < {last})", true},
      {"mirrored", "recv(src = {last} - rank", false, "send(x, dst = {last} - rank)", true}};
  std::vector<Source> list;
  for (int world = 1; world <= 8; ++world)
    for (const Op& op : kOps)
      for (const bool large : {false, true}) {
        if (large && world != 2 && world != 3) continue;
        const int rows = (large ? 9 : 3) * (op.blocks || large ? world : 1),
                  columns = large ? 8192 : 24;
        std::string call = fmt::format("  {}\n  output y = {}", op.first, op.call);
        if (op.receives) call += fmt::format(", shape = [{}, {}], dtype = f32)", rows, columns);
        test::replace(call, "{last}", fmt::to_string(world - 1));
        list.push_back({fmt::format("{}_{}{}", op.name, world, large ? "_large" : ""),
                        fmt::format("graph g(world = {}) {{\n  input x : f32[{}, {}]\n{}\n}}\n",
                                    world, rows, columns, call),
                        "cpu"});
      }
  return list;
}

// Adds waits that others imply, at most two for each task. A task that has waited for an event has
// waited for everything for which the event's signallers waited. A stream has waited for everything
// for which its tasks so far waited, on ranks that run these tasks: a rank that leaves a task out
// doesn't wait there.
void add_implied_waits(ir::Program& p) {
  std::vector<std::vector<uint32_t>> signallers(p.events.size());
  for (uint32_t t = 0; t < p.tasks.size(); ++t)
    for (const ir::Signal& s : p.tasks[t].signals) signallers[index(s.event)].push_back(t);
  const auto is_local = [&](const ir::Wait& w) {
    return p[w.event].kind == ir::EventKind::Local && w.lag == 0;
  };
  const auto streams = ir::streams(p);
  for (size_t t = 0; t < p.tasks.size(); ++t) {
    ir::Task& task = p.tasks[t];
    std::vector<ir::Wait> implied;
    const auto add = [&](const ir::Task& before) {
      if ((task.ranks & ~before.ranks) != 0) return;
      for (const ir::Wait& w : before.waits) {
        const auto same = [&](const ir::Wait& x) { return x.event == w.event && x.lag == w.lag; };
        if (implied.size() < 2 && is_local(w) &&
            std::none_of(task.waits.begin(), task.waits.end(), same) &&
            std::none_of(implied.begin(), implied.end(), same))
          implied.push_back(w);
      }
    };
    for (const ir::Wait& w : task.waits)
      if (is_local(w))
        for (const uint32_t before : signallers[index(w.event)]) add(p.tasks[before]);
    if (task.place > 0)
      add(p[streams[static_cast<size_t>(task.sm)][static_cast<size_t>(task.place) - 1]]);
    task.waits.insert(task.waits.end(), implied.begin(), implied.end());
  }
}

bool save(const fs::path& folder, size_t number, const std::string& name, const ir::Program& p) {
  std::ofstream out(folder / fmt::format("{:03}_{}", number, name), std::ios::binary);
  out << ir::print(p);
  return out.good();
}

std::optional<ir::Program> compiled(const Source& s, bool prune) {
  ir::Diagnostics diagnostics;
  const auto graph = frontend::parse_graph(diagnostics.add_file(s.name, s.text), diagnostics);
  passes::PipelineOptions options;
  options.target = s.target;
  options.prune = prune;
  passes::PipelineResult result;
  if (graph) result = passes::run_pipeline(*graph, options, diagnostics);
  if (result.ok) return std::get<ir::Program>(std::move(result.unit));
  std::cerr << diagnostics.render();
  return std::nullopt;
}

bool write_pruned(const fs::path& folder, size_t number, const Source& s) {
  const auto pruned = compiled(s, true);
  return pruned && save(folder, number, s.name + ".pruned", *pruned);
}

bool write_both(const fs::path& folder, size_t number, const Source& s) {
  std::optional<ir::Program> unpruned = compiled(s, false);
  if (!unpruned) return false;
  add_implied_waits(*unpruned);
  ir::Diagnostics diagnostics;
  passes::PipelineOptions options;
  options.target = s.target;
  passes::PassManager passes(passes::make_context(options, diagnostics), options, diagnostics);
  const auto pruned = std::get<ir::Program>(passes.run("prune-sync", *unpruned));
  const std::optional<ir::Program> as_compiled = compiled(s, true);
  if (!as_compiled) return false;
  if (!passes.ok() || ir::print(pruned) != ir::print(*as_compiled)) {
    std::cerr << diagnostics.render() << s.name << ": prune-sync leaves implied waits\n";
    return false;
  }
  return save(folder, number, s.name + ".pruned", pruned) &&
         save(folder, number, s.name + ".unpruned", *unpruned);
}

int run(const fs::path& folder, const fs::path& examples) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  size_t number = 0;
  for (const Source& s : sources(examples))
    if (!write_both(folder, number++, s)) return 1;
  // For tests/proofs.
  fs::create_directories(folder / "collectives");
  size_t of_one = 0;
  for (const Source& s : collectives())
    if (!write_pruned(folder / "collectives", of_one++, s)) return 1;
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
