// What maco-run does after reading its command line: compiles or takes a kernel, starts the ranks,
// and runs it or follows a witness.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "runtime/host/session.h"
#include "tools/driver.h"
#include "tools/run_graph.h"
#include "tools/run_model.h"

namespace maco::tools {

struct RunCommand {
  std::string input;  // a graph, a kernel.cu, a folder of graphs, or with a witness a Program
  std::string kind;   // which graph of a folder; empty: decode
  std::string weights_folder;         // the checkpoint's; empty: params are random or from --inputs
  std::optional<ModelOptions> model;  // a prompt for the graphs of a folder
  std::string device = "cuda";        // or "cpu"
  /// Replaces the compiler's Program, or gives the regions of a kernel.cu; empty: none.
  std::string program_file;
  std::string witness_file;  // to follow; empty: none
  std::string profile_file;  // for the last launch's trace; "-": a table only; empty: no profile
  api::Options compile;
  bool machine_given = false;  // --target or --board
  std::string for_graphs;      // an option without effect for a kernel.cu; empty: none given
  bool processes = false;      // start one for each rank
  /// "threads" or "processes" run the ranks; "nccl" or "nvshmem" provide their memory.
  std::string peer_memory = "auto";
  bool provider_of_memory() const { return peer_memory == "nccl" || peer_memory == "nvshmem"; }
  std::vector<std::string> arguments;  // for those processes: all but --processes
  RunOptions run;
  runtime::SessionOptions session;
};

/// Returns the tool's exit status, after reporting.
int run_command(RunCommand command, const Console& console);

}  // namespace maco::tools
