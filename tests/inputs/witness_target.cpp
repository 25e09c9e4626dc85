// A witness of a Program. `%` in the input stands for the Program's name and hash, which no
// mutation would find.
#include "compiler/api/compile.h"
#include "compiler/verify/witness.h"
#include "ir/program_text.h"
#include "tests/inputs/target.h"

namespace {

using namespace maco;

const ir::Program& a_program() {
  static const ir::Program program = [] {
    ir::Diagnostics diagnostics;
    auto graph = api::read_graph("a graph",
                                 "graph g(world = 2) {\n  input x : f32[4, 8]\n"
                                 "  y = allreduce(x)\n  output z = relu(y)\n}\n",
                                 diagnostics);
    inputs::require(graph.has_value(), "the graph is right");
    api::Options options;
    options.sms = 2;
    auto compiled = api::compile(std::move(*graph), options, diagnostics);
    inputs::require(compiled.has_value(), "the graph can be compiled");
    return std::move(compiled->program);
  }();
  return program;
}
// "g 0123456789abcdef": what print says between `of` and the end of the line.
const std::string& name_and_hash() {
  static const std::string text = [] {
    const std::string line = verify::print(a_program(), verify::Witness{});
    const size_t of = line.find(" of ");
    return line.substr(of + 4, line.find('\n') - of - 4);
  }();
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text = inputs::text_of(data, size);
  if (const size_t at = text.find('%'); at != std::string::npos)
    text.replace(at, 1, name_and_hash());
  ir::Diagnostics diagnostics;
  const auto witness =
      verify::parse_witness(diagnostics.add_file("input", text), a_program(), diagnostics);
  inputs::require(witness.has_value() != diagnostics.has_errors(), "an error is a witness less");
  if (!witness) return 0;
  const std::string printed = verify::print(a_program(), *witness);
  ir::Diagnostics of_text;
  const auto again =
      verify::parse_witness(of_text.add_file("printed", printed), a_program(), of_text);
  inputs::require(again && *again == *witness, "a printed witness reads as the same");
  return 0;
}
