// manifest.cpp: the `//@maco` lines of a kernel.
//
// The lines' texts, joined with nothing between them, are one JSON object. A line may break
// anywhere, also inside strings. No line ends in a backslash or a blank, and none holds two
// question marks in a row. So neither a line splice nor a trigraph can change the comment, nor can
// an editor that trims lines.
#include "ir/manifest_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

namespace maco::ir {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumns = 110;

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

std::string compact(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}
// `text` as a JSON string. Most strings need no escapes, and strings are most of a large manifest.
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

// Compact JSON without pairs of backslashes, pairs of question marks and long runs of blanks, so
// that `Lines` can cut it anywhere.
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

// A list of the manifest. Elements become JSON only when asked for: all elements of a large
// manifest together take much memory.
struct List {
  std::string key;
  size_t size = 0;
  std::function<std::string(size_t)> element;
};

class Lines {
 public:
  // Begins a new line with `text`. `indent` blanks may stand between tokens, never inside a string.
  void add(size_t indent, std::string_view text) {
    out_.append(kManifestPrefix).append(indent, ' ');
    size_t room = kColumns - kManifestPrefix.size() - indent;
    while (text.size() > room) {
      size_t cut = room;
      while (cut > 1 && (text[cut - 1] == '\\' || text[cut - 1] == ' ')) --cut;
      out_.append(text.substr(0, cut)).append("\n").append(kManifestPrefix);
      text.remove_prefix(cut);
      room = kColumns - kManifestPrefix.size();
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
  // Puts as many elements into a line as fit, in braces if they are an object's.
  void add_packed(const List& list, bool object = false) {
    if (list.size == 0) return add_list(list);
    std::string line;
    add(1, fmt::format("\"{}\":{}", list.key, object ? '{' : '['));
    for (size_t i = 0; i < list.size; ++i) {
      const std::string element = escaped(list.element(i)) + (i + 1 < list.size ? "," : "");
      if (!line.empty() && line.size() + element.size() > kColumns - kManifestPrefix.size() - 4)
        add(2, std::exchange(line, {}));
      line += element;
    }
    add(2, line + (object ? "}," : "],"));
  }
  // Reserves memory, so that a long text isn't copied while it grows.
  void reserve(size_t bytes) { out_.reserve(bytes); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// The keys that come first; none of them is a list.
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
          {"signallers", m.signallers},
          {"spare", m.spare},
          {"shared_bytes", m.shared_bytes},
          {"arena_bytes", m.arena_bytes},
          {"symmetric_bytes", m.symmetric_bytes},
          {"local_events", m.local_events},
          {"peer_events", m.peer_events},
          {"packet_uses", m.packet_uses},
          {"backend", m.backend}};
}

List ranges(std::string key, const std::vector<ManifestRange>& all) {
  return {std::move(key), all.size(), [&all](size_t i) {
            return fmt::format(R"({{"name":{},"lo":{},"hi":{}}})", json_string(all[i].name),
                               all[i].lo, all[i].hi);
          }};
}
// A name stands for the events from the number before it on; without a number there, from the one
// behind the name before on.
List events(std::string key, const std::vector<ManifestEvents>& all) {
  return {std::move(key), all.size(), [&all](size_t i) {
            const int64_t next = i == 0 ? 0 : all[i - 1].first + 1;
            const std::string name = json_string(all[i].name);
            return all[i].first == next ? name : fmt::format("{},{}", all[i].first, name);
          }};
}
// The lists that follow, in their order; `lines` are the graph's.
std::vector<List> lists_of(const Manifest& m, const std::vector<std::string_view>& lines) {
  const auto tensor = [&m](size_t i) {
    const ManifestTensor& t = m.tensors[i];
    return fmt::format(R"({{"name":{},"kind":{},"dtype":{},"shape":{},"max_elements":{}}})",
                       json_string(t.name), json_string(t.kind), json_string(name(t.dtype)),
                       listed(t.shape), t.max_elements);
  };
  const auto temporary = [&m](size_t i) {
    const ManifestTemporary& t = m.temporaries[i];
    return fmt::format(
        R"({{"name":{},"dtype":{},"max_elements":{},"offset":{},"before":{},"behind":{}}})",
        json_string(t.name), json_string(name(t.dtype)), t.max_elements, t.offset, t.before,
        t.behind);
  };
  const auto map = [&m](size_t i) {
    const ManifestMap& t = m.maps[i];
    return fmt::format(
        R"({{"tensor":{},"offset":{},"dtype":{},"rows":{},"cols":{},"box_rows":{},"box_cols":{},"run":{}}})",
        t.tensor, t.offset, json_string(name(t.dtype)), t.rows, t.cols, t.box_rows, t.box_cols,
        t.run);
  };
  const auto value = [&m](size_t i) {
    const ManifestValue& v = m.values[i];
    return fmt::format(R"({{"expr":{},"lo":{},"hi":{}}})", json_string(v.expr.str()), v.lo, v.hi);
  };
  const auto call = [&m](size_t i) {
    return fmt::format(R"({{"op":{},"kind":{}}})", json_string(m.calls[i].op),
                       json_string(m.calls[i].op_kind));
  };
  const auto handed = [&m](size_t i) {
    const ManifestHanded& h = m.handed[i];
    return fmt::format(
        R"({{"number":{},"op":{},"kind":{},"reduce":{},"peer":{},"dtype":{},"x":{},"x_offset":{},)"
        R"("y":{},"y_offset":{},"rows":{},"value":{},"cols":{}}})",
        h.number, json_string(h.op), json_string(name(h.kind)), json_string(name(h.reduce)), h.peer,
        json_string(name(h.dtype)), h.x, h.x_offset, h.y, h.y_offset, h.rows, h.value, h.cols);
  };
  return {List{"tensors", m.tensors.size(), tensor},
          List{"temporaries", m.temporaries.size(), temporary},
          List{"maps", m.maps.size(), map},
          ranges("dims", m.dims),
          ranges("scalars", m.scalars),
          List{"values", m.values.size(), value},
          List{"calls", m.calls.size(), call},
          List{"handed", m.handed.size(), handed},
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

std::string spelt(const Fnv& hash) {
  return fmt::format("{:08x}", static_cast<uint32_t>(hash.value() ^ hash.value() >> 32));
}
// manifest_sum() of the list, without making the list as a whole.
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

// Splits the text into the number at its end, if there is one, and what precedes it.
std::pair<std::string_view, std::optional<int64_t>> number_at_end(std::string_view text) {
  const size_t digits = text.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  const std::string number(text.substr(digits));
  constexpr size_t kMostDigits = 9;  // counting on from such a number fits 64 bits
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

std::vector<std::string> manifest_keys() {
  const Manifest none;
  const std::vector<std::string_view> lines;
  std::vector<std::string> keys;
  const Json scalars = scalars_of(none);
  for (const auto& [key, value] : scalars.items()) keys.push_back(key);
  for (const List& list : lists_of(none, lines)) keys.push_back(list.key);
  return keys;
}

std::string manifest_sum(std::string_view value) {
  Fnv hash;
  hash.add(value);
  return spelt(hash);
}

std::string print_manifest(const Manifest& m) {
  const Json scalars = scalars_of(m);
  const std::vector<std::string_view> graph = split_lines(m.graph);
  const std::vector<List> lists = lists_of(m, graph);
  std::vector<std::string> sums;
  const auto add_sum = [&sums](const std::string& key, const std::string& sum) {
    sums.push_back(fmt::format(R"("{}":"{}")", key, sum));
  };
  for (const auto& [key, value] : scalars.items()) add_sum(key, manifest_sum(compact(value)));
  for (const List& list : lists) add_sum(list.key, sum_of(list));

  const auto line = [&scalars](std::initializer_list<const char*> keys) {
    std::string text;
    for (const char* key : keys)
      text += fmt::format("\"{}\":{},", key, escaped(compact(scalars[key])));
    return text;
  };
  Lines lines;
  // More than enough: untouched pages cost nothing, and the caller appends the code.
  lines.reserve(2 * m.graph.size() + 256 * m.tensors.size() + 128 * m.calls.size());
  lines.add(0, "{" + line({"maco"}));
  lines.add(1, line({"name", "world", "target"}));
  lines.add(1, line({"options", "code_hash", "program_hash"}));
  lines.add(1, line({"ctas", "consumers", "loaders", "signallers", "spare", "shared_bytes",
                     "arena_bytes"}));
  lines.add(1, line({"symmetric_bytes", "local_events", "peer_events", "packet_uses", "backend"}));
  for (const List& list : lists) {
    const bool names = list.key == "local_names" || list.key == "peer_names";
    if (list.key == "graph") {
      lines.add_packed({kManifestSums, sums.size(), [&sums](size_t i) { return sums[i]; }}, true);
      lines.add_list(list, "}");
    } else if (names) {
      lines.add_packed(list);
    } else {
      lines.add_list(list);
    }
  }
  return lines.take();
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
