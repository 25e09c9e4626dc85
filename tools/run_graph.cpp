#include "tools/run_graph.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>
#include <sstream>

#include "ir/check.h"
#include "runtime/cpu/cuda_launch.h"
#include "runtime/reference/check.h"
#include "runtime/reference/cuda.h"
#include "runtime/reference/fill.h"
#include "runtime/reference/reference.h"
#include "runtime/reference/safetensors.h"
#include "tools/checked.h"
#include "tools/inputs.h"
#include "tools/products.h"

namespace maco::tools {

namespace {

using reference::Extents;
using reference::Tensor;
using reference::Values;

constexpr int kPoison = 0xff;  // NaN in every float type

class Runner {
 public:
  Runner(const ir::Graph& graph, runtime::Session& session, const RunOptions& options,
         const Console& console)
      : g_(graph),
        session_(session),
        options_(options),
        console_(console),
        world_(static_cast<int>(graph.world)),
        loaded_(options.weights ? options.weights->params() : std::set<std::string>()),
        reference_(graph) {
    reference::set_cuda_launcher([timeout = options.timeout_ms](const reference::CudaLaunch& l) {
      std::vector<runtime::CudaTensor> tensors;
      for (const auto& [name, data, bytes] : l.tensors) tensors.push_back({name, data, bytes});
      return runtime::launch_cuda_kernel(l.original, l.grid, l.block, l.shared, tensors, l.numbers,
                                         timeout);
    });
  }

  int run() {
    values_ = launch_values(0);
    if (const auto status = reference::complete_values(g_, values_); !status)
      return fail(kBadUsage, status.message);
    if (int status = bind(); status != kOk) return status;
    for (int64_t launch = 0; launch < options_.launches; ++launch)
      if (int status = agree(one_launch(launch)); status != kOk) return status;
    tell_checked();
    summary();
    if (int status = write_outputs(); status != kOk) return status;
    if (failed_) return kCheckFailed;
    return options_.bench > 0 ? bench() : kOk;
  }

 private:
  int fail(int status, const std::string& message) {
    console_.error(message);
    return status;
  }

  Values launch_values(int64_t launch) const {
    Values v;
    for (const auto& [name, s] : options_.scalars) v[name] = s.value + (s.counts ? launch : 0);
    for (const auto& [name, n] : options_.dims) v[name] = n;
    return v;
  }

  ir::TensorId tensor(size_t i) const {
    const auto id = g_.find_tensor(session_.manifest().tensors[i].name);
    MACO_CHECK(id, session_.manifest().tensors[i].name);
    return *id;
  }
  Extents shape(ir::TensorId id) const { return reference::actual_shape(g_, values_, id); }
  Extents max_shape(ir::TensorId id) const {
    Values maxima = values_;
    for (const ir::Dim& d : g_.dims) maxima[d.name] = d.max;
    return reference::actual_shape(g_, maxima, id);
  }

