// The options that shape a kernel, as they would be typed.
#pragma once

#include <string>

#include "compiler/passes/options.h"

namespace maco::api {

/// "--target=sm_90a --no-fuse".
std::string command_line(const passes::PipelineOptions& options);
/// The options whose command_line is `text`; false, and `options` as they were, if it is that of
/// none.
bool read_command_line(const std::string& text, passes::PipelineOptions& options);

}  // namespace maco::api
