// Hugging Face checkpoints as task graphs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "maco/graph.h"
#include "maco/result.h"

namespace maco {

struct ModelOptions {
  int world = 1;               // ranks that share the model
  std::optional<DType> dtype;  // f32, f16 or bf16; default: the checkpoint's
  int64_t max_seq = 0;         // rows of the caches; 0: 4096, or the model's maximum
  int64_t chunk = 0;           // the most rows of a prefill launch; 0: 512, or max_seq
  int64_t verify_rows = 0;     // rows of a verify launch; 0: 8, or max_seq
  /// Path of an .arch file; "": one in the checkpoint's folder, or MACO's own.
  std::string architecture = {};
};

/// The graphs of a model, which share params and states by name, and which bytes of the checkpoint
/// go where (docs/models.md).
struct Model {
  std::map<std::string, std::string> graphs;  // texts: decode, prefill, verify
  std::string weights;                        // weights.json, for Session::load
};

/// Imports a folder with config.json and safetensors, of which it reads the headers. What it
/// doesn't support is an Error that names it.
MACO_API Result<Model> import_model(const std::string& folder, const ModelOptions& options = {});

}  // namespace maco
