// manifest_parse.cpp: reads the `//@maco` lines of a kernel, and finds out whether somebody edited
// it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ir/manifest_lines.h"
#include "ir/ranks.h"

namespace maco::ir {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxCount = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxBytes = int64_t{1} << 50;

// Keys that may be edited: no memory depends on them.
constexpr std::array kFree = {"name",  "options",     "code_hash",  "program_hash",
                              "calls", "local_names", "peer_names", "graph"};

struct Malformed {
  std::string reason;
};

[[noreturn]] void fail(std::string reason) { throw Malformed{std::move(reason)}; }

const Json& member(const Json& object, const char* key) {
  if (!object.is_object())
    fail(fmt::format("found {} where an object with '{}' was expected", object.type_name(), key));
  auto it = object.find(key);
  if (it == object.end()) fail(fmt::format("'{}' is missing", key));
  return *it;
}

std::string text_of(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_string()) fail(fmt::format("'{}' is not a string", key));
  return value.get<std::string>();
}

int64_t integer_at(const Json& value, const char* key, int64_t lo, int64_t hi) {
  if (!value.is_number_integer()) fail(fmt::format("'{}' is not an integer", key));
  const bool too_large = value.is_number_unsigned() &&
                         value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  const int64_t found = too_large ? 0 : value.get<int64_t>();
  if (too_large || found < lo || found > hi)
    fail(fmt::format("'{}' is {}, not from {} to {}", key, value.dump(), lo, hi));
  return found;
}
int64_t integer_of(const Json& object, const char* key, int64_t lo, int64_t hi) {
  return integer_at(member(object, key), key, lo, hi);
}

const Json& list_of(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_array()) fail(fmt::format("'{}' is not a list", key));
  return value;
}

Expr expr_of(const Json& item, const char* key) {
  if (!item.is_string()) fail(fmt::format("'{}' holds something that is not a string", key));
  ParseExprResult parsed = parse_expr(item.get<std::string>());
  if (!parsed.expr) fail(fmt::format("'{}' holds {}: {}", key, item.dump(), parsed.error));
  return std::move(*parsed.expr);
}
std::vector<Expr> exprs_of(const Json& object, const char* key) {
  std::vector<Expr> out;
  for (const Json& item : list_of(object, key)) out.push_back(expr_of(item, key));
  return out;
}

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(),
                  kHighest = std::numeric_limits<int64_t>::max();
std::vector<ManifestRange> ranges_of(const Json& object, const char* key) {
  std::vector<ManifestRange> out;
  for (const Json& item : list_of(object, key)) {
    ManifestRange range{text_of(item, "name"), integer_of(item, "lo", kLowest, kHighest), 0};
    range.hi = integer_of(item, "hi", range.lo, kHighest);
    out.push_back(std::move(range));
  }
  return out;
}
std::vector<ManifestValue> values_of(const Json& object, const char* key) {
  std::vector<ManifestValue> out;
  for (const Json& item : list_of(object, key)) {
    ManifestValue value{expr_of(member(item, "expr"), key),
                        integer_of(item, "lo", kLowest, kHighest), 0};
    value.hi = integer_of(item, "hi", value.lo, kHighest);
    out.push_back(std::move(value));
  }
  return out;
}

std::vector<ManifestEvents> events_of(const Json& object, const char* key) {
  std::vector<ManifestEvents> out;
  int64_t next = 0;
  for (const Json& item : list_of(object, key))
    if (item.is_string())
      out.push_back({next++, item.get<std::string>()});
    else
      next = integer_at(item, key, next, kMaxCount);
  return out;
}

DType dtype_of(const Json& item, const std::string& what) {
  const std::string dtype = text_of(item, "dtype");
  const auto known = dtype_from_name(dtype);
  if (!known) fail(fmt::format("{} has the unknown dtype '{}'", what, dtype));
  return *known;
}

// Reads one map. The manifest's tensors and arena must have been read.
ManifestMap map_of(const Json& item, const Manifest& m) {
  constexpr int64_t kMost = 1 << 30;
  ManifestMap map;
  map.tensor = integer_of(item, "tensor", -1, static_cast<int64_t>(m.tensors.size()) - 1);
  map.offset = integer_of(item, "offset", 0, kMaxBytes);
  map.dtype = dtype_of(item, "a tensor map");
  map.rows = integer_of(item, "rows", 1, kMost);
  map.cols = integer_of(item, "cols", 1, kMost);
  map.box_rows = integer_of(item, "box_rows", 1, 256);
  map.box_cols = integer_of(item, "box_cols", ManifestMap::kLine / size_of(map.dtype),
                            ManifestMap::kMostRow / size_of(map.dtype));
  map.run = integer_of(item, "run", 0, map.cols);
  if (map.run > 0 && (map.cols % map.run != 0 || !map.lines()))
    fail(fmt::format("a tensor map has boxes of {} columns in runs of {} of {}", map.box_cols,
                     map.run, map.cols));
  int64_t room = m.arena_bytes;
  if (map.tensor >= 0) {
    const ManifestTensor& t = m.tensors[static_cast<size_t>(map.tensor)];
    room = t.max_elements * size_of(t.dtype);
  }
  if (map.rows > (kMaxBytes >> 4) / map.cols ||
      map.offset + map.rows * map.cols * size_of(map.dtype) > room)
    fail(fmt::format("a tensor map of {} x {} elements reaches beyond what it is of", map.rows,
                     map.cols));
  return map;
}

