#include "tools/run_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "ir/ranks.h"
#include "tools/options.h"

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

/// "pos=17" or "pos=17+", into `options.scalars`.
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

/// "3,1,4"; nothing if it is something else.
std::optional<std::vector<int64_t>> parse_ids(const std::string& text) {
  std::vector<int64_t> ids;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    int64_t id = 0;
    const auto [last, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || last != text.data() + end || end + 1 == text.size())
      return std::nullopt;
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

/// The command line as written; read_values and check make a RunCommand of it.
struct Arguments {
  CommonOptions common;
  PipelineFlags flags;
  RunCommand command;
  std::vector<std::string> scalars, dims;
  double timeout = 30;
  uint64_t jitter = 0;
  bool jittered = false, replayed = false;
  std::string tokens;
  int64_t max_new_tokens = 0;
  std::string replay;  // a seed, or the file of a witness
};

void add_run_options(CLI::App& app, Arguments& a) {
  RunOptions& run = a.command.run;
  app.add_option("--inputs", run.inputs,
                 "safetensors to bind by name; {rank} is replaced by the rank; may be repeated")
      ->option_text("FILE")
      ->allow_extra_args(false);
  app.add_flag("--require-inputs", run.require_inputs,
               "an input or param that no file binds is an error, not random");
  app.add_option("--outputs", run.outputs, "safetensors to write outputs and states to, likewise")
      ->option_text("FILE");
  app.add_option("--seed", run.seed, "of the values of what no file binds")
      ->option_text("N")
      ->check(unsigned_number());
  app.add_option("--scalar", a.scalars, "a scalar's value; VALUE+ for one more each launch")
      ->option_text("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--dim", a.dims, "a dim's value; the maximum if not given")
      ->option_text("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--launches", run.launches, "how often to launch; states are kept")
      ->option_text("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_flag("--check", run.check,
               "compare every output and state with the reference after every launch");
  app.add_option("--rtol", run.rtol, "the bound of --check, for floats")
      ->option_text("NUMBER")
      ->check(number_from(0, false));
  app.add_option("--bench", run.bench, "then report the median time of so many further launches")
      ->option_text("N")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--profile", a.command.profile_file,
                 "trace the last launch for Perfetto (-: no trace), print where time went")
      ->option_text("FILE");
}

void add_model_options(CLI::App& app, Arguments& a) {
  app.add_option("--weights", a.command.weights_folder,
                 "params from a checkpoint's folder, as weights.json beside the graph says")
      ->option_text("FOLDER");
  app.add_option("--kind", a.command.kind,
                 "of a folder's graphs: decode (the default), prefill, verify")
      ->option_text("KIND")
      ->check(one_of({"decode", "prefill", "verify"}));
  app.add_option("--tokens", a.tokens,
                 "a prompt of ids for a folder's graphs; prints those that follow")
      ->option_text("ID,...");
  app.add_option("--max-new-tokens", a.max_new_tokens,
                 "how many at most, if no end and no full cache comes first")
      ->option_text("N")
      ->check(positive_number());
}

void add_session_options(CLI::App& app, Arguments& a) {
  runtime::SessionOptions& session = a.command.session;
  app.add_option("--timeout", a.timeout,
                 "without progress, after which a wait is given up at the earliest (30)")
      ->option_text("SECONDS")
      ->check(number_from(0, true));
  app.add_option("--ranks-per-gpu", session.ranks_per_gpu, "ranks that share a GPU's SMs")
      ->option_text("N")
      ->check(CLI::Range(1, static_cast<int>(ir::kMaxWorld)));
  app.add_flag("--processes", a.command.processes, "start a process for each rank");
  app.add_option("--peer-memory", a.command.peer_memory,
                 "auto, threads or processes; nccl or nvshmem: their memory")
      ->option_text("HOW")
      ->check(one_of({"auto", "threads", "processes", "nccl", "nvshmem"}));
  auto* jitter = app.add_option("--jitter", a.jitter, "CPU: random delays from this seed")
                     ->option_text("SEED")
                     ->check(unsigned_number());
  app.add_option("--replay", a.replay,
                 "CPU: in the order of a seed; or what a witness says (else status 3)")
      ->option_text("SEED|FILE")
      ->excludes(jitter);
  app.add_flag("--check-access", session.check_access,
               "CPU: hold tasks to their declared regions; name one that crashes or hangs");
  app.add_option("--first-epoch", session.first_epoch,
                 "number of the first launch (counters wrap at 2^32)")
      ->option_text("N")
      ->check(unsigned_number());
}

/// Reads the values of --scalar and --dim. Returns what is wrong with them, or "".
std::string read_values(Arguments& a) {
  RunOptions& run = a.command.run;
  const auto twice = [](const char* option, const std::string& argument) {
    return fmt::format("{} gives '{}' a value twice", option,
                       argument.substr(0, argument.find('=')));
  };
  for (const std::string& s : a.scalars) {
    const size_t before = run.scalars.size();
    if (!parse_scalar(s, run)) return "--scalar wants NAME=VALUE or NAME=VALUE+, not '" + s + "'";
    if (run.scalars.size() == before) return twice("--scalar", s);
  }
  for (const std::string& s : a.dims) {
    RunOptions one;
    if (!parse_scalar(s, one) || one.scalars.begin()->second.counts)
      return "--dim wants NAME=VALUE, not '" + s + "'";
    if (!run.dims.emplace(one.scalars.begin()->first, one.scalars.begin()->second.value).second)
      return twice("--dim", s);
  }
  return "";
}

