// A Program: it is printed and read again as the same, and the verifier judges it.
#include "compiler/frontend/dumps.h"
#include "compiler/verify/verify.h"
#include "ir/program_text.h"
#include "tests/inputs/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace maco;
  ir::Diagnostics diagnostics;
  const auto program = frontend::parse_program(
      diagnostics.add_file("input", inputs::text_of(data, size)), diagnostics);
  inputs::require(program.has_value() != diagnostics.has_errors(), "an error is a Program less");
  if (!program) return 0;
  const std::string text = ir::print(*program);
  ir::Diagnostics of_text;
  const auto again = frontend::parse_program(of_text.add_file("printed", text), of_text);
  if (!again) std::fputs(of_text.render().c_str(), stderr);
  inputs::require(again && *again == *program && ir::print(*again) == text,
                  "a printed Program reads as the same");
  verify::verify(*program, diagnostics);
  return 0;
}
