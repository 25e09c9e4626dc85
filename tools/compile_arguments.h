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
  std::string explained;  // an op
  std::string profile;    // of which a trace says more
  std::string kernel;     // of a CUDA source
  bool report = false;
};

/// Of macoc import.
struct ImportArguments {
  Console console;
  std::string input, output;       // "": not said
  int64_t elements = 0;            // 0: not said
  std::optional<ir::DType> dtype;  // of either
  api::ImportOptions model;        // of a checkpoint
  std::string architecture;        // path of an .arch file
  bool is_folder = false;          // a checkpoint, not a plan
};
int read_import_arguments(int argc, char** argv, ImportArguments& arguments);

/// Reads it. The exit status if there is nothing to compile, having printed or reported what there
/// is to say, else -1. Opens and writes no file.
int read_compile_arguments(int argc, char** argv, CompileArguments& arguments);

}  // namespace maco::tools
