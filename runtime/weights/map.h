// Where the params of a model lie in its checkpoint: weights.json, as macoc import writes it.
//
// A source or param of shape [a, b, ...] is a matrix of a rows and b * ... columns; [n] is n rows
// of one column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.h"

namespace maco::runtime {

struct WeightFile {
  std::string name;  // in the checkpoint's folder
  int64_t bytes = 0;
};

/// A tensor of the checkpoint: f32, f16 or bf16.
struct WeightSource {
  std::string name;
  size_t file = 0;  // index into WeightMap::files
  ir::DType dtype = ir::DType::F32;
  std::vector<int64_t> shape;
  int64_t rows = 1, cols = 1;
  int64_t begin = 0;  // byte of the file
};

/// A box of a source, and its place in a param.
struct WeightPart {
  size_t source = 0;                             // index into WeightMap::sources
  int64_t row = 0, rows = 0, col = 0, cols = 0;  // the box
  int64_t to_row = 0, to_col = 0;
  bool transpose = false;     // of the box
  std::optional<float> plus;  // added to each element
  /// The size of the box in the param.
  int64_t height() const { return transpose ? cols : rows; }
  int64_t width() const { return transpose ? rows : cols; }
};

/// A param: f32, f16 or bf16. Elements in no part are zero; parts don't overlap.
struct WeightParam {
  std::string name;
  ir::DType dtype = ir::DType::F32;
  std::vector<int64_t> shape;
  int64_t rows = 1, cols = 1;
  bool same = true;                            // whether it is the same on all ranks
  std::vector<std::vector<WeightPart>> parts;  // one list, or one for each rank
  std::vector<float> values;                   // in place of parts
  const std::vector<WeightPart>& parts_of(int rank) const {
    return parts[same ? 0 : static_cast<size_t>(rank)];
  }
};

struct WeightMap {
  std::string architecture, dtype;
  int64_t world = 1;
  int64_t max_seq = 0, chunk = 0, verify_rows = 0, vocabulary = 0;  // 0: unspecified
  std::vector<int64_t> eos;
  std::vector<WeightFile> files;
  std::vector<WeightSource> sources;  // by name
  std::vector<WeightParam> params;    // by name
  /// Null if there is none.
  const WeightParam* find(std::string_view name) const;
};

struct WeightMapResult {
  std::optional<WeightMap> map;
  std::string error;  // why there is none: "weights.json: param 'w', part 1: ..."
};
/// Reads and checks weights.json: every key and type, that file names contain no folders, that
/// sources lie within their files, and parts within their sources and params without overlaps.
WeightMapResult parse_weights(std::string_view text, const std::string& name = "weights.json");

}  // namespace maco::runtime
