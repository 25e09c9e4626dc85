#include "runtime/weights/map.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ir/diagnostics.h"
#include "ir/safetensors.h"
#include "runtime/weights/fields.h"

namespace maco::runtime {
namespace {

using nlohmann::json;

constexpr size_t kMostAxes = 4;  // of a param

// "[64,1024]"
std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// The rows and columns of a shape, and its bytes, which fit in 63 bits.
int64_t measure(const Fields& fields, const std::vector<int64_t>& shape, ir::DType dtype,
                int64_t& rows, int64_t& cols) {
  int64_t bytes = ir::size_of(dtype);
  rows = cols = 1;
  bool fits = true;
  for (size_t i = 0; i < shape.size(); ++i) {
    fits = fits && !__builtin_mul_overflow(bytes, shape[i], &bytes);
    if (i > 0) fits = fits && !__builtin_mul_overflow(cols, shape[i], &cols);
  }
  if (!shape.empty()) rows = shape[0];
  if (!fits) fields.bad(fmt::format("its shape {} is too large", shape_text(shape)));
  return bytes;
}

class Reader {
 public:
  WeightMap read(std::string_view text) {
    const json all = parse_fields(text);
    const Fields fields(all, "",
                        {"maco_weights", "architecture", "world", "dtype", "max_seq", "chunk",
                         "verify_rows", "vocabulary", "eos", "files", "sources", "params"});
    if (const int64_t version = fields.count("maco_weights"); version != 1)
      fields.bad(fmt::format("is of version {}, and this program knows 1", version));
    map_.world = fields.count("world", 1);
    if (fields.has("architecture")) map_.architecture = fields.text("architecture");
    if (fields.has("dtype")) map_.dtype = ir::name(param_type(fields, "dtype"));
    const auto read_count = [&](const char* key, int64_t& to) {
      if (fields.has(key)) to = fields.count(key);
    };
    read_count("max_seq", map_.max_seq);
    read_count("chunk", map_.chunk);
    read_count("verify_rows", map_.verify_rows);
    read_count("vocabulary", map_.vocabulary);
    if (fields.has("eos")) map_.eos = fields.counts("eos");
    const json& files = fields.list("files");
    for (size_t i = 0; i < files.size(); ++i) read_file(files[i], fmt::format("file {}", i));
    for (const auto& [name, value] : fields.object("sources").items()) read_source(name, value);
    for (const auto& [name, value] : fields.object("params").items()) read_param(name, value);
    return std::move(map_);
  }

 private:
  static ir::DType param_type(const Fields& fields, const char* key) {
    const std::string name = fields.text(key);
    const auto type = ir::dtype_from_name(name);
    if (!type || !is_weight(*type))
      fields.bad(fmt::format("'{}' is '{}', but weights are f32, f16 or bf16", key, name));
    return *type;
  }
  static bool is_weight(ir::DType type) {
    return type == ir::DType::F32 || type == ir::DType::F16 || type == ir::DType::BF16;
  }

