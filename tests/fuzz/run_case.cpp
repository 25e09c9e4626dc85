#include "tests/fuzz/run_case.h"
#include "compiler/api/compile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "compiler/cost/machine.h"
#include "compiler/frontend/frontend.h"
#include "ir/check.h"
#include "runtime/cpu/session.h"
#include "runtime/host/cuda_session.h"
#include "runtime/host/jit.h"
#include "runtime/reference/check.h"
#include "runtime/reference/fill.h"
#include "runtime/reference/reference.h"

namespace maco::fuzz {

namespace {

using reference::Extents;
using reference::Tensor;
using reference::Values;

constexpr auto kPoison = static_cast<std::byte>(0xff);  // NaN in every float type
constexpr const char* kGpuTarget = "sm_90a";
using Bytes = std::vector<std::byte>;

thread_local char current_case[160];

extern "C" void crashed(int signal) {
  const char* what[] = {"crashed while at ", current_case,
                        signal == SIGSEGV ? ": segmentation fault\n" : ": signal\n"};
  for (const char* text : what) {
    const ssize_t ignored = write(STDERR_FILENO, text, std::strlen(text));
    (void)ignored;
  }
  _exit(1);
}

void at(const std::string& name) {
  std::snprintf(current_case, sizeof current_case, "%s", name.c_str());
}

// One session among those that must agree.
struct Run {
  std::string executor;
  std::unique_ptr<runtime::Session> session;
  std::vector<char*> arenas{};  // by rank; CPU target only
};

runtime::SessionOptions session_options(const Case& c, size_t run) {
  constexpr std::array<uint32_t, 4> epochs = {0xffffffffu, 0xfffffffeu, 0x7fffffffu, 1u};
  runtime::SessionOptions options;
  options.timeout_ms = c.timeout_ms;
  options.first_epoch = epochs[(c.seed + run) % epochs.size()];
  return options;
}

// Kernel `index` of `library` on fibres and on threads with jitter.
std::vector<Run> cpu_runs(const Prepared& p, const std::shared_ptr<runtime::CpuLibrary>& library,
                          size_t index, bool check_access, runtime::Status& status) {
  std::vector<Run> runs;
  for (const bool fibres : {true, false}) {
    runtime::SessionOptions options = session_options(p.c, 0);
    options.check_access = check_access;
    (fibres ? options.replay : options.jitter) = p.c.seed;
    auto session = runtime::make_cpu_session(library, index, p.kernel, options, status);
    if (session && check_access) status = session->set_regions(p.program);
    if (!session || !status) break;
    std::vector<char*> arenas;
    for (const runtime::RankAddresses& rank : session->addresses(p.program))
      arenas.push_back(rank.arena);
    runs.push_back(
        {fmt::format("{} {})", fibres ? "fibres (--replay" : "threads (--jitter", p.c.seed),
         std::move(session), std::move(arenas)});
  }
  return runs;
}

int ranks_per_gpu(int64_t world, const Where& where) {
  return static_cast<int>((world + where.gpus - 1) / where.gpus);
}

std::vector<Run> gpu_runs(const Prepared& p, const Where& where, runtime::Status& status) {
  std::vector<Run> runs;
  for (size_t i = 0; i < 2; ++i) {
    runtime::SessionOptions options = session_options(p.c, i);
    options.ranks_per_gpu = ranks_per_gpu(p.graph.world, where);
    auto session = runtime::make_cuda_session(p.kernel, options, status);
    if (!session) break;
    runs.push_back(
        {fmt::format("GPUs from epoch {}", options.first_epoch), std::move(session), {}});
  }
  return runs;
}

class Runner {
 public:
  Runner(const Prepared& p, std::vector<Run> runs)
      : p_(p),
        g_(p.graph),
        world_(static_cast<int>(p.graph.world)),
        reference_(p.graph),
        runs_(std::move(runs)) {}

