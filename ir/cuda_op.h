// The attributes of an op `cuda`, which launches a kernel of the user's (graph-format, "Added in
// 1.1").
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/graph.h"

namespace maco::ir {

/// Where a block's part of an axis begins and ends: expressions over bx, by and bz (the block's
/// place in the grid) and over the names that a grid may use.
struct CudaRange {
  Expr begin, end;
};

/// The part of a tensor that a block touches: ranges of its first axes; the other axes are whole.
/// The region is clipped to the tensor.
struct CudaRegion {
  std::string tensor;
  std::vector<CudaRange> ranges;
  Loc loc;
};

/// An argument of the kernel.
struct CudaArg {
  std::variant<TensorId, Expr, double> value;
  Loc loc;
  const TensorId* tensor() const { return std::get_if<TensorId>(&value); }
};

struct CudaOp {
  std::string source, kernel;
  std::vector<std::string> template_args;  // as C++ has them
  /// From `options`: folders of headers, relative to the graph's file, and macros, NAME or
  /// NAME=VALUE.
  std::vector<std::string> include_folders, defines;
  std::array<Expr, 3> grid;               // blocks along x, y and z, over rank, dims and scalars
  std::array<int64_t, 3> block{1, 1, 1};  // threads
  int64_t shared = 0;                     // dynamic shared memory of a block, in bytes
  std::vector<CudaArg> args;
  /// Regions of the tensors that a block doesn't touch as a whole.
  std::vector<CudaRegion> reads, writes;

  int64_t threads() const { return block[0] * block[1] * block[2]; }
  /// The region that the op names for a tensor, or nullptr.
  static const CudaRegion* find(const std::vector<CudaRegion>& regions, std::string_view tensor);
};

/// Splits `options` into words as a shell does: blanks separate words; quotes of either kind and
/// backslashes keep blanks inside a word. Nothing if a quote isn't closed.
std::optional<std::vector<std::string>> split_options(std::string_view text);
/// A word, quoted where split_options() would split it.
std::string option_word(const std::string& word);
/// The name in a macro NAME or NAME=VALUE; "" if the text is neither.
std::string_view macro_name(std::string_view macro);

/// CUDA's own limits: the threads of a block, and its threads along x, y and z.
inline constexpr int64_t kMostCudaThreads = 1024;
inline constexpr std::array<int64_t, 3> kMostCudaBlock{1024, 1024, 64};
inline constexpr std::array<int64_t, 3> kMostCudaGrid{2147483647, 65535, 65535};

/// Reads the attributes of an op `cuda`. Returns nothing if they are wrong, after calling `error`
/// for each fault.
std::optional<CudaOp> read_cuda_op(const Graph& graph, const Op& op,
                                   const std::function<void(Loc, std::string)>& error);
/// Whether an integer argument differs between launches and may not fit 32 bits, the size of a
/// launch's values. The kernel then gets it in two parts: the quotient by 2^32, and the remainder
/// less 2^31.
bool is_wide_argument(const Graph& graph, const Expr& e);
/// The CudaOp of an op of an inferred graph.
CudaOp cuda_op(const Graph& graph, const Op& op);

}  // namespace maco::ir
