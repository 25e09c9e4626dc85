// The families of ops, one a file.
#pragma once

#include <vector>

#include "runtime/reference/op.h"

namespace maco::reference {

std::vector<OpEntry> matmul_entries();
std::vector<OpEntry> elementwise_entries();
std::vector<OpEntry> norm_entries();
std::vector<OpEntry> rope_entries();
std::vector<OpEntry> attention_entries();
std::vector<OpEntry> embedding_entries();
std::vector<OpEntry> reduction_entries();
std::vector<OpEntry> movement_entries();
std::vector<OpEntry> collective_entries();
std::vector<OpEntry> cuda_entries();

/// Shared by elementwise ops and matmul's `activation`: relu, silu, gelu, sigmoid, tanh, exp. NaN
/// stays NaN.
double apply_unary(std::string_view function, double x);

}  // namespace maco::reference