  std::string run(Results& results) {
    for (size_t launch = 0; launch < p_.c.launches.size() && error_.empty(); ++launch) {
      one_launch(launch);
      if (!error_.empty()) error_ = fmt::format("launch {}{}: {}", launch, values_text(), error_);
    }
    results = std::move(results_);
    return error_;
  }

 private:
  std::string values_text() const {
    std::string s;
    for (const auto& [name, n] : values_)
      s += fmt::format("{}{} = {}", s.empty() ? " (" : ", ", name, n);
    return s.empty() ? s : s + ")";
  }
  const auto& tensors() const { return runs_[0].session->manifest().tensors; }
  ir::TensorId tensor(size_t i) const { return *g_.find_tensor(tensors()[i].name); }
  Extents max_shape(ir::TensorId id) const {
    Values maxima = values_;
    for (const ir::Dim& d : g_.dims) maxima[d.name] = d.max;
    return reference::actual_shape(g_, maxima, id);
  }
  size_t place(int rank, size_t i) const {
    return static_cast<size_t>(rank) * tensors().size() + i;
  }

  // New inputs for each launch, packed at their actual rows, with NaN behind them; outputs are NaN.
  void bind(size_t launch) {
    if (launch == 0) memory_.resize(static_cast<size_t>(world_) * tensors().size());
    for (int rank = 0; rank < world_; ++rank)
      for (size_t i = 0; i < tensors().size(); ++i) {
        const ir::TensorId id = tensor(i);
        const ir::TensorKind kind = g_[id].kind;
        if (launch > 0 && (kind == ir::TensorKind::Param || kind == ir::TensorKind::State))
          continue;
        Bytes& memory = memory_[place(rank, i)];
        memory.assign(
            static_cast<size_t>(tensors()[i].max_elements * ir::size_of(tensors()[i].dtype)),
            kPoison);
        if (kind != ir::TensorKind::Output) {
          const bool state = kind == ir::TensorKind::State;
          Tensor value =
              reference::fill(g_, id, rank, p_.c.seed + launch,
                              state ? max_shape(id) : reference::actual_shape(g_, values_, id));
          std::copy(value.bytes.begin(), value.bytes.end(), memory.begin());
          if (const auto status = reference_.set(rank, id, std::move(value)); !status)
            error_ = "the reference: " + status.message;
        }
        for (Run& r : runs_)
          if (const auto status = r.session->write(rank, i, memory.data(), memory.size()); !status)
            error_ = status.message;
      }
  }

  void one_launch(size_t launch) {
    launch_ = launch;
    values_.clear();
    for (const auto& [name, n] : p_.c.launches[launch]) values_[name] = n;
    if (const auto status = reference::complete_values(g_, values_); !status) {
      error_ = status.message;
      return;
    }
    bind(launch);
    if (!error_.empty()) return;
    if (const auto status = reference_.run(values_); !status) {
      error_ = "the reference: " + status.message;
      return;
    }
    for (Run& r : runs_) {
      // No task may read what none of this launch has written.
      const auto bytes = static_cast<size_t>(r.session->manifest().arena_bytes);
      for (char* arena : r.arenas) std::memset(arena, static_cast<int>(kPoison), bytes);
      const auto status = r.session->launch(p_.c.launches[launch]);
      if (!status)
        error_ = status.message;
      else
        compare(r);
      if (!error_.empty()) {
        error_ = fmt::format("on {}: {}", r.executor, error_);
        return;
      }
    }
    // The state from which the next launch starts.
    for (int rank = 0; rank < world_; ++rank)
      for (size_t i = 0; i < tensors().size(); ++i) {
        Bytes& memory = memory_[place(rank, i)];
        if (const auto status = runs_[0].session->read(rank, i, memory.data(), memory.size());
            !status)
          error_ = status.message;
      }
  }

  // Bounds are for the norm of many elements, whose roundings average out; with a few elements they
  // don't always.
  static bool is_unlucky(const reference::CheckResult& check, const Tensor& actual) {
    constexpr int64_t kFew = 2;
    constexpr double kTimes = 1.25;
    return actual.elements() <= kFew && check.error <= kTimes * check.bound;
  }

