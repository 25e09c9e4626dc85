// Checkpoints of Hugging Face's in, graphs and a table of weights out.
#pragma once

#include <optional>
#include <string>

#include "compiler/frontend/huggingface/checkpoint.h"
#include "ir/diagnostics.h"

namespace maco::api {

using ImportOptions = frontend::huggingface::ImportOptions;
using ImportedModel = frontend::huggingface::ImportedModel;

/// Imports the checkpoint in `folder`. `architecture`: the path of an .arch file, or "": any that
/// lies in the folder and knows the checkpoint's architecture, else the one that MACO has. Nothing,
/// having reported, if that can't be.
std::optional<ImportedModel> import_model(const std::string& folder,
                                          const std::string& architecture, ImportOptions options,
                                          ir::Diagnostics& diagnostics);

}  // namespace maco::api
