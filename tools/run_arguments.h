// The command line of maco-run.
#pragma once

#include "tools/run_command.h"

namespace maco::tools {

/// Reads the command line. Returns the exit status if there is nothing to run, after printing or
/// reporting, else -1. Opens and writes no file.
int read_run_arguments(int argc, char** argv, RunCommand& command, Console& console);

}  // namespace maco::tools
