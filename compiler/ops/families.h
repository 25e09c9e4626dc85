// The families of ops, one function a file. registry.cpp puts them into the table that the rest of
// the compiler uses.
#pragma once

#include <vector>

#include "compiler/ops/op.h"

namespace maco::ops {

std::vector<OpDef> matmul_ops();
std::vector<OpDef> elementwise_ops();
std::vector<OpDef> norm_ops();
std::vector<OpDef> softmax_ops();
std::vector<OpDef> rope_ops();
std::vector<OpDef> attention_ops();
std::vector<OpDef> attention_step_ops();
std::vector<OpDef> kv_append_ops();
std::vector<OpDef> embedding_ops();
std::vector<OpDef> reduction_ops();
std::vector<OpDef> movement_ops();
std::vector<OpDef> collective_ops();
std::vector<OpDef> cuda_ops();

}  // namespace maco::ops