// Reads one collective that is handed over. All that precedes it in the manifest must have been
// read.
ManifestHanded handed_of(const Json& item, const Manifest& m) {
  ManifestHanded h;
  h.op = text_of(item, "op");
  h.number = integer_of(item, "number", 0, kMaxCount);
  // The value of an enum, up to `last`, that has the field's text as its name.
  const auto one_of = [&](const char* field, auto last) {
    const std::string word = text_of(item, field);
    for (int i = 0; i <= static_cast<int>(last); ++i)
      if (const auto value = static_cast<decltype(last)>(i); name(value) == word) return value;
    fail(fmt::format("'{}' is handed over as the unknown '{}'", h.op, word));
  };
  h.kind = one_of("kind", CollectiveKind::RingShift);
  h.reduce = one_of("reduce", Reduction::Min);
  h.peer = integer_of(item, "peer", 0, m.world - 1);
  h.dtype = dtype_of(item, "what is handed over");
  const auto tensors = static_cast<int64_t>(m.tensors.size());
  h.rows = integer_of(item, "rows", 1, kMaxBytes);
  h.value = integer_of(item, "value", -1, static_cast<int64_t>(m.values.size()) - 1);
  h.cols = integer_of(item, "cols", 1, kMaxBytes);
  const auto place = [&](const char* tensor, const char* offset, bool blocks, int64_t& at,
                         int64_t& bytes) {
    at = integer_of(item, tensor, -1, tensors - 1);
    bytes = integer_of(item, offset, 0, kMaxBytes);
    int64_t room = m.arena_bytes;
    if (at >= 0) {
      const ManifestTensor& t = m.tensors[static_cast<size_t>(at)];
      room = t.max_elements * size_of(t.dtype);
    }
    const int64_t most = (kMaxBytes >> 4) / (blocks ? m.world : 1);
    if (h.rows > most / h.cols ||
        bytes + h.rows * h.cols * (blocks ? m.world : 1) * size_of(h.dtype) > room)
      fail(fmt::format("'{}' reaches beyond what it is of", h.op));
  };
  place("x", "x_offset", h.x_blocks(), h.x, h.x_offset);
  place("y", "y_offset", h.y_blocks(), h.y, h.y_offset);
  return h;
}

ManifestTensor tensor_of(const Json& item) {
  ManifestTensor t;
  t.name = text_of(item, "name");
  t.kind = text_of(item, "kind");
  if (t.kind != "input" && t.kind != "param" && t.kind != "state" && t.kind != "output")
    fail(fmt::format("tensor '{}' is of the unknown kind '{}'", t.name, t.kind));
  t.dtype = dtype_of(item, fmt::format("tensor '{}'", t.name));
  t.shape = exprs_of(item, "shape");
  t.max_elements = integer_of(item, "max_elements", 1, kMaxBytes);
  return t;
}

ManifestTemporary temporary_of(const Json& item, const Manifest& m) {
  ManifestTemporary t;
  t.name = text_of(item, "name");
  t.dtype = dtype_of(item, fmt::format("temporary '{}'", t.name));
  t.max_elements = integer_of(item, "max_elements", 1, kMaxBytes >> 4);
  t.offset = integer_of(item, "offset", 0, m.arena_bytes);
  t.before = integer_of(item, "before", 0, t.offset);
  t.behind = integer_of(item, "behind", 0, m.arena_bytes);
  if (t.offset + t.max_elements * size_of(t.dtype) + t.behind > m.arena_bytes)
    fail(fmt::format("temporary '{}' reaches beyond the arena", t.name));
  return t;
}

