#include "ir/json_names.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace maco::ir {
namespace {

// The parser's own callback would do, but at the end of each object it visits all members of the
// enclosing one.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(JsonNames& found, size_t depth) : found_(found), most_(depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    if (depth_++ < most_) names_.emplace_back();
    return true;
  }
  bool end_object() override {
    if (--depth_ < most_) names_.pop_back();
    return true;
  }
  bool start_array(size_t) override { return ++depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool key(string_t& name) override {
    if (depth_ <= most_ && !names_.back().insert(name).second) found_.twice = name;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception&) override {
    found_.wrong_at = at;
    return false;
  }

 private:
  JsonNames& found_;
  const size_t most_;
  size_t depth_ = 0;
  std::vector<std::set<std::string>> names_;  // of the enclosing objects
};

}  // namespace

JsonNames names_of_json(std::string_view text, size_t depth) {
  JsonNames found;
  Reader reader(found, depth);
  found.is_json = nlohmann::json::sax_parse(text, &reader);
  return found;
}

}  // namespace maco::ir
