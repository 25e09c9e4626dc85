#include "compiler/frontend/huggingface/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compiler/frontend/huggingface/cuts.h"

namespace maco::frontend::huggingface {

namespace {

using Json = nlohmann::ordered_json;

// A tensor as a matrix: [a, b, c] has a rows and b * c columns, [n] n rows of one column.
struct Matrix {
  int64_t rows = 1, columns = 1;
};
Matrix matrix_of(const std::vector<int64_t>& shape) {
  Matrix m;
  if (!shape.empty()) m.rows = shape[0];
  for (size_t i = 1; i < shape.size(); ++i) m.columns *= shape[i];
  return m;
}
// The source as its origin sees it: transposed, if the origin says so.
Matrix seen(const Source& source, const Origin& origin) {
  Matrix m = matrix_of(source.shape);
  if (origin.transpose) std::swap(m.rows, m.columns);
  return m;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}
std::string described(const Source& s) { return s.dtype + shape_text(s.shape); }

// Whether a name matches a pattern with `*` for any text.
bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  for (size_t at = star; at <= name.size(); ++at)
    if (matches(pattern.substr(star + 1), name.substr(at))) return true;
  return false;
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  const size_t shown = std::min(names.size(), kMost);
  std::string text = fmt::format(
      "'{}'", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "', '"));
  return names.size() > shown ? text + fmt::format(" and {} more", names.size() - shown) : text;
}

std::vector<Run> runs(const Value& cut, int64_t rank, int64_t extent) {
  if (cut.is_null()) return {{0, extent, 0}};
  return runs_of(cut, rank);
}

int64_t local_rows(const Origin& o, int64_t taken) {
  return o.rows.is_null() ? taken : o.rows["local"].get<int64_t>();
}

}  // namespace

bool WeightTable::fail(ir::Loc loc, const std::string& message) {
  diagnostics_.error(loc, message);
  return false;
}

bool WeightTable::check_values(const ParamOrigin& p) {
  if (p.dtype != "f32")
    return fail(p.loc, fmt::format("'{}' has values of its own, and must be f32", p.name));
  const Matrix m = matrix_of(p.shape);
  if (static_cast<int64_t>(p.values.size()) != m.rows * m.columns)
    return fail(p.loc, fmt::format("'{}' has {} elements, but {} values", p.name,
                                   m.rows * m.columns, p.values.size()));
  return true;
}

bool WeightTable::check_source(const ParamOrigin& p, const Origin& o) {
  const auto found = checkpoint_.sources.find(o.name);
  if (found == checkpoint_.sources.end()) {
    std::vector<std::string> names;
    for (const auto& [name, source] : checkpoint_.sources) names.push_back(name);
    return fail(o.loc,
                fmt::format("the checkpoint has no tensor '{}', from which '{}' comes{}", o.name,
                            p.name, names.size() < 2000 ? ir::did_you_mean(o.name, names) : ""));
  }
  const Source& source = found->second;
  if (source.dtype != "F32" && source.dtype != "F16" && source.dtype != "BF16")
    return fail(o.loc, fmt::format("'{}' is {}, and only F32, F16 and BF16 can be read", o.name,
                                   described(source)));
  const Matrix there = seen(source, o), wanted = matrix_of(p.shape);
  int64_t begin = 0, end = there.rows;
  if (o.range) {
    std::tie(begin, end) = *o.range;
    if (begin < 0 || begin >= end || end > there.rows)
      return fail(o.loc, fmt::format("rows {} to {} of '{}' are wanted, which is {}", begin, end,
                                     o.name, described(source)));
    ranges_[o.name].insert(*o.range);
    ranged_[o.name] = {there.rows, o.loc};
  }
  const int64_t rows = o.rows.is_null() ? (p.origins.size() == 1 ? wanted.rows : end - begin)
                                        : o.rows["whole"].get<int64_t>();
  const int64_t columns = o.columns.is_null() ? wanted.columns : o.columns["whole"].get<int64_t>();
  // Axes don't count for a transposed or single-column source.
  const bool axes = source.shape.size() == p.shape.size();
  if (rows != end - begin || columns != there.columns || !axes) {
    std::vector<int64_t> shape = p.shape;
    shape[0] = o.range ? there.rows : rows;
    if (shape.size() == 2) shape[1] = columns;
    if (o.transpose && shape.size() == 2) std::swap(shape[0], shape[1]);
    return fail(o.loc,
                fmt::format("'{}' is {}, but '{}' wants {}{}", o.name, described(source), p.name,
                            shape_text(shape),
                            o.range ? fmt::format(", of which rows {} to {} are {} rows of {}",
                                                  begin, end, rows, columns)
                                    : ""));
  }
  used_.insert(o.name);
  return true;
}

