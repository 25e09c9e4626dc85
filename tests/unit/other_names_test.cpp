// What other projects call things: each hint is of something that MACO has.
#include "compiler/ops/other_names.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "compiler/ops/op.h"
#include "tests/catch.h"

using namespace maco;

namespace {

/// Words of `text` that stand in front of '(', as calls.
std::vector<std::string> calls_in(const std::string& text) {
  std::vector<std::string> calls;
  for (size_t open = text.find('('); open != std::string::npos; open = text.find('(', open + 1)) {
    size_t begin = open;
    while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) != 0 ||
                         text[begin - 1] == '_'))
      --begin;
    if (begin < open) calls.push_back(text.substr(begin, open - begin));
  }
  return calls;
}

}  // namespace

TEST_CASE("other names of ops lead to ops that there are", "[names]") {
  const std::vector<std::string> names = ops::other_op_names();
  CHECK(names.size() > 150);
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
  for (const std::string& name : names) {
    INFO(name);
    CHECK(ops::find_op(name) == nullptr);
    const std::string hint = ops::hint_for_op(name);
    INFO(hint);
    REQUIRE(hint.substr(0, 2) == "; ");
    for (const std::string& call : calls_in(hint)) CHECK(ops::find_op(call) != nullptr);
    const std::string asks = "did you mean '";
    if (const size_t at = hint.find(asks); at != std::string::npos) {
      const size_t begin = at + asks.size();
      CHECK(ops::find_op(hint.substr(begin, hint.find('\'', begin) - begin)) != nullptr);
    }
  }
}

TEST_CASE("every op is recognised in other spellings", "[names]") {
  for (const std::string& kind : ops::op_kinds()) {
    std::string camel = kind;
    camel[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(camel[0])));
    CHECK(ops::synonym_of(camel) == kind);
    CHECK(ops::synonym_of("torch.nn." + kind) == kind);
    CHECK(ops::synonym_of(kind + "_") == kind);
  }
  CHECK(ops::synonym_of("ncclAllReduce") == "allreduce");
  CHECK(ops::hint_for_op("nothing.known").empty());
  CHECK(ops::hint_for_op("").empty());
}

TEST_CASE("a word of another project is one of those that may stand there", "[names]") {
  CHECK(ops::did_you_mean("float32", {"f32", "f16"}) == "; did you mean 'f32'?");
  CHECK(ops::did_you_mean("float32", {"i32", "u8"}).empty());
  CHECK(ops::did_you_mean("int", {"input", "scalar"}) == "; did you mean 'scalar'?");
  CHECK(ops::did_you_mean("int", {"f32", "i32"}) == "; did you mean 'i32'?");
  CHECK(ops::did_you_mean("sumn", {"sum", "max"}) == "; did you mean 'sum'?");
}

TEST_CASE("attributes of other projects", "[names]") {
  CHECK(ops::hint_for_attr("matmul", "transpose_b").empty());
  CHECK(ops::hint_for_attr("matmul", "trans_b") == "; did you mean 'transpose_b'?");
  CHECK(ops::hint_for_attr("matmul", "transpose_a").find("transpose(a)") != std::string::npos);
  CHECK(ops::hint_for_attr("concat", "dim") == "; did you mean 'axis'?");
  CHECK(ops::hint_for_attr("softmax", "dim") == "; 'softmax' is over the last axis, always");
  CHECK(ops::hint_for_attr("relu", "dim").empty());
}
