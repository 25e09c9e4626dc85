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

bool is_comparison(std::string_view kind);
/// The number with which a comparison compares, if it has no second operand.
std::vector<double> compared_number(const ir::Op& op);

/// Shared by elementwise ops and matmul's `activation`: the functions of one float. NaN stays NaN.
double apply_unary(std::string_view function, double x);

}  // namespace maco::reference
