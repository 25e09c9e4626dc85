// fuzz-graphs: random graphs, compiled in batches, verified, run and compared; then the table of what was covered.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <thread>

#include "tests/fuzz/coverage.h"
#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/run_case.h"

namespace maco::fuzz {
namespace {

struct Options {
  uint64_t first = 0, last = kCoveringSeeds - 1;
  uint64_t batch = 8;
  unsigned jobs = 2;
  int gpus = 0;
  bool print = false, shrink = true;
};

constexpr const char* kUsage =
    "Compiles random graphs, runs them on the CPU target, or on GPUs, and compares them with the reference.\n"
    "  fuzz-graphs                          the seeds that cover everything\n"
    "  fuzz-graphs --seeds 1000..1999 --batch 16 --jobs 4\n"
    "  fuzz-graphs --seeds 17 --print       one graph, and its text\n"
    "  fuzz-graphs --gpus 2                 on two GPUs, which the ranks of each graph share\n";

bool parse(int argc, char** argv, Options& o) {
  const auto number = [](const char* text, uint64_t& n) {
    char* end = nullptr;
    n = std::strtoull(text, &end, 10);
    return end != text && *end == 0;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--print") o.print = true;
    else if (option == "--no-shrink") o.shrink = false;
    else if (i + 1 == argc) return false;
    else if (option == "--seeds") {
      const std::string range = argv[++i];
      const size_t dots = range.find("..");
      if (!number(range.substr(0, dots).c_str(), o.first)) return false;
      if (dots == std::string::npos) o.last = o.first;
      else if (!number(range.substr(dots + 2).c_str(), o.last) || o.last < o.first) return false;
    } else if (option == "--batch") {
      if (!number(argv[++i], o.batch) || o.batch == 0) return false;
    } else if (option == "--gpus") {
      uint64_t n = 0;
      if (!number(argv[++i], n) || n == 0 || n > 64) return false;
      o.gpus = static_cast<int>(n);
    } else if (option == "--jobs") {
      uint64_t n = 0;
      if (!number(argv[++i], n) || n == 0 || n > 256) return false;
      o.jobs = static_cast<unsigned>(n);
    } else {
      return false;
    }
  }
  return true;
}

Case case_of(const RandomGraph& g) {
  Case c;
  c.name = fmt::format("seed {}", g.seed);
  c.text = g.text();
  c.launches = g.launches;
  c.seed = g.seed;
  return c;
}

// The same graph compiled otherwise, which must change no bit: without fusion, loaders that run ahead, pruning, or with other roles.
Case variant_of(const RandomGraph& g, int same_as) {
  Case c = case_of(g);
  c.same_as = same_as;
  c.name += ", ";
  switch (g.seed / 3 % 4) {
    case 0:
      c.name += "--no-fuse";
      c.pipeline.fuse = false;
      break;
    case 1:
      c.name += "--no-load-ahead";
      c.pipeline.load_ahead = false;
      break;
    case 2:
      c.name += "--no-prune";
      c.pipeline.prune = false;
      break;
    default:
      c.name += "without settings";
      c.text = g.text(false);
      break;
  }
  return c;
}

class Fuzzer {
 public:
  explicit Fuzzer(const Options& o) : o_(o) {}

  int run() {
    const uint64_t batches = (o_.last - o_.first) / o_.batch + 1;
    std::atomic<uint64_t> next{0};
    std::vector<std::thread> workers;
    const auto start = std::chrono::steady_clock::now();
    for (unsigned j = 0; j < std::min<uint64_t>(o_.jobs, batches); ++j)
      workers.emplace_back([&] {
        for (uint64_t b = next++; b < batches; b = next++) batch(b);
      });
    for (std::thread& w : workers) w.join();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    std::cout << coverage_.table();
    std::cout << fmt::format("{:.0f} s; passes {:.0f} s, kernels' compiler {:.0f} s, running and reference {:.0f} s in {} jobs\n", wall.count(), prepare_s_,
                             compile_s_, run_s_, o_.jobs);
    int failed = failures_;
    if (o_.first == 0 && o_.last + 1 >= kCoveringSeeds) {
      const std::string missing = coverage_.missing();
      std::cout << missing;
      if (!missing.empty()) ++failed;
    }
    std::cout << (failed ? fmt::format("{} of the graphs failed\n", failures_) : "all graphs passed\n");
    return failed ? 1 : 0;
  }

