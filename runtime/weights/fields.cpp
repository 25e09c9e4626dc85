#include "runtime/weights/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/diagnostics.h"
#include "ir/json_names.h"

namespace maco::runtime {
namespace {

using nlohmann::json;

bool is_count(const json& value, int64_t least) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return false;
  return value.get<int64_t>() >= least;
}

}  // namespace

json parse_fields(std::string_view text) {
  const ir::JsonNames names = ir::names_of_json(text);
  if (!names.is_json) throw BadField{fmt::format("is no JSON: byte {} is wrong", names.wrong_at)};
  if (!names.twice.empty()) throw BadField{fmt::format("names '{}' twice", names.twice)};
  return json::parse(text);
}

Fields::Fields(const json& value, std::string place, const std::vector<std::string_view>& known)
    : value_(value), place_(std::move(place)) {
  if (!value.is_object()) bad("is no object");
  for (const auto& [key, ignored] : value.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      bad(fmt::format("unknown key '{}'{}", key,
                      ir::did_you_mean(key, {known.begin(), known.end()})));
}

void Fields::bad(const std::string& why) const {
  throw BadField{place_.empty() ? why : place_ + ": " + why};
}

bool Fields::has(const char* key) const { return value_.contains(key); }

const json& Fields::at(const char* key) const {
  if (!has(key)) bad(fmt::format("has no '{}'", key));
  return value_[key];
}

std::string Fields::text(const char* key) const {
  if (!at(key).is_string()) bad(fmt::format("'{}' is no text", key));
  return at(key).get<std::string>();
}

bool Fields::flag(const char* key) const {
  if (!at(key).is_boolean()) bad(fmt::format("'{}' is neither true nor false", key));
  return at(key).get<bool>();
}

double Fields::number(const char* key) const {
  if (!at(key).is_number()) bad(fmt::format("'{}' is no number", key));
  return at(key).get<double>();
}

int64_t Fields::count(const char* key, int64_t least) const {
  if (!is_count(at(key), least)) bad(fmt::format("'{}' is no integer from {} on", key, least));
  return at(key).get<int64_t>();
}

const json& Fields::object(const char* key) const {
  if (!at(key).is_object()) bad(fmt::format("'{}' is no object", key));
  return at(key);
}

const json& Fields::list(const char* key) const {
  if (!at(key).is_array()) bad(fmt::format("'{}' is no list", key));
  return at(key);
}

std::vector<int64_t> Fields::counts(const char* key, int64_t least) const {
  std::vector<int64_t> all;
  for (const json& value : list(key)) {
    if (!is_count(value, least))
      bad(fmt::format("'{}' has something other than integers from {} on", key, least));
    all.push_back(value.get<int64_t>());
  }
  return all;
}

std::vector<int64_t> Fields::pair(const char* key) const {
  std::vector<int64_t> two = counts(key);
  if (two.size() != 2) bad(fmt::format("'{}' has {} numbers, not two", key, two.size()));
  return two;
}

}  // namespace maco::runtime