/// Reads how the ranks run. Returns what is wrong with that, or "".
std::string read_session(Arguments& a) {
  RunCommand& command = a.command;
  runtime::SessionOptions& session = command.session;
  session.timeout_ms =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::min(a.timeout, 1e9) * 1000));
  session.verbose = a.common.verbose;
  if (a.jittered) session.jitter = a.jitter;
  if (a.replayed) {
    if (a.replay.empty()) return "--replay wants a seed or the file of a witness";
    const bool seed = a.replay.find_first_not_of("0123456789") == std::string::npos;
    if (!seed) command.witness_file = a.replay;
    try {
      if (seed) session.replay = std::stoull(a.replay);
    } catch (const std::out_of_range&) {
      return "--replay: the seed " + a.replay + " is 2^64 or more";
    }
  }
  if (command.device == "cuda" && (a.jittered || a.replayed || session.check_access))
    return "--jitter, --replay and --check-access are for --device cpu";
  if (!command.profile_file.empty() && a.replayed)
    return "--profile wants real time, and with --replay there is none";
  if (command.device == "cpu" && session.ranks_per_gpu != 1)
    return "--ranks-per-gpu is for --device cuda";
  if (command.processes && command.input == "-")
    return "--processes wants a file: several processes can't read standard input";
  if (command.processes && command.peer_memory == "threads")
    return "--processes and --peer-memory threads contradict each other";
  if (command.provider_of_memory() && command.device == "cpu")
    return "--peer-memory " + command.peer_memory + " is for GPUs";
  return "";
}

/// Reads --weights and --tokens. Returns what is wrong with them, or "".
std::string read_model(const CLI::App& app, Arguments& a) {
  RunCommand& command = a.command;
  if (app.count("--weights") > 0 && command.weights_folder.empty())
    return "--weights wants the folder of a checkpoint";
  if (!command.weights_folder.empty() && command.input == "-")
    return "--weights wants a file or a folder: weights.json lies beside the graph";
  if (!command.weights_folder.empty() && !command.witness_file.empty())
    return "--weights is in vain with a witness, whose replay fills all tensors itself";
  if (app.count("--tokens") == 0)
    return app.count("--max-new-tokens") > 0 ? "--max-new-tokens is for --tokens" : "";
  if (command.weights_folder.empty()) return "--tokens wants the checkpoint: --weights FOLDER";
  for (const char* option : {"--kind", "--inputs", "--require-inputs", "--outputs", "--seed",
                             "--scalar", "--dim", "--launches", "--check", "--rtol", "--bench",
                             "--profile", "--replay", "--check-access", "--program"})
    if (app.count(option) > 0)
      return fmt::format("--tokens runs a model's prefill and decode: {} is for one graph", option);
  const auto ids = parse_ids(a.tokens);
  if (!ids) return "--tokens wants ids with commas between them, not '" + a.tokens + "'";
  if (ids->empty()) return "--tokens: the prompt is empty";
  command.model = ModelOptions{*ids, a.max_new_tokens};
  return "";
}

int read_arguments(int argc, char** argv, Arguments& a) {
  RunCommand& command = a.command;
  CLI::App app(
      "Compiles a task graph, launches it on all ranks and checks it.\n"
      "  maco-run tp_mlp.json --device cpu --check\n"
      "  maco-run kernel.cu --device cuda --inputs in.{rank}.safetensors --outputs "
      "out.{rank}.safetensors\n"
      "  maco-run llama --weights Llama-3.2-1B --tokens 128000,791,3363\n",
      "maco-run");
  app.add_option(
      "graph", command.input,
      "a .json or .maco graph, a kernel.cu of macoc's, a folder that macoc import wrote, - "
      "for standard input");
  app.add_option("--device", command.device, "where to run: cuda (the default) or cpu")
      ->option_text("NAME")
      ->check(one_of({"cpu", "cuda"}, {{"gpu", "cuda"}, {"nvidia", "cuda"}, {"host", "cpu"}}));
  add_run_options(app, a);
  add_model_options(app, a);
  add_session_options(app, a);
  app.add_option("--program", command.program_file,
                 "run this Program instead of the compiler's; a kernel.cu is held to it")
      ->option_text("FILE");
  a.flags.add(app, command.compile);
  app.add_flag("--reparse", command.compile.reparse, "print and parse the IR between all passes");
  a.common.add(app);
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  if (const int status = a.common.ended(); status >= 0) return status;
  a.flags.apply(command.compile);
  a.jittered = app.count("--jitter") > 0;
  a.replayed = app.count("--replay") > 0;
  command.machine_given = app.count("--target") + app.count("--board") > 0;
  command.for_graphs = a.flags.given(app);
  if (command.for_graphs.empty() && app.count("--reparse") > 0) command.for_graphs = "--reparse";
  std::string wrong = command.input.empty() ? "no graph given; try maco-run --help" : "";
  if (wrong.empty()) wrong = read_values(a);
  if (wrong.empty()) wrong = read_session(a);
  if (wrong.empty()) wrong = read_model(app, a);
  if (wrong.empty()) return -1;
  a.common.console().error(wrong);
  return kBadUsage;
}

}  // namespace

int read_run_arguments(int argc, char** argv, RunCommand& command, Console& console) {
  Arguments a;
  // The arguments with which a rank's process is started.
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) != "--processes") a.command.arguments.emplace_back(argv[i]);
  if (const int status = read_arguments(argc, argv, a); status >= 0) return status;
  command = std::move(a.command);
  console = a.common.console();
  return -1;
}

}  // namespace maco::tools
