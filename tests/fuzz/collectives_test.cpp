// Every collective at every number of ranks: dtypes, shapes that no tile divides, dims, reductions,
// algorithms, roots, shifts, shares of SMs.
//
// A graph has every collective on inputs of a few shapes. All of them are independent, so that with
// two communication workers several are in flight. The pairs of dtype and shape rotate so that,
// over the ranks, all occur. Then there is a graph of collectives that feed each other.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "compiler/ops/collectives/algorithms.h"
#include "ir/dtype.h"
#include "tests/catch.h"
#include "tests/fuzz/coverage.h"
#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/run_case.h"
#include "tests/tier.h"

namespace maco::fuzz {
namespace {

using ir::DType;

// A collective with its attributes; `{W-1}` and `{W/2}` stand for numbers.
struct Variant {
  std::string name;
  std::string kind;
  std::vector<std::string> attrs;
  std::vector<std::string> send = {};  // of a recv: the attributes of its send
  bool has(const char* attr) const {
    return std::find(attrs.begin(), attrs.end(), attr) != attrs.end();
  }
  bool scatters() const { return kind == "reduce_scatter" || kind == "alltoall"; }
  bool takes(DType t) const { return ir::is_float(t) || !has("reduce = avg"); }
};

std::vector<Variant> all_variants() {
  std::vector<Variant> v;
  for (const std::string reduce : {"sum", "max", "min", "avg"}) {
    std::vector<std::string> algorithms = ops::algorithm_words("allreduce");
    algorithms.insert(algorithms.begin(), "auto");
    for (const std::string& algorithm : algorithms)
      v.push_back({fmt::format("allreduce {} {}", algorithm, reduce),
                   "allreduce",
                   {"reduce = " + reduce, "algorithm = " + algorithm}});
    v.push_back({"reduce_scatter " + reduce, "reduce_scatter", {"reduce = " + reduce}});
    v.push_back({"reduce_scatter ring " + reduce,
                 "reduce_scatter",
                 {"reduce = " + reduce, "algorithm = ring"}});
  }
  v.push_back({"allgather", "allgather", {}});
  v.push_back({"allgather ring", "allgather", {"algorithm = ring"}});
  v.push_back({"alltoall", "alltoall", {}});
  for (const char* algorithm : {"oneshot", "twoshot"})
    for (const auto& [from, root] :
         {std::pair{"first", "0"}, {"middle", "{W/2}"}, {"last", "{W-1}"}})
      v.push_back({fmt::format("broadcast {} from {}", algorithm, from),
                   "broadcast",
                   {fmt::format("root = {}", root), fmt::format("algorithm = {}", algorithm)}});
  for (const char* by : {"1", "-1", "3", "0"})
    v.push_back({fmt::format("ring_shift by {}", by), "ring_shift", {fmt::format("by = {}", by)}});
  v.push_back({"send to next",
               "recv",
               {"src = rank - 1", "if = rank > 0"},
               {"dst = rank + 1", "if = rank + 1 < world"}});
  v.push_back({"send mirrored", "recv", {"src = world - 1 - rank"}, {"dst = world - 1 - rank"}});
  v.push_back({"send from last to first",
               "recv",
               {"src = world - 1", "tag = -7", "if = rank == 0"},
               {"dst = 0", "tag = -7", "if = rank == world - 1"}});
  return v;
}

// One rank's shape, or one block's if a collective scatters. Axis 0 may be a dim.
struct Shape {
  std::string name;
  std::vector<std::string> extents;
  bool dims = false;
  bool converts = false;  // the result has another dtype
  bool large = false;     // too large for packets: extents are chosen by dtype and collective
};

const std::vector<Shape> kShapes = {
    {"one element", {"1"}},
    {"prime, 1 axis", {"1009"}},
    {"primes, 2 axes", {"13", "97"}},
    {"3 axes", {"5", "3", "29"}},
    {"4 axes", {"2", "3", "2", "11"}},
    {"converting", {"7", "31"}, false, true},
    {"several tiles", {"11", "523"}},
    {"a dim, 1 axis", {"tokens"}, true},
    {"a dim, 2 axes", {"tokens", "41"}, true},
    {"a dim, 3 axes", {"tokens", "3", "7"}, true},
    {"no packets", {}, false, false, true},
};
constexpr size_t kLarge = 10;

// How elements are reduced doesn't depend on how they arrived: for large tensors one reduction is
// enough. Small all-reduces that choose their algorithm are one-shot ones.
bool fits(const Variant& v, const Shape& s) {
  if (s.converts && v.kind == "recv") return false;
  if (s.large)
    return v.has("reduce = sum") || (v.kind != "allreduce" && v.kind != "reduce_scatter");
  return !v.has("algorithm = auto") || s.extents.size() < 3;
}

// One op of a graph, as text, and its variant and shape.
struct Use {
  size_t variant = 0, shape = 0;
  DType dtype = DType::F32;
  std::string input, input_shape;
  std::string send, op;
};

// The same for all collectives, so that they share inputs and device code.
DType dtype_of(const Variant& v, size_t shape, size_t world_index) {
  const size_t turn = shape + world_index;
  return kDTypes[turn % (kShapes[shape].converts || !v.takes(DType::I32) ? 3 : std::size(kDTypes))];
}
static_assert(kDTypes[3] == DType::I32);

Use use_of(const std::vector<Variant>& variants, size_t variant, size_t shape, size_t world_index) {
  const Variant& v = variants[variant];
  const Shape& s = kShapes[shape];
  const int64_t world = kWorlds[world_index];
  Use u{variant, shape, dtype_of(v, shape, world_index), {}, {}, {}, {}};
  std::vector<std::string> extents = s.extents;
  if (s.large) {
    const int64_t cols = 263, bytes = 256 * 1024 * (v.has("algorithm = twoshot") ? world : 1);
    int64_t rows = bytes / ir::size_of(u.dtype) / cols + 1;
    if (v.scatters()) rows = (rows + world - 1) / world;
    extents = {fmt::to_string(rows), fmt::to_string(cols)};
  }
  if (v.scatters())
    extents[0] = s.dims ? fmt::format("{} * {}", extents[0], world)
                        : fmt::to_string(std::atoll(extents[0].c_str()) * world);
  std::string kind_of_input = fmt::format("{}_{}", ir::name(u.dtype), fmt::join(extents, "_"));
  std::erase(kind_of_input, ' ');
  std::replace(kind_of_input.begin(), kind_of_input.end(), '*', 'x');
  u.input = "x_" + kind_of_input;
  u.input_shape = fmt::format("{}[{}]", ir::name(u.dtype), fmt::join(extents, ", "));
  std::vector<std::string> arguments;
  if (v.kind != "recv") {
    arguments.push_back(u.input);
  } else {
    u.send = fmt::format("send({}, {})", u.input, fmt::join(v.send, ", "));
    arguments.push_back(fmt::format("shape = [{}]", fmt::join(extents, ", ")));
    arguments.push_back(fmt::format("dtype = {}", ir::name(u.dtype)));
  }
  for (const std::string& a : v.attrs) {
    const size_t at = a.find('{');
    arguments.push_back(at == std::string::npos
                            ? a
                            : a.substr(0, at) +
                                  fmt::to_string(a.substr(at) == "{W/2}" ? world / 2 : world - 1));
  }
  if (s.converts)
    arguments.push_back(
        fmt::format("dtype = {}", ir::name(kDTypes[(shape + world_index + 1) % 3])));
  u.op = fmt::format("output y{}_{} = {}({})", variant, shape, v.kind, fmt::join(arguments, ", "));
  return u;
}

std::string text_of(const std::string& name, int world, bool dims, const std::string& roles,
                    const std::vector<Use>& uses) {
  std::string s = fmt::format("graph {}(world = {}) {{\n", name, world);
  if (dims) s += "  dim 1 <= tokens <= 37\n";
  std::set<std::string> declared;
  for (const Use& u : uses)
    if (declared.insert(u.input).second)
      s += fmt::format("  input {} : {}\n", u.input, u.input_shape);
  for (const Use& u : uses) {
    if (!u.send.empty()) s += "  " + u.send + "\n";
    s += "  " + u.op + "\n";
  }
  if (world > 1) s += "  barrier()\n";
  return s + roles + "}\n";
}

// Collectives that feed each other, through temporaries that share bytes, between computations.
std::string chain_text(int world) {
  return fmt::format(R"(graph chain_{0}(world = {0}) {{
  dim tokens <= 9
  input x : f32[tokens, 48]
  a = mul(x, value = 0.5)
  b = broadcast(a, root = {1})
  c = sub(a, b)
  d = ring_shift(c, by = 2)
  e = allreduce(d, algorithm = twoshot, reduce = max)
  f = allgather(e, algorithm = ring)
  barrier()
  g = alltoall(f)
  h = add(f, g)
  i = reduce_scatter(h, reduce = avg, algorithm = ring)
  barrier()
  j = allreduce(i, algorithm = oneshot, reduce = avg)
  k = recv(src = rank - 1, shape = [tokens, 48], dtype = f32, if = rank > 0)
  l = add(j, k)
  send(l, dst = rank + 1, if = rank + 1 < world)
  m = allreduce(l, algorithm = ring)
  output y = broadcast(m, root = world - 1)
  set sm_roles = {{compute: 2, comm: 2}}
}}
)",
                     world, world - 1);
}

