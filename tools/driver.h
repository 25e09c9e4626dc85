// What the tools share: exit statuses, messages, reading inputs.
#pragma once

#include <optional>
#include <string>

#include "ir/diagnostics.h"

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

/// How messages are written. Products go to standard output or a file, everything else to standard
/// error.
struct Console {
  bool color = false;
  bool quiet = false;  // errors only
  bool verbose = false;
  int max_errors = 20;    // how many of a graph's are shown; 0: all
  int max_warnings = 20;  // of each kind
  void show(const ir::Diagnostics& diagnostics) const;
  void error(const std::string& message) const;   // "error: ..."
  void say(const std::string& message) const;     // unless quiet
  void detail(const std::string& message) const;  // if verbose
};
/// "auto", "always", "never"; NO_COLOR and a standard error that is no terminal turn auto off.
bool use_color(const std::string& mode);

/// The whole content of a file; "-" is standard input. Nothing if it can't be read (`error` says
/// why).
std::optional<std::string> read_input(const std::string& path, std::string& error);
/// The file's name in diagnostics: "<stdin>" for "-".
std::string input_name(const std::string& path);

/// Whether the file is CUDA source, by its name and text, and not written by macoc.
bool is_cuda_source(const std::string& name, const std::string& text);
/// Whether macoc wrote the text, as kernel.cu.
bool is_kernel(const std::string& text);
/// Describes a file that isn't a graph, and says who takes it: a kernel of macoc's, CUDA source, a
/// plan of MSCCL++'s. "": it may be a graph.
std::string other_file(const std::string& name, const std::string& text);
/// The message for a dump given where a graph is wanted; `made`: from api::passes_made.
std::string dump_text(const std::string& name, const std::string& made);

/// Runs `main`, turning exceptions into status 70 with how to report them.
int guarded(const char* tool, int (*main)(int, char**), int argc, char** argv);

}  // namespace maco::tools