  int bind() {
    const auto& tensors = session_.manifest().tensors;
    for (int rank = 0; rank < world_; ++rank) {
      const bool here = session_.is_here(rank);
      if (!here && !options_.check) continue;  // the reference computes all ranks
      RankInputs files(loaded_);
      if (const auto status = files.open(g_, options_.inputs, rank); !status)
        return fail(kBadUsage, status.message);
      for (const auto& [name, path] : files.unknown())
        if (unknown_.insert(name).second)
          console_.say(fmt::format("warning: {}: the graph has no input, param or state '{}'{}",
                                   path, name, ir::did_you_mean(name, files.missing(g_))));
      if (here) missing_[rank] = files.missing(g_);
      for (size_t i = 0; i < tensors.size(); ++i) {
        const ir::TensorId id = tensor(i);
        if (loaded_.count(tensors[i].name) > 0) {
          if (const int status = bind_loaded(rank, i); status != kOk) return status;
          continue;
        }
        const bool output = g_[id].kind == ir::TensorKind::Output;
        const bool state = g_[id].kind == ir::TensorKind::State;
        // Outputs, and rows beyond the dims' actual values, are poisoned: if a launch wrongly
        // touches them, it shows.
        const size_t all =
            static_cast<size_t>(tensors[i].max_elements * ir::size_of(tensors[i].dtype));
        std::vector<std::byte> poisoned;
        Tensor value;
        if (!output) {
          const std::string& name = tensors[i].name;
          const Extents expected = state ? max_shape(id) : shape(id);
          if (files.has(name)) {
            if (const auto status = files.read(name, value); !status)
              return fail(kBadUsage, status.message);
            // A state may also come with its actual rows, as --outputs writes it; its other rows
            // are zero.
            if (state && value.dtype == g_[id].dtype && value.shape == shape(id)) {
              value.shape = expected;
              value.bytes.resize(static_cast<size_t>(value.elements() * ir::size_of(value.dtype)),
                                 std::byte{0});
            }
            if (value.dtype != g_[id].dtype || value.shape != expected)
              return fail(kBadUsage, fmt::format("'{}' in '{}' is {}, but the graph wants {}", name,
                                                 files.path_of(name),
                                                 reference::describe(value.dtype, value.shape),
                                                 reference::describe(g_[id].dtype, expected)));
          } else {
            value = reference::fill(g_, id, rank, options_.seed, expected);
          }
        }
        if (value.bytes.size() < all) {
          poisoned.assign(all, static_cast<std::byte>(kPoison));
          std::copy(value.bytes.begin(), value.bytes.end(), poisoned.begin());
        }
        const auto& memory = value.bytes.size() < all ? poisoned : value.bytes;
        if (here)
          if (const auto status = session_.write(rank, i, memory.data(), memory.size()); !status)
            return fail(kRunFailed, status.message);
        if (options_.check && (output || state)) {
          const auto actual = Tensor(g_[id].dtype, shape(id)).bytes.size();
          beyond_[{rank, i}].assign(memory.begin() + static_cast<std::ptrdiff_t>(actual),
                                    memory.end());
        }
        if (!output && options_.check)
          if (const auto status = reference_.set(rank, id, std::move(value)); !status)
            return fail(kBadUsage, status.message);
      }
    }
    return tell_filled();
  }

  // For a param from the checkpoint the reference gets what the session has.
  int bind_loaded(int rank, size_t i) {
    if (!options_.check) return kOk;
    const ir::TensorId id = tensor(i);
    Tensor value(g_[id].dtype, shape(id));
    const auto got =
        session_.is_here(rank)
            ? session_.read(rank, i, value.bytes.data(), value.bytes.size())
            : options_.weights->read_param(session_.manifest().tensors[i].name, rank, value);
    if (!got) return fail(kRunFailed, got.message);
    const auto set = reference_.set(rank, id, std::move(value));
    return set ? kOk : fail(kBadUsage, set.message);
  }

  // If files bind tensors, the tensors that they lack were perhaps not meant to be random.
  int tell_filled() {
    if (options_.inputs.empty()) return kOk;
    if (options_.group) {
      std::string own;
      for (const std::string& name : missing_[options_.group->rank()]) own += name + "\n";
      std::vector<std::string> all;
      if (const auto met = options_.group->exchange(own, all); !met)
        return fail(kRunFailed, met.message);
      for (size_t r = 0; r < all.size(); ++r) {
        std::istringstream names(all[r]);
        std::vector<std::string>& list = missing_[static_cast<int>(r)];
        list.clear();
        for (std::string name; std::getline(names, name);) list.push_back(name);
      }
      if (!options_.group->speaks()) return kOk;
    }
    if (const std::string text = filled_text(g_, missing_, options_.seed); !text.empty())
      console_.say(text);
    return kOk;
  }

  // The worst status of all processes, so that a process that is right doesn't wait for one that
  // isn't. Also gathers what each process found right, for one of them to report.
  int agree(int status) {
    if (!options_.group || !options_.check || status == kRunFailed) return status;
    std::vector<Checked> own;
    for (const auto& [id, checked] : checked_) own.push_back(checked);
    std::vector<std::string> all;
    if (const auto met = options_.group->exchange(fmt::format("{}\n{}", status, pack(own)), all);
        !met)
      return fail(kRunFailed, met.message);
    for (const std::string& one : all) status = std::max(status, std::atoi(one.c_str()));
    if (status != kOk) return status;
    for (auto& [id, checked] : checked_) checked = {};
    for (const std::string& one : all) {
      std::vector<Checked> theirs;
      if (!unpack(one.substr(one.find('\n') + 1), theirs) || theirs.size() != checked_.size())
        return fail(kRunFailed, "a rank sent half a message");
      for (size_t i = 0; i < theirs.size(); ++i) checked_[i].second.add(theirs[i]);
    }
    return kOk;
  }

