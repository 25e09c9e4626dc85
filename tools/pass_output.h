// What the command line asks to show of the passes: --print-after, --dump-dir, --time-passes.
#pragma once

#include <string>

#include "compiler/pipeline/manager.h"
#include "tools/driver.h"

namespace maco::tools {

struct PassOutput {
  std::string dump_dir;  // each stage into a numbered file of this folder; empty: none
  bool time_passes = false;

  /// Connects the passes' output: texts go to standard error, dumps into the folder, which is made
  /// if missing. Returns false, after reporting, if that fails.
  bool connect(passes::PipelineOptions& options, const Console& console) const;
  /// Prints the table of times, if requested.
  void show_times(const passes::PassLog& log) const;
};

/// After an error, adds a note: where the Program became wrong and how to see its previous state,
/// or how to find out. `input`: the user's name for the graph.
void add_notes(const passes::PassLog& log, const passes::PipelineOptions& options,
               const std::string& input, ir::Diagnostics& diagnostics);

}  // namespace maco::tools
