#include "tests/fuzz/run_case.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>

#include "compiler/frontend/frontend.h"
#include "ir/check.h"
#include "runtime/cpu/session.h"
#include "runtime/reference/check.h"
#include "runtime/reference/fill.h"
#include "runtime/reference/reference.h"

namespace maco::fuzz {

namespace {

using reference::Extents;
using reference::Tensor;
using reference::Values;

constexpr auto kPoison = static_cast<std::byte>(0xff);  // NaN in every float type
using Bytes = std::vector<std::byte>;

thread_local char current_case[160];

extern "C" void crashed(int signal) {
  const char* what[] = {"crashed while at ", current_case, signal == SIGSEGV ? ": segmentation fault\n" : ": signal\n"};
  for (const char* text : what) {
    const ssize_t ignored = write(STDERR_FILENO, text, std::strlen(text));
    (void)ignored;
  }
  _exit(1);
}

void at(const std::string& name) { std::snprintf(current_case, sizeof current_case, "%s", name.c_str()); }

// One session among those that must agree.
struct Run {
  std::string executor;
  std::unique_ptr<runtime::CpuSession> session;
};

class Runner {
 public:
  Runner(const Prepared& p, std::shared_ptr<runtime::CpuLibrary> library, size_t index, bool check_access)
      : p_(p), g_(p.graph), world_(static_cast<int>(p.graph.world)), reference_(p.graph) {
    constexpr std::array<uint32_t, 4> epochs = {0xffffffffu, 0xfffffffeu, 0x7fffffffu, 1u};
    runtime::SessionOptions options;
    options.check_access = check_access;
    options.timeout_ms = 60000;
    options.first_epoch = epochs[p.c.seed % epochs.size()];
    options.replay = p.c.seed;
    add(fmt::format("fibres (--replay {})", p.c.seed), library, index, options);
    options.replay.reset();
    options.jitter = p.c.seed;
    add(fmt::format("threads (--jitter {})", p.c.seed), library, index, options);
  }

  std::string run(Results& results) {
    if (!error_.empty()) return error_;
    for (size_t launch = 0; launch < p_.c.launches.size() && error_.empty(); ++launch) {
      one_launch(launch);
      if (!error_.empty()) error_ = fmt::format("launch {}{}: {}", launch, values_text(), error_);
    }
    results = std::move(results_);
    return error_;
  }

 private:
  void add(std::string executor, const std::shared_ptr<runtime::CpuLibrary>& library, size_t index, const runtime::SessionOptions& options) {
    runtime::Status status;
    auto session = runtime::make_cpu_session(library, index, p_.kernel, options, status);
    if (session && options.check_access) status = session->set_regions(p_.program);
    if (!session || !status) error_ = status.message;
    else runs_.push_back({std::move(executor), std::move(session)});
  }

  std::string values_text() const {
    std::string s;
    for (const auto& [name, n] : values_) s += fmt::format("{}{} = {}", s.empty() ? " (" : ", ", name, n);
    return s.empty() ? s : s + ")";
  }
  const auto& tensors() const { return runs_[0].session->manifest().tensors; }
  ir::TensorId tensor(size_t i) const { return *g_.find_tensor(tensors()[i].name); }
  Extents max_shape(ir::TensorId id) const {
    Values maxima = values_;
    for (const ir::Dim& d : g_.dims) maxima[d.name] = d.max;
    return reference::actual_shape(g_, maxima, id);
  }
  size_t place(int rank, size_t i) const { return static_cast<size_t>(rank) * tensors().size() + i; }

  // New inputs for each launch, packed at their actual rows, with NaN behind them; outputs are NaN.
  void bind(size_t launch) {
    if (launch == 0) memory_.resize(static_cast<size_t>(world_) * tensors().size());
    for (int rank = 0; rank < world_; ++rank)
      for (size_t i = 0; i < tensors().size(); ++i) {
        const ir::TensorId id = tensor(i);
        const ir::TensorKind kind = g_[id].kind;
        if (launch > 0 && (kind == ir::TensorKind::Param || kind == ir::TensorKind::State)) continue;
        Bytes& memory = memory_[place(rank, i)];
        memory.assign(static_cast<size_t>(tensors()[i].max_elements * ir::size_of(tensors()[i].dtype)), kPoison);
        if (kind != ir::TensorKind::Output) {
          const bool state = kind == ir::TensorKind::State;
          Tensor value = reference::fill(g_, id, rank, p_.c.seed + launch, state ? max_shape(id) : reference::actual_shape(g_, values_, id));
          std::copy(value.bytes.begin(), value.bytes.end(), memory.begin());
          if (const auto status = reference_.set(rank, id, std::move(value)); !status) error_ = "the reference: " + status.message;
        }
        for (Run& r : runs_)
          if (const auto status = r.session->write(rank, i, memory.data(), memory.size()); !status) error_ = status.message;
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
      const auto status = r.session->launch(p_.c.launches[launch]);
      if (!status) error_ = status.message;
      else compare(r);
      if (!error_.empty()) {
        error_ = fmt::format("on {}: {}", r.executor, error_);
        return;
      }
    }
    // What the next launch starts from.
    for (int rank = 0; rank < world_; ++rank)
      for (size_t i = 0; i < tensors().size(); ++i) {
        Bytes& memory = memory_[place(rank, i)];
        if (const auto status = runs_[0].session->read(rank, i, memory.data(), memory.size()); !status) error_ = status.message;
      }
  }

