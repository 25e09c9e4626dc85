// The command line of macoc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "compiler/api/compile.h"
#include "compiler/api/import_model.h"
#include "tools/driver.h"
#include "tools/pass_output.h"

namespace maco::tools {

struct CompileArguments {
  Console console;
  PassOutput passes;
  api::Options options;
  std::string input, output = "-", emit = "cuda";
  std::string explained;  // the op to explain
  std::string profile;    // a trace with its times
  std::string kernel;     // the kernel of a CUDA source
  bool report = false;
};

/// The arguments of macoc import.
struct ImportArguments {
  Console console;
  std::string input, output;       // "": not given
  int64_t elements = 0;            // 0: not given
  std::optional<ir::DType> dtype;  // for plans and checkpoints
  api::ImportOptions model;        // for a checkpoint
  std::string architecture;        // path of an .arch file
  bool is_folder = false;          // a checkpoint, not a plan
};
int read_import_arguments(int argc, char** argv, ImportArguments& arguments);

/// Reads the command line. Returns the exit status if there is nothing to compile, after printing
/// or reporting, else -1. Opens and writes no file.
int read_compile_arguments(int argc, char** argv, CompileArguments& arguments);

}  // namespace maco::tools
