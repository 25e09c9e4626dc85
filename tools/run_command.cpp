#include "tools/run_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <set>

#include "compiler/api/command_line.h"
#include "compiler/api/dump.h"
#include "compiler/api/match.h"
#include "compiler/cost/machine.h"
#include "compiler/frontend/dumps.h"
#include "compiler/ops/collectives/chunk_witness.h"
#include "compiler/verify/explain.h"
#include "compiler/verify/precedence.h"
#include "compiler/verify/witness.h"
#include "ir/check.h"
#include "ir/manifest.h"
#include "ir/program_text.h"
#include "ir/variants.h"
#include "runtime/cpu/kernel_guard.h"
#include "runtime/cpu/session.h"
#include "runtime/cpu/stand_in.h"
#include "runtime/host/cuda_session.h"
#include "runtime/host/variants.h"
#include "tools/inputs.h"
#include "tools/memory.h"
#include "tools/processes.h"
#include "tools/products.h"
#include "tools/profile_report.h"
#include "tools/progress.h"
#include "tools/replay.h"
#include "tools/run_model.h"
#include "tools/weights.h"

namespace maco::tools {
namespace {

bool names_sms(const ir::Graph& graph) {
  const auto* roles = std::get_if<ir::Roles>(&graph.sm_roles.value);
  return !roles || !std::holds_alternative<ir::RoleAuto>(*roles);
}

std::optional<verify::Witness> read_witness(const std::string& path, const ir::Program& program,
                                            const Console& console, int& status) {
  std::string error;
  const auto text = read_input(path, error);
  if (!text) {
    console.error(error);
    status = kBadUsage;
    return std::nullopt;
  }
  ir::Diagnostics diagnostics;
  std::optional<verify::Witness> witness;
  if (verify::check_explainable(program, diagnostics))
    witness = verify::parse_witness(diagnostics.add_file(path, *text), program, diagnostics);
  console.show(diagnostics);
  status = kBadGraph;
  return witness;
}

int show(const ReplaySubject& subject, const verify::Witness& witness, const Console& console) {
  const ReplayResult result = replay(subject, witness);
  if (!result.error.empty()) {
    console.error(result.error);
    return kBadUsage;
  }
  std::fputs(result.story.c_str(), stdout);
  std::fputs(result.confirmed ? "confirmed\n" : "not confirmed\n", stdout);
  if (result.confirmed) return kOk;
  if (result.polled) {
    console.error(
        "the device function polls the packets that it reads, whatever the Program's waits say; "
        "the Program without its graph shows it");
    return kCheckFailed;
  }
  console.error(
      "the run doesn't show what the witness says: unless the witness was edited, this is a bug in "
      "MACO's verifier");
  return kCheckFailed;
}

// Replays a Program without its graph: nobody knows what its tasks compute.
int replay_program(const std::string& path, const std::string& text,
                   const std::string& witness_file, const Console& console) {
  ir::Diagnostics diagnostics;
  const auto program = frontend::parse_program(diagnostics.add_file(path, text), diagnostics);
  if (!program) {
    console.show(diagnostics);
    return kBadGraph;
  }
  int status = kOk;
  const auto witness = read_witness(witness_file, *program, console, status);
  if (!witness) return status;
  console.say(
      "warning: the Program is run as it is, unverified, and by stand-ins: tasks write a digest of "
      "what they read");
  std::vector<bool> skip;
  const verify::Precedence order(*program);
  if (witness->small_dims)
    for (uint32_t t = 0; t < program->tasks.size(); ++t) skip.push_back(order.may_skip(t));
  const auto run = runtime::make_stand_in(*program, std::move(skip));
  return show({*program, *run, {}}, *witness, console);
}

// Replays the kernel itself, with values of --scalar, --dim and --seed.
int replay_kernel(const ir::Graph& graph, const ir::Program& program, runtime::CpuSession& session,
                  const verify::Witness& witness, const RunOptions& options,
                  const Console& console) {
  runtime::LaunchValues values;
  for (const ir::Dim& d : graph.dims) values[d.name] = witness.small_dims ? d.min : d.max;
  for (const auto& [name, n] : options.dims) values[name] = n;
  for (const auto& [name, scalar] : options.scalars) values[name] = scalar.value;
  runtime::Status written;
  const auto write = [&](int rank, int launch) {
    if (auto status = write_tensors(graph, session, values, options.seed, rank, launch); !status)
      written = status;
  };
  console.say("warning: the Program is run as it is, unverified");
  const int status = show({program, session, values, write}, witness, console);
  if (written) return status;
  console.error(written.message);
  return kRunFailed;
}

// Replays a user's algorithm that can't be compiled.
int replay_collective(const ir::Graph& graph, const std::string& path, const std::string& text,
                      const Console& console) {
  ir::Diagnostics diagnostics;
  const auto witness = ops::parse_chunk_witness(diagnostics.add_file(path, text), diagnostics);
  if (!witness) {
    console.show(diagnostics);
    return kBadGraph;
  }
  const ops::ChunkReplay result = ops::replay(graph, *witness, diagnostics);
  console.show(diagnostics);
  if (!result.error.empty()) {
    console.error(result.error);
    return kBadUsage;
  }
  std::fputs(result.story.c_str(), stdout);
  std::fputs(result.confirmed ? "confirmed\n" : "not confirmed\n", stdout);
  return result.confirmed ? kOk : kCheckFailed;
}

/// A graph, its kernel and, if needed, the Program behind the kernel.
struct Subject {
  ir::Graph graph;
  std::string kernel;
  std::string program_hash;  // of the Program from which a given kernel was made
  std::optional<ir::Program> program;
};

class Command {
 public:
  Command(RunCommand command, const Console& console) : c_(std::move(command)), console_(console) {}