  void compare(Run& r) {
    const reference::Checker checker(reference_, std::nullopt);
    for (int rank = 0; rank < world_; ++rank)
      for (size_t i = 0; i < tensors().size(); ++i) {
        const ir::TensorId id = tensor(i);
        const Bytes& before = memory_[place(rank, i)];
        Bytes memory(before.size());
        if (const auto status = r.session->read(rank, i, memory.data(), memory.size()); !status)
          return fail(status.message);
        const bool state = g_[id].kind == ir::TensorKind::State;
        if (!state && g_[id].kind != ir::TensorKind::Output) {
          if (memory != before)
            return fail(fmt::format("'{}' on rank {} is {} and was written", g_[id].name, rank,
                                    ir::name(g_[id].kind)));
          continue;
        }
        Tensor actual(tensors()[i].dtype, reference::actual_shape(g_, values_, id));
        const auto size = static_cast<std::ptrdiff_t>(actual.bytes.size());
        std::copy_n(memory.begin(), size, actual.bytes.begin());
        const reference::CheckResult check = checker.check(rank, id, actual);
        if (!check.ok && !is_unlucky(check, actual))
          return fail(reference::to_line(g_[id].name, rank, check));
        if (!std::equal(memory.begin() + size, memory.end(), before.begin() + size))
          return fail(fmt::format("'{}' on rank {}: rows beyond the actual shape were written",
                                  g_[id].name, rank));
        const auto [it, first] = results_.try_emplace(
            fmt::format("'{}' on rank {} after launch {}", g_[id].name, rank, launch_),
            actual.bytes);
        if (!first && it->second != actual.bytes)
          return fail(fmt::format("'{}' on rank {} has other bits than on {}", g_[id].name, rank,
                                  runs_[0].executor));
      }
  }
  void fail(std::string what) { error_ = std::move(what); }

  const Prepared& p_;
  const ir::Graph& g_;
  const int world_;
  reference::Reference reference_;
  std::vector<Run> runs_;
  Values values_;
  size_t launch_ = 0;
  std::vector<Bytes> memory_;  // by rank and tensor: as it was before the launch
  Results results_;
  std::string error_;
};

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Removes NCCL from the text; returns whether the text named it.
bool keep_from_nccl(Case& c) {
  bool named = false;
  for (const auto& [with, without] : {std::pair{"algorithm = nccl", "algorithm = auto"},
                                      std::pair{"backend = nccl", "backend = p2p"}})
    for (size_t at = c.text.find(with); at != std::string::npos; at = c.text.find(with, at)) {
      c.text.replace(at, std::string_view(with).size(), without);
      named = true;
    }
  return named;
}

}  // namespace

void report_crashes() {
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, crashed);
}

Prepared prepare(Case c, const Where& where) {
  Prepared p;
  p.c = std::move(c);
  at(p.c.name + ", compiling");
  ir::Diagnostics diagnostics;
  try {
    auto graph = frontend::parse_dsl(diagnostics.add_file(p.c.name, p.c.text), diagnostics);
    // NCCL takes one rank a GPU.
    if (graph && where.gpus > 0 && ranks_per_gpu(graph->world, where) > 1 && keep_from_nccl(p.c))
      graph = frontend::parse_dsl(diagnostics.add_file(p.c.name, p.c.text), diagnostics);
    if (graph) {
      p.graph = std::move(*graph);
      api::Options options = p.c.pipeline;
      options.target = where.gpus > 0 ? kGpuTarget : "cpu";
      if (where.gpus > 0)
        options.sms = cost::find_machine(kGpuTarget)->sms / ranks_per_gpu(p.graph.world, where);
      options.reparse = true;
      if (auto compiled = api::compile(p.graph, options, diagnostics)) {
        p.program = std::move(compiled->program);
        p.kernel = std::move(compiled->kernel);
      }
    }
    if (p.kernel.empty()) p.error = diagnostics.render();
  } catch (const std::exception& e) {
    p.error = e.what();
  }
  return p;
}

