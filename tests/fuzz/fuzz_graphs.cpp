// fuzz-graphs: compiles random graphs in batches, verifies, runs and compares them; then prints a
// table of what was covered.
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
#include "tests/fuzz/other_tiles.h"
#include "tests/fuzz/pipelines.h"
#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/run_case.h"
#include "tests/tier.h"

namespace maco::fuzz {
namespace {

struct Options {
  uint64_t first = 0, last = kCoveringSeeds - 1;
  uint64_t sample = 1;
  uint64_t batch = 8;
  unsigned jobs = 2;
  int gpus = 0;
  bool print = false, run = true, shrink = true;
};

constexpr const char* kUsage =
    "Compiles random graphs, runs them on the CPU target, or on GPUs, and compares them with the "
    "reference.\n"
    "  fuzz-graphs                          the seeds that cover everything\n"
    "  fuzz-graphs --seeds 1000..1999 --batch 16 --jobs 4\n"
    "  fuzz-graphs --seeds 17 --print       one graph, and its text\n"
    "  fuzz-graphs --gpus 2 --sample 3      every third seed, on two GPUs, which the ranks of each "
    "graph share\n"
    "  fuzz-graphs --no-run                 only through the passes: what would be covered\n"
    "One in five batches of those that cover everything is run, all with MACO_TEST_MORE=1; "
    "the others go through the passes.\n";

bool parse(int argc, char** argv, Options& o) {
  const auto number = [](const char* text, uint64_t& n) {
    char* end = nullptr;
    n = std::strtoull(text, &end, 10);
    return end != text && *end == 0;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--print")
      o.print = true;
    else if (option == "--no-run")
      o.run = false;
    else if (option == "--no-shrink")
      o.shrink = false;
    else if (i + 1 == argc)
      return false;
    else if (option == "--seeds") {
      const std::string range = argv[++i];
      const size_t dots = range.find("..");
      if (!number(range.substr(0, dots).c_str(), o.first)) return false;
      if (dots == std::string::npos)
        o.last = o.first;
      else if (!number(range.substr(dots + 2).c_str(), o.last) || o.last < o.first)
        return false;
    } else if (option == "--batch") {
      if (!number(argv[++i], o.batch) || o.batch == 0) return false;
    } else if (option == "--sample") {
      if (!number(argv[++i], o.sample) || o.sample == 0) return false;
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

// How a graph is compiled.
struct How {
  RolesKind roles = RolesKind::Auto;
  bool settings = true;
};

struct Job {
  size_t graph = 0;  // of the batch
  How how;
};

Case case_of(const RandomGraph& g, How how) {
  Case c;
  c.name = fmt::format("seed {}", g.seed);
  c.text = g.text(how.roles, how.settings);
  c.launches = g.launches;
  c.seed = g.seed;
  return c;
}

// The same graph compiled with other roles, tiles and options, which must not change any bits: in a
// pipeline, without fusion, with loaders that run ahead, without pruning, or with other settings.
How other_way(const RandomGraph& g) { return {*g.plan.other_roles, g.seed / 2 % 4 != 3}; }
Case variant_of(const RandomGraph& g, int same_as) {
  Case c = case_of(g, other_way(g));
  c.same_as = same_as;
  c.name += ", other roles and tiles, ";
  if (g.seed / 8 % 2 == 0) {
    c.name += "in a pipeline, ";
    c.text = with_pipeline(c.text, g.seed);
  }
  // Ranks that pass on what they receive can't do so with tiles of several microbatches.
  if (c.text.find("pipeline [[") == c.text.npos || c.text.find("recv(") == c.text.npos)
    c.pipeline.after_pass = with_other_tiles(g.seed);
  switch (g.seed / 2 % 4) {
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
    default: c.name += "without settings"; break;
  }
  return c;
}

class Fuzzer {
 public:
  explicit Fuzzer(const Options& o) : o_(o) {
    for (uint64_t seed = o.first; seed <= o.last; seed += o.sample) seeds_.push_back(seed);
  }

  int run() {
    const uint64_t batches = (seeds_.size() - 1) / o_.batch + 1;
    std::atomic<uint64_t> next{0};
    std::vector<std::thread> workers;
    const auto start = std::chrono::steady_clock::now();
    for (unsigned j = 0; j < std::min<uint64_t>(o_.jobs, batches); ++j)
      workers.emplace_back([&] {
        for (uint64_t b = next++; b < batches; b = next++) {
          batch(b, o_.run && share_.has(b));
          progress(start);
        }
      });
    for (std::thread& w : workers) w.join();
    if (covers()) fill_gaps();
    for (uint64_t b = 0; b < batches && o_.run && covers() && !ran_coverage_.has_each(); ++b)
      if (!share_.has(b)) batch(b, true);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    std::cout << coverage_.table();
    std::cout << fmt::format(
        "{:.0f} s; passes {:.0f} s, kernels' compiler {:.0f} s, running and reference {:.0f} s in "
        "{} jobs\n",
        wall.count(), prepare_s_, compile_s_, run_s_, o_.jobs);
    int failed = failures_;
    if (covers()) {
      const std::string missing = coverage_.missing();
      std::cout << missing;
      if (!missing.empty()) ++failed;
    }
    std::cout << (failed                  ? fmt::format("{} of the graphs failed\n", failures_)
                  : ran_ == seeds_.size() ? "all graphs passed\n"
                  : ran_ > 0 ? fmt::format("all graphs compiled; {} of {} ran and passed\n", ran_,
                                           seeds_.size())
                             : "all graphs compiled; none was run\n");
    return failed ? 1 : 0;
  }

 private:
  bool covers() const { return o_.first == 0 && o_.last + 1 >= kCoveringSeeds && o_.sample == 1; }
  // Chance leaves out a rare form now and then: the next seeds with such a form are run, too.
  void fill_gaps() {
    constexpr uint64_t kMore = 400;
    std::string missing = coverage_.missing();
    for (uint64_t seed = o_.last + 1; seed <= o_.last + kMore && !missing.empty(); ++seed) {
      const RandomGraph g = random_graph(seed);
      const Case c = case_of(g, {g.plan.roles, true});
      const BatchResult compiled = run_batch({c}, {.nowhere = true, .quick = true});
      if (!compiled.errors[0].empty()) continue;
      Coverage with = coverage_;
      with.add(compiled.prepared[0]);
      if (with.missing().size() >= missing.size()) continue;
      seeds_.push_back(seed);
      run_seeds(seeds_.size() - 1, seeds_.size(), o_.run);
      missing = coverage_.missing();
    }
  }

  // A line on standard error every half minute.
  void progress(std::chrono::steady_clock::time_point start) {
    std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    ++batches_done_;
    if (now - told_ < std::chrono::seconds(30)) return;
    told_ = now;
    std::cerr << fmt::format("fuzz-graphs: {} of {} graphs after {:.0f} s\n",
                             std::min<uint64_t>(batches_done_ * o_.batch, seeds_.size()),
                             seeds_.size(), std::chrono::duration<double>(now - start).count());
  }

  void batch(uint64_t index, bool run) {
    run_seeds(index * o_.batch, std::min<uint64_t>((index + 1) * o_.batch, seeds_.size()), run);
  }
  // Compiles seeds [first, last) of the list, and runs them.
  void run_seeds(uint64_t first, uint64_t last, bool run) {
    const uint64_t index = first / o_.batch;
    std::vector<RandomGraph> graphs;
    std::vector<Case> cases;
    std::vector<Job> jobs;
    for (uint64_t i = first; i < last; ++i) {
      graphs.push_back(random_graph(seeds_[i]));
      const RandomGraph& g = graphs.back();
      jobs.push_back({graphs.size() - 1, {g.plan.roles, true}});
      cases.push_back(case_of(g, jobs.back().how));
      if (o_.print) std::cout << cases.back().text;
      if (!g.plan.other_roles) continue;
      jobs.push_back({graphs.size() - 1, other_way(g)});
      cases.push_back(variant_of(g, static_cast<int>(cases.size()) - 1));
    }
    // Every fourth batch is compiled with the check of accesses; a replay of one seed always. Every
    // eighth batch is optimised as users' kernels are; the others less, which halves the time.
    const Where where = {.gpus = o_.gpus,
                         .check_access = o_.gpus == 0 && (index % 4 == 3 || seeds_.size() == 1),
                         .nowhere = !run,
                         .quick = index % 8 != 0};
    const BatchResult r = run_batch(cases, where);
    Coverage covered;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (r.errors[i].empty())
        covered.add(r.prepared[i]);
      else
        report(graphs[jobs[i].graph], jobs[i].how, r.prepared[i].c, r.errors[i], where);
    }
    std::lock_guard lock(mutex_);
    coverage_.add(covered);
    if (run) ran_coverage_.add(covered);
    if (run) ran_ += graphs.size();
    prepare_s_ += r.prepare_s;
    compile_s_ += r.compile_s;
    run_s_ += r.run_s;
  }

  // Finds a graph with fewer ops that still fails, by removing ops that no other reads, from the
  // last one on, and settings.
  std::string shrink(const RandomGraph& g, How how, Case c, const Where& where,
                     std::string& error) {
    c.same_as = -1;
    std::vector<bool> kept(g.ops.size(), true);
    const auto fails = [&] {
      c.text = g.text(kept, how.roles, how.settings);
      const std::string e = run_batch({c}, where).errors[0];
      if (!e.empty()) error = e;
      return !e.empty();
    };
    if (!fails()) return "";
    for (size_t i = g.ops.size(); i-- > 0;) {
      const auto reads = [&](size_t k) {
        return kept[k] && k != i &&
               std::any_of(g.ops[k].in.begin(), g.ops[k].in.end(), [&](const std::string& t) {
                 return !g.ops[i].changes_state &&
                        std::count(g.ops[i].out.begin(), g.ops[i].out.end(), t) > 0;
               });
      };
      bool read = false;
      for (size_t k = 0; k < g.ops.size(); ++k) read = read || reads(k);
      if (read) continue;
      kept[i] = false;
      if (!fails()) kept[i] = true;
    }
    const How as_it_was = how;
    how = {RolesKind::Auto, false};
    if (!fails()) how = as_it_was;
    fails();
    return g.text(kept, how.roles, how.settings);
  }

  void report(const RandomGraph& g, const How& how, const Case& c, std::string error,
              const Where& where) {
    std::string text = c.text, smaller;
    if (o_.shrink) {
      std::string shrunk_error;
      smaller = shrink(g, how, c, where, shrunk_error);
      if (!smaller.empty()) smaller = fmt::format("with fewer ops: {}\n{}", shrunk_error, smaller);
    }
    std::lock_guard lock(mutex_);
    ++failures_;
    std::cout << fmt::format("FAILED {}: {}\n{}{}replay: fuzz-graphs --seeds {}{}\n\n", c.name,
                             error, text, smaller, g.seed,
                             o_.gpus ? fmt::format(" --gpus {}", o_.gpus) : "")
              << std::flush;
  }

  const Options o_;
  const test::Share share_ = covers() ? test::share(5) : test::Share{};
  std::vector<uint64_t> seeds_;
  uint64_t ran_ = 0;
  std::mutex mutex_;
  Coverage coverage_;
  Coverage ran_coverage_;  // of the graphs that ran
  int failures_ = 0;
  uint64_t batches_done_ = 0;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
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
