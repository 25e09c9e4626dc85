// What other projects call things. Used for hints in messages, never for meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace maco::ops {

/// A hint for a kind that isn't an op. For another project's name ("gemm") it is "; did you mean
/// 'matmul'?"; else it may say how to do without the op ("neg": "; write mul(x, value = -1)"). ""
/// if the kind is unknown.
std::string hint_for_op(std::string_view kind);
/// The hint for an unknown op.
inline constexpr const char* kOwnKernelHint =
    "; what no op computes, a CUDA kernel of your own can (docs/cuda-kernels.md)";
/// hint_for_op(), else ir::did_you_mean() among the ops, else kOwnKernelHint.
std::string near_op(std::string_view kind);
/// The op that other projects call `kind`, or "". Of a dotted name ("torch.mm") the last part
/// counts.
std::string synonym_of(std::string_view kind);
/// A hint for an attribute that op `kind` doesn't have.
std::string hint_for_attr(std::string_view kind, std::string_view attr);
/// The one of `candidates` that other projects call `word` ("float32": "f32"), or "".
std::string other_name(std::string_view word, const std::vector<std::string>& candidates);
/// other_name(), else ir::did_you_mean(): "; did you mean 'f32'?", or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
/// The names that hint_for_op() knows besides the ops' own, as it compares them.
std::vector<std::string> other_op_names();
/// All ops that graphs may have.
std::vector<std::string> op_kinds();

}  // namespace maco::ops
