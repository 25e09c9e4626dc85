#include "ir/diagnostics.h"

#include "tests/catch.h"

using maco::ir::Diagnostics;
using maco::ir::did_you_mean;

TEST_CASE("a diagnostic shows the line and a caret", "[diagnostics]") {
  Diagnostics d;
  const int32_t f = d.add_file("g.maco", "graph g {\n  y = relux(x)\n}\n");
  d.error({f, 2, 7, 5}, "unknown op 'relux'");
  d.note({f, 1, 1, 5}, "in this graph");
  CHECK(d.render() ==
        "g.maco:2:7: error: unknown op 'relux'\n"
        "    2 |   y = relux(x)\n"
        "      |       ^~~~~\n"
        "g.maco:1:1: note: in this graph\n"
        "    1 | graph g {\n"
        "      | ^~~~~\n");
  CHECK(d.errors() == 1);
  d.clear();
  CHECK_FALSE(d.has_errors());
  CHECK(d.render().empty());
}

TEST_CASE("places that are not known are left out", "[diagnostics]") {
  Diagnostics d;
  const int32_t f = d.add_file("g.json", "{}");
  d.warning({}, "no place");
  d.error({f, 0, 0, 1}, "only a file");
  CHECK(d.render() == "warning: no place\ng.json: error: only a file\n");
}

TEST_CASE("the caret stands under its text after tabs and letters of several bytes",
          "[diagnostics]") {
  Diagnostics d;
  const int32_t f = d.add_file("g", "\t\xc3\xa4\xc3\xb6 = x\r\n");
  d.error({f, 1, 9, 1}, "here");
  CHECK(d.render() ==
        "g:1:9: error: here\n"
        "    1 |     \xc3\xa4\xc3\xb6 = x\n"
        "      |          ^\n");
}

TEST_CASE("a caret may stand behind the end of its line", "[diagnostics]") {
  Diagnostics d;
  const int32_t f = d.add_file("g", "ab");
  d.error({f, 1, 3, 7}, "expected more");
  d.error({f, 9, 1, 1}, "no such line");
  CHECK(d.render() ==
        "g:1:3: error: expected more\n"
        "    1 | ab\n"
        "      |   ^\n"
        "g:9:1: error: no such line\n");
}

TEST_CASE("long lines are cut around the caret", "[diagnostics]") {
  Diagnostics d;
  const int32_t f = d.add_file("g", std::string(300, 'x') + "HERE" + std::string(300, 'y') + "\n");
  d.error({f, 1, 301, 4}, "cut");
  const std::string text = d.render();
  const size_t source = text.find('\n') + 1, carets = text.find('\n', source) + 1;
  CHECK(text.find("HERE") - source == text.find("^~~~") - carets);
  CHECK(text.find("| ...x") != std::string::npos);
  CHECK(text.find("y...\n") != std::string::npos);
  CHECK(carets - source < 120);
}

TEST_CASE("contexts are printed from the inside out", "[diagnostics]") {
  Diagnostics d;
  const int32_t f = d.add_file("g", "x_{i}\n");
  const int32_t outer = d.add_context("in iteration i = 3");
  const int32_t inner = d.add_context("in iteration j = 0", outer);
  d.error({f, 1, 1, 5, inner}, "used twice");
  CHECK(d.render() ==
        "g:1:1: error: used twice\n"
        "    1 | x_{i}\n"
        "      | ^~~~~\n"
        "      = in iteration j = 0\n"
        "      = in iteration i = 3\n");
}

TEST_CASE("colours only where they are wanted", "[diagnostics]") {
  Diagnostics d;
  d.error({}, "red");
  CHECK(d.render(false).find('\033') == std::string::npos);
  CHECK(d.render(true).find("\033[1;31merror:\033[0m") != std::string::npos);
}

TEST_CASE("close names are suggested", "[diagnostics]") {
  const std::vector<std::string> ops = {"matmul", "allreduce", "sum", "add"};
  CHECK(did_you_mean("alreduce", ops) == "; did you mean 'allreduce'?");
  CHECK(did_you_mean("matmlu", ops) == "; did you mean 'matmul'?");
  CHECK(did_you_mean("AllReduce", ops) == "; did you mean 'allreduce'?");
  CHECK(did_you_mean("sun", ops) == "; did you mean 'sum'?");
  CHECK(did_you_mean("convolution", ops).empty());
  CHECK(did_you_mean("", ops).empty());
}

TEST_CASE("of warnings of one kind only some are shown, and how many more there are",
          "[diagnostics]") {
  Diagnostics d;
  const int32_t f = d.add_file("g", "a\n");
  for (int i = 0; i < 5; ++i) {
    d.warning({f, i + 10, 1}, "nothing uses the result of 'y_" + std::to_string(i) + "'");
    d.note({f, i + 30, 1}, "it is here");
    if (i < 2) d.warning({}, "'a" + std::to_string(i) + "' isn't read in 1" + std::to_string(i));
  }
  d.warning({}, "another");
  d.error({}, "wrong");
  CHECK(d.render(false, 0, 2) ==
        "g:10:1: warning: nothing uses the result of 'y_0'\n"
        "g:30:1: note: it is here\n"
        "warning: 'a0' isn't read in 10\n"
        "g:11:1: warning: nothing uses the result of 'y_1'\n"
        "g:31:1: note: it is here\n"
        "note: and 3 more warnings like this\n"
        "warning: 'a1' isn't read in 11\n"
        "warning: another\n"
        "error: wrong\n");
  CHECK(d.limited(0).size() == d.all().size());
  CHECK(d.render(false, 0, 0) == d.render());
  CHECK(d.limited(4).size() == d.all().size() - 1);  // a warning and its note less, a note more
}

TEST_CASE("of warnings of all iterations of a repeat one is shown", "[diagnostics]") {
  Diagnostics d;
  const int32_t f = d.add_file("g", "a\nb\n");
  for (int i = 0; i < 4; ++i) {
    const int32_t context = d.add_context("in iteration i = " + std::to_string(i));
    d.warning({f, 1, 1, 1, context}, "'a_" + std::to_string(i) + "' is left out");
    d.warning({f, 2, 1, 1, context}, "'b_" + std::to_string(i) + "' is left out");
  }
  CHECK(d.render(false, 0, 20) ==
        "g:1:1: warning: 'a_0' is left out\n"
        "    1 | a\n"
        "      | ^\n"
        "      = in iteration i = 0\n"
        "note: the same in 3 more iterations\n"
        "g:2:1: warning: 'b_0' is left out\n"
        "    2 | b\n"
        "      | ^\n"
        "      = in iteration i = 0\n"
        "note: the same in 3 more iterations\n");
  CHECK(d.limited(0).size() == 8);
}
