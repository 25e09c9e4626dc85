// Values of a JSON text with fixed keys. Errors are thrown with their place.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace maco::runtime {

/// "param 'w', part 1: 'rows' is no list". Thrown and caught within this folder.
struct BadField {
  std::string message;
};

/// The text's value. Throws if the text isn't JSON, or an object names a key twice.
nlohmann::json parse_fields(std::string_view text);

/// An object of the text, with its name in messages ("param 'w'"; "": the whole text).
class Fields {
 public:
  /// Throws if it isn't an object, or has keys that aren't among `known`. `value` must outlive it.
  Fields(const nlohmann::json& value, std::string place,
         const std::vector<std::string_view>& known);

  bool has(const char* key) const;
  /// These throw if the key is missing, or its value isn't of that kind.
  const nlohmann::json& at(const char* key) const;
  std::string text(const char* key) const;
  bool flag(const char* key) const;
  double number(const char* key) const;
  int64_t count(const char* key, int64_t least = 0) const;  // an integer from `least` on
  const nlohmann::json& object(const char* key) const;
  const nlohmann::json& list(const char* key) const;
  /// A list of integers from `least` on.
  std::vector<int64_t> counts(const char* key, int64_t least = 0) const;
  /// A list of two integers.
  std::vector<int64_t> pair(const char* key) const;

  const std::string& place() const { return place_; }
  /// Throws "<place>: <why>".
  [[noreturn]] void bad(const std::string& why) const;

 private:
  const nlohmann::json& value_;
  std::string place_;
};

}  // namespace maco::runtime
