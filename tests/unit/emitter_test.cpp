// Layout of emitted code.
#include "compiler/codegen/emitter.h"

#include "tests/catch.h"

namespace maco::codegen {

TEST_CASE("a lone statement stays in its function's line where that fits") {
  CHECK(function_text(0, "int f", {}, {"return 1;"}) == "int f() { return 1; }\n");
  CHECK(function_text(0, "int f", {"int a", "int b"}, {"return a;"}, "const ") ==
        "int f(int a, int b) const { return a; }\n");
  const std::string declaration = "int " + std::string(80, 'f');  // 84 columns, and "() { }" 100
  CHECK(function_text(0, declaration, {}, {"return a;"}) == declaration + "() { return a; }\n");
  CHECK(function_text(1, declaration, {}, {"return a;"}) == declaration + "() {\n  return a;\n}\n");
  CHECK(function_text(0, "template <class T>\nint f", {}, {"return 1;"}) ==
        "template <class T>\nint f() {\n  return 1;\n}\n");
  CHECK(function_text(0, "int f", {}, {"switch (a) {\n  default: break;\n}"}) ==
        "int f() {\n  switch (a) {\n    default: break;\n  }\n}\n");
}

TEST_CASE("items that don't fit continue below the first") {
  CHECK(filled(0, "f(", {"a", "b"}, ");") == "f(a, b);");
  CHECK(filled(0, "f(", {}, ");") == "f();");
  const std::string item(45, 'x');
  CHECK(filled(0, "f(", {item, item, "y"}, ");") == "f(" + item + ", " + item + ", y);");
  CHECK(filled(2, "f(", {item, item, "y"}, ");") == "f(" + item + ", " + item + ",\n  y);");
  CHECK(filled(0, "return ", {item, item, "y"}, ";", " ||") ==
        "return " + item + " ||\n       " + item + " || y;");
}

TEST_CASE("what is too wide for a line is kept from the formatter, tables as a whole") {
  const std::string wide(120, 'x');
  Emitter e;
  {
    auto s = e.scope("struct S", "};");
    e.raw(wide);
    e.raw("// " + wide);
  }
  {
    auto t = e.table("const int t[] =");
    e.raw(wide);
  }
  CHECK(e.take() == "struct S {\n  // clang-format off\n  " + wide +
                        "\n  // clang-format on\n  // " + wide +
                        "\n};\n// clang-format off\nconst int t[] = {\n  " + wide +
                        "\n};\n// clang-format on\n");
}

}  // namespace maco::codegen
