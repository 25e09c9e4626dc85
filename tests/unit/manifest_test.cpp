#include "ir/manifest.h"

#include "tests/catch.h"

namespace maco::ir {
namespace {

Manifest example() {
  Manifest m;
  m.name = "tp_mlp";
  m.world = 2;
  m.target = "sm_90a";
  m.ctas = 132;
  m.consumers = 256;
  m.loaders = 32;
  m.shared_bytes = 200 * 1024;
  m.arena_bytes = 1 << 20;
  m.symmetric_bytes = int64_t{1} << 33;
  m.local_events = 77;
  m.peer_events = 5;
  m.tensors.push_back({"x", "input", DType::BF16, {Expr::var("tokens"), Expr(1024)}, 64 * 1024});
  m.tensors.push_back({"y", "output", DType::I32, {Expr::var("tokens") * Expr(2)}, 128});
  m.dims = {{"tokens", 1, 64}};
  m.scalars = {{"pos", 0, 4095}};
  m.values = {{Expr::var("tokens"), 1, 64}, {Expr::var("pos") + Expr::var("rank"), 0, 4096}};
  m.calls = {{"down", "matmul"}, {"y", "allreduce"}};
  m.local_names = {{0, "h tile 0"}, {12, "down tiles 0..7"}};
  m.peer_names = {{0, "y.arrived.0"}};
  m.options = "--no-load-ahead";
  m.program_hash = text_hash("program p");
  m.graph = "graph tp_mlp(world = 2) {\n  input x : bf16[tokens, 1024]\n}\n";
  return m;
}

const std::string kCode = "constexpr int a = 1;\nvoid maco_kernel() {}\n";

std::string kernel(Manifest m) {
  m.code_hash = code_hash(kCode);
  return print_manifest(m) + kCode;
}

void check_lines(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    REQUIRE(end != std::string::npos);
    const std::string line = text.substr(at, end - at);
    CAPTURE(line);
    CHECK(line.starts_with("//@maco "));
    CHECK(line.size() <= 110);
    CHECK(line.back() != '\\');
    CHECK(line.back() != ' ');
    CHECK(line.find("??") == std::string::npos);
    for (char c : line) CHECK((c >= ' ' && c <= '~'));
    at = end + 1;
  }
}

std::string error_of(const std::string& source) {
  ManifestResult result = parse_manifest(source);
  CHECK(!result.manifest);
  return result.error;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("events keep their names, in runs that count on") {
  const std::vector<std::string> all = {"h tile 0",
                                        "h tile 1",
                                        "h tile 2",
                                        "h tile 4",
                                        "h tile 5",
                                        "n tiles 0..7",
                                        "meet",
                                        "x.09",
                                        "x.10",
                                        "x.11",
                                        "7",
                                        "8",
                                        "h tile 9",
                                        "n tiles 8..15",
                                        "",
                                        "again",
                                        "big 99999999999999999999999",
                                        "h tile 10",
                                        "n tiles 4..7",
                                        "n tiles 8..11",
                                        "n tiles 12..15",
                                        "n tiles 12..16",
                                        "x..1",
                                        "x..2",
                                        "9..8",
                                        "9..9"};
  std::vector<ManifestEvents> names;
  for (size_t i = 0; i < all.size(); ++i) add_event_name(names, static_cast<int64_t>(i), all[i]);
  CHECK(names.size() == 16);
  for (size_t i = 0; i < all.size(); ++i)
    CHECK(event_name(names, static_cast<int64_t>(i)) == all[i]);
  CHECK(event_name({}, 0) == std::nullopt);
  CHECK(event_name({{3, "h"}}, 2) == std::nullopt);
}

TEST_CASE("a manifest of many events stays within its lines") {
  Manifest m = example();
  for (int i = 0; i < 40; ++i)
    m.peer_names.push_back({i + 1, std::string(static_cast<size_t>(i * 5), '\\') + "??"});
  const std::string source = kernel(m);
  check_lines(print_manifest(m));
  ManifestResult result = parse_manifest(source);
  REQUIRE(result.manifest);
  for (size_t i = 0; i < m.peer_names.size(); ++i)
    CHECK(result.manifest->peer_names[i].name == m.peer_names[i].name);
}

TEST_CASE("a manifest that was printed parses to the same") {
  const std::string source = kernel(example());
  ManifestResult result = parse_manifest(source);
  REQUIRE(result.manifest);
  CHECK(!result.edited);
  const Manifest& m = *result.manifest;
  CHECK(m.symmetric_bytes == int64_t{1} << 33);
  CHECK(m.tensors[0].shape[0] == Expr::var("tokens"));
  CHECK(m.tensors[1].dtype == DType::I32);
  CHECK(m.scalars[0].hi == 4095);
  CHECK(m.local_names[1].first == 12);
  CHECK(m.local_names[1].name == "down tiles 0..7");
  CHECK(m.graph == example().graph);
  CHECK(m.program_hash == text_hash("program p"));
  CHECK(text_hash("program p") != text_hash("program q"));
  CHECK(print_manifest(m) + kCode == source);
  check_lines(print_manifest(m));
}

TEST_CASE("no text of the graph can end the comment lines or get lost in them") {
  for (const std::string& nasty :
       {std::string(500, '\\'), std::string(500, '?'), std::string(500, ' '),
        std::string("?\?/\\\n*/"), std::string("\xc3\xa4\xe2\x82\xac \x01\t\r\"\" \\u0041"),
        std::string(""), std::string("\n\n"), std::string(3000, 'x'),
        std::string("#include <x>\\")}) {
    for (size_t shift = 0; shift < 4; ++shift) {
      Manifest m = example();
      m.graph = std::string(shift, 'a') + nasty + "b";
      m.calls[0].op = nasty;
      check_lines(print_manifest(m));
      ManifestResult result = parse_manifest(kernel(m));
      REQUIRE(result.manifest);
      CHECK(result.manifest->graph == m.graph);
      CHECK(result.manifest->calls[0].op == nasty);
    }
  }
}

TEST_CASE("an edit of the code is noticed, one of line ends is not") {
  const std::string source = kernel(example());
  CHECK(parse_manifest(replaced(source, "a = 1", "a = 2")).edited);
  std::string dos;
  for (char c : source) dos += c == '\n' ? std::string("\r\n") : std::string(1, c);
  REQUIRE(parse_manifest(dos).manifest);
  CHECK(!parse_manifest(dos).edited);
  CHECK(code_hash("a\nb") == code_hash("a\nb\n"));
  CHECK(code_hash("a\nb") != code_hash("ab\n"));
  CHECK(code_hash("").size() == 16);
}

TEST_CASE("a manifest that can't be used says why") {
  using test::Contains;
  const std::string source = kernel(example());
  CHECK_THAT(error_of("int main() {}\n"), Contains("no '//@maco' lines"));
  CHECK_THAT(error_of(""), Contains("no '//@maco' lines"));
  CHECK_THAT(error_of(replaced(source, "\"maco\":15", "\"maco\":16")),
             Contains("version 16 is newer than this program's 15"));
  CHECK_THAT(error_of(replaced(source, "\"maco\":15", "\"maco\":1")),
             Contains("version 1 is older than this program's 15: compile the graph again"));
  CHECK_THAT(error_of(replaced(source, "\"world\":2", "\"world\":0")),
             Contains("'world' is 0, not from 1"));
  CHECK_THAT(error_of(replaced(source, "\"world\":2", "\"world\":65")),
             Contains("'world' is 65, not from 1 to 64"));
  CHECK_THAT(error_of(replaced(source, "\"world\":2", "\"world\":\"2\"")),
             Contains("'world' is not an integer"));
  CHECK_THAT(error_of(replaced(source, "\"world\":2", "\"world\":18446744073709551615")),
             Contains("'world' is 18446744073709551615"));
  CHECK_THAT(error_of(replaced(source, "\"world\":2", "\"wurld\":2")),
             Contains("'world' is missing"));
  CHECK_THAT(error_of(replaced(source, "\"bf16\"", "\"bf17\"")), Contains("unknown dtype 'bf17'"));
  CHECK_THAT(error_of(replaced(source, "pos + rank", "pos +")), Contains("'values' holds"));
  CHECK_THAT(error_of(replaced(source, "12,\"down", "-1,\"down")), Contains("'local_names' is -1"));
  CHECK_THAT(error_of("//@maco [1,2]\n"), Contains("where an object with 'maco' was expected"));
  CHECK_THAT(error_of(source.substr(0, source.find("\"calls\""))), Contains("not JSON"));
}

}  // namespace maco::ir