  int run() {
    if (const int status = find_files(); status != kOk) return status;
    if (c_.model) return run_prompt();
    std::string error;
    auto text = read_input(c_.input, error);
    if (!text) return fail(kBadUsage, error);
    if (ir::is_program_text(*text)) {
      if (!c_.witness_file.empty())
        return replay_program(c_.input, *text, c_.witness_file, console_);
      return fail(kBadUsage, fmt::format("'{}' is a Program: run its graph with --program {}, or "
                                         "show a witness of it with --replay WITNESS",
                                         c_.input, c_.input));
    }
    Subject subject;
    const bool kernel = is_kernel(*text);
    if (const std::string other = kernel ? "" : other_file(c_.input, *text); !other.empty())
      return fail(kBadUsage, other);
    if (const int status =
            kernel ? take_kernel(std::move(*text), subject) : read_graph(*text, subject);
        status != kOk)
      return status;
    if (!c_.witness_file.empty()) {
      const auto witness = read_input(c_.witness_file, error);
      if (!witness) return fail(kBadUsage, error);
      if (ops::is_chunk_witness(*witness))
        return replay_collective(subject.graph, c_.witness_file, *witness, console_);
    }
    if (!check_arguments(subject.graph, c_.run, console_)) return kBadUsage;
    if (const int status = find_place(subject.graph); status != kOk) return status;
    if (const int status = check_weights(subject.graph); status != kOk) return status;
    if (!check_inputs(subject.graph, c_.run.inputs, c_.run.require_inputs,
                      weights_ ? weights_->params() : std::set<std::string>(),
                      ranks_bound(subject.graph), console_))
      return kBadUsage;
    if (c_.processes) return start_processes(subject.graph);
    if (!c_.profile_file.empty() && c_.profile_file != "-" && !can_write(c_.profile_file, error))
      return fail(kBadUsage, error);
    if (const int status = compile(subject); status != kOk) return status;
    return launch(subject);
  }

 private:
  int fail(int status, const std::string& message) const {
    console_.error(message);
    return status;
  }
  int bad_graph() const {
    console_.show(diagnostics_);
    return kBadGraph;
  }

