// The tree that JSON is parsed into: values, and where they stand.
#include <random>

#include "compiler/frontend/frontend.h"
#include "tests/catch.h"

using namespace maco;
using frontend::Raw;

namespace {

Raw parse(const std::string& text) {
  ir::Diagnostics d;
  auto raw = frontend::parse_json_raw(d.add_file("t.json", text), d);
  INFO(d.render());
  REQUIRE(raw);
  REQUIRE(d.all().empty());
  return *raw;
}

std::string place(const ir::Loc& loc) {
  return std::to_string(loc.line) + ":" + std::to_string(loc.column) + "+" +
         std::to_string(loc.length);
}

/// The bytes that `loc` points at.
std::string text_at(const std::string& text, const ir::Loc& loc) {
  size_t start = 0;
  for (int line = 1; line < loc.line; ++line) start = text.find('\n', start) + 1;
  return text.substr(start + static_cast<size_t>(loc.column) - 1, static_cast<size_t>(loc.length));
}

}  // namespace

TEST_CASE("json: values keep their kinds") {
  const Raw raw = parse(
      R"({"a": null, "b": true, "c": -7, "d": 1.5e3, "e": "x\n\u00e4", "f": [1, []], "g": {}})");
  REQUIRE(raw.kind == Raw::Kind::Map);
  REQUIRE(raw.map.size() == 7);
  CHECK(raw.find("a")->kind == Raw::Kind::Null);
  CHECK((raw.find("b")->kind == Raw::Kind::Bool && raw.find("b")->boolean));
  CHECK((raw.find("c")->kind == Raw::Kind::Int && raw.find("c")->integer == -7));
  CHECK((raw.find("d")->kind == Raw::Kind::Float && raw.find("d")->number == 1500.0));
  CHECK((raw.find("e")->kind == Raw::Kind::String && raw.find("e")->text == "x\n\xc3\xa4"));
  CHECK((raw.find("f")->kind == Raw::Kind::List && raw.find("f")->list.size() == 2));
  CHECK((raw.find("g")->kind == Raw::Kind::Map && raw.find("g")->map.empty()));
  CHECK(raw.find("h") == nullptr);
}

TEST_CASE("json: integers at the ends of 64 bits") {
  const Raw raw = parse("[9223372036854775807, -9223372036854775808, 0, -0]");
  CHECK(raw.list[0].integer == INT64_MAX);
  CHECK(raw.list[1].integer == INT64_MIN);
  CHECK((raw.list[3].kind == Raw::Kind::Int && raw.list[3].integer == 0));
}

TEST_CASE("json: every value and key has its place") {
  const Raw raw = parse(
      "{\n  \"key\" :\t\"a \\\" b\",\n\n  \"list\": [1, -2.5e-3, true,\n    null, {\"in\": "
      "12345}]\n}\n");
  CHECK(place(raw.loc) == "1:1+1");
  CHECK(place(raw.map[0].key_loc) == "2:3+5");
  CHECK(place(raw.map[0].value.loc) == "2:11+8");
  CHECK(raw.map[0].value.text_column_shift == 1);
  const Raw& list = raw.map[1].value;
  CHECK(place(list.loc) == "4:11+1");
  CHECK(place(list.list[0].loc) == "4:12+1");
  CHECK(place(list.list[1].loc) == "4:15+7");
  CHECK(place(list.list[2].loc) == "4:24+4");
  CHECK(place(list.list[3].loc) == "5:5+4");
  CHECK(place(list.list[4].map[0].key_loc) == "5:12+4");
  CHECK(place(list.list[4].map[0].value.loc) == "5:18+5");
}

TEST_CASE("json: a byte-order mark and CRLF lines don't shift places") {
  const Raw raw = parse("\xef\xbb\xbf{\r\n\"a\": 1}\r\n");
  CHECK(place(raw.loc) == "1:4+1");
  CHECK(place(raw.map[0].value.loc) == "2:6+1");
}

TEST_CASE("json: duplicate keys are kept in order") {
  const Raw raw = parse(R"({"a": 1, "b": 2, "a": 3})");
  REQUIRE(raw.map.size() == 3);
  CHECK((raw.map[2].key == "a" && raw.map[2].value.integer == 3));
  CHECK(raw.find("a")->integer == 1);
}

// Writes a random document, noting what each token looks like, and compares with what the places
// point at.
TEST_CASE("json: places of random documents") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    std::vector<std::string> tokens;
    const auto space = [&] { text += std::string(random() % 3, " \t\n"[random() % 3]); };
    const auto token = [&](const std::string& t) {
      text += t;
      tokens.push_back(t);
    };
    const std::vector<std::string> leaves = {"0",     "-1",           "12e3",           "0.5",
                                             "true",  "false",        "null",           "\"\"",
                                             "\"a\"", "\"{[:,\\\\\"", "\"\\u1234\\\"\""};
    std::function<void(int)> write = [&](int depth) {
      const size_t kind = depth > 4 ? size_t{0} : random() % 3;
      if (kind == 0) return token(leaves[random() % leaves.size()]);
      token(kind == 1 ? "[" : "{");
      const size_t count = random() % 4;
      for (size_t i = 0; i < count; ++i) {
        space();
        if (kind == 2) {
          token("\"k" + std::to_string(random() % 3) + "\"");
          space();
          text += ':';
          space();
        }
        write(depth + 1);
        space();
        if (i + 1 < count) text += ',';
      }
      space();
      text += kind == 1 ? ']' : '}';
    };
    space();
    write(0);
    space();
    const Raw raw = parse(text);
    std::vector<std::string> seen;
    std::function<void(const Raw&)> walk = [&](const Raw& r) {
      seen.push_back(text_at(text, r.loc));
      for (const Raw& item : r.list) walk(item);
      for (const Raw::Entry& e : r.map) {
        seen.push_back(text_at(text, e.key_loc));
        walk(e.value);
      }
    };
    walk(raw);
    INFO(text);
    REQUIRE(seen == tokens);
  }
}

TEST_CASE("json: random bytes are a graph or an error with a place") {
  const std::string alphabet =
      "{}[]:,\"\\ \n\t019-+.eEtruefalsn/*'#\xff\xc3\xa4\x01" + std::string(1, '\0');
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    std::string text = seed % 2 == 0 ? "{\"a\": [1, " : "";
    const size_t size = random() % 40;
    for (size_t i = 0; i < size; ++i) text += alphabet[random() % alphabet.size()];
    ir::Diagnostics d;
    const auto raw = frontend::parse_json_raw(d.add_file("t.json", text), d);
    INFO(text);
    REQUIRE(raw.has_value() != d.has_errors());
    for (const ir::Diagnostic& x : d.all()) REQUIRE(x.loc.known());
    d.render();
  }
}

TEST_CASE("json: nesting is bounded") {
  ir::Diagnostics d;
  std::string deep(1'000'000, '[');
  CHECK_FALSE(frontend::parse_json_raw(d.add_file("t.json", deep), d));
  CHECK(d.all()[0].message == "more than 100 nested brackets");
  parse(std::string(100, '[') + std::string(100, ']'));
}
