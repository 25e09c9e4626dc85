// maco-run: compiles a graph (or takes a kernel.cu), launches it and checks it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/frontend/frontend.h"
#include "compiler/verify/explain.h"
#include "compiler/verify/witness.h"
#include "ir/check.h"
#include "ir/manifest.h"
#include "ir/program_text.h"
#include "runtime/cpu/session.h"
#include "runtime/cpu/stand_in.h"
#include "runtime/host/cuda_session.h"
#include "tools/memory.h"
#include "tools/options.h"
#include "tools/replay.h"
#include "tools/run_graph.h"

namespace maco::tools {
namespace {

// Accepts finite numbers that are at least `least`, or above it.
CLI::Validator number_from(double least, bool above) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) &&
            (above ? value > least : value >= least))
          return {};
        return fmt::format("'{}' is no number {} {}", text, above ? "above" : "of at least", least);
      },
      "NUMBER");
}

// "pos=17" or "pos=17+".
bool parse_scalar(const std::string& text, RunOptions& options) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  ScalarArgument s;
  std::string number = text.substr(equals + 1);
  if (!number.empty() && number.back() == '+') {
    s.counts = true;
    number.pop_back();
  }
  size_t used = 0;
  try {
    s.value = std::stoll(number, &used);
  } catch (const std::exception&) {
    return false;
  }
  if (used != number.size()) return false;
  options.scalars[text.substr(0, equals)] = s;
  return true;
}

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

