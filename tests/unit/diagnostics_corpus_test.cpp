// tests/diagnostics: malformed graphs and what is said about them.
//
// Each case is a graph and, beside it, a file `<case>.expected` with every diagnostic in order, as
// render() gives it but without the file's name and the excerpts of its lines.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/frontend/frontend.h"
#include "tests/catch.h"
#include "tests/paths.h"

using namespace maco;
namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string heads(const ir::Diagnostics& d) {
  std::istringstream lines(d.render());
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("g:", 0) == 0)
      result += line.substr(2) + "\n";
    else if (const size_t at = line.find("= in iteration");
             line[0] == ' ' && at != std::string::npos && line.find('|') == std::string::npos)
      result += "  " + line.substr(at + 2) + "\n";
    else if (line[0] != ' ')
      result += line + "\n";
  }
  return result;
}

}  // namespace

TEST_CASE("diagnostics: the corpus") {
  std::vector<fs::path> cases;
  for (const fs::directory_entry& e :
       fs::directory_iterator(test::source_path("tests/diagnostics")))
    if (e.path().extension() == ".json" || e.path().extension() == ".maco")
      cases.push_back(e.path());
  std::sort(cases.begin(), cases.end());
  REQUIRE(cases.size() >= 100);
  for (const fs::path& path : cases) {
    INFO(path.filename().string());
    ir::Diagnostics d;
    const int32_t file = d.add_file("g", read(path));
    const auto graph =
        path.extension() == ".json" ? frontend::parse_json(file, d) : frontend::parse_dsl(file, d);
    CHECK_FALSE(graph.has_value());
    CHECK(heads(d) == read(fs::path(path).replace_extension(".expected")));
  }
}
