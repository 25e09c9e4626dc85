// Between the frontend and what reads CUDA (clang_reader.cpp, a shared object of its own, so that
// MACO starts without Clang and builds without it): one kernel for one use of it.
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
  bool read = false, written = false;  // in `in`, in `out`
  // Number; Integer where every launch has the same:
  double number = 0;
  std::optional<int64_t> integer;
  int64_t least = 1, most = 0;  // of all launches; none where that isn't known
  /// Integer: it may not fit 32 bits, and comes in two parts: how often 2^32 goes into it, and the
  /// rest less 2^31.
  bool wide = false;
};

/// Rows of a sample: what one block may touch of a tensor, by args' index; whole tensors are left
/// out. Extents are clipped to the tensor.
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
  /// Only KernelReply::shape is asked for; of `kernel`, or of the file's only one where that is "".
  bool shape_only = false;
  std::string path;    // of the source
  std::string kernel;  // its name, with namespaces or without
  std::vector<std::string> template_args;
  std::array<int64_t, 3> block{1, 1, 1};
  int64_t shared = 0;
  std::vector<KernelArg> args;
  std::vector<BlockSample> samples;                   // blocks whose accesses are tried
  int arch = 90;                                      // of the GPU; 0: the CPU target
  std::string cuda_folder;                            // the toolkit, or "" if there is none
  std::vector<std::string> include_folders, defines;  // of a command line: -I, -D
};

/// What was found wrong, at a place of a source; an empty `file` means the use in the graph.
struct KernelError {
  /// What of the use in the graph is wrong, where `file` is empty: an attribute's name, or with
  /// `arg` that argument.
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
    bool written = false;            // Tensor: it may be
    bool updated = false;            // Tensor: read before it is written
    std::optional<ir::DType> dtype;  // Tensor: the one that its elements are, if they are one's
    int64_t number = 1024;           // Integer: a value; Tensor: elements
    int64_t most = INT64_MAX;        // Integer: of the numbers that may be guessed
  };
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<std::string> template_parameters;
  std::vector<std::string> template_args;  // of the instance; none: nothing is known of them
  std::array<int64_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  bool launched = false;  // the block is that of a launch in the file
  int64_t shared = 0;     // dynamic shared memory in bytes
};

struct KernelReply {
  std::vector<KernelError> errors, warnings;
  std::string original, device;  // see ir::CudaUnit
  int64_t static_shared = 0;     // bytes of a block
  std::optional<KernelShape> shape;
  bool read = false;  // the file, to its end
};

/// Of the shared object: `maco_read_kernel`, and which version of this interface it has.
using ReadKernel = void (*)(const KernelRequest&, KernelReply&);
inline constexpr int kReaderInterface = 6;

}  // namespace maco::frontend::cuda
