// An .arch file, for a checkpoint with some tensors; or, where it begins with '{', a config.json
// for all architectures that MACO has.
#include <nlohmann/json.hpp>

#include "compiler/frontend/huggingface/architecture.h"
#include "compiler/frontend/huggingface/checkpoint.h"
#include "tests/inputs/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace maco;
  namespace huggingface = frontend::huggingface;
  const std::string text = inputs::text_of(data, size);
  huggingface::Checkpoint checkpoint;
  checkpoint.files = {{"model.safetensors", 1 << 20}};
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
                           "model.layers.0.mlp.up_proj.weight"})
    checkpoint.sources[name] = {.dtype = "F32", .shape = {64, 32}, .file = 0, .begin = 4096};
  huggingface::ImportOptions options;
  options.world = 2;
  options.max_seq = 64;
  if (text.starts_with("{")) {
    checkpoint.config = text;
  } else {
    const auto names = huggingface::architectures_of(text);
    nlohmann::json config = {{"architectures", {names.empty() ? "Mine" : names[0]}},
                             {"hidden_size", 32},
                             {"intermediate_size", 48},
                             {"num_hidden_layers", 2},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"vocab_size", 64},
                             {"hidden_act", "silu"},
                             {"rope_theta", 10000.0},
                             {"head_dim", 8},
                             {"max_position_embeddings", 128}};
    checkpoint.config = config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    options.own = {{"mine.arch", text}};
  }
  ir::Diagnostics diagnostics;
  const auto model = huggingface::import_checkpoint(checkpoint, options, diagnostics);
  inputs::require(model.has_value() != diagnostics.has_errors(), "what is refused has a reason");
  return 0;
}
