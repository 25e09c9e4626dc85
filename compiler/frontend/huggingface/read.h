// Reads a Hugging Face folder as far as an importer needs it: JSON, and the headers of its tensor
// files.
#pragma once

#include <string>

#include "compiler/frontend/huggingface/checkpoint.h"

namespace maco::frontend::huggingface {

/// Reads config.json, generation_config.json if present, and the header of model.safetensors, or of
/// each file that model.safetensors.index.json names. Returns "", or a message about what is wrong.
std::string read_checkpoint(const std::string& folder, Checkpoint& checkpoint);

}  // namespace maco::frontend::huggingface
