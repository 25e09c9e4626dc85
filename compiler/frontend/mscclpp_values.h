// Typed values of a plan's JSON.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/frontend/chunk_statements.h"
#include "ir/diagnostics.h"
#include "ir/raw.h"

namespace maco::frontend::mscclpp {

using ir::Raw;

/// The number of errors after which the rest of a plan isn't read.
inline constexpr int kMaxErrors = 1000;

enum class Channel : uint8_t { Memory, Port, Switch };

/// Reads typed values of a tree; reports what is missing or of another type.
class Values {
 public:
  explicit Values(ir::Diagnostics& diagnostics)
      : diagnostics_(diagnostics), before_(diagnostics.errors()) {}

  void error(ir::Loc loc, std::string message) { diagnostics_.error(loc, std::move(message)); }
  void note(ir::Loc loc, std::string message) { diagnostics_.note(loc, std::move(message)); }
  bool has_errors() const { return diagnostics_.errors() > before_; }
  bool too_many_errors() const { return diagnostics_.errors() - before_ >= kMaxErrors; }

  static const char* name_of(Raw::Kind kind) {
    switch (kind) {
      case Raw::Kind::Null: return "null";
      case Raw::Kind::Bool: return "a boolean";
      case Raw::Kind::Int: return "an integer";
      case Raw::Kind::Float: return "a number with a fraction";
      case Raw::Kind::String: return "a string";
      case Raw::Kind::List: return "a list";
      case Raw::Kind::Map: return "an object";
    }
    return "";
  }
  bool is(const Raw& raw, Raw::Kind kind, const std::string& what) {
    if (raw.kind == kind) return true;
    error(raw.loc, fmt::format("{} must be {}, found {}", what, name_of(kind), name_of(raw.kind)));
    return false;
  }
  /// Reads an object without duplicate keys.
  bool object(const Raw& raw, const std::string& what) {
    if (!is(raw, Raw::Kind::Map, what)) return false;
    std::map<std::string_view, ir::Loc> seen;
    for (const Raw::Entry& e : raw.map) {
      const auto [at, is_new] = seen.emplace(e.key, e.key_loc);
      if (is_new) continue;
      error(e.key_loc, fmt::format("'{}' is given twice", e.key));
      note(at->second, "the first is here");
      return false;
    }
    return true;
  }
  const Raw* optional(const Raw& object, const char* key, Raw::Kind kind) {
    const Raw* found = object.find(key);
    return found != nullptr && is(*found, kind, fmt::format("'{}'", key)) ? found : nullptr;
  }
  const Raw* required(const Raw& object, const char* key, Raw::Kind kind) {
    if (object.find(key) != nullptr) return optional(object, key, kind);
    error(object.loc, fmt::format("'{}' is missing", key));
    return nullptr;
  }
  /// Reads the integer `raw` itself, named `what` in messages; `integer` reads that of a key.
  std::optional<int64_t> number(const Raw& raw, const std::string& what, int64_t low,
                                int64_t high) {
    if (!is(raw, Raw::Kind::Int, what)) return std::nullopt;
    if (raw.integer >= low && raw.integer <= high) return raw.integer;
    if (high < low)
      error(raw.loc, fmt::format("{} is {}, but there are none", what, raw.integer));
    else
      error(raw.loc, fmt::format("{} must be {} to {}, found {}", what, low, high, raw.integer));
    return std::nullopt;
  }
  std::optional<int64_t> integer(const Raw& object, const char* key, int64_t low, int64_t high) {
    const Raw* raw = required(object, key, Raw::Kind::Int);
    if (raw == nullptr) return std::nullopt;
    return number(*raw, fmt::format("'{}'", key), low, high);
  }
  std::optional<ChunkBuffer> buffer(const Raw& object, const char* key) {
    const Raw* raw = required(object, key, Raw::Kind::String);
    if (raw == nullptr) return std::nullopt;
    if (raw->text == "i") return ChunkBuffer::Input;
    if (raw->text == "o") return ChunkBuffer::Output;
    if (raw->text == "s") return ChunkBuffer::Scratch;
    error(raw->loc, fmt::format("'{}' must be 'i', 'o' or 's', found '{}'", key, raw->text));
    return std::nullopt;
  }
  std::optional<Channel> channel(const Raw& raw, const std::string& what) {
    if (!is(raw, Raw::Kind::String, what)) return std::nullopt;
    if (raw.text == "memory") return Channel::Memory;
    if (raw.text == "port") return Channel::Port;
    if (raw.text == "switch") return Channel::Switch;
    error(raw.loc,
          fmt::format("{} must be 'memory', 'port' or 'switch', found '{}'", what, raw.text));
    return std::nullopt;
  }
  std::optional<Channel> channel_type(const Raw& object, const char* key) {
    const Raw* raw = required(object, key, Raw::Kind::String);
    if (raw == nullptr) return std::nullopt;
    return channel(*raw, fmt::format("'{}'", key));
  }

 private:
  ir::Diagnostics& diagnostics_;
  int before_;
};

}  // namespace maco::frontend::mscclpp