  // Reports the checks of the last launch.
  void tell_checked() const {
    if (console_.quiet || (options_.group && !options_.group->speaks())) return;
    for (const auto& [id, checked] : checked_)
      std::fprintf(stderr, "%s\n", to_line(g_[id].name, checked).c_str());
  }

  // Reports what was done, in one line.
  void summary() const {
    if (options_.group && !options_.group->speaks()) return;
    const double ms = launching_.count() / static_cast<double>(options_.launches);
    console_.say(fmt::format(
        "{}: {} launch{} on {} rank{} of {} SM{} ({}{}), {:.3g} ms{}", g_.name, options_.launches,
        options_.launches == 1 ? "" : "es", world_, world_ == 1 ? "" : "s",
        session_.manifest().ctas, session_.manifest().ctas == 1 ? "" : "s", options_.device,
        options_.group ? ", a process each" : "", ms, options_.launches == 1 ? "" : " each"));
  }

  // Measures with the last launch's dims and scalars.
  int bench() {
    double us = 0;
    const auto status = session_.bench(values_as_launch(), options_.bench, us);
    if (!status) return fail(kRunFailed, status.message);
    if (options_.group && !options_.group->speaks()) return kOk;
    std::printf("%s: median %.2f us of %d launches (slowest of %d rank%s)\n", g_.name.c_str(), us,
                options_.bench, world_, world_ == 1 ? "" : "s");
    return kOk;
  }

  runtime::LaunchValues values_as_launch() const {
    runtime::LaunchValues v;
    for (const auto& [name, n] : values_) v[name] = n;
    return v;
  }

  int one_launch(int64_t launch) {
    values_ = launch_values(launch);
    if (const auto status = reference::complete_values(g_, values_); !status)
      return fail(kBadUsage, status.message);
    const auto begin = std::chrono::steady_clock::now();
    if (const auto status = session_.launch(values_as_launch()); !status)
      return options_.group && !options_.group->speaks() ? kRunFailed
                                                         : fail(kRunFailed, status.message);
    launching_ += std::chrono::steady_clock::now() - begin;
    if (!options_.check) return kOk;
    if (isatty(STDERR_FILENO) && !console_.quiet && (!options_.group || options_.group->speaks()))
      std::cerr << fmt::format("checking launch {} of {}\r", launch + 1, options_.launches);
    if (const auto status = reference_.run(values_); !status)
      return fail(kRunFailed, "the reference: " + status.message);
    const reference::Checker checker(reference_, options_.rtol);
    checked_.clear();
    for (size_t i = 0; i < session_.manifest().tensors.size(); ++i) {
      const ir::TensorId id = tensor(i);
      if (g_[id].kind != ir::TensorKind::State && g_[id].kind != ir::TensorKind::Output) continue;
      Checked& all = checked_.emplace_back(id, Checked{}).second;
      for (int rank = 0; rank < world_; ++rank) {
        if (!session_.is_here(rank)) continue;
        Tensor actual;
        std::vector<std::byte> rest;
        if (int status = read(rank, i, actual, rest); status != kOk) return status;
        reference::CheckResult r = checker.check(rank, id, actual);
        if (r.ok && rest != beyond_.at({rank, i})) {
          r.ok = false;
          r.what = "rows beyond the actual shape were written";
        }
        if (!r.ok) {
          failed_ = true;
          std::fprintf(stderr, "launch %lld: %s\n", static_cast<long long>(launch),
                       reference::to_line(g_[id].name, rank, r).c_str());
        }
        all.add(rank, r);
      }
    }
    return failed_ ? kCheckFailed : kOk;
  }

