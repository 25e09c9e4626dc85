// maco-run: compiles a graph (or takes a kernel.cu), launches it and checks it.
#include "tools/run_arguments.h"

namespace maco::tools {
namespace {

int run(int argc, char** argv) {
  RunCommand command;
  Console console;
  if (const int status = read_run_arguments(argc, argv, command, console); status >= 0)
    return status;
  return run_command(std::move(command), console);
}

}  // namespace
}  // namespace maco::tools

int main(int argc, char** argv) {
  return maco::tools::guarded("maco-run", maco::tools::run, argc, argv);
}