// Matmuls that push their tiles, between collectives that read and feed them.
std::string products_text(int world) {
  return fmt::format(R"(graph products_{0}(world = {0}) {{
  input x : bf16[77, 72]
  param a : bf16[136, 72]
  param b : f16[136, 200]
  param c : f16[200, 200]
  input u : f16[{1}, 72]
  param v : f16[{2}, 72]
  p = matmul(x, a, transpose_b = true, activation = silu)
  q = allreduce(p, algorithm = oneshot, dtype = f16)
  r = matmul(q, b)
  s = allreduce(r, algorithm = twoshot, reduce = max)
  t = matmul(s, c, transpose_b = true)
  output y = allreduce(t, reduce = avg)
  m = matmul(u, v, transpose_b = true, dtype = f32)
  output n = reduce_scatter(m, algorithm = oneshot)
  output o = relu(m)
}}
)",
                     world, 128 * world, world % 2 ? 80 : 76);
}

// A graph, its ops, and its result.
struct Job {
  Case c;
  int world = 1;
  std::vector<Use> uses;
  bool chain = false, products = false, several_comm = false;
  std::string error;
  bool in_flight = false;
};

std::vector<Job> all_jobs(const std::vector<Variant>& variants) {
  // Shapes that share a graph, and so its launches and roles; the largest first.
  const std::vector<std::pair<std::vector<size_t>, std::string>> graphs = {
      {{kLarge}, "{compute: 1, comm: 2}"},
      {{0, 1, 6}, "{compute: 1, comm: 5}"},
      {{2, 3, 4, 5}, "{compute: 1, comm: 1}"},
      {{7, 8, 9}, "{compute: 1, comm: 2}"},
  };
  std::vector<Job> jobs;
  uint64_t seed = 0;
  for (size_t g = 0; g < graphs.size(); ++g)
    for (size_t w = std::size(kWorlds); w-- > 0;) {
      const auto& [shapes, roles] = graphs[g];
      Job j;
      j.world = kWorlds[w];
      bool dims = false;
      for (size_t shape : shapes) {
        dims = dims || kShapes[shape].dims;
        for (size_t v = 0; v < variants.size(); ++v)
          if (fits(variants[v], kShapes[shape])) j.uses.push_back(use_of(variants, v, shape, w));
      }
      j.several_comm = roles.find("comm: 1") == std::string::npos;
      j.c.name = fmt::format("collectives_{}_at_{}", g, kWorlds[w]);
      j.c.text =
          text_of(j.c.name, kWorlds[w], dims, fmt::format("  set sm_roles = {}\n", roles), j.uses);
      // A slot is used again by the launch after the next.
      if (dims)
        j.c.launches = {{{"tokens", 37}}, {{"tokens", 1}}, {{"tokens", 18}}, {{"tokens", 37}}};
      else
        j.c.launches = {{}, {}, {}};
      jobs.push_back(std::move(j));
    }
  for (int world : kWorlds) {
    Job j;
    j.world = world;
    j.chain = j.several_comm = true;
    j.c.name = fmt::format("chain_{}", world);
    j.c.text = chain_text(world);
    j.c.launches = {{{"tokens", 9}}, {{"tokens", 1}}, {{"tokens", 5}}, {{"tokens", 9}}};
    jobs.push_back(std::move(j));
  }
  for (int world : kWorlds) {
    Job j;
    j.world = world;
    j.products = true;
    j.c.name = fmt::format("products_{}", world);
    j.c.text = products_text(world);
    j.c.launches = {{}, {}, {}, {}};
    jobs.push_back(std::move(j));
  }
  for (Job& j : jobs) {
    j.c.seed = seed++;
  }
  return jobs;
}