  // Reads the tensor with its actual shape, and the bytes behind it.
  int read(int rank, size_t i, Tensor& value, std::vector<std::byte>& rest) {
    const auto& t = session_.manifest().tensors[i];
    std::vector<std::byte> memory(static_cast<size_t>(t.max_elements * ir::size_of(t.dtype)));
    if (const auto status = session_.read(rank, i, memory.data(), memory.size()); !status)
      return fail(kRunFailed, status.message);
    value = Tensor(t.dtype, shape(tensor(i)));
    std::copy_n(memory.begin(), value.bytes.size(), value.bytes.begin());
    rest.assign(memory.begin() + static_cast<std::ptrdiff_t>(value.bytes.size()), memory.end());
    return kOk;
  }

  int write_outputs() {
    if (options_.outputs.empty()) return kOk;
    Products files;
    for (int rank = 0; rank < world_; ++rank) {
      if (!session_.is_here(rank)) continue;
      std::vector<std::pair<std::string, Tensor>> tensors;
      for (size_t i = 0; i < session_.manifest().tensors.size(); ++i) {
        const ir::TensorId id = tensor(i);
        if (g_[id].kind != ir::TensorKind::Output && g_[id].kind != ir::TensorKind::State) continue;
        Tensor value;
        std::vector<std::byte> rest;
        if (int status = read(rank, i, value, rest); status != kOk) return status;
        tensors.emplace_back(g_[id].name, std::move(value));
      }
      std::vector<std::pair<std::string, const Tensor*>> list;
      for (const auto& [name, value] : tensors) list.emplace_back(name, &value);
      const std::string file = files.begin(reference::rank_file(options_.outputs, rank));
      if (const auto status = reference::write_safetensors(file, list); !status)
        return fail(kRunFailed, status.message);
    }
    std::string error;
    return files.finish(error) ? kOk : fail(kRunFailed, error);
  }

