// manifest.cpp: the `//@maco` lines of a kernel.
//
// The lines' texts, put together with nothing between them, are one JSON object; a line may break
// anywhere, inside strings too. No line ends in a backslash or a blank and none holds two question
// marks in a row, so that neither a line splice nor a trigraph can end or prolong the comment and
// no editor that trims lines can change it.
#include "ir/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace maco::ir {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "//@maco ";
constexpr std::string_view kBarePrefix = "//@maco";  // what trimming leaves of an empty line
constexpr size_t kColumns = 110;
constexpr int kMaxWorld = 64;  // as in runtime/device/context.cuh
constexpr int kVersion = 2;
constexpr int64_t kMaxCount = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxBytes = int64_t{1} << 50;

// FNV-1a.
class Fnv {
 public:
  void add(std::string_view text) {
    for (char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};
std::string hex(const Fnv& hash) { return fmt::format("{:016x}", hash.value()); }

// Printing

std::string compact(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}
// The same of a string; most need no escapes, and most of a large manifest are strings.
std::string json_string(std::string_view text) {
  const auto plain = [](char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\'; };
  if (!std::all_of(text.begin(), text.end(), plain)) return compact(Json(std::string(text)));
  return fmt::format("\"{}\"", text);
}
std::string listed(const std::vector<Expr>& exprs) {
  std::string list = "[";
  for (const Expr& e : exprs) list += (list.size() > 1 ? "," : "") + json_string(e.str());
  return list + "]";
}

// Compact JSON without backslash pairs, pairs of question marks and long runs of blanks: `Lines`
// can cut it anywhere.
std::string escaped(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  size_t blanks = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    blanks = c == ' ' ? blanks + 1 : 0;
    if (c == '\\' && text[i + 1] == '\\') {
      out += "\\u005c";
      ++i;
    } else if (c == '?' && !out.empty() && out.back() == '?') {
      out += "\\u003f";
    } else if (blanks == 40) {
      out += "\\u0020";
      blanks = 0;
    } else {
      out += c;
    }
  }
  return out;
}

// A list of the manifest. Elements are made as compact JSON when asked for: all those of a large
// manifest together take much memory.
struct List {
  std::string key;
  size_t size = 0;
  std::function<std::string(size_t)> element;
};

class Lines {
 public:
  // `text` begins a new line; `indent` blanks belong between tokens, never inside a string.
  void add(size_t indent, std::string_view text) {
    out_.append(kPrefix).append(indent, ' ');
    size_t room = kColumns - kPrefix.size() - indent;
    while (text.size() > room) {
      size_t cut = room;
      while (cut > 1 && (text[cut - 1] == '\\' || text[cut - 1] == ' ')) --cut;
      out_.append(text.substr(0, cut)).append("\n").append(kPrefix);
      text.remove_prefix(cut);
      room = kColumns - kPrefix.size();
    }
    out_.append(text).append("\n");
  }
  // One element a line.
  void add_list(const List& list, std::string_view end = ",") {
    if (list.size == 0) return add(1, fmt::format("\"{}\":[]{}", list.key, end));
    add(1, fmt::format("\"{}\":[", list.key));
    for (size_t i = 0; i < list.size; ++i)
      add(2, escaped(list.element(i)) + (i + 1 < list.size ? "," : fmt::format("]{}", end)));
  }
  // As many elements in a line as fit; in braces if they are an object's.
  void add_packed(const List& list, bool object = false) {
    if (list.size == 0) return add_list(list);
    std::string line;
    add(1, fmt::format("\"{}\":{}", list.key, object ? '{' : '['));
    for (size_t i = 0; i < list.size; ++i) {
      const std::string element = escaped(list.element(i)) + (i + 1 < list.size ? "," : "");
      if (!line.empty() && line.size() + element.size() > kColumns - kPrefix.size() - 4)
        add(2, std::exchange(line, {}));
      line += element;
    }
    add(2, line + (object ? "}," : "],"));
  }
  // Room for so many bytes, so that a long text isn't copied while it grows.
  void reserve(size_t bytes) { out_.reserve(bytes); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// The keys that come first, which are no lists.
Json scalars_of(const Manifest& m) {
  return {{"maco", m.version},
          {"name", m.name},
          {"world", m.world},
          {"target", m.target},
          {"options", m.options},
          {"code_hash", m.code_hash},
          {"program_hash", m.program_hash},
          {"ctas", m.ctas},
          {"consumers", m.consumers},
          {"loaders", m.loaders},
          {"shared_bytes", m.shared_bytes},
          {"arena_bytes", m.arena_bytes},
          {"symmetric_bytes", m.symmetric_bytes},
          {"local_events", m.local_events},
          {"peer_events", m.peer_events}};
}

List ranges(std::string key, const std::vector<ManifestRange>& all) {
  return {std::move(key), all.size(), [&all](size_t i) {
            return fmt::format(R"({{"name":{},"lo":{},"hi":{}}})", json_string(all[i].name),
                               all[i].lo, all[i].hi);
          }};
}
List events(std::string key, const std::vector<ManifestEvents>& all) {
  return {std::move(key), all.size(), [&all](size_t i) {
            return fmt::format(R"({{"first":{},"name":{}}})", all[i].first,
                               json_string(all[i].name));
          }};
}
// Those that follow, in their order; `lines` are the graph's.
std::vector<List> lists_of(const Manifest& m, const std::vector<std::string_view>& lines) {
  const auto tensor = [&m](size_t i) {
    const ManifestTensor& t = m.tensors[i];
    return fmt::format(R"({{"name":{},"kind":{},"dtype":{},"shape":{},"max_elements":{}}})",
                       json_string(t.name), json_string(t.kind), json_string(name(t.dtype)),
                       listed(t.shape), t.max_elements);
  };
  const auto call = [&m](size_t i) {
    return fmt::format(R"({{"op":{},"kind":{}}})", json_string(m.calls[i].op),
                       json_string(m.calls[i].op_kind));
  };
  return {
      List{"tensors", m.tensors.size(), tensor},
      ranges("dims", m.dims),
      ranges("scalars", m.scalars),
      List{"values", m.values.size(), [&m](size_t i) { return json_string(m.values[i].str()); }},
      List{"calls", m.calls.size(), call},
      events("local_names", m.local_names),
      events("peer_names", m.peer_names),
      List{"graph", lines.size(), [&lines](size_t i) { return json_string(lines[i]); }}};
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (true) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    text.remove_prefix(end + 1);
  }
}

// The code was compiled for the values of most keys: with another value it could write anywhere. A
// checksum of each key tells that it was edited.
constexpr const char* kSums = "sums";
// Keys that may be edited: no memory depends on them.
constexpr std::array kFree = {"name",  "options",     "code_hash",  "program_hash",
                              "calls", "local_names", "peer_names", "graph"};

std::string spelt(const Fnv& hash) {
  return fmt::format("{:08x}", static_cast<uint32_t>(hash.value() ^ hash.value() >> 32));
}
std::string sum_of(const Json& value) {
  Fnv hash;
  hash.add(compact(value));
  return spelt(hash);
}
// That of the same list as Json.
std::string sum_of(const List& list) {
  Fnv hash;
  hash.add("[");
  for (size_t i = 0; i < list.size; ++i) {
    if (i > 0) hash.add(",");
    hash.add(list.element(i));
  }
  hash.add("]");
  return spelt(hash);
}

// Parsing

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

int64_t integer_of(const Json& object, const char* key, int64_t lo, int64_t hi) {
  const Json& value = member(object, key);
  if (!value.is_number_integer()) fail(fmt::format("'{}' is not an integer", key));
  const bool too_large = value.is_number_unsigned() &&
                         value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  const int64_t found = too_large ? 0 : value.get<int64_t>();
  if (too_large || found < lo || found > hi)
    fail(fmt::format("'{}' is {}, not from {} to {}", key, value.dump(), lo, hi));
  return found;
}

const Json& list_of(const Json& object, const char* key) {
  const Json& value = member(object, key);
  if (!value.is_array()) fail(fmt::format("'{}' is not a list", key));
  return value;
}

std::vector<Expr> exprs_of(const Json& object, const char* key) {
  std::vector<Expr> out;
  for (const Json& item : list_of(object, key)) {
    if (!item.is_string()) fail(fmt::format("'{}' holds something that is not a string", key));
    ParseExprResult parsed = parse_expr(item.get<std::string>());
    if (!parsed.expr) fail(fmt::format("'{}' holds {}: {}", key, item.dump(), parsed.error));
    out.push_back(std::move(*parsed.expr));
  }
  return out;
}

std::vector<ManifestRange> ranges_of(const Json& object, const char* key) {
  std::vector<ManifestRange> out;
  for (const Json& item : list_of(object, key)) {
    constexpr int64_t lowest = std::numeric_limits<int64_t>::min(),
                      highest = std::numeric_limits<int64_t>::max();
    ManifestRange range{text_of(item, "name"), integer_of(item, "lo", lowest, highest), 0};
    range.hi = integer_of(item, "hi", range.lo, highest);
    out.push_back(std::move(range));
  }
  return out;
}

std::vector<ManifestEvents> events_of(const Json& object, const char* key) {
  std::vector<ManifestEvents> out;
  int64_t least = 0;
  for (const Json& item : list_of(object, key)) {
    out.push_back({integer_of(item, "first", least, kMaxCount), text_of(item, "name")});
    least = out.back().first;
  }
  return out;
}

ManifestTensor tensor_of(const Json& item) {
  ManifestTensor t;
  t.name = text_of(item, "name");
  t.kind = text_of(item, "kind");
  if (t.kind != "input" && t.kind != "param" && t.kind != "state" && t.kind != "output")
    fail(fmt::format("tensor '{}' is of the unknown kind '{}'", t.name, t.kind));
  const std::string dtype = text_of(item, "dtype");
  auto known = dtype_from_name(dtype);
  if (!known) fail(fmt::format("tensor '{}' has the unknown dtype '{}'", t.name, dtype));
  t.dtype = *known;
  t.shape = exprs_of(item, "shape");
  t.max_elements = integer_of(item, "max_elements", 1, kMaxBytes);
  return t;
}

Manifest manifest_of(const Json& root) {
  Manifest m;
  m.version = static_cast<int>(integer_of(root, "maco", 1, std::numeric_limits<int>::max()));
  if (m.version > kVersion)
    fail(fmt::format("version {} is newer than this program's {}", m.version, kVersion));
  if (m.version < kVersion)
    fail(fmt::format("version {} is older than this program's {}: compile the graph again",
                     m.version, kVersion));
  m.name = text_of(root, "name");
  m.world = integer_of(root, "world", 1, kMaxWorld);
  m.target = text_of(root, "target");
  m.options = text_of(root, "options");
  m.code_hash = text_of(root, "code_hash");
  m.program_hash = text_of(root, "program_hash");
  m.ctas = integer_of(root, "ctas", 1, 1 << 20);
  m.consumers = integer_of(root, "consumers", 1, 1024);
  m.loaders = integer_of(root, "loaders", 0, 1024);
  m.shared_bytes = integer_of(root, "shared_bytes", 0, std::numeric_limits<int32_t>::max());
  m.arena_bytes = integer_of(root, "arena_bytes", 0, kMaxBytes);
  m.symmetric_bytes = integer_of(root, "symmetric_bytes", 0, kMaxBytes);
  m.local_events = integer_of(root, "local_events", 0, kMaxCount);
  m.peer_events = integer_of(root, "peer_events", 0, kMaxCount);
  for (const Json& item : list_of(root, "tensors")) m.tensors.push_back(tensor_of(item));
  m.dims = ranges_of(root, "dims");
  m.scalars = ranges_of(root, "scalars");
  m.values = exprs_of(root, "values");
  for (const Json& item : list_of(root, "calls"))
    m.calls.push_back({text_of(item, "op"), text_of(item, "kind")});
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

// Whether a key that may be edited was; fails if another was.
bool was_edited(const Json& root, const Manifest& m) {
  std::set<std::string> known;
  const Json scalars = scalars_of(m);
  for (const auto& [key, value] : scalars.items()) known.insert(key);
  const std::vector<std::string_view> graph;
  for (const List& list : lists_of(m, graph)) known.insert(list.key);
  const Json& sums = member(root, kSums);
  bool edited = sums.size() != known.size();
  for (const auto& [key, value] : root.items()) {
    if (key == kSums) continue;
    if (!known.contains(key)) fail(fmt::format("unknown key '{}'", key));
    const auto sum = sums.find(key);
    if (sum != sums.end() && *sum == sum_of(value)) continue;
    if (std::find(kFree.begin(), kFree.end(), key) == kFree.end())
      fail(fmt::format("'{}' was edited, and the code was compiled for what it was", key));
    edited = true;
  }
  return edited;
}

// Calls `visit` with each line, without its end.
template <class Visit>
void for_each_line(std::string_view source, Visit visit) {
  while (!source.empty()) {
    size_t end = source.find('\n');
    std::string_view line = source.substr(0, end);
    source.remove_prefix(end == std::string_view::npos ? source.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    visit(line);
  }
}

bool is_manifest_line(std::string_view line) {
  return line.starts_with(kPrefix) || line == kBarePrefix;
}

// What comes before the number that a text ends in, and the number, if it ends in one.
std::pair<std::string_view, std::optional<int64_t>> number_at_end(std::string_view text) {
  const size_t digits = text.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  const std::string number(text.substr(digits));
  constexpr size_t kMostDigits = 9;  // so that what is counted on fits 64 bits
  if (number.empty() || number.size() > kMostDigits) return {text, std::nullopt};
  return {text.substr(0, digits), std::stoll(number)};
}

}  // namespace

std::optional<std::string> event_name(const std::vector<ManifestEvents>& names, int64_t id) {
  const auto next = std::upper_bound(
      names.begin(), names.end(), id,
      [](int64_t wanted, const ManifestEvents& run) { return wanted < run.first; });
  if (next == names.begin()) return std::nullopt;
  const ManifestEvents& run = *std::prev(next);
  if (id == run.first) return run.name;
  const auto [before, last] = number_at_end(run.name);
  if (!last) return run.name;
  const int64_t on = id - run.first;
  if (before.ends_with("..")) {
    const auto [head, begin] = number_at_end(before.substr(0, before.size() - 2));
    if (begin && *begin <= *last) {
      const int64_t by = on * (*last - *begin + 1);
      return fmt::format("{}{}..{}", head, *begin + by, *last + by);
    }
  }
  return fmt::format("{}{}", before, *last + on);
}

void add_event_name(std::vector<ManifestEvents>& names, int64_t id, const std::string& name) {
  if (event_name(names, id) != name) names.push_back({id, name});
}

std::string print_manifest(const Manifest& m) {
  const Json scalars = scalars_of(m);
  const std::vector<std::string_view> graph = split_lines(m.graph);
  const std::vector<List> lists = lists_of(m, graph);
  std::vector<std::string> sums;
  const auto add_sum = [&sums](const std::string& key, const std::string& sum) {
    sums.push_back(fmt::format(R"("{}":"{}")", key, sum));
  };
  for (const auto& [key, value] : scalars.items()) add_sum(key, sum_of(value));
  for (const List& list : lists) add_sum(list.key, sum_of(list));

  const auto line = [&scalars](std::initializer_list<const char*> keys) {
    std::string text;
    for (const char* key : keys)
      text += fmt::format("\"{}\":{},", key, escaped(compact(scalars[key])));
    return text;
  };
  Lines lines;
  // More than enough: pages that stay untouched cost nothing, and the caller appends the code.
  lines.reserve(2 * m.graph.size() + 256 * m.tensors.size() + 128 * m.calls.size());
  lines.add(0, "{" + line({"maco"}));
  lines.add(1, line({"name", "world", "target"}));
  lines.add(1, line({"options", "code_hash", "program_hash"}));
  lines.add(1, line({"ctas", "consumers", "loaders", "shared_bytes", "arena_bytes"}));
  lines.add(1, line({"symmetric_bytes", "local_events", "peer_events"}));
  for (const List& list : lists) {
    const bool names = list.key == "local_names" || list.key == "peer_names";
    if (list.key == "graph") {
      lines.add_packed({kSums, sums.size(), [&sums](size_t i) { return sums[i]; }}, true);
      lines.add_list(list, "}");
    } else if (names) {
      lines.add_packed(list);
    } else {
      lines.add_list(list);
    }
  }
  return lines.take();
}

ManifestResult parse_manifest(std::string_view kernel_source) {
  std::string text;
  bool any = false;
  for_each_line(kernel_source, [&](std::string_view line) {
    if (!is_manifest_line(line)) return;
    any = true;
    if (line.size() > kPrefix.size()) text += line.substr(kPrefix.size());
  });
  ManifestResult result;
  if (!any) {
    result.error = "no '//@maco' lines: this is not a kernel written by macoc";
    return result;
  }
  try {
    const Json root = Json::parse(text);
    result.manifest = manifest_of(root);
    result.edited = was_edited(root, *result.manifest);
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

std::string code_hash(std::string_view kernel_source) {
  Fnv hash;
  for_each_line(kernel_source, [&](std::string_view line) {
    if (is_manifest_line(line)) return;
    hash.add(line);
    hash.add("\n");
  });
  return hex(hash);
}
std::string text_hash(std::string_view text) {
  Fnv hash;
  hash.add(text);
  return hex(hash);
}

}  // namespace maco::ir
