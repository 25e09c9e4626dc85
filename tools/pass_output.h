// What the command line asks to see of the passes: --print-after, --dump-dir, --time-passes.
#pragma once

#include <string>

#include "compiler/passes/manager.h"
#include "tools/driver.h"

namespace maco::tools {

struct PassOutput {
  std::string dump_dir;  // each stage into a numbered file of this folder; empty: none
  bool time_passes = false;

  /// Makes the passes write where they are told: texts to standard error, dumps into the folder,
  /// which is made if it isn't there. False, having reported, if it can't be.
  bool connect(passes::PipelineOptions& options, const Console& console) const;
  /// The table of times, if it was asked for.
  void show_times(const passes::PassLog& log) const;
};

/// After an error, where the Program turned wrong and how to see what was there before, as a note;
/// or how to find out. `input`: what the user called the graph.
void add_notes(const passes::PassLog& log, const passes::PipelineOptions& options,
               const std::string& input, ir::Diagnostics& diagnostics);

}  // namespace maco::tools
