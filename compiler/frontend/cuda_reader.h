// The interface between the frontend and the reader of CUDA (clang_reader.cpp). The reader is a
// shared object of its own, so that MACO starts and builds without Clang. A request is about one
// use of one kernel.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/dtype.h"

namespace maco::frontend::cuda {

/// An argument as the graph passes it.
struct KernelArg {
  enum class Kind : uint8_t { Tensor, Integer, Number };
  Kind kind = Kind::Integer;
  // Tensor:
  std::string name;
  ir::DType dtype = ir::DType::F32;
  std::vector<int64_t> shape;          // the largest extents
  bool read = false, written = false;  // whether it is in `in`, in `out`
  // Number; and Integer, if every launch has the same value:
  double number = 0;
  std::optional<int64_t> integer;
  int64_t least = 1, most = 0;  // over all launches; most < least: unknown
  /// Integer: the value may not fit 32 bits, and comes in two parts: the quotient by 2^32, and the
  /// remainder less 2^31.
  bool wide = false;
};

/// What one block of a sample may touch of a tensor, by the argument's index; tensors without
/// limits are left out. Extents are clipped to the tensor.
struct BlockRegion {
  size_t arg = 0;
  bool writes = false;
  std::vector<std::array<int64_t, 2>> ranges;
};
struct BlockSample {
  std::array<int64_t, 3> block{}, grid{};
  std::vector<BlockRegion> regions;
};

/// The first block of a grid, the last, and some between.
inline std::set<std::array<int64_t, 3>> sample_blocks(const std::array<int64_t, 3>& grid) {
  std::set<std::array<int64_t, 3>> blocks;
  for (const int64_t x : {int64_t{0}, grid[0] / 2, grid[0] - 1})
    for (const int64_t y : {int64_t{0}, grid[1] / 2, grid[1] - 1})
      for (const int64_t z : {int64_t{0}, grid[2] - 1}) blocks.insert({x, y, z});
  return blocks;
}

struct KernelRequest {
  /// Only KernelReply::shape is wanted, for `kernel` or, if that is "", for the file's only kernel.
  bool shape_only = false;
  std::string path;    // of the source
  std::string kernel;  // its name, with namespaces or without
  std::vector<std::string> template_args;
  std::array<int64_t, 3> block{1, 1, 1};
  int64_t shared = 0;
  std::vector<KernelArg> args;
  std::vector<BlockSample> samples;                   // blocks whose accesses are checked
  int arch = 90;                                      // of the GPU; 0: the CPU target
  std::string cuda_folder;                            // the toolkit, or "" if there is none
  std::vector<std::string> include_folders, defines;  // from the command line: -I, -D
};

/// An error at a place of a source; an empty `file` means the use in the graph.
struct KernelError {
  /// If `file` is empty: which part of the use in the graph is wrong, an attribute by its name or,
  /// with `arg`, that argument.
  std::string attribute;
  std::optional<size_t> arg;
  std::string file;
  int32_t line = 0, column = 0, length = 1;
  std::string message;
  bool note = false;
};

/// What a kernel's declaration says, and guesses of what its launches say.
struct KernelShape {
  struct Parameter {
    std::string name, type;
    enum class Kind : uint8_t { Tensor, Integer, Number, Other };
    Kind kind = Kind::Other;
    bool written = false;            // Tensor: whether it may be written
    bool updated = false;            // Tensor: whether it is read before it is written
    std::optional<ir::DType> dtype;  // Tensor: the elements' dtype, if they have one
    int64_t number = 1024;           // Integer: a value; Tensor: elements
    int64_t most = INT64_MAX;        // Integer: the largest number that may be guessed
  };
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<std::string> template_parameters;
  std::vector<std::string> template_args;  // of the instance; empty: unknown
  std::array<int64_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  bool launched = false;  // whether the block is that of a launch in the file
  int64_t shared = 0;     // dynamic shared memory in bytes
};

struct KernelReply {
  std::vector<KernelError> errors, warnings;
  std::string original, device;  // see ir::CudaUnit
  int64_t static_shared = 0;     // bytes of a block
  std::optional<KernelShape> shape;
  bool read = false;  // whether the file was read to its end
};

/// The shared object's entry point, `maco_read_kernel`, and the version of this interface.
using ReadKernel = void (*)(const KernelRequest&, KernelReply&);
inline constexpr int kReaderInterface = 6;

}  // namespace maco::frontend::cuda
