// The Programs that `mutants` (tests/fuzz) has written: of graphs and of every collective, pruned.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ir/program_text.h"
#include "tests/catch.h"
#include "tests/paths.h"

namespace maco::proofs {

struct Subject {
  std::string name;
  ir::Program program;
  bool graph = false;  // written by `mutants`, not made by a test
};

inline std::vector<Subject> written_programs() {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  for (const char* folder : {"tests/mutant_programs", "tests/mutant_programs/collectives"})
    for (const auto& entry : fs::directory_iterator(test::binary_path(folder)))
      if (entry.path().extension() == ".pruned") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Subject> list;
  for (const fs::path& path : paths) {
    std::ifstream in(path, std::ios::binary);
    ir::Diagnostics diagnostics;
    auto program = ir::parse_program(
        diagnostics.add_file(path.filename().string(), {std::istreambuf_iterator<char>(in), {}}),
        diagnostics);
    INFO(path << "\n" << diagnostics.render());
    REQUIRE(program);
    list.push_back({path.stem().string(), std::move(*program), true});
  }
  return list;
}

}  // namespace maco::proofs
