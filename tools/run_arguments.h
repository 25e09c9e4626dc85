// The command line of maco-run.
#pragma once

#include "tools/run_command.h"

namespace maco::tools {

/// Reads it. The exit status if there is nothing to run, having printed or reported what there is
/// to say, else -1. Opens and writes no file.
int read_run_arguments(int argc, char** argv, RunCommand& command, Console& console);

}  // namespace maco::tools
