// Imports checkpoints of Hugging Face: makes graphs and a table of weights.
#pragma once

#include <optional>
#include <string>

#include "compiler/frontend/huggingface/checkpoint.h"
#include "ir/diagnostics.h"

namespace maco::api {

using ImportOptions = frontend::huggingface::ImportOptions;
using ImportedModel = frontend::huggingface::ImportedModel;

/// Imports the checkpoint in `folder`. `architecture`: the path of an .arch file; "" means one in
/// the folder that knows the checkpoint's architecture, else MACO's own. Returns nothing, after
/// reporting, if the checkpoint can't be imported.
std::optional<ImportedModel> import_model(const std::string& folder,
                                          const std::string& architecture, ImportOptions options,
                                          ir::Diagnostics& diagnostics);

}  // namespace maco::api