// A Program without its graph: nobody knows what its tasks compute.
int replay_program(const std::string& path, const std::string& text,
                   const std::string& witness_file, const Console& console) {
  ir::Diagnostics diagnostics;
  const auto program = ir::parse_program(diagnostics.add_file(path, text), diagnostics);
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

// The kernel itself, with values of --scalar, --dim and --seed.
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

int run(int argc, char** argv) {
  CLI::App app(
      "Compiles a task graph, launches it on all ranks and checks it.\n"
      "  maco-run tp_mlp.json --device cpu --check\n"
      "  maco-run kernel.cu --device cuda --inputs in.{rank}.safetensors --outputs "
      "out.{rank}.safetensors\n",
      "maco-run");
  CommonOptions common;
  PipelineFlags flags;
  CompileOptions compile_options;
  RunOptions options;
  runtime::SessionOptions session_options;
  std::string input, device = "cuda", program_file, target;
  std::vector<std::string> scalars, dims;
  double timeout = 30;
  uint64_t jitter = 0;
  std::string replayed, witness_file;
  app.add_option("graph", input,
                 "a .json or .maco graph, or a kernel.cu of macoc's; - for standard input. With "
                 "--replay WITNESS also a Program");
  app.add_option("--device", device, "where to run: cuda (the default) or cpu")
      ->option_text("NAME")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--inputs", options.inputs,
                 "safetensors to bind by name; {rank} is replaced by the rank")
      ->option_text("FILE");
  app.add_option("--outputs", options.outputs,
                 "safetensors to write outputs and states to, likewise")
      ->option_text("FILE");
  app.add_option("--seed", options.seed, "of the values of what no file binds")
      ->option_text("N")
      ->check(unsigned_number());
  app.add_option("--scalar", scalars, "a scalar's value; VALUE+ for one more each launch")
      ->option_text("NAME=VALUE");
  app.add_option("--dim", dims, "a dim's value; the maximum if not given")
      ->option_text("NAME=VALUE");
  app.add_option("--launches", options.launches, "how often to launch; states are kept")
      ->option_text("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_flag("--check", options.check,
               "compare every output and state with the reference after every launch");
  app.add_option("--rtol", options.rtol, "the bound of --check, for floats")
      ->option_text("NUMBER")
      ->check(number_from(0, false));
  app.add_option("--bench", options.bench,
                 "then report the median time of so many further launches")
      ->option_text("N")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--timeout", timeout,
                 "without progress, after which a wait is given up at the earliest (30)")
      ->option_text("SECONDS")
      ->check(number_from(0, true));
  app.add_option("--ranks-per-gpu", session_options.ranks_per_gpu, "ranks that share a GPU's SMs")
      ->option_text("N")
      ->check(CLI::Range(1, 64));
  auto* jitter_option = app.add_option("--jitter", jitter, "CPU: random delays from this seed")
                            ->option_text("SEED")
                            ->check(unsigned_number());
  auto* replay_option = app.add_option("--replay", replayed,
                                       "CPU: one thread, in an order given by this seed; or show "
                                       "what a witness of maco-opt's says (a file), "
                                       "status 3 if it doesn't hold")
                            ->option_text("SEED|FILE")
                            ->excludes(jitter_option);
  app.add_flag("--check-access", session_options.check_access,
               "CPU: check each access of a task against its declared regions");
  app.add_option("--first-epoch", session_options.first_epoch,
                 "number of the first launch (counters wrap at 2^32)")
      ->option_text("N")
      ->check(unsigned_number());
  app.add_option("--program", program_file,
                 "run this Program (a text of maco-opt's) instead of the compiler's for the graph")
      ->option_text("FILE");
  flags.add(app, compile_options.pipeline);
  app.add_flag("--reparse", compile_options.reparse, "print and parse the IR between all passes");
  common.add(app);
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  if (common.listed()) return kOk;
  const Console console = common.console();
  if (input.empty()) {
    console.error("no graph given; try maco-run --help");
    return kBadUsage;
  }
  flags.apply(compile_options.pipeline);
  const auto twice = [&](const char* option, const std::string& argument) {
    console.error(
        fmt::format("{} gives '{}' a value twice", option, argument.substr(0, argument.find('='))));
    return kBadUsage;
  };
  for (const std::string& s : scalars) {
    const size_t before = options.scalars.size();
    if (!parse_scalar(s, options)) {
      console.error("--scalar wants NAME=VALUE or NAME=VALUE+, not '" + s + "'");
      return kBadUsage;
    }
    if (options.scalars.size() == before) return twice("--scalar", s);
  }
  for (const std::string& s : dims) {
    RunOptions one;
    if (!parse_scalar(s, one) || one.scalars.begin()->second.counts) {
      console.error("--dim wants NAME=VALUE, not '" + s + "'");
      return kBadUsage;
    }
    if (!options.dims.emplace(one.scalars.begin()->first, one.scalars.begin()->second.value).second)
      return twice("--dim", s);
  }
  session_options.timeout_ms =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::min(timeout, 1e9) * 1000));
  session_options.verbose = common.verbose;
  if (jitter_option->count()) session_options.jitter = jitter;
  if (replay_option->count()) {
    if (replayed.empty()) {
      console.error("--replay wants a seed or the file of a witness");
      return kBadUsage;
    }
    const bool seed = replayed.find_first_not_of("0123456789") == std::string::npos;
    if (!seed) witness_file = replayed;
    try {
      if (seed) session_options.replay = std::stoull(replayed);
    } catch (const std::out_of_range&) {
      console.error("--replay: the seed " + replayed + " is 2^64 or more");
      return kBadUsage;
    }
  }
  if (device == "cuda" &&
      (session_options.jitter || replay_option->count() || session_options.check_access)) {
    console.error("--jitter, --replay and --check-access are for --device cpu");
    return kBadUsage;
  }
  if (device == "cpu" && session_options.ranks_per_gpu != 1) {
    console.error("--ranks-per-gpu is for --device cuda");
    return kBadUsage;
  }

  std::string error;
  auto text = read_input(input, error);
  if (!text) {
    console.error(error);
    return kBadUsage;
  }
  if (is_program(*text)) {
    if (!witness_file.empty()) return replay_program(input, *text, witness_file, console);
    console.error("'" + input + "' is a Program: run its graph with --program " + input +
                  ", or show a witness of it with --replay WITNESS");
    return kBadUsage;
  }
  ir::Diagnostics diagnostics;
  std::optional<ir::Graph> graph;
  std::string kernel;
  if (text->rfind("//@maco ", 0) == 0 || text->find("\n//@maco ") != std::string::npos) {
    // A kernel of macoc's: everything needed is in it.
    auto result = ir::parse_manifest(*text);
    if (!result.manifest) {
      console.error(input + ": " + result.error);
      return kBadGraph;
    }
    std::string vain = flags.given(app);
    if (vain.empty() && app.count("--reparse") > 0) vain = "--reparse";
    if (vain.empty() && !program_file.empty()) vain = "--program";
    if (!vain.empty()) {
      console.error(fmt::format("'{}' is compiled already: {} is for graphs", input, vain));
      return kBadUsage;
    }
    if (result.edited) console.say("warning: " + input + " was edited after macoc wrote it");
    const int32_t file = diagnostics.add_file(input + " (its graph)", result.manifest->graph);
    graph = frontend::parse_dsl(file, diagnostics);
    if (graph && !check_manifest(*graph, *result.manifest, diagnostics)) graph.reset();
    // For the regions of --check-access, and what a witness shows: as macoc compiled it.
    if (!read_command_line(result.manifest->options, compile_options.pipeline)) {
      console.error(fmt::format(
          "{}: its manifest says that it was compiled with '{}', which this version doesn't know",
          input, result.manifest->options));
      return kBadGraph;
    }
    kernel = std::move(*text);
  } else {
    const int32_t file = diagnostics.add_file(input == "-" ? "<stdin>" : input, *text);
    graph = frontend::parse_graph(file, diagnostics);
    // The CPU has SMs of its own, unless the graph speaks of those of a GPU.
    if (graph && device == "cpu" && app.count("--target") + app.count("--board") == 0 &&
        !names_sms(*graph))
      compile_options.pipeline.target = "cpu";
  }
  if (!graph) {
    console.show(diagnostics);
    return kBadGraph;
  }
  if (!check_arguments(*graph, options, console)) return kBadUsage;

  std::optional<ir::Program> program;
  if (kernel.empty() || session_options.check_access || !witness_file.empty()) {
    const cost::Machine& machine =
        *cost::find_machine(compile_options.pipeline.target, compile_options.pipeline.board);
    if (const int ranks = session_options.ranks_per_gpu; ranks > 1) {
      int64_t& sms = compile_options.pipeline.sms;
      if (ranks > machine.sms || sms > machine.sms / ranks) {
        console.error(sms == 0
                          ? fmt::format("{} ranks share a GPU, but board '{}' has {} SMs", ranks,
                                        machine.board, machine.sms)
                          : fmt::format("{} ranks of {} SMs share a GPU, but board '{}' has {}",
                                        ranks, sms, machine.board, machine.sms));
        return kBadUsage;
      }
      if (sms == 0) sms = machine.sms / ranks;
    }
    if (!program_file.empty()) {
      const auto program_text = read_input(program_file, error);
      if (!program_text) {
        console.error(error);
        return kBadUsage;
      }
      program = ir::parse_program(diagnostics.add_file(program_file, *program_text), diagnostics);
      if (program && check_program(*graph, *program, compile_options.pipeline, diagnostics))
        kernel = emit_kernel(*graph, *program, compile_options.pipeline, diagnostics);
    } else {
      auto compiled = compile(*graph, compile_options, diagnostics, console);
      if (compiled) {
        program = std::move(compiled->program);
        if (kernel.empty()) kernel = std::move(compiled->kernel);
      }
    }
    console.show(diagnostics);
    if (!program || kernel.empty()) return kBadGraph;
  }

  std::optional<verify::Witness> witness;
  if (!witness_file.empty()) {
    int witness_status = kOk;
    if (program) witness = read_witness(witness_file, *program, console, witness_status);
    if (!witness) return witness_status;
  }

  const auto manifest = ir::parse_manifest(kernel).manifest;
  MACO_CHECK(manifest, "a kernel without its manifest");
  if (const std::string why = why_too_large(
          memory_need(*graph, *manifest, device == "cpu", options.check, options.dims),
          available_memory());
      !why.empty()) {
    console.error(why);
    return kRunFailed;
  }
  runtime::Status status;
  std::unique_ptr<runtime::Session> session;
  if (device == "cpu") {
    auto cpu = runtime::make_cpu_session(kernel, session_options, status);
    if (cpu && session_options.check_access) status = cpu->set_regions(*program);
    if (cpu && witness) return replay_kernel(*graph, *program, *cpu, *witness, options, console);
    session = std::move(cpu);
  } else {
    session = runtime::make_cuda_session(kernel, session_options, status);
  }
  if (!session || !status) {
    console.error(status.message);
    return kRunFailed;
  }
  return run_graph(*graph, *session, options, console);
}

}  // namespace
}  // namespace maco::tools

int main(int argc, char** argv) {
  return maco::tools::guarded("maco-run", maco::tools::run, argc, argv);
}