// The ops that failed, found by running each in a graph of its own.
std::string culprits(const Job& j, const Where& where) {
  std::vector<Case> cases;
  for (const Use& u : j.uses) {
    cases.push_back(j.c);
    cases.back().text = text_of("alone", j.world, kShapes[u.shape].dims, "", {u});
  }
  std::string s;
  const BatchResult r = run_batch(cases, where);
  for (size_t i = 0; i < cases.size(); ++i)
    if (!r.errors[i].empty()) s += fmt::format("alone: {}\n{}", r.errors[i], cases[i].text);
  return s.empty() ? "each of its ops passes alone\n" + j.c.text : s;
}

void run(std::vector<Job>& jobs, const test::Share& share) {
  constexpr size_t kBatch = 2;
  std::atomic<size_t> next{0};
  std::mutex mutex;
  size_t ran = 0;
  double prepare_s = 0, compile_s = 0, run_s = 0;
  const auto worker = [&] {
    for (size_t first = kBatch * next++; first < jobs.size(); first = kBatch * next++) {
      const size_t last = std::min(jobs.size(), first + kBatch);
      std::vector<Case> cases;
      for (size_t i = first; i < last; ++i) cases.push_back(jobs[i].c);
      // A sixth is optimised as users' kernels are, and a third checked for accesses.
      const size_t batch = first / kBatch;
      const Where where = {
          .check_access = batch % 3 == 2, .nowhere = !share.has(batch), .quick = batch % 6 != 0};
      const BatchResult r = run_batch(cases, where);
      for (size_t i = first; i < last; ++i) {
        jobs[i].error = r.errors[i - first];
        if (jobs[i].error.empty())
          jobs[i].in_flight = collectives_in_flight(r.prepared[i - first].program);
        else
          jobs[i].error += "\n" + culprits(jobs[i], where);
      }
      std::lock_guard lock(mutex);
      if (!where.nowhere) ran += cases.size();
      prepare_s += r.prepare_s;
      compile_s += r.compile_s;
      run_s += r.run_s;
    }
  };
  std::thread other(worker);
  worker();
  other.join();
  std::cout << fmt::format(
      "{} of {} graphs ran, the others went through the passes; passes {:.0f} s, host "
      "compiler {:.0f} s, running and reference {:.0f} s in 2 jobs\n",
      ran, jobs.size(), prepare_s, compile_s, run_s);
}

}  // namespace

