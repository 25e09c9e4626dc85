// What the tools share: reading inputs, compiling, reporting, writing products.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/passes/pipeline.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/manifest.h"
#include "ir/program.h"

namespace maco::tools {

/// Exit statuses of every tool.
enum Exit : int {
  kOk = 0,
  kBadGraph = 1,
  kBadUsage = 2,
  kCheckFailed = 3,
  kRunFailed = 4,
  kBug = 70
};

inline constexpr const char* kVersion = "0.1.0";

/// How messages are written. Products go to standard output or a file, everything else to standard
/// error.
struct Console {
  bool color = false;
  bool quiet = false;  // errors only
  bool verbose = false;
  void show(const ir::Diagnostics& diagnostics) const;
  void error(const std::string& message) const;   // "error: ..."
  void say(const std::string& message) const;     // unless quiet
  void detail(const std::string& message) const;  // if verbose
};
/// "auto", "always", "never"; NO_COLOR and a standard error that is no terminal turn auto off.
bool use_color(const std::string& mode);

/// The whole of a file; "-" is standard input. Nothing if it can't be read (`error` says why).
std::optional<std::string> read_input(const std::string& path, std::string& error);
/// Whether a text is that of a Program: it begins with the word `program`, behind comments.
bool is_program(const std::string& text);

struct CompileOptions {
  passes::PipelineOptions pipeline;
  std::vector<std::string> print_after;  // names of passes, or "all"
  bool print_changed = false;            // print after a pass only if it changed something
  // each stage into a numbered file of this folder, which is there
  std::string dump_dir;
  bool reparse = false;  // print and parse the IR between all passes
  bool time_passes = false;
  bool report = false;
  // what the user called the graph, for the command that shows a state
  std::string input;
};

struct Compiled {
  ir::Graph graph;      // the user's, inferred
  ir::Program program;  // synced
  std::string kernel;   // kernel.cu
  std::map<std::string, int64_t> statistics;
};

/// The options that shape a kernel, as they would be typed.
std::string command_line(const passes::PipelineOptions& options);
/// The options whose command_line is `text`; false if it is that of none.
bool read_command_line(const std::string& text, passes::PipelineOptions& options);

/// Runs the pipeline with the dumps that were asked for (on standard error) and emits the kernel.
/// Nothing if an error was reported.
std::optional<Compiled> compile(const ir::Graph& graph, const CompileOptions& options,
                                ir::Diagnostics& diagnostics, const Console& console);

/// Whether a Program that the compiler didn't make of `graph` here can become its kernel: synced,
/// for as many ranks, over the graph's tensors and values, of device functions that there are.
/// Reports if not. Whether it is right is the verifier's.
bool check_program(const ir::Graph& graph, const ir::Program& program,
                   const passes::PipelineOptions& options, ir::Diagnostics& diagnostics);

/// Whether a kernel's manifest, which anybody may have edited, is still that of the graph in it.
/// Reports if not.
bool check_manifest(const ir::Graph& graph, const ir::Manifest& manifest,
                    ir::Diagnostics& diagnostics);

/// kernel.cu of a synced Program, "" if an error was reported. The Program is taken as it is: run
/// the verifier first.
std::string emit_kernel(const ir::Graph& graph, const ir::Program& program,
                        const passes::PipelineOptions& options, ir::Diagnostics& diagnostics);

/// Text of what stands between two passes.
std::string to_text(const passes::Unit& unit);

/// The table of SM roles, tasks by kind, waits inserted and pruned, bytes planned.
std::string report(const Compiled& compiled);

/// Runs `main`, turning exceptions into status 70 with how to report them.
int guarded(const char* tool, int (*main)(int, char**), int argc, char** argv);

}  // namespace maco::tools