  /// Finds the graph in a folder, and weights.json beside it.
  int find_files() {
    namespace fs = std::filesystem;
    std::error_code code;
    const bool folder = fs::is_directory(c_.input, code);
    if (!folder && !c_.kind.empty())
      return fail(kBadUsage, fmt::format("--kind chooses one of a folder's graphs, and '{}' is no "
                                         "folder",
                                         c_.input));
    if (!folder && c_.model)
      return fail(kBadUsage, fmt::format("--tokens runs the graphs of a folder that macoc import "
                                         "wrote, and '{}' is none",
                                         c_.input));
    const std::string graphs = folder ? c_.input : fs::path(c_.input).parent_path().string();
    if (folder && !c_.model) c_.input = graph_in(graphs, c_.kind.empty() ? "decode" : c_.kind);
    if (folder && !c_.model && !fs::exists(c_.input, code))
      return fail(kBadUsage,
                  fmt::format("'{}' has no '{}': a folder of graphs is what macoc import writes",
                              graphs, fs::path(c_.input).filename().string()));
    if (c_.weights_folder.empty()) return kOk;
    weights_.emplace();
    const auto read = weights_->read(graphs, c_.weights_folder);
    return read ? kOk : fail(kBadUsage, read.message);
  }
  static std::string graph_in(const std::string& folder, const std::string& kind) {
    return (std::filesystem::path(folder) / (kind + ".maco")).string();
  }

  int check_weights(const ir::Graph& graph) {
    if (!weights_) return kOk;
    c_.run.weights = &*weights_;
    const auto right = weights_->check(graph);
    return right ? kOk : fail(kBadUsage, right.message);
  }

  int start_processes(const ir::Graph& graph) const {
    constexpr uint64_t kGraceMs = 15000;  // behind the time-outs of ranks that wait for others
    return run_processes(static_cast<int>(graph.world), c_.arguments,
                         c_.session.timeout_ms + kGraceMs, console_);
  }