 private:
  void batch(uint64_t index) {
    std::vector<RandomGraph> graphs;
    std::vector<Case> cases;
    std::vector<size_t> graph_of;
    const uint64_t first = o_.first + index * o_.batch;
    for (uint64_t seed = first; seed <= std::min(o_.last, first + o_.batch - 1); ++seed) {
      graphs.push_back(random_graph(seed));
      cases.push_back(case_of(graphs.back()));
      graph_of.push_back(graphs.size() - 1);
      if (o_.print) std::cout << cases.back().text;
      if (seed % 3 != 0) continue;
      cases.push_back(variant_of(graphs.back(), static_cast<int>(cases.size()) - 1));
      graph_of.push_back(graphs.size() - 1);
    }
    // Every fourth batch is compiled with the check of accesses; a replay of one seed always.
    const Where where = {.gpus = o_.gpus, .check_access = o_.gpus == 0 && (first / o_.batch % 4 == 3 || o_.first == o_.last)};
    const BatchResult r = run_batch(cases, where);
    Coverage covered;
    for (size_t i = 0; i < cases.size(); ++i) {
      const RandomGraph& g = graphs[graph_of[i]];
      if (!r.errors[i].empty()) report(g, r.prepared[i].c, r.errors[i], where);
      else if (cases[i].same_as < 0) covered.add(r.prepared[i], g.plan.roles);
    }
    std::lock_guard lock(mutex_);
    coverage_.add(covered);
    prepare_s_ += r.prepare_s;
    compile_s_ += r.compile_s;
    run_s_ += r.run_s;
  }

  // A graph with fewer ops that still fails: ops that no other reads go, from the last one on, and settings.
  std::string shrink(const RandomGraph& g, Case c, const Where& where, std::string& error) {
    c.same_as = -1;
    std::vector<bool> kept(g.ops.size(), true);
    bool settings = true;
    const auto fails = [&] {
      c.text = g.text(kept, settings);
      const std::string e = run_batch({c}, where).errors[0];
      if (!e.empty()) error = e;
      return !e.empty();
    };
    if (!fails()) return "";
    for (size_t i = g.ops.size(); i-- > 0;) {
      const auto reads = [&](size_t k) {
        return kept[k] && k != i && std::any_of(g.ops[k].in.begin(), g.ops[k].in.end(), [&](const std::string& t) {
                 return !g.ops[i].changes_state && std::count(g.ops[i].out.begin(), g.ops[i].out.end(), t) > 0;
               });
      };
      bool read = false;
      for (size_t k = 0; k < g.ops.size(); ++k) read = read || reads(k);
      if (read) continue;
      kept[i] = false;
      if (!fails()) kept[i] = true;
    }
    settings = false;
    if (!fails()) settings = true;
    fails();
    return g.text(kept, settings);
  }

  void report(const RandomGraph& g, const Case& c, std::string error, const Where& where) {
    std::string text = c.text, smaller;
    if (o_.shrink) {
      std::string shrunk_error;
      smaller = shrink(g, c, where, shrunk_error);
      if (!smaller.empty()) smaller = fmt::format("with fewer ops: {}\n{}", shrunk_error, smaller);
    }
    std::lock_guard lock(mutex_);
    ++failures_;
    std::cout << fmt::format("FAILED {}: {}\n{}{}replay: fuzz-graphs --seeds {}{}\n\n", c.name, error, text, smaller, g.seed, o_.gpus ? fmt::format(" --gpus {}", o_.gpus) : "") << std::flush;
  }

  const Options o_;
  std::mutex mutex_;
  Coverage coverage_;
  int failures_ = 0;
  double prepare_s_ = 0, compile_s_ = 0, run_s_ = 0;
};

}  // namespace
}  // namespace maco::fuzz

int main(int argc, char** argv) {
  maco::fuzz::Options options;
  if (!maco::fuzz::parse(argc, argv, options)) {
    std::cerr << maco::fuzz::kUsage;
    return 2;
  }
  maco::fuzz::report_crashes();
  return maco::fuzz::Fuzzer(options).run();
}