Manifest manifest_of(const Json& root) {
  Manifest m;
  m.version = static_cast<int>(integer_of(root, "maco", 1, std::numeric_limits<int>::max()));
  if (m.version > kManifestVersion)
    fail(fmt::format("version {} is newer than this program's {}", m.version, kManifestVersion));
  if (m.version < kManifestVersion)
    fail(fmt::format("version {} is older than this program's {}: compile the graph again",
                     m.version, kManifestVersion));
  m.name = text_of(root, "name");
  m.world = integer_of(root, "world", 1, kMaxWorld);
  m.target = text_of(root, "target");
  m.options = text_of(root, "options");
  m.code_hash = text_of(root, "code_hash");
  m.program_hash = text_of(root, "program_hash");
  m.ctas = integer_of(root, "ctas", 1, 1 << 20);
  m.consumers = integer_of(root, "consumers", 1, 1024);
  m.loaders = integer_of(root, "loaders", 0, 1024);
  m.signallers = integer_of(root, "signallers", 0, 1024);
  m.spare = integer_of(root, "spare", 0, 1024);
  m.shared_bytes = integer_of(root, "shared_bytes", 0, std::numeric_limits<int32_t>::max());
  m.arena_bytes = integer_of(root, "arena_bytes", 0, kMaxBytes);
  m.symmetric_bytes = integer_of(root, "symmetric_bytes", 0, kMaxBytes);
  m.local_events = integer_of(root, "local_events", 0, kMaxCount);
  m.peer_events = integer_of(root, "peer_events", 0, kMaxCount);
  m.packet_uses = integer_of(root, "packet_uses", 1, kMaxCount);
  m.backend = text_of(root, "backend");
  if (m.backend != "p2p" && m.backend != "nccl" && m.backend != "nvshmem")
    fail(fmt::format("'backend' is the unknown '{}'", m.backend));
  for (const Json& item : list_of(root, "tensors")) m.tensors.push_back(tensor_of(item));
  for (const Json& item : list_of(root, "temporaries"))
    m.temporaries.push_back(temporary_of(item, m));
  for (const Json& item : list_of(root, "maps")) m.maps.push_back(map_of(item, m));
  m.dims = ranges_of(root, "dims");
  m.scalars = ranges_of(root, "scalars");
  m.values = values_of(root, "values");
  for (const Json& item : list_of(root, "calls"))
    m.calls.push_back({text_of(item, "op"), text_of(item, "kind")});
  for (const Json& item : list_of(root, "handed")) m.handed.push_back(handed_of(item, m));
  std::vector<int64_t> numbers;
  for (const ManifestHanded& h : m.handed) numbers.push_back(h.number);
  std::sort(numbers.begin(), numbers.end());
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != static_cast<int64_t>(i))
      fail("what is handed over isn't numbered from 0 without gaps");
  m.local_names = events_of(root, "local_names");
  m.peer_names = events_of(root, "peer_names");
  bool first = true;
  for (const Json& line : list_of(root, "graph")) {
    if (!line.is_string()) fail("'graph' holds something that is not a string");
    if (!first) m.graph += '\n';
    m.graph += line.get_ref<const std::string&>();
    first = false;
  }
  return m;
}

// Whether a key that may be edited was edited. Fails if another key was.
bool was_edited(const Json& root) {
  const std::vector<std::string> keys = manifest_keys();
  const std::set<std::string> known(keys.begin(), keys.end());
  const Json& sums = member(root, kManifestSums);
  bool edited = sums.size() != known.size();
  for (const auto& [key, value] : root.items()) {
    if (key == kManifestSums) continue;
    if (!known.contains(key)) fail(fmt::format("unknown key '{}'", key));
    const auto sum = sums.find(key);
    if (sum != sums.end() &&
        *sum == manifest_sum(value.dump(-1, ' ', true, Json::error_handler_t::replace)))
      continue;
    if (std::find(kFree.begin(), kFree.end(), key) == kFree.end())
      fail(fmt::format("'{}' was edited, and the code was compiled for what it was", key));
    edited = true;
  }
  return edited;
}

}  // namespace

ManifestResult parse_manifest(std::string_view kernel_source) {
  std::string text;
  bool any = false;
  for_each_line(kernel_source, [&](std::string_view line) {
    if (!is_manifest_line(line)) return;
    any = true;
    if (line.size() > kManifestPrefix.size()) text += line.substr(kManifestPrefix.size());
  });
  ManifestResult result;
  if (!any) {
    result.error = "no '//@maco' lines: this is not a kernel written by macoc";
    return result;
  }
  try {
    const Json root = Json::parse(text);
    result.manifest = manifest_of(root);
    result.edited = was_edited(root);
  } catch (const Malformed& malformed) {
    result.manifest.reset();
    result.error = "the '//@maco' lines are not usable: " + malformed.reason;
    return result;
  } catch (const Json::exception&) {
    result.error =
        "the '//@maco' lines are not usable: together they are not JSON (a line was cut or edited)";
    return result;
  }
  if (result.manifest->code_hash != code_hash(kernel_source)) result.edited = true;
  return result;
}

}  // namespace maco::ir