  /// The ranks for which this process, or those that it starts, binds tensors.
  std::vector<int> ranks_bound(const ir::Graph& graph) const {
    if (c_.run.inputs.empty() && !c_.run.require_inputs) return {};
    if (place_ && !c_.run.check) return {place_->rank};
    std::vector<int> all(static_cast<size_t>(graph.world));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  /// Finds which ranks this process runs, if it starts no others. Returns kOk, or reports why that
  /// fails.
  int find_place(const ir::Graph& graph) {
    runtime::Status status;
    if (c_.peer_memory != "threads" && !c_.processes)
      place_ = runtime::group_from_environment(status);
    if (!status) return fail(kBadUsage, status.message);
    const bool must = c_.peer_memory == "processes" || c_.peer_memory == "nvshmem";
    if (must && !place_ && !c_.processes && graph.world > 1)
      return fail(kBadUsage,
                  fmt::format("--peer-memory {}: the environment names no rank (RANK, WORLD_SIZE); "
                              "start it with torchrun, mpirun or --processes",
                              c_.peer_memory));
    if (c_.device == "cuda" && c_.peer_memory != "auto" && graph.world > 1)
      c_.session.peer_memory = c_.peer_memory;
    if (!place_ && !c_.processes) return kOk;
    if (c_.session.check_access || c_.session.replay || !c_.witness_file.empty())
      return fail(kBadUsage,
                  "--check-access and --replay look at all ranks, which one process has to run "
                  "(--peer-memory threads)");
    if (place_ && place_->size != graph.world)
      return fail(kBadUsage, fmt::format("there are {} processes, but the graph has {} rank{}",
                                         place_->size, graph.world, graph.world == 1 ? "" : "s"));
    return kOk;
  }

  /// Whether the Program is needed in addition to the code.
  bool needs_program() const {
    return c_.session.check_access || !c_.witness_file.empty() || !c_.profile_file.empty();
  }

  std::string one_of_variants() const {
    return fmt::format(
        "'{}' has a Program for each variant of 'sm_roles': choose one with "
        "--variant for {}",
        c_.input,
        !c_.program_file.empty()   ? "--program"
        : c_.session.check_access  ? "--check-access"
        : !c_.profile_file.empty() ? "--profile"
                                   : "--replay WITNESS");
  }

  /// Takes a kernel made by macoc: everything needed is in it.
  int take_kernel(std::string text, Subject& subject) {
    ir::VariantsResult split = ir::split_variants(text);
    if (split.variants.empty()) return fail(kBadGraph, c_.input + ": " + split.error);
    if (const auto n = static_cast<int64_t>(split.variants.size()); c_.compile.variant > n)
      return fail(kBadUsage, fmt::format("'{}' has {} variant{}: there is no variant {}", c_.input,
                                         n, n == 1 ? "" : "s", c_.compile.variant));
    if (c_.compile.variant > 0) {
      text = std::move(split.variants[static_cast<size_t>(c_.compile.variant - 1)].kernel);
      split.variants = {{std::nullopt, text}};
    } else if (split.variants.size() > 1 && needs_program()) {
      return fail(kBadUsage, one_of_variants());
    }
    c_.compile.variant = 0;
    auto [manifest, error, edited] = ir::parse_manifest(split.variants[0].kernel);
    if (!manifest) return fail(kBadGraph, c_.input + ": " + error);
    if (!c_.for_graphs.empty())
      return fail(kBadUsage, fmt::format("'{}' is compiled already: {} is for graphs", c_.input,
                                         c_.for_graphs));
    if (!c_.program_file.empty() && !needs_program())
      return fail(
          kBadUsage,
          fmt::format("'{}' is compiled already: --program is for graphs, and for "
                      "what --check-access, --profile or --replay WITNESS needs of a kernel",
                      c_.input));
    for (size_t i = 1; i < split.variants.size(); ++i)
      edited = edited || ir::parse_manifest(split.variants[i].kernel).edited;
    if (edited || split.edited)
      console_.say("warning: " + c_.input + " was edited after macoc wrote it");
    auto graph = api::read_graph(c_.input + " (its graph)", manifest->graph, diagnostics_);
    if (!graph || !api::check_manifest(*graph, *manifest, diagnostics_)) return bad_graph();
    // --check-access, a profile and a witness need the Program as macoc compiled it.
    if (!api::read_command_line(manifest->options, c_.compile))
      return fail(kBadGraph, fmt::format("{}: its manifest says that it was compiled with '{}', "
                                         "which this version doesn't know",
                                         c_.input, manifest->options));
    subject.graph = std::move(*graph);
    subject.kernel = std::move(text);
    subject.program_hash = manifest->program_hash;
    return kOk;
  }

  int read_graph(const std::string& text, Subject& subject) {
    auto graph = api::read_graph(input_name(c_.input), text, diagnostics_, c_.compile.algorithms);
    if (!graph)
      if (const std::string dump = api::passes_made(text, c_.compile.algorithms); !dump.empty())
        return fail(kBadUsage, dump_text(input_name(c_.input), dump));
    if (!graph || !api::take_variant(*graph, c_.compile, diagnostics_)) return bad_graph();
    c_.compile.variant = 0;
    if (api::has_variants(*graph, c_.compile) && (needs_program() || !c_.program_file.empty()))
      return fail(kBadUsage, one_of_variants());
    // The CPU target has SMs of its own, unless the graph names those of a GPU.
    if (c_.device == "cpu" && !c_.machine_given && !names_sms(*graph)) c_.compile.target = "cpu";
    if (!api::read_kernels(*graph, c_.compile, diagnostics_)) return bad_graph();
    subject.graph = std::move(*graph);
    return kOk;
  }

  /// Divides the SMs of a GPU among the ranks that share it.
  int share_sms() {
    const int ranks = c_.session.ranks_per_gpu;
    if (ranks <= 1) return kOk;
    const cost::Machine& machine = *cost::find_machine(c_.compile.target, c_.compile.board);
    int64_t& sms = c_.compile.sms;
    if (ranks > machine.sms || sms > machine.sms / ranks)
      return fail(kBadUsage,
                  sms == 0 ? fmt::format("{} ranks share a GPU, but board '{}' has {} SMs", ranks,
                                         machine.board, machine.sms)
                           : fmt::format("{} ranks of {} SMs share a GPU, but board '{}' has {}",
                                         ranks, sms, machine.board, machine.sms));
    if (sms == 0) sms = machine.sms / ranks;
    return kOk;
  }

  /// Compiles the kernel, unless it is given, and the Program if it is needed.
  int compile(Subject& subject) {
    const bool is_kernel = !subject.kernel.empty();
    if (is_kernel && !needs_program()) return kOk;
    if (!cost::find_machine(c_.compile.target, c_.compile.board, diagnostics_)) return bad_graph();
    if (const int status = share_sms(); status != kOk) return status;
    if (!c_.program_file.empty()) {
      std::string error;
      const auto text = read_input(c_.program_file, error);
      if (!text) return fail(kBadUsage, error);
      const int32_t file = diagnostics_.add_file(c_.program_file, *text);
      subject.program = frontend::parse_program(file, diagnostics_);
      if (subject.program &&
          api::check_program(subject.graph, *subject.program, c_.compile, diagnostics_) &&
          !is_kernel)
        subject.kernel =
            api::emit_kernel(subject.graph, *subject.program, c_.compile, diagnostics_);
    } else if (auto compiled = api::compile(subject.graph, c_.compile, diagnostics_)) {
      subject.program = std::move(compiled->program);
      if (!is_kernel) subject.kernel = std::move(compiled->kernel);
    }
    console_.show(diagnostics_);
    if (is_kernel && subject.program &&
        ir::text_hash(ir::print(*subject.program)) != subject.program_hash)
      return fail(kBadGraph, c_.program_file.empty()
                                 ? fmt::format("'{}' was made of another Program than this version "
                                               "makes of its graph: give it with --program",
                                               c_.input)
                                 : fmt::format("'{}' is not the Program that '{}' was made of",
                                               c_.program_file, c_.input));
    return subject.program && !subject.kernel.empty() ? kOk : kBadGraph;
  }

  /// How long no task may begin or end: longer than all time-outs of waits, which report more.
  std::chrono::milliseconds patience() const {
    return std::max(std::chrono::milliseconds(2 * c_.session.timeout_ms),
                    std::chrono::milliseconds(20000));
  }

  /// A kernel's manifest; for several variants with the memory of all.
  static ir::Manifest manifest_of(const Subject& subject) {
    std::optional<ir::Manifest> manifest;
    for (const ir::KernelVariant& v : ir::split_variants(subject.kernel).variants) {
      auto one = ir::parse_manifest(v.kernel).manifest;
      MACO_CHECK(one, "a kernel without its manifest");
      if (manifest) {
        one->arena_bytes += manifest->arena_bytes;
        one->symmetric_bytes += manifest->symmetric_bytes;
      }
      manifest = std::move(one);
    }
    MACO_CHECK(manifest, "a kernel without its manifest");
    return *manifest;
  }

  /// Joins the group that runs the ranks, if this process is one of several. `what`: a different
  /// name for each of the groups that the processes join, if there are several. Null and kOk: it
  /// isn't one of several.
  std::unique_ptr<runtime::Group> join(const Subject& subject, const std::string& what,
                                       Progress& progress, int& status) {
    status = kOk;
    if (!place_) return nullptr;
    progress.step("waiting for the other ranks");
    runtime::Settings told = runtime::settings_of(subject.kernel, c_.session);
    for (runtime::Setting& s : settings_of(subject.graph, c_.run, c_.device))
      told.push_back(std::move(s));
    if (c_.model) {
      told.push_back({"--tokens", fmt::format("{}", fmt::join(c_.model->tokens, ","))});
      told.push_back({"--max-new-tokens", fmt::format("{}", c_.model->max_new_tokens)});
    }
    runtime::GroupPlace place = *place_;
    if (!what.empty()) place.processes = place.name;
    place.name += what;
    runtime::Status joined;
    auto group = runtime::Group::join(place, told, c_.session.timeout_ms, joined);
    if (!group) status = fail(kRunFailed, fmt::format("rank {}: {}", place.rank, joined.message));
    return group;
  }

  /// Opens a session of a kernel with these options. Returns null, with a reason, if that fails.
  std::unique_ptr<runtime::Session> open(const std::string& kernel,
                                         const runtime::SessionOptions& options,
                                         runtime::KernelGuard* guard,
                                         runtime::Status& status) const {
    return runtime::open_session(
        kernel, options,
        [&](const std::string& source, const runtime::SessionOptions& of_one,
            runtime::Status& opened) -> std::unique_ptr<runtime::Session> {
          if (c_.device != "cpu") return runtime::make_cuda_session(source, of_one, opened);
          auto on_cpu = runtime::make_cpu_session(source, of_one, opened);
          if (on_cpu) on_cpu->set_guard(guard);
          return on_cpu;
        },
        status);
  }
  int not_opened(const runtime::Status& status, const runtime::Group* group) const {
    if (group && !group->speaks()) return kRunFailed;
    const bool no_gpu =
        c_.device != "cpu" && status.message.find("no device: ") != std::string::npos;
    return fail(kRunFailed, status.message + (no_gpu ? "; use --device cpu" : ""));
  }

  int launch(const Subject& subject) {
    std::optional<verify::Witness> witness;
    if (!c_.witness_file.empty()) {
      int status = kOk;
      witness = read_witness(c_.witness_file, *subject.program, console_, status);
      if (!witness) return status;
    }
    const bool cpu = c_.device == "cpu";
    const ir::Manifest manifest = manifest_of(subject);
    if (const std::string why =
            why_too_large(memory_need(subject.graph, manifest, cpu, c_.run.check, c_.run.dims),
                          available_memory());
        !why.empty())
      return fail(kRunFailed, why);
    if (!c_.profile_file.empty())
      c_.session.profiled_tasks = static_cast<int64_t>(subject.program->tasks.size());
    Progress progress(console_);
    c_.session.progress = [&](std::string_view what) { progress.step(what); };
    runtime::Status status;
    std::unique_ptr<runtime::KernelGuard> guard;
    if (c_.session.check_access || (cpu && runtime::has_cuda_units(subject.kernel))) {
      const auto wait = c_.session.check_access ? patience() : std::chrono::milliseconds(0);
      guard = runtime::KernelGuard::make(kRunFailed, wait, status);
      if (!guard) return fail(kRunFailed, status.message);
    }
    int ended = kOk;
    const std::unique_ptr<runtime::Group> group = join(subject, "", progress, ended);
    if (ended != kOk) return ended;
    c_.session.group = c_.run.group = group.get();
    std::unique_ptr<runtime::Session> session;
    if (cpu && (c_.session.check_access || witness)) {
      auto on_cpu = runtime::make_cpu_session(subject.kernel, c_.session, status);
      if (on_cpu && c_.session.check_access)
        status = on_cpu->set_regions(*subject.program, guard.get());
      if (on_cpu && witness)
        return replay_kernel(subject.graph, *subject.program, *on_cpu, *witness, c_.run, console_);
      session = std::move(on_cpu);
    } else {
      session = open(subject.kernel, c_.session, guard.get(), status);
    }
    if (!session || !status) return not_opened(status, group.get());
    if (weights_)
      if (const auto loaded = weights_->load(*session, group.get(), progress, console_); !loaded)
        return not_opened(loaded, group.get());
    c_.run.device = c_.device;
    c_.run.timeout_ms = c_.session.timeout_ms;
    progress.step("filling tensors, launching");
    ended = run_graph(subject.graph, *session, c_.run, console_);
    if (ended != kOk || c_.profile_file.empty()) return ended;
    return report_profile(*subject.program, *session, group.get(), c_.profile_file, console_);
  }

  /// A graph of a folder, and its name in messages.
  struct Part {
    Subject subject;
    ir::Diagnostics diagnostics;
  };
  int read_part(const std::string& folder, const std::string& kind, Part& part) {
    c_.input = graph_in(folder, kind);
    std::string error;
    const auto text = read_input(c_.input, error);
    if (!text) return fail(kBadUsage, error + ": --tokens runs prefill and decode of a folder");
    diagnostics_ = {};
    const int status = read_graph(*text, part.subject);
    part.diagnostics = std::move(diagnostics_);
    return status;
  }
  int compile(Part& part) {
    diagnostics_ = std::move(part.diagnostics);
    return compile(part.subject);
  }

  /// --tokens: runs two graphs with one memory.
  int run_prompt() {
    const std::string folder = c_.input;
    Part prefill_part, decode_part;
    const Subject &prefill = prefill_part.subject, &decode = decode_part.subject;
    if (const int status = read_part(folder, "prefill", prefill_part); status != kOk) return status;
    if (const int status = read_part(folder, "decode", decode_part); status != kOk) return status;
    const runtime::WeightMap& map = weights_->map();
    if (const std::string why = wrong_model(prefill.graph, decode.graph, map, *c_.model);
        !why.empty())
      return fail(kBadUsage, why);
    if (const int status = find_place(decode.graph); status != kOk) return status;
    if (const int status = check_weights(decode.graph); status != kOk) return status;
    if (c_.processes) return start_processes(decode.graph);
    for (Part* part : {&prefill_part, &decode_part})
      if (const int status = compile(*part); status != kOk) return status;
    ir::Manifest both = manifest_of(decode);
    const ir::Manifest more = manifest_of(prefill);
    both.arena_bytes += more.arena_bytes;
    both.symmetric_bytes += more.symmetric_bytes;
    if (const std::string why = why_too_large(
            memory_need(decode.graph, both, c_.device == "cpu", false), available_memory());
        !why.empty())
      return fail(kRunFailed, why);

    Progress progress(console_);
    c_.session.progress = [&](std::string_view what) { progress.step(what); };
    runtime::Status status;
    int ended = kOk;
    const auto decode_group = join(decode, "#decode", progress, ended);
    if (ended != kOk) return ended;
    const auto prefill_group = join(prefill, "#prefill", progress, ended);
    if (ended != kOk) return ended;
    runtime::SessionOptions options = c_.session;
    options.group = decode_group.get();
    const auto decode_session = open(decode.kernel, options, nullptr, status);
    if (!decode_session) return not_opened(status, decode_group.get());
    options.group = prefill_group.get();
    options.allocate_tensors = false;
    const auto prefill_session = open(prefill.kernel, options, nullptr, status);
    if (!prefill_session) return not_opened(status, prefill_group.get());
    status = runtime::share(*prefill_session, *decode_session);
    if (status) status = runtime::allocate_all(*prefill_session);
    if (decode_group) status = decode_group->agree(status);
    if (status) status = weights_->load(*decode_session, decode_group.get(), progress, console_);
    if (!status) return not_opened(status, decode_group.get());
    progress.step("running the prompt");
    return run_model(prefill.graph, *prefill_session, decode.graph, *decode_session, map, *c_.model,
                     decode_group.get(), console_);
  }

  RunCommand c_;
  std::optional<Weights> weights_;            // for --weights
  std::optional<runtime::GroupPlace> place_;  // of this process among all ranks
  const Console& console_;
  ir::Diagnostics diagnostics_;
};

}  // namespace

int run_command(RunCommand command, const Console& console) {
  return Command(std::move(command), console).run();
}

}  // namespace maco::tools
