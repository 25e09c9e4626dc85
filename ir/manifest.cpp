// manifest.cpp: the `//@maco` lines of a kernel.
//
// The lines' texts, put together with nothing between them, are one JSON object; a line may break
// anywhere, inside strings too. No line ends in a backslash or a blank and none holds two question
// marks in a row, so that neither a line splice nor a trigraph can end or prolong the comment and
// no editor that trims lines can change it.
#include "ir/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace maco::ir {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "//@maco ";
constexpr std::string_view kBarePrefix = "//@maco";  // what trimming leaves of an empty line
constexpr size_t kColumns = 110;
constexpr int kVersion = 1;
constexpr int64_t kMaxCount = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxBytes = int64_t{1} << 50;

// Printing

// Compact JSON without backslash pairs, pairs of question marks and long runs of blanks: `Lines`
// can cut it anywhere.
std::string escaped(const Json& value) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string out;
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
  // A key with a list, one element a line.
  void add_list(std::string_view key, const Json& list) {
    if (list.empty()) return add(1, fmt::format("\"{}\":[],", key));
    add(1, fmt::format("\"{}\":[", key));
    for (size_t i = 0; i < list.size(); ++i)
      add(2, escaped(list[i]) + (i + 1 < list.size() ? "," : "],"));
  }
  // The same with as many elements in a line as fit.
  void add_packed(std::string_view key, const Json& list) {
    std::string line;
    if (list.empty()) return add_list(key, list);
    add(1, fmt::format("\"{}\":[", key));
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string element = escaped(list[i]) + (i + 1 < list.size() ? "," : "],");
      if (!line.empty() && line.size() + element.size() > kColumns - kPrefix.size() - 2)
        add(2, std::exchange(line, {}));
      line += element;
    }
    add(2, line);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

Json strings(const std::vector<Expr>& exprs) {
  Json list = Json::array();
  for (const Expr& e : exprs) list.push_back(e.str());
  return list;
}

Json ranges(const std::vector<ManifestRange>& all) {
  Json list = Json::array();
  for (const ManifestRange& r : all) list.push_back({{"name", r.name}, {"lo", r.lo}, {"hi", r.hi}});
  return list;
}

Json events(const std::vector<ManifestEvents>& all) {
  Json list = Json::array();
  for (const ManifestEvents& e : all) list.push_back({{"first", e.first}, {"name", e.name}});
  return list;
}

Json split_lines(std::string_view text) {
  Json list = Json::array();
  while (true) {
    size_t end = text.find('\n');
    list.push_back(std::string(text.substr(0, end)));
    if (end == std::string_view::npos) return list;
    text.remove_prefix(end + 1);
  }
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
  m.name = text_of(root, "name");
  m.world = integer_of(root, "world", 1, 1 << 16);
  m.target = text_of(root, "target");
  m.options = text_of(root, "options");
  m.code_hash = text_of(root, "code_hash");
  m.ctas = integer_of(root, "ctas", 1, 1 << 20);
  m.threads = integer_of(root, "threads", 1, 1024);
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

}  // namespace

std::optional<std::string> event_name(const std::vector<ManifestEvents>& names, int64_t id) {
  const auto next = std::upper_bound(
      names.begin(), names.end(), id,
      [](int64_t wanted, const ManifestEvents& run) { return wanted < run.first; });
  if (next == names.begin()) return std::nullopt;
  const ManifestEvents& run = *std::prev(next);
  if (id == run.first) return run.name;
  const size_t digits = run.name.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  const std::string number = run.name.substr(digits);
  constexpr size_t kMostDigits = 18;  // fit 64 bits
  if (number.empty() || number.size() > kMostDigits) return run.name;
  return run.name.substr(0, digits) + std::to_string(std::stoll(number) + (id - run.first));
}

void add_event_name(std::vector<ManifestEvents>& names, int64_t id, const std::string& name) {
  if (event_name(names, id) != name) names.push_back({id, name});
}

std::string print_manifest(const Manifest& m) {
  Json tensors = Json::array(), calls = Json::array();
  for (const ManifestTensor& t : m.tensors)
    tensors.push_back({{"name", t.name},
                       {"kind", t.kind},
                       {"dtype", std::string(name(t.dtype))},
                       {"shape", strings(t.shape)},
                       {"max_elements", t.max_elements}});
  for (const ManifestCall& c : m.calls) calls.push_back({{"op", c.op}, {"kind", c.op_kind}});

  Lines lines;
  lines.add(0, fmt::format("{{\"maco\":{},", m.version));
  lines.add(1, fmt::format("\"name\":{},\"world\":{},\"target\":{},", escaped(m.name), m.world,
                           escaped(m.target)));
  lines.add(
      1, fmt::format("\"options\":{},\"code_hash\":{},", escaped(m.options), escaped(m.code_hash)));
  lines.add(1, fmt::format("\"ctas\":{},\"threads\":{},\"shared_bytes\":{},\"arena_bytes\":{},",
                           m.ctas, m.threads, m.shared_bytes, m.arena_bytes));
  lines.add(1, fmt::format("\"symmetric_bytes\":{},\"local_events\":{},\"peer_events\":{},",
                           m.symmetric_bytes, m.local_events, m.peer_events));
  lines.add_list("tensors", tensors);
  lines.add_list("dims", ranges(m.dims));
  lines.add_list("scalars", ranges(m.scalars));
  lines.add_list("values", strings(m.values));
  lines.add_list("calls", calls);
  lines.add_packed("local_names", events(m.local_names));
  lines.add_packed("peer_names", events(m.peer_names));
  const Json graph = split_lines(m.graph);
  lines.add(1, "\"graph\":[");
  for (size_t i = 0; i < graph.size(); ++i)
    lines.add(2, escaped(graph[i]) + (i + 1 < graph.size() ? "," : "]}"));
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
    result.manifest = manifest_of(Json::parse(text));
  } catch (const Malformed& malformed) {
    result.error = "the '//@maco' lines are not usable: " + malformed.reason;
    return result;
  } catch (const Json::exception&) {
    result.error =
        "the '//@maco' lines are not usable: together they are not JSON (a line was cut or edited)";
    return result;
  }
  result.edited = result.manifest->code_hash != code_hash(kernel_source);
  return result;
}

std::string code_hash(std::string_view kernel_source) {
  uint64_t hash = 0xcbf29ce484222325u;
  auto mix = [&hash](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u; };
  for_each_line(kernel_source, [&](std::string_view line) {
    if (is_manifest_line(line)) return;
    for (char c : line) mix(c);
    mix('\n');
  });
  return fmt::format("{:016x}", hash);
}

}  // namespace maco::ir