  void compare(Run& r) {
    const reference::Checker checker(reference_, std::nullopt);
    for (int rank = 0; rank < world_; ++rank)
      for (size_t i = 0; i < tensors().size(); ++i) {
        const ir::TensorId id = tensor(i);
        const Bytes& before = memory_[place(rank, i)];
        Bytes memory(before.size());
        if (const auto status = r.session->read(rank, i, memory.data(), memory.size()); !status) return fail(status.message);
        const bool state = g_[id].kind == ir::TensorKind::State;
        if (!state && g_[id].kind != ir::TensorKind::Output) {
          if (memory != before) return fail(fmt::format("'{}' on rank {} is {} and was written", g_[id].name, rank, ir::name(g_[id].kind)));
          continue;
        }
        Tensor actual(tensors()[i].dtype, reference::actual_shape(g_, values_, id));
        const auto size = static_cast<std::ptrdiff_t>(actual.bytes.size());
        std::copy_n(memory.begin(), size, actual.bytes.begin());
        const reference::CheckResult check = checker.check(rank, id, actual);
        if (!check.ok) return fail(reference::to_line(g_[id].name, rank, check));
        if (!std::equal(memory.begin() + size, memory.end(), before.begin() + size))
          return fail(fmt::format("'{}' on rank {}: rows beyond the actual shape were written", g_[id].name, rank));
        const auto [it, first] = results_.try_emplace(fmt::format("'{}' on rank {} after launch {}", g_[id].name, rank, launch_), actual.bytes);
        if (!first && it->second != actual.bytes)
          return fail(fmt::format("'{}' on rank {} has other bits than on {}", g_[id].name, rank, runs_[0].executor));
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

}  // namespace

void report_crashes() {
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, crashed);
}

Prepared prepare(Case c) {
  Prepared p;
  p.c = std::move(c);
  at(p.c.name + ", compiling");
  ir::Diagnostics diagnostics;
  try {
    auto graph = frontend::parse_dsl(diagnostics.add_file(p.c.name, p.c.text), diagnostics);
    if (graph) {
      p.graph = std::move(*graph);
      tools::CompileOptions options;
      options.pipeline = p.c.pipeline;
      options.reparse = true;
      if (auto compiled = tools::compile(p.graph, options, diagnostics, {})) {
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

std::string run(const Prepared& p, std::shared_ptr<runtime::CpuLibrary> library, size_t index, bool check_access, Results& results) {
  at(p.c.name + ", running");
  try {
    return Runner(p, std::move(library), index, check_access).run(results);
  } catch (const std::exception& e) {
    return e.what();
  }
}

BatchResult run_batch(std::vector<Case> cases, bool check_access) {
  BatchResult b;
  auto start = std::chrono::steady_clock::now();
  std::vector<std::string> sources;
  for (Case& c : cases) {
    b.prepared.push_back(prepare(std::move(c)));
    b.errors.push_back(b.prepared.back().error);
    if (b.prepared.back().error.empty()) sources.push_back(b.prepared.back().kernel);
  }
  b.prepare_s = since(start);
  start = std::chrono::steady_clock::now();
  runtime::Status status;
  const auto library = sources.empty() ? nullptr : runtime::compile_cpu_kernels(sources, {check_access, false}, status);
  if (!library && sources.size() > 1) {  // which of them is it?
    for (size_t i = 0; i < b.prepared.size(); ++i) {
      if (!b.errors[i].empty()) continue;
      runtime::Status own;
      if (!runtime::compile_cpu_kernels({b.prepared[i].kernel}, {check_access, false}, own)) b.errors[i] = own.message;
    }
  }
  b.compile_s = since(start);
  start = std::chrono::steady_clock::now();
  std::vector<Results> results(b.prepared.size());
  size_t index = 0;
  for (size_t i = 0; i < b.prepared.size(); ++i) {
    if (!b.errors[i].empty()) continue;
    b.errors[i] = library ? run(b.prepared[i], library, index, check_access, results[i]) : status.message;
    ++index;
    const int other = b.prepared[i].c.same_as;
    if (other < 0 || !b.errors[i].empty() || !b.errors[static_cast<size_t>(other)].empty()) continue;
    const Results& expected = results[static_cast<size_t>(other)];
    for (const auto& [what, bytes] : results[i])
      if (const auto it = expected.find(what); b.errors[i].empty() && (it == expected.end() || it->second != bytes))
        b.errors[i] = fmt::format("{} has other bits than in {}", what, b.prepared[static_cast<size_t>(other)].c.name);
  }
  b.run_s = since(start);
  at("nothing");
  return b;
}

}  // namespace maco::fuzz
