// The ways in which config.json scales rotary embeddings, as attributes of the op `rope`.
#pragma once

#include <cstdint>

#include "compiler/frontend/huggingface/expression.h"

namespace maco::frontend::huggingface {

/// What an op `rope` over heads of `head_dim` needs: an object with
///   values      a list of frequencies for its operand `frequencies`, or null if theta gives them
///   attributes  the text of its attributes, each behind a comma: ", theta = 10000"
/// `parameters` is an object of config.json's or "default"; `theta` stands for what they don't say.
/// If null, rope_scaling or rope_parameters of `config` are used, and its rope_theta. `max_seq`:
/// rows of the caches; it decides between frequencies for short and for long texts. Throws a Wrong
/// if there is no such kind of rotary embedding. The formulas are those of transformers'
/// modeling_rope_utils.
Value rope_of(const Value& config, int64_t head_dim, const Value& theta, const Value& parameters,
              int64_t max_seq);

}  // namespace maco::frontend::huggingface
