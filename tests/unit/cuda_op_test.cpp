// The words of an op's `options`.
#include "ir/cuda_op.h"

#include <fstream>
#include <random>
#include <set>

#include "compiler/frontend/cuda/unit_words.h"
#include "tests/catch.h"
#include "tests/paths.h"

using namespace maco;
using Words = std::vector<std::string>;

TEST_CASE("options are taken apart as a shell does") {
  CHECK(ir::split_options("") == Words{});
  CHECK(ir::split_options("  -Ia  -D B=1\t\n-I .. ") == Words{"-Ia", "-D", "B=1", "-I", ".."});
  CHECK(ir::split_options("-D'A=b c' '-I my dir'") == Words{"-DA=b c", "-I my dir"});
  CHECK(ir::split_options(R"(-DA="x \"y\" 'z'" -DB=\"s\" -DC='\n')") ==
        Words{R"(-DA=x "y" 'z')", R"(-DB="s")", R"(-DC=\n)"});
  CHECK(ir::split_options("'' \"\"") == Words{"", ""});
  CHECK_FALSE(ir::split_options("-DA='b"));
  CHECK_FALSE(ir::split_options("\""));
}

TEST_CASE("any word can be written") {
  std::mt19937 random(1);
  const std::string letters = "ab =-I'\"\\ \t\n$";
  for (int round = 0; round < 500; ++round) {
    Words words(random() % 4);
    std::string text;
    for (std::string& word : words) {
      for (size_t n = random() % 6; n > 0; --n) word += letters[random() % letters.size()];
      text += " " + ir::option_word(word);
    }
    CAPTURE(text);
    CHECK(ir::split_options(text) == words);
  }
}

TEST_CASE("what a macro is called") {
  CHECK(ir::macro_name("A") == "A");
  CHECK(ir::macro_name("_b2=") == "_b2");
  CHECK(ir::macro_name("A=b=c") == "A");
  for (const char* wrong : {"", "=1", "2", "A B=1", "F(x)=x", "-DA"})
    CHECK(ir::macro_name(wrong).empty());
}

TEST_CASE("words of units are those that their header defines") {
  std::ifstream file(test::source_path("runtime/device/cuda/words.cuh"));
  std::set<std::string> defined;
  for (std::string line; std::getline(file, line);) {
    const std::string define = "#define ";
    if (line.rfind(define, 0) != 0) continue;
    const std::string name = line.substr(define.size());
    defined.insert(name.substr(0, name.find_first_of(" (")));
  }
  for (const std::string& name : defined) {
    CAPTURE(name);
    CHECK(frontend::cuda::is_unit_word(name));
  }
  for (const std::string_view word : frontend::cuda::kUnitWords)
    CHECK(defined.count(std::string(word)) == 1);
}
