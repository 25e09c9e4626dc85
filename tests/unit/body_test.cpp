// Bodies of fused ops: text, checks, the code made of them.
#include "ir/body.h"

#include <string>
#include <string_view>

#include "compiler/codegen/body.h"
#include "compiler/codegen/params.h"
#include "ir/program.h"
#include "tests/catch.h"

namespace maco {
namespace {

using ir::DType;
using ir::Spread;

// How it is laid out is tests/lint/emitted_test.py's.
std::string flat(std::string_view code) {
  std::string out;
  for (const char c : code)
    if (c != ' ' && c != '\n')
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  return out;
}

TEST_CASE("bodies: text, checks, code") {
  std::string error;
  const std::string text =
      "t0 = copy(%0) : bf16; t1 = add(t0, %1) : bf16; t2 = mul(t1, value=0.5) : f32";
  const auto body = ir::parse_body(text, error);
  REQUIRE(body);
  CHECK(ir::print(*body) == text);
  CHECK(ir::parse_body(ir::print(*body), error) == body);
  CHECK(body->operands() == 2);
  const ir::BodyParam full{*body, {{Spread::Full, DType::F32}, {Spread::Column, DType::BF16}}};
  CHECK(flat(codegen::apply_member(full)) ==
        "static MACO_FN float apply(float v0, float v1) { float t0 = round_to<bf16>(v0); "
        "float t1 = round_to<bf16>(fn::add(t0, v1)); return fn::mul(t1, 0.5f); } ");
  CHECK(codegen::element_members(full) ==
        "using operands = ops::Operands<ops::Full<float>, ops::Column<bf16>>;\n"
        "static constexpr bool moves = false;\n" +
            codegen::apply_member(full));
  CHECK(ir::check_body(*body, {DType::F32, DType::I32}) ==
        "'add' cannot mix bf16 and i32; cast one of them");

  const auto integers =
      ir::parse_body("a = mul(%0, value=-2147483648) : i32; b = cast(a) : bf16", error);
  REQUIRE(integers);
  CHECK(ir::check_body(*integers, {DType::I32}).empty());
  CHECK(
      flat(codegen::apply_member({*integers, {{Spread::Full, DType::I32}}})) ==
      "static MACO_FN i32 apply(i32 v0) { i32 t0 = fn::mul(v0, (-2147483647 - 1)); return t0; } ");

  CHECK(!ir::parse_body("t0 = add(%0) : f32", error));
  CHECK_THAT(error, Catch::Matchers::Contains("takes 2 arguments, not 1"));
  CHECK(!ir::parse_body("t0 = relu(t1) : f32", error));
  CHECK_THAT(error, Catch::Matchers::Contains("unknown step 't1'"));
}

TEST_CASE("floats of 16 bits take a shorter silu and gelu, integers and others don't") {
  const auto text = [](const std::string& result) {
    std::string error;
    const auto body =
        ir::parse_body("t0 = swiglu(%0, %1) : " + result + "; t1 = silu(t0) : " + result +
                           "; t2 = gelu(t1) : " + result + "; t3 = gelu_tanh(t2) : " + result +
                           "; t4 = copy(t3) : f32",
                       error);
    REQUIRE(body);
    return codegen::members(
        *functions::find_function("matmul"),
        {"epilogue",
         ir::BodyParam{*body, {{Spread::Accumulator, DType::F32}, {Spread::Column, DType::F32}}}});
  };
  for (const std::string near : {"bf16", "f16", "f8e4m3", "f8e5m2"}) {
    CAPTURE(near);
    CHECK_THAT(text(near), Catch::Matchers::Contains("fn::mul(fn::near_silu(v0), v1)") &&
                               Catch::Matchers::Contains("fn::near_silu(t0)") &&
                               Catch::Matchers::Contains("fn::near_gelu(t1)") &&
                               Catch::Matchers::Contains("fn::near_gelu_tanh(t2)"));
  }
  for (const std::string whole : {"f32", "u8"}) {
    CAPTURE(whole);
    CHECK_THAT(text(whole), !Catch::Matchers::Contains("fn::near_"));
  }
}

TEST_CASE("comparisons give 0 or 1 as an integer, or as a float where that is asked for") {
  std::string error;
  const auto body = ir::parse_body(
      "t0 = gt(%0, value=0.5) : u8; t1 = where(t0, %0, value=-2) : bf16; "
      "t2 = le(t1, %1) : f32; t3 = clamp(t2, value=0, value=2) : f32",
      error);
  REQUIRE(body);
  const ir::BodyParam floats{*body, {{Spread::Full, DType::BF16}, {Spread::Full, DType::F32}}};
  CHECK(ir::check_body(floats).empty());
  CHECK(flat(codegen::apply_member(floats)) ==
        "static MACO_FN float apply(float v0, float v1) { i32 t0 = fn::gt(v0, 0.5f); "
        "float t1 = round_to<bf16>(fn::where(t0, v0, -2.0f)); float t2 = fn::le(t1, v1); "
        "return fn::clamp(t2, 0.0f, 2.0f); } ");
  const auto bytes =
      ir::parse_body("t0 = eq(%0, value=1) : u8; t1 = where(t0, %0, %0) : u8", error);
  REQUIRE(bytes);
  CHECK(flat(codegen::apply_member({*bytes, {{Spread::Full, DType::U8}}})) ==
        "static MACO_FN i32 apply(i32 v0) { i32 t0 = fn::eq(v0, 1); "
        "return fn::where(t0, v0, v0); } ");
  const auto why = [&](const char* text, const std::vector<DType>& types) {
    const auto parsed = ir::parse_body(text, error);
    REQUIRE(parsed);
    return ir::check_body(*parsed, types);
  };
  CHECK(why("t0 = eq(%0, %1) : u8", {DType::U8, DType::U8}).empty());
  CHECK(why("t0 = eq(%0, %1) : u8", {DType::I32, DType::U8}) ==
        "'eq' cannot mix i32 and u8; cast one of them");
  CHECK(why("t0 = where(%0, %1, %1) : i32", {DType::I32, DType::I32}) ==
        "the condition of 'where' is u8, not i32; write ne(condition, value = 0)");
  CHECK(why("t0 = where(value=1, %0, %0) : i32", {DType::I32}) ==
        "the condition of 'where' is u8, not a number");
  CHECK(why("t0 = where(%0, %1, value=0.5) : i32", {DType::U8, DType::I32}) ==
        "0.5 is not an integer, but 'where' computes in i32 here");
  CHECK(why("t0 = div(%0, %0) : i32", {DType::I32}) ==
        "'div' is not defined for i32; cast it to a float type first");
}

TEST_CASE("powers that are products are written so") {
  std::string error;
  const auto body = ir::parse_body(
      "t0 = pow(%0, value=2) : f32; t1 = pow(t0, value=-1) : f32; t2 = pow(t1, value=0.5) : f32; "
      "t3 = pow(t2, %0) : f32; t4 = geglu(t3, %0) : f32; t5 = geglu_tanh(t4, %0) : bf16; "
      "t6 = copy(t5) : f32",
      error);
  REQUIRE(body);
  CHECK(flat(codegen::apply_member({*body, {{Spread::Full, DType::F32}}})) ==
        "static MACO_FN float apply(float v0) { float t0 = fn::power<2>(v0); "
        "float t1 = fn::power<-1>(t0); float t2 = fn::pow(t1, 0.5f); float t3 = fn::pow(t2, v0); "
        "float t4 = fn::mul(fn::gelu(t3), v0); "
        "float t5 = round_to<bf16>(fn::mul(fn::near_gelu_tanh(t4), v0)); return t5; } ");
}

TEST_CASE("an epilogue rounds what was stored before fusion, and nothing else") {
  std::string error;
  // Bias and activation in f32, then the product's own dtype.
  const auto body = ir::parse_body(
      "t0 = add(%0, %1) : f32; t1 = silu(t0) : f32; t2 = copy(t1) : bf16; "
      "t3 = mul(t2, %2) : bf16; t4 = add(t3, %3) : bf16",
      error);
  REQUIRE(body);
  const ir::BodyParam epilogue{*body,
                               {{Spread::Accumulator, DType::F32},
                                {Spread::Column, DType::F16},
                                {Spread::Full, DType::BF16},
                                {Spread::Single, DType::F32}}};
  CHECK(ir::check_body(epilogue).empty());
  CHECK(flat(codegen::members(*functions::find_function("matmul"), {"epilogue", epilogue})) ==
        flat("static MACO_FN float apply(float v0, float v1, float v2, float v3) { "
             "float t0 = fn::add(v0, v1); float t1 = fn::silu(t0); float t2 = round_to<bf16>(t1); "
             "float t3 = round_to<bf16>(fn::mul(t2, v2)); return fn::add(t3, v3); }\n"
             "struct More { float v1; float v2; float v3; };\n"
             "struct Asks {\n"
             "  Asked<1, const f16*> v1;\n"
             "  Asked<1, const bf16*> v2;\n"
             "  Asked<1, const float*> v3;\n"
             "  MACO_FN void ask(const Args& args, i64 row, i64 col) {\n"
             "    (void)args, (void)row, (void)col;\n"
             "    v1.ask(args.ptr<const f16>(3) + col);\n"
             "    v2.ask(args.ptr<const bf16>(4) + row * N + col);\n"
             "    v3.ask(args.ptr<const float>(5));\n"
             "  }\n"
             "  MACO_FN More more(const Args& args) {\n"
             "    (void)args;\n"
             "    return {to_acc(v1.take(args.ctx, 3).v[0]), to_acc(v2.take(args.ctx, 4).v[0]), "
             "to_acc(v3.take(args.ctx, 5).v[0])};\n"
             "  }\n"
             "};\n"
             "static MACO_FN More fetch(const Args& args, i64 row, i64 col) {\n"
             "  Asks asks;\n"
             "  asks.ask(args, row, col);\n"
             "  return asks.more(args);\n"
             "}\n"
             "template <int V>\n"
             "struct MoreRun {\n"
             "  Elements<f16, V> v1;\n"
             "  Elements<bf16, V> v2;\n"
             "  float v3;\n"
             "  MACO_FN void load(const Args& args, i64 element, i64 col) {\n"
             "    (void)args, (void)element, (void)col;\n"
             "    v1.load(args.ptr<const f16>(3) + col);\n"
             "    v2.load(args.ptr<const bf16>(4) + element);\n"
             "    v3 = gload(args.ptr<const float>(5));\n"
             "  }\n"
             "  MACO_FN More at(int i) const {\n"
             "    (void)i;\n"
             "    return {to_acc(v1.get(i)), to_acc(v2.get(i)), to_acc(v3)};\n"
             "  }\n"
             "};\n"
             "static MACO_FN auto finish(const More& more, float sum) {\n"
             "  (void)more;\n"
             "  return apply(sum, more.v1, more.v2, more.v3);\n"
             "}\n"
             "static MACO_FN auto finish(const Args& args, i64 row, i64 col, float sum) {\n"
             "  return finish(fetch(args, row, col), sum);\n"
             "}\n"));
}

TEST_CASE("what a parameter's body can't be") {
  std::string error;
  const auto check = [&](const char* text, std::vector<ir::BodyOperand> operands) {
    const auto body = ir::parse_body(text, error);
    REQUIRE(body);
    return ir::check_body(ir::BodyParam{*body, std::move(operands)});
  };
  CHECK(check("t0 = add(%0, %1) : f32", {{Spread::Full, DType::F32}}) ==
        "uses operand %1, but there are 1 operands");
  CHECK(check("t0 = add(%0, %1) : f32",
              {{Spread::Full, DType::F32}, {Spread::Accumulator, DType::F32}}) ==
        "operand %1 is an accumulator, which only the first ones may be");
  CHECK(check("t0 = copy(%0) : f32", {{Spread::Accumulator, DType::BF16}}) ==
        "an accumulator is f32 or i32, not bf16");
  CHECK(check("t0 = silu(%0) : f32", {{Spread::Full, DType::I32}}) ==
        "'silu' is not defined for i32; cast it to a float type first");
  CHECK(ir::check_body(ir::BodyParam{}) == "has no steps");
}

}  // namespace
}  // namespace maco
