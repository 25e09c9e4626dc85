#include "tools/pass_output.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>

#include "compiler/api/command_line.h"
#include "tools/products.h"

namespace maco::tools {

bool PassOutput::connect(passes::PipelineOptions& options, const Console& console) const {
  options.print = [](const passes::Dump& dump) {
    std::cerr << fmt::format("// after {}\n{}\n", dump.pass,
                             dump.changes.empty() ? dump.text : dump.changes);
  };
  if (dump_dir.empty()) return true;
  std::error_code code, ignored;
  std::filesystem::create_directories(dump_dir, code);
  if (!std::filesystem::is_directory(dump_dir, ignored)) {
    console.error("can't make the folder '" + dump_dir + "': " + code.message());
    return false;
  }
  options.dump = [folder = dump_dir, console](const passes::Dump& dump) {
    std::string error;
    if (!write_product(folder + "/" + dump.file, dump.text, error)) console.error(error);
  };
  return true;
}

void PassOutput::show_times(const passes::PassLog& log) const {
  if (!time_passes) return;
  double total = 0;
  std::cerr << "  milliseconds  pass\n";
  for (const auto& [name, seconds] : log.seconds) {
    std::cerr << fmt::format("{:14.3f}  {}\n", seconds * 1e3, name);
    total += seconds;
  }
  std::cerr << fmt::format("{:14.3f}  in all\n", total * 1e3);
}

void add_notes(const passes::PassLog& log, const passes::PipelineOptions& options,
               const std::string& input, ir::Diagnostics& diagnostics) {
  if (log.broken_by.empty()) {
    if (log.proof_failed) diagnostics.note({}, "--verify=each says which pass made it wrong");
    return;
  }
  // Before 'tile' there is a graph.
  const char* state = log.broken_by == "tile" ? "the graph before '{}': {}"
                                              : "the Program was right before '{}': {}";
  diagnostics.note({}, fmt::format(fmt::runtime(state), log.broken_by,
                                   fmt::format("macoc {} {} --print-after={}", input,
                                               api::command_line(options), log.right_after)));
}

}  // namespace maco::tools