TEST_CASE("every collective at every number of ranks") {
  report_crashes();
  std::vector<Variant> variants = all_variants();
  std::vector<Job> jobs = all_jobs(variants);
  const test::Share share = test::share(5);
  run(jobs, share);

  std::map<std::pair<std::string, int64_t>, int> cells;  // collective, ranks: ops that passed
  std::set<std::pair<size_t, size_t>> shapes;            // variant, shape
  std::set<std::tuple<size_t, DType, int64_t>> dtypes;   // variant, dtype, ranks
  for (const Job& j : jobs) {
    INFO(j.c.name << ": " << j.error);
    CHECK(j.error.empty());
    if (!j.error.empty()) continue;
    for (const Use& u : j.uses) {
      cells[{variants[u.variant].name, j.world}]++;
      shapes.insert({u.variant, u.shape});
      dtypes.insert({u.variant, u.dtype, j.world});
    }
    if ((j.world > 1 && !j.products) || j.chain) cells[{"barrier", j.world}]++;
    if (j.chain) cells[{"one after another", j.world}]++;
    if (j.products) cells[{"sent by products", j.world}]++;
    if (j.several_comm && !j.chain && j.world > 1) {
      CHECK(j.in_flight);
      cells[{"several in flight", j.world}]++;
    }
  }

  std::vector<std::string> rows;
  for (const Variant& v : variants) rows.push_back(v.name);
  rows.insert(rows.end(),
              {"barrier", "one after another", "sent by products", "several in flight"});
  std::cout << fmt::format("{:<24}", share.of == 1 ? "passed at ranks" : "compiled, at ranks");
  for (int world : kWorlds) std::cout << fmt::format("{:>5}", world);
  std::cout << "\n";
  std::vector<std::string> missing;
  for (const std::string& row : rows) {
    std::cout << fmt::format("{:<24}", row);
    for (int world : kWorlds) {
      const bool expected = row != "several in flight" || world > 1;
      const int n = cells[{row, world}];
      std::cout << fmt::format("{:>5}", expected ? n > 0 ? fmt::to_string(n) : "." : "-");
      if (expected && n == 0) missing.push_back(fmt::format("{} at {} ranks", row, world));
    }
    std::cout << "\n";
  }
  std::cout << std::flush;
  for (size_t v = 0; v < variants.size(); ++v) {
    for (size_t s = 0; s < kShapes.size(); ++s)
      if (fits(variants[v], kShapes[s]) && !shapes.count({v, s}))
        missing.push_back(fmt::format("{}: {}", variants[v].name, kShapes[s].name));
    for (DType t : kDTypes)
      for (int world : kWorlds)
        if (variants[v].takes(t) && !dtypes.count({v, t, world}))
          missing.push_back(
              fmt::format("{} of {} at {} ranks", variants[v].name, ir::name(t), world));
  }
  INFO(fmt::format("{}", fmt::join(missing, "\n")));
  CHECK(missing.empty());
}

}  // namespace maco::fuzz