  void read_file(const json& value, const std::string& place) {
    const Fields fields(value, place, {"name", "bytes"});
    WeightFile& file = map_.files.emplace_back();
    file.name = fields.text("name");
    file.bytes = fields.count("bytes");
    if (file.name.empty() || file.name == "." || file.name == ".." ||
        file.name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
      fields.bad(fmt::format("'{}' is no name of a file in the checkpoint's folder", file.name));
    const bool twice = std::any_of(map_.files.begin(), map_.files.end() - 1,
                                   [&](const WeightFile& f) { return f.name == file.name; });
    if (twice) fields.bad(fmt::format("'{}' is there twice", file.name));
  }

  void read_source(const std::string& name, const json& value) {
    const Fields fields(value, fmt::format("source '{}'", name),
                        {"file", "dtype", "shape", "begin"});
    WeightSource source;
    source.name = name;
    source.file = static_cast<size_t>(fields.count("file"));
    if (source.file >= map_.files.size())
      fields.bad(
          fmt::format("there is no file {}, but {} of them", source.file, map_.files.size()));
    const std::string type = fields.text("dtype");
    const auto known = ir::dtype_from_safetensors(type);
    if (!known || !is_weight(*known))
      fields.bad(fmt::format("its dtype is '{}', but weights are read of F32, F16 or BF16", type));
    source.dtype = *known;
    source.shape = fields.counts("shape");
    source.begin = fields.count("begin");
    const int64_t bytes = measure(fields, source.shape, source.dtype, source.rows, source.cols);
    const WeightFile& file = map_.files[source.file];
    if (source.begin > file.bytes || bytes > file.bytes - source.begin)
      fields.bad(fmt::format("its {} bytes from {} on are outside of '{}', which has {}", bytes,
                             source.begin, file.name, file.bytes));
    by_name_.emplace(name, map_.sources.size());
    map_.sources.push_back(std::move(source));
  }

  void read_param(const std::string& name, const json& value) {
    const std::string place = fmt::format("param '{}'", name);
    const Fields fields(value, place, {"dtype", "shape", "parts", "ranks", "values"});
    WeightParam param;
    param.name = name;
    param.dtype = param_type(fields, "dtype");
    param.shape = fields.counts("shape", 1);
    if (param.shape.empty() || param.shape.size() > kMostAxes)
      fields.bad(fmt::format("its shape {} has {} axes, not 1 to {}", shape_text(param.shape),
                             param.shape.size(), kMostAxes));
    measure(fields, param.shape, param.dtype, param.rows, param.cols);
    const int given = static_cast<int>(fields.has("parts")) +
                      static_cast<int>(fields.has("ranks")) +
                      static_cast<int>(fields.has("values"));
    if (given != 1) fields.bad("it has to have one of 'parts', 'ranks' and 'values'");
    if (fields.has("values")) {
      read_values(fields, param);
    } else if (fields.has("parts")) {
      param.parts.push_back(read_parts(fields.list("parts"), place, param));
    } else {
      const json& ranks = fields.list("ranks");
      if (static_cast<int64_t>(ranks.size()) != map_.world)
        fields.bad(fmt::format("'ranks' has {} lists for {} ranks", ranks.size(), map_.world));
      param.same = false;
      for (size_t r = 0; r < ranks.size(); ++r) {
        const std::string of_rank = fmt::format("{}, rank {}", place, r);
        if (!ranks[r].is_array()) throw BadField{of_rank + ": is no list"};
        param.parts.push_back(read_parts(ranks[r], of_rank, param));
      }
    }
    map_.params.push_back(std::move(param));
  }

  static void read_values(const Fields& fields, WeightParam& param) {
    for (const json& number : fields.list("values")) {
      if (!number.is_number() || !ir::fits_f32(number.get<double>()))
        fields.bad("'values' has something other than f32 numbers");
      param.values.push_back(static_cast<float>(number.get<double>()));
    }
    if (static_cast<int64_t>(param.values.size()) != param.rows * param.cols)
      fields.bad(fmt::format("'values' has {} numbers for {}", param.values.size(),
                             shape_text(param.shape)));
    param.parts.emplace_back();
  }

  std::vector<WeightPart> read_parts(const json& list, const std::string& place,
                                     const WeightParam& param) const {
    std::vector<WeightPart> parts;
    for (size_t i = 0; i < list.size(); ++i)
      parts.push_back(read_part(list[i], fmt::format("{}, part {}", place, i), param));
    check_overlaps(parts, place);
    return parts;
  }

  WeightPart read_part(const json& value, const std::string& place,
                       const WeightParam& param) const {
    const Fields fields(value, place, {"from", "rows", "columns", "to", "transpose", "plus"});
    WeightPart part;
    const std::string from = fields.text("from");
    const auto found = by_name_.find(from);
    if (found == by_name_.end()) fields.bad(fmt::format("there is no source '{}'", from));
    part.source = found->second;
    const WeightSource& source = map_.sources[part.source];
    const auto range = [&](const char* key, int64_t all, int64_t& begin, int64_t& count) {
      begin = 0;
      count = all;
      if (!fields.has(key)) return;
      const std::vector<int64_t> two = fields.pair(key);
      if (two[0] > two[1] || two[1] > all)
        fields.bad(fmt::format("{} [{}, {}) are outside of '{}' {}, which has {}", key, two[0],
                               two[1], source.name, shape_text(source.shape), all));
      begin = two[0];
      count = two[1] - two[0];
    };
    range("rows", source.rows, part.row, part.rows);
    range("columns", source.cols, part.col, part.cols);
    if (fields.has("transpose")) part.transpose = fields.flag("transpose");
    if (fields.has("to")) {
      const std::vector<int64_t> to = fields.pair("to");
      part.to_row = to[0];
      part.to_col = to[1];
    }
    if (fields.has("plus")) {
      const double plus = fields.number("plus");
      if (!ir::fits_f32(plus)) fields.bad("'plus' is no f32 number");
      part.plus = static_cast<float>(plus);
    }
    const auto outside = [](int64_t begin, int64_t count, int64_t all) {
      return begin > all || count > all - begin;
    };
    if (outside(part.to_row, part.height(), param.rows) ||
        outside(part.to_col, part.width(), param.cols))
      fields.bad(fmt::format(
          "its {} x {} box at row {}, column {} is outside of the param, which "
          "has {} x {}",
          part.height(), part.width(), part.to_row, part.to_col, param.rows, param.cols));
    return part;
  }

  // Each part is compared with those that begin above it and end below its first row.
  static void check_overlaps(const std::vector<WeightPart>& parts, const std::string& place) {
    std::vector<size_t> order(parts.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return parts[a].to_row < parts[b].to_row; });
    std::vector<size_t> open;
    for (const size_t i : order) {
      const WeightPart& part = parts[i];
      if (part.rows == 0 || part.cols == 0) continue;
      std::erase_if(open,
                    [&](size_t j) { return parts[j].to_row + parts[j].height() <= part.to_row; });
      for (const size_t j : open)
        if (part.to_col < parts[j].to_col + parts[j].width() &&
            parts[j].to_col < part.to_col + part.width())
          throw BadField{
              fmt::format("{}: parts {} and {} overlap", place, std::min(i, j), std::max(i, j))};
      open.push_back(i);
    }
  }

  WeightMap map_;
  std::map<std::string, size_t> by_name_;  // sources
};

}  // namespace

const WeightParam* WeightMap::find(std::string_view name) const {
  const auto at =
      std::lower_bound(params.begin(), params.end(), name,
                       [](const WeightParam& p, std::string_view n) { return p.name < n; });
  return at != params.end() && at->name == name ? &*at : nullptr;
}

WeightMapResult parse_weights(std::string_view text, const std::string& name) {
  try {
    return {Reader().read(text), ""};
  } catch (const BadField& e) {
    return {std::nullopt, name + ": " + e.message};
  }
}

}  // namespace maco::runtime
