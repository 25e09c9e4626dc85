// What weights.json may say.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/weights/load.h"
#include "runtime/weights/map.h"
#include "tests/catch.h"
#include "tests/unit/weights_files.h"

namespace maco::runtime {
namespace {

using nlohmann::json;
using test::Contains;

json example() {
  return json::parse(R"({
    "maco_weights": 1, "architecture": "A", "world": 2, "dtype": "bf16", "max_seq": 64, "chunk": 8,
    "verify_rows": 4, "vocabulary": 32, "eos": [3, 4],
    "files": [{"name": "a.safetensors", "bytes": 1000}, {"name": "b.safetensors", "bytes": 500}],
    "sources": {"big": {"file": 0, "dtype": "BF16", "shape": [8, 2, 2], "begin": 100},
                "row": {"file": 1, "dtype": "F32", "shape": [6], "begin": 476},
                "nothing": {"file": 1, "dtype": "F16", "shape": [0, 5], "begin": 500}},
    "params": {
      "all": {"dtype": "bf16", "shape": [8, 4], "parts": [{"from": "big"}]},
      "cut": {"dtype": "f16", "shape": [4, 6],
              "ranks": [[{"from": "big", "rows": [0, 4], "columns": [1, 3], "to": [0, 4]}, {"from": "row", "rows": [0, 4]}],
                        [{"from": "big", "rows": [2, 4], "transpose": true, "to": [0, 1], "plus": 1}]]},
      "own": {"dtype": "f32", "shape": [3], "values": [1, 0.5, -2]}}})");
}
std::string error_of(const json& text) { return parse_weights(text.dump()).error; }
// After a change of the example.
std::string error_with(const std::function<void(json&)>& change) {
  json text = example();
  change(text);
  return error_of(text);
}

TEST_CASE("weights.json is read as it says", "[weights]") {
  const auto [map, error] = parse_weights(example().dump());
  REQUIRE(error.empty());
  CHECK((map->world == 2 && map->max_seq == 64 && map->chunk == 8 && map->verify_rows == 4));
  CHECK((map->vocabulary == 32 && map->eos == std::vector<int64_t>{3, 4} && map->dtype == "bf16"));
  CHECK((map->files.size() == 2 && map->files[1].bytes == 500));
  const WeightParam* all = map->find("all");
  REQUIRE(all);
  CHECK((all->same && all->rows == 8 && all->cols == 4 && all->parts_of(1).size() == 1));
  CHECK((all->parts[0][0].rows == 8 && all->parts[0][0].cols == 4 && !all->parts[0][0].plus));
  const WeightParam* cut = map->find("cut");
  REQUIRE(cut);
  CHECK((!cut->same && cut->parts_of(0).size() == 2 && cut->parts_of(1).size() == 1));
  const WeightPart& turned = cut->parts_of(1)[0];
  CHECK((turned.height() == 4 && turned.width() == 2 && turned.plus == 1.0f));
  CHECK(map->find("own")->values == std::vector<float>{1, 0.5f, -2});
  CHECK(map->find("none") == nullptr);
  CHECK(parse_weights("{", "w").error == "w: is no JSON: byte 2 is wrong");
}

TEST_CASE("what is wrong with weights.json is told by name", "[weights]") {
  using Change = std::function<void(json&)>;
  const auto set = [](const std::string& at, const json& value) {
    return [=](json& all) { all[json::json_pointer(at)] = value; };
  };
  const auto drop = [](const std::string& at, const std::string& key) {
    return [=](json& all) { all[json::json_pointer(at)].erase(key); };
  };
  const std::pair<Change, const char*> wrong[] = {
      {set("/maco_weights", 2), "is of version 2, and this program knows 1"},
      {drop("", "maco_weights"), "has no 'maco_weights'"},
      {drop("", "files"), "has no 'files'"},
      {set("/worlds", 2), "unknown key 'worlds'; did you mean 'world'?"},
      {set("/world", 0), "'world' is no integer from 1 on"},
      {set("/world", 1.5), "'world' is no integer"},
      {set("/max_seq", -1), "'max_seq' is no integer from 0 on"},
      {set("/eos", 3), "'eos' is no list"},
      {set("/eos", {"a"}), "'eos' has something other than integers"},
      {set("/eos", {18446744073709551615u}), "'eos' has something other than integers"},
      {set("/dtype", "f64"), "'dtype' is 'f64', but weights are f32, f16 or bf16"},
      {set("/architecture", 1), "'architecture' is no text"},
      {set("/params", json::array()), "'params' is no object"},
      {set("/files/0", "a"), "file 0: is no object"},
      {set("/files/0/size", 1), "file 0: unknown key 'size'"},
      {set("/files/0/name", "../a"),
       "file 0: '../a' is no name of a file in the checkpoint's folder"},
      {set("/files/0/name", "/etc/a"), "file 0: '/etc/a' is no name"},
      {set("/files/0/name", "a/b"), "file 0: 'a/b' is no name"},
      {set("/files/0/name", ".."), "file 0: '..' is no name"},
      {set("/files/0/name", ""), "file 0: '' is no name"},
      {set("/files/0/name", std::string("a\0b", 3)), "is no name"},
      {set("/files/1/name", "a.safetensors"), "file 1: 'a.safetensors' is there twice"},
      {set("/sources/big/file", 2), "source 'big': there is no file 2, but 2 of them"},
      {set("/sources/big/dtype", "F8_E4M3"), "source 'big': its dtype is 'F8_E4M3', but weights"},
      {set("/sources/big/dtype", "bf16"), "source 'big': its dtype is 'bf16', but weights"},
      {set("/sources/big/begin", 937),
       "source 'big': its 64 bytes from 937 on are outside of 'a.safetensors', which has 1000"},
      {set("/sources/big/shape", {1 << 30, 1 << 30, 1 << 30}),
       "source 'big': its shape [1073741824,1073741824,1073741824] is too large"},
      {set("/sources/big/shape", {-1}), "source 'big': 'shape' has something other than integers"},
      {set("/params/all/dtype", "i32"), "param 'all': 'dtype' is 'i32', but weights"},
      {set("/params/all/shape", {0, 4}),
       "param 'all': 'shape' has something other than integers from 1"},
      {set("/params/all/shape", json::array()), "param 'all': its shape [] has 0 axes, not 1 to 4"},
      {set("/params/all/values", {1}), "param 'all': it has to have one of"},
      {drop("/params/all", "parts"), "param 'all': it has to have one of 'parts', 'ranks' and"},
      {set("/params/all/parts/0/form", 1),
       "param 'all', part 0: unknown key 'form'; did you mean 'from'?"},
      {set("/params/all/parts/0/from", "bog"), "param 'all', part 0: there is no source 'bog'"},
      {set("/params/all/parts/0/rows", {0, 9}),
       "param 'all', part 0: rows [0, 9) are outside of 'big' [8,2,2], which has 8"},
      {set("/params/all/parts/0/rows", {5, 4}), "part 0: rows [5, 4) are outside"},
      {set("/params/all/parts/0/rows", {1}), "part 0: 'rows' has 1 numbers, not two"},
      {set("/params/all/parts/0/columns", {0, 5}),
       "part 0: columns [0, 5) are outside of 'big' [8,2,2], which has 4"},
      {set("/params/all/parts/0/to", {1, 0}),
       "part 0: its 8 x 4 box at row 1, column 0 is outside of the param, which has 8 x 4"},
      {set("/params/all/parts/0/to", {0, 9223372036854775807}), "part 0: its 8 x 4 box"},
      {set("/params/all/parts/0/transpose", true),
       "part 0: its 4 x 8 box at row 0, column 0 is outside"},
      {set("/params/all/parts/0/transpose", 1), "part 0: 'transpose' is neither true nor false"},
      {set("/params/all/parts/0/plus", "1"), "part 0: 'plus' is no number"},
      {set("/params/all/parts/0/plus", 1e300), "part 0: 'plus' is no f32 number"},
      {set("/params/all/parts/1", {{"from", "big"}, {"rows", {7, 8}}, {"to", {7, 0}}}),
       "param 'all': parts 0 and 1 overlap"},
      {set("/params/cut/ranks/2", json::array()), "param 'cut': 'ranks' has 3 lists for 2 ranks"},
      {set("/params/cut/ranks/1", 3), "param 'cut', rank 1: is no list"},
      {set("/params/cut/ranks/0/1/to", {0, 4}), "param 'cut', rank 0: parts 0 and 1 overlap"},
      {set("/params/own/values", {1, 2}), "param 'own': 'values' has 2 numbers for [3]"},
      {set("/params/own/values", {1, 2, "3"}),
       "param 'own': 'values' has something other than f32"},
      {set("/params/own/values", {1, 2, 1e39}),
       "param 'own': 'values' has something other than f32"},
  };
  for (const auto& [change, says] : wrong) {
    const std::string error = error_with(change);
    CHECK_THAT(error, Contains(says));
    CHECK(error.rfind("weights.json: ", 0) == 0);
  }
  CHECK_THAT(parse_weights(R"({"maco_weights": 1, "world": 1, "world": 2})").error,
             Contains("names 'world' twice"));
  CHECK_THAT(parse_weights("[]").error, Contains("is no object"));
  CHECK_THAT(parse_weights("").error, Contains("is no JSON"));
  CHECK_THAT(parse_weights("{\"\xff\": 1}").error, Contains("is no JSON"));
}

TEST_CASE("what is empty or absent is right where it can be", "[weights]") {
  CHECK(error_with([](json& all) {
          for (const char* key :
               {"architecture", "dtype", "max_seq", "chunk", "verify_rows", "vocabulary", "eos"})
            all.erase(key);
        }) == "");
  CHECK(error_with([](json& all) { all["params"]["all"]["parts"] = json::array(); }) == "");
  CHECK(error_with([](json& all) {
          all["params"]["all"]["parts"] = {{{"from", "nothing"}, {"to", {8, 4}}}};
        }) ==
        "weights.json: param 'all', part 0: its 0 x 5 box at row 8, column 4 is outside of the "
        "param, which has 8 x 4");
  // Boxes without elements overlap nothing.
  CHECK(error_with([](json& all) {
          all["params"]["all"]["parts"][1] = {{"from", "big"}, {"rows", {3, 3}}, {"to", {2, 0}}};
        }) == "");
}

TEST_CASE("a kernel's params are held to weights.json", "[weights]") {
  const auto map = *parse_weights(example().dump()).map;
  const WeightWanted all{"all", ir::DType::BF16, {8, 4}}, own{"own", ir::DType::F32, {3}};
  CHECK(check_weights(map, 2, {all, own}));
  CHECK(check_weights(map, 2, {}));
  CHECK(check_weights(map, 1, {all}).message ==
        "the weights are cut for 2 ranks, but the kernel has 1");
  CHECK(check_weights(map, 2, {{"al", ir::DType::BF16, {8, 4}}}).message ==
        "the weights have no param 'al'; did you mean 'all'?");
  CHECK(check_weights(map, 2, {{"x", {}, {1}}, all, {"y", {}, {1}}}).message ==
        "the weights have no params 'x', 'y'");
  std::vector<WeightWanted> many;
  for (int i = 0; i < 10; ++i) many.push_back({"x" + std::to_string(i), {}, {1}});
  CHECK_THAT(check_weights(map, 2, many).message, Contains("'x7' and 2 more of the kernel's"));
  CHECK(check_weights(map, 2, {{"own", ir::DType::F16, {3}}}).message ==
        "param 'own' is f32[3] in the weights, but the kernel wants f16[3]");
  CHECK(check_weights(map, 2, {{"all", ir::DType::BF16, {32}}}).message ==
        "param 'all' is bf16[8,4] in the weights, but the kernel wants bf16[32]");
}

}  // namespace
}  // namespace maco::runtime
