// Graphs given as text, compiled. Fails the test case where that goes wrong.
#pragma once

#include <string>
#include <utility>

#include "compiler/api/compile.h"
#include "tests/catch.h"

namespace maco::test {

/// Options for the CPU target.
inline api::Options cpu() {
  api::Options options;
  options.target = "cpu";
  return options;
}

inline api::Compiled compiled(const std::string& text, const api::Options& options = cpu()) {
  ir::Diagnostics diagnostics;
  auto graph = api::read_graph("g.maco", text, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(graph);
  auto result = api::compile(std::move(*graph), options, diagnostics);
  INFO(diagnostics.render());
  REQUIRE(result);
  return std::move(*result);
}

}  // namespace maco::test
