// What an op `cuda` says: a launch of a kernel of the user's (graph-format, "Added in 1.1").
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

/// Where a block's part of an axis begins and ends: expressions over bx, by and bz, the block's
/// place in the grid, and what a grid may use.
struct CudaRange {
  Expr begin, end;
};

/// What a block touches of a tensor: ranges of its first axes; the others are whole. It is clipped
/// to the tensor.
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
  /// Of `options`: folders of headers, relative to the graph's file, and macros, NAME or
  /// NAME=VALUE.
  std::vector<std::string> include_folders, defines;
  std::array<Expr, 3> grid;               // blocks along x, y and z, over rank, dims and scalars
  std::array<int64_t, 3> block{1, 1, 1};  // threads
  int64_t shared = 0;                     // dynamic shared memory of a block, in bytes
  std::vector<CudaArg> args;
  /// Of tensors that aren't touched as a whole.
  std::vector<CudaRegion> reads, writes;

  int64_t threads() const { return block[0] * block[1] * block[2]; }
  /// What the op says of a tensor, or nullptr.
  static const CudaRegion* find(const std::vector<CudaRegion>& regions, std::string_view tensor);
};

/// The words of `options`, as a shell has them: blanks separate, quotes of either kind and
/// backslashes keep them together. Nothing if a quote has no end.
std::optional<std::vector<std::string>> split_options(std::string_view text);
/// A word, quoted where split_options() would take it apart.
std::string option_word(const std::string& word);
/// The name of a macro NAME or NAME=VALUE; "" if it is neither.
std::string_view macro_name(std::string_view macro);

/// The most threads of a block and blocks along x, y and z: CUDA's own limits.
inline constexpr int64_t kMostCudaThreads = 1024;
inline constexpr std::array<int64_t, 3> kMostCudaBlock{1024, 1024, 64};
inline constexpr std::array<int64_t, 3> kMostCudaGrid{2147483647, 65535, 65535};

/// Reads the attributes of an op `cuda`. Nothing, having called `error` for each thing that is
/// wrong, if they don't make one.
std::optional<CudaOp> read_cuda_op(const Graph& graph, const Op& op,
                                   const std::function<void(Loc, std::string)>& error);
/// Whether an integer argument differs between launches and may not fit 32 bits, which is what a
/// kernel gets of a launch: it comes in two parts then, how often 2^32 goes into it, and the rest
/// less 2^31.
bool is_wide_argument(const Graph& graph, const Expr& e);
/// Of an op of an inferred graph.
CudaOp cuda_op(const Graph& graph, const Op& op);

}  // namespace maco::ir
