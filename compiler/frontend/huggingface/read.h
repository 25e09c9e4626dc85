// A folder of Hugging Face's, as far as an importer needs it: JSON, and the headers of its files of
// tensors.
#pragma once

#include <string>

#include "compiler/frontend/huggingface/checkpoint.h"

namespace maco::frontend::huggingface {

/// Reads config.json, generation_config.json if it is there, and the header of model.safetensors,
/// or of each file that model.safetensors.index.json names. The message of what is wrong, or "".
std::string read_checkpoint(const std::string& folder, Checkpoint& checkpoint);

}  // namespace maco::frontend::huggingface