namespace {

std::string run(const Prepared& p, std::vector<Run> runs, Results& results) {
  at(p.c.name + ", running");
  try {
    return Runner(p, std::move(runs)).run(results);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

std::string run(const Prepared& p, const std::shared_ptr<runtime::CpuLibrary>& library,
                size_t index, bool check_access, Results& results) {
  runtime::Status status;
  auto runs = cpu_runs(p, library, index, check_access, status);
  return status ? run(p, std::move(runs), results) : status.message;
}

namespace {

// Runs the cases that have a kernel on the CPU target.
void run_on_cpu(BatchResult& b, const Where& where, std::vector<Results>& results) {
  const runtime::CpuCompileOptions options = {.check_access = where.check_access,
                                              .quick = where.quick};
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> sources;
  for (const Prepared& p : b.prepared)
    if (p.error.empty()) sources.push_back(p.kernel);
  if (sources.empty()) return;
  runtime::Status status;
  const auto library = runtime::compile_cpu_kernels(sources, options, status);
  b.compile_s = since(start);
  size_t index = 0;
  for (size_t i = 0; i < b.prepared.size(); ++i) {
    if (!b.errors[i].empty()) continue;
    runtime::Status own = status;
    if (library) b.errors[i] = run(b.prepared[i], library, index++, where.check_access, results[i]);
    // Some case doesn't compile: find out which.
    else if (sources.size() == 1 ||
             !runtime::compile_cpu_kernels({b.prepared[i].kernel}, options, own))
      b.errors[i] = own.message;
  }
}

// Runs on GPUs. Kernels of one session at a time: two that wait for peers could keep each other's
// SMs for ever.
void run_on_gpus(BatchResult& b, const Where& where, std::vector<Results>& results) {
  static std::mutex device;
  const auto start = std::chrono::steady_clock::now();
  std::string cubin;
  for (size_t i = 0; i < b.prepared.size(); ++i)
    if (b.errors[i].empty())
      if (const auto status =
              runtime::compile_kernel(b.prepared[i].kernel, kGpuTarget, false, cubin);
          !status)
        b.errors[i] = status.message;
  b.compile_s = since(start);
  std::lock_guard lock(device);
  for (size_t i = 0; i < b.prepared.size(); ++i) {
    if (!b.errors[i].empty()) continue;
    runtime::Status status;
    auto runs = gpu_runs(b.prepared[i], where, status);
    b.errors[i] = status ? run(b.prepared[i], std::move(runs), results[i]) : status.message;
  }
}

}  // namespace

BatchResult run_batch(std::vector<Case> cases, const Where& where) {
  BatchResult b;
  auto start = std::chrono::steady_clock::now();
  for (Case& c : cases) {
    b.prepared.push_back(prepare(std::move(c), where));
    b.errors.push_back(b.prepared.back().error);
  }
  b.prepare_s = since(start);
  start = std::chrono::steady_clock::now();
  std::vector<Results> results(b.prepared.size());
  if (where.nowhere) return b;
  if (where.gpus > 0)
    run_on_gpus(b, where, results);
  else
    run_on_cpu(b, where, results);
  b.run_s = since(start) - b.compile_s;
  for (size_t i = 0; i < b.prepared.size(); ++i) {
    const int other = b.prepared[i].c.same_as;
    if (other < 0 || !b.errors[i].empty() || !b.errors[static_cast<size_t>(other)].empty())
      continue;
    const Results& expected = results[static_cast<size_t>(other)];
    for (const auto& [what, bytes] : results[i])
      if (const auto it = expected.find(what);
          b.errors[i].empty() && (it == expected.end() || it->second != bytes))
        b.errors[i] = fmt::format("{} has other bits than in {}", what,
                                  b.prepared[static_cast<size_t>(other)].c.name);
  }
  at("nothing");
  return b;
}

}  // namespace maco::fuzz