Json WeightTable::parts(const ParamOrigin& p, int64_t rank, bool& ok) {
  Json list = Json::array();
  const Matrix m = matrix_of(p.shape);
  int64_t top = 0;
  for (const Origin& o : p.origins) {
    const Source& source = checkpoint_.sources.at(o.name);
    const Matrix there = seen(source, o);
    const int64_t first = o.range ? o.range->first : 0,
                  taken = o.range ? o.range->second - first : there.rows;
    const int64_t columns = o.columns.is_null() ? there.columns : o.columns["local"].get<int64_t>();
    if (columns != m.columns && ok)
      ok = fail(o.loc, fmt::format("'{}' has rows of {}, but '{}' gives {}", p.name, m.columns,
                                   o.name, columns));
    if (!o.once || rank == 0)
      for (const Run& r : runs(o.rows, rank, taken))
        for (const Run& c : runs(o.columns, rank, there.columns)) {
          Json part = {{"from", o.name}};
          const int64_t count = r.end - r.begin, width = c.end - c.begin;
          Json box_rows = {first + r.from, first + r.from + count},
               box_columns = {c.from, c.from + width};
          const bool all_rows = first + r.from == 0 && count == there.rows,
                     all_columns = width == there.columns;
          if (o.transpose) {
            if (!all_columns) part["rows"] = box_columns;
            if (!all_rows) part["columns"] = box_rows;
            part["transpose"] = true;
          } else {
            if (!all_rows) part["rows"] = box_rows;
            if (!all_columns) part["columns"] = box_columns;
          }
          if (top + r.begin > 0 || c.begin > 0) part["to"] = {top + r.begin, c.begin};
          if (o.plus != 0) part["plus"] = o.plus;
          list.push_back(std::move(part));
        }
    top += local_rows(o, taken);
  }
  if (top != m.rows && ok)
    ok = fail(p.loc, fmt::format("'{}' has {} rows, but {} come from the checkpoint", p.name,
                                 m.rows, top));
  return list;
}

bool WeightTable::add(const ParamOrigin& p) {
  if (p.shape.empty() || p.shape.size() > 2)
    return fail(p.loc, fmt::format("'{}' has {} axes, but a param of a checkpoint has 1 or 2",
                                   p.name, p.shape.size()));
  if (p.values.is_null() == p.origins.empty())
    return fail(p.loc, fmt::format("'{}' needs {}", p.name,
                                   p.origins.empty()
                                       ? "lines 'from' or 'values', which say where it comes from"
                                       : "either 'from' or 'values'"));
  Json entry = {{"dtype", p.dtype}, {"shape", p.shape}};
  if (!p.values.is_null()) {
    if (!check_values(p)) return false;
    entry["values"] = p.values;
  } else {
    bool ok = true;
    for (const Origin& o : p.origins) ok = check_source(p, o) && ok;
    if (!ok) return false;
    std::vector<Json> ranks;
    for (int64_t r = 0; r < world_ && ok; ++r) ranks.push_back(parts(p, r, ok));
    if (!ok) return false;
    if (std::all_of(ranks.begin(), ranks.end(), [&](const Json& j) { return j == ranks[0]; }))
      entry["parts"] = ranks[0];
    else
      entry["ranks"] = ranks;
  }
  const auto [at, is_new] = params_.emplace(p.name, entry);
  if (is_new) order_.push_back(p.name);
  if (!is_new && at->second != entry)
    return fail(p.loc, fmt::format("'{}' isn't the same in all kinds of graphs", p.name));
  return true;
}

bool WeightTable::account(const std::vector<std::string>& ignored,
                          const std::string& architecture) {
  std::vector<std::string> left;
  for (const auto& [name, source] : checkpoint_.sources)
    if (!used_.contains(name) &&
        std::none_of(ignored.begin(), ignored.end(),
                     [&](const std::string& p) { return matches(p, name); }))
      left.push_back(name);
  if (!left.empty())
    return fail(
        {}, fmt::format("the checkpoint has {} that {} doesn't know: {}",
                        left.size() == 1 ? "a tensor" : "tensors", architecture, some_of(left)));
  bool ok = true;
  for (const auto& [name, taken] : ranges_) {
    int64_t end = 0;
    for (const auto& [begin, stop] : taken)
      if (begin <= end) end = std::max(end, stop);
    const Ranged& whole = ranged_.at(name);
    if (end < whole.rows)
      ok = fail(whole.loc, fmt::format("rows from {} on of '{}', which is {}, go nowhere", end,
                                       name, described(checkpoint_.sources.at(name))));
  }
  return ok;
}

void WeightTable::write(Json& weights) const {
  Json files = Json::array(), sources = Json::object(), params = Json::object();
  for (const auto& [name, bytes] : checkpoint_.files)
    files.push_back({{"name", name}, {"bytes", bytes}});
  for (const auto& [name, s] : checkpoint_.sources)
    if (used_.contains(name))
      sources[name] = {
          {"file", s.file}, {"dtype", s.dtype}, {"shape", s.shape}, {"begin", s.begin}};
  for (const std::string& name : order_) params[name] = params_.at(name);
  weights["files"] = std::move(files);
  weights["sources"] = std::move(sources);
  weights["params"] = std::move(params);
}

}  // namespace maco::frontend::huggingface