  const ir::Graph& g_;
  runtime::Session& session_;
  const RunOptions& options_;
  const Console& console_;
  int world_;
  const std::set<std::string> loaded_;  // params that come from a checkpoint
  reference::Reference reference_;
  Values values_;
  std::set<std::string> unknown_;  // tensors of files that the graph doesn't have; reported already
  // By rank and tensor: the bytes behind the actual rows of outputs and states. Dims are the same
  // in all launches, so these bytes must not change.
  std::map<std::pair<int, size_t>, std::vector<std::byte>> beyond_;
  MissingInputs missing_;
  std::vector<std::pair<ir::TensorId, Checked>> checked_;  // of the last launch that was checked
  bool failed_ = false;
  std::chrono::duration<double, std::milli> launching_{0};  // of all launches together
};

}  // namespace

bool check_arguments(const ir::Graph& graph, RunOptions& options, const Console& console) {
  bool ok = true;
  const auto wrong = [&](const std::string& message) {
    console.error(message);
    ok = false;
  };
  std::vector<std::string> scalars, dims;
  for (const ir::Tensor& t : graph.tensors)
    if (t.kind == ir::TensorKind::Scalar) scalars.push_back(t.name);
  for (const ir::Dim& d : graph.dims) dims.push_back(d.name);
  for (const auto& [name, s] : options.scalars) {
    const auto id = graph.find_tensor(name);
    if (!id || graph[*id].kind != ir::TensorKind::Scalar) {
      wrong(fmt::format("--scalar {}: the graph has no such scalar{}", name,
                        graph.find_dim(name) ? fmt::format("; '{}' is a dim", name)
                                             : ir::did_you_mean(name, scalars)));
      continue;
    }
    const ir::Tensor& t = graph[*id];
    const int64_t last = s.value + (s.counts ? options.launches - 1 : 0);
    if (s.value < t.range_lo || last >= t.range_hi)
      wrong(fmt::format("--scalar {}: {} is outside [{}, {})", name,
                        s.value < t.range_lo ? s.value : last, t.range_lo, t.range_hi));
  }
  for (const auto& [name, n] : options.dims) {
    const ir::Dim* d = graph.find_dim(name);
    if (!d)
      wrong(fmt::format("--dim {}: the graph has no such dim{}", name,
                        std::find(scalars.begin(), scalars.end(), name) != scalars.end()
                            ? fmt::format("; '{}' is a scalar", name)
                            : ir::did_you_mean(name, dims)));
    else if (n < d->min || n > d->max)
      wrong(fmt::format("--dim {}: {} is outside [{}, {}]", name, n, d->min, d->max));
  }
  for (const ir::Tensor& t : graph.tensors)
    if (t.kind == ir::TensorKind::Scalar && !options.scalars.count(t.name))
      options.scalars[t.name] = {t.range_lo, false};
  for (const std::string& pattern : options.inputs)
    if (const std::string why = wrong_placeholder("--inputs", pattern); !why.empty()) wrong(why);
  if (options.outputs.empty()) return ok;
  if (const std::string why = wrong_placeholder("--outputs", options.outputs); !why.empty()) {
    wrong(why);
    return false;
  }
  if (const auto status = reference::check_output_pattern(options.outputs, graph.world); !status)
    wrong(status.message);
  for (int rank = 0; rank < graph.world; ++rank) {
    std::string error;
    if (!can_write(reference::rank_file(options.outputs, rank), error)) wrong(error);
  }
  return ok;
}

runtime::Settings settings_of(const ir::Graph& graph, const RunOptions& o,
                              const std::string& device) {
  const auto given = [](bool is) { return is ? "given" : "not given"; };
  runtime::Settings all;
  const auto add = [&](const std::string& name, std::string value) {
    all.push_back({name, std::move(value)});
  };
  add("--device", device);
  for (const auto& [name, s] : o.scalars)
    add("--scalar " + name, fmt::format("{}{}", s.value, s.counts ? "+" : ""));
  for (const ir::Dim& d : graph.dims) {
    const auto at = o.dims.find(d.name);
    add("--dim " + d.name, fmt::format("{}", at == o.dims.end() ? d.max : at->second));
  }
  add("--seed", fmt::format("{}", o.seed));
  add("--launches", fmt::format("{}", o.launches));
  add("--check", given(o.check));
  add("--rtol", o.rtol ? fmt::format("{}", *o.rtol) : "not given");
  add("--bench", o.bench > 0 ? fmt::format("{}", o.bench) : "not given");
  add("--require-inputs", given(o.require_inputs));
  // A process that checks reads the files of all ranks.
  std::string files = o.inputs.empty() ? "not given" : "given";
  if (o.check && !o.inputs.empty()) files = fmt::format("'{}'", fmt::join(o.inputs, "', '"));
  add("--inputs", files);
  add("--weights", given(o.weights != nullptr));
  if (o.weights) all.push_back({"weights.json", o.weights->hash(), false});
  return all;
}

runtime::Status write_tensors(const ir::Graph& graph, runtime::Session& session,
                              const runtime::LaunchValues& values, uint64_t seed, int rank,
                              int launch) {
  Values all(values.begin(), values.end());
  if (auto status = reference::complete_values(graph, all); !status)
    return runtime::Status::failure(status.message);
  const auto& tensors = session.manifest().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ir::TensorId id = *graph.find_tensor(tensors[i].name);
    const ir::TensorKind kind = graph[id].kind;
    if (launch > 0 && (kind == ir::TensorKind::Param || kind == ir::TensorKind::State)) continue;
    std::vector<std::byte> memory(
        static_cast<size_t>(tensors[i].max_elements * ir::size_of(tensors[i].dtype)),
        static_cast<std::byte>(kPoison));
    if (kind == ir::TensorKind::State) {
      std::fill(memory.begin(), memory.end(), std::byte{0});
    } else if (kind != ir::TensorKind::Output) {
      const uint64_t launch_seed =
          seed + (kind == ir::TensorKind::Input ? static_cast<uint64_t>(launch) : 0);
      const Tensor value =
          reference::fill(graph, id, rank, launch_seed, reference::actual_shape(graph, all, id));
      std::copy(value.bytes.begin(), value.bytes.end(), memory.begin());
    }
    if (auto status = session.write(rank, i, memory.data(), memory.size()); !status) return status;
  }
  return {};
}

int run_graph(const ir::Graph& graph, runtime::Session& session, const RunOptions& options,
              const Console& console) {
  return Runner(graph, session, options, console).run();
}

}  // namespace maco::tools
