// The options that shape a kernel, as a command line.
#pragma once

#include <string>

#include "compiler/pipeline/options.h"

namespace maco::api {

/// "--target=sm_90a --no-fuse".
std::string command_line(const passes::PipelineOptions& options);
/// Reads the options whose command_line is `text`. Returns false, and leaves `options` as they
/// were, if `text` is no such command line.
bool read_command_line(const std::string& text, passes::PipelineOptions& options);

}  // namespace maco::api
