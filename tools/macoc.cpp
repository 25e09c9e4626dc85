// macoc: a task graph in, one CUDA kernel out.
#include <filesystem>

#include "compiler/frontend/frontend.h"
#include "ir/manifest.h"
#include "ir/program_text.h"
#include "runtime/host/jit.h"
#include "tools/options.h"
#include "tools/products.h"

namespace maco::tools {
namespace {

// compute_90 for sm_90a: PTX serves later machines too.
std::string ptx_arch(const std::string& target) {
  std::string digits;
  for (char c : target)
    if (c >= '0' && c <= '9') digits += c;
  return "compute_" + digits + (target.back() == 'a' ? "a" : "");
}

int run(int argc, char** argv) {
  CLI::App app(
      "Compiles a task graph into one persistent CUDA kernel.\n  macoc tp_mlp.json -o kernel.cu\n",
      "macoc");
  CommonOptions common;
  PipelineFlags flags;
  CompileOptions options;
  std::string input, output = "-", emit = "cuda", verify = "end";
  app.add_option("graph", input, "a .json or .maco graph, - for standard input");
  app.add_option("-o,--output", output, "where the product goes, if not to standard output")
      ->option_text("FILE");
  app.add_option(
         "--emit", emit,
         "the product: dsl, json, graph, program, cuda (the default), ptx, cubin or manifest")
      ->option_text("WHAT")
      ->check(
          CLI::IsMember({"dsl", "json", "graph", "program", "cuda", "ptx", "cubin", "manifest"}));
  flags.add(app, options.pipeline);
  std::vector<std::string> pass_names{"all"};
  for (const passes::Pass& p : passes::registry()) pass_names.push_back(p.name);
  app.add_option("--print-after", options.print_after, "print the IR after these passes, or all")
      ->option_text("PASS,...")
      ->delimiter(',')
      ->check(CLI::IsMember(pass_names));
  app.add_flag("--print-changed", options.print_changed,
               "print the IR after each pass that changed it");
  app.add_option("--dump-dir", options.dump_dir, "write the IR after each pass into this folder")
      ->option_text("FOLDER");
  app.add_option("--verify", verify,
                 "each: prove the Program after each pass that changes it, and name the one that "
                 "broke it; end: once")
      ->option_text("WHEN")
      ->check(CLI::IsMember({"each", "end"}));
  app.add_flag("--reparse", options.reparse, "print and parse the IR between all passes");
  app.add_flag("--time-passes", options.time_passes, "say how long each pass took");
  app.add_flag("--report", options.report, "print the table of SM roles, tasks, waits and memory");
  common.add(app);
  if (const int status = parse(app, argc, argv); status >= 0) return status;
  if (common.listed()) return kOk;
  const Console console = common.console();
  if (input.empty()) {
    console.error("no graph given; try macoc --help");
    return kBadUsage;
  }
  flags.apply(options.pipeline);
  options.pipeline.verify_each = verify == "each";
  options.input = input;

  std::string error;
  if (!options.dump_dir.empty()) {
    std::error_code code, ignored;
    std::filesystem::create_directories(options.dump_dir, code);
    if (!std::filesystem::is_directory(options.dump_dir, ignored)) {
      console.error("can't make the folder '" + options.dump_dir + "': " + code.message());
      return kBadUsage;
    }
  }
  const auto text = read_input(input, error);
  if (!text) {
    console.error(error);
    return kBadUsage;
  }
  ir::Diagnostics diagnostics;
  const int32_t file = diagnostics.add_file(input == "-" ? "<stdin>" : input, *text);
  auto graph = frontend::parse_graph(file, diagnostics);
  const auto finish = [&](const std::string& product) {
    console.show(diagnostics);
    if (!write_product(output, product, error)) {
      console.error(error);
      return kBadUsage;
    }
    return kOk;
  };
  if (!graph) {
    console.show(diagnostics);
    return kBadGraph;
  }
  if (emit == "dsl") return finish(frontend::print_dsl(*graph));
  if (emit == "json") return finish(frontend::print_json(*graph));
  if (emit == "graph") {
    options.pipeline.stop_after = "assign-roles";
    const passes::PipelineResult result =
        passes::run_pipeline(*graph, options.pipeline, diagnostics);
    if (diagnostics.has_errors()) {
      console.show(diagnostics);
      return kBadGraph;
    }
    return finish(to_text(result.unit));
  }
  const auto compiled = compile(*graph, options, diagnostics, console);
  if (!compiled) {
    console.show(diagnostics);
    return kBadGraph;
  }
  if (options.report) std::fputs(report(*compiled).c_str(), stderr);
  if (emit == "program") return finish(ir::print(compiled->program));
  if (emit == "cuda") return finish(compiled->kernel);
  if (emit == "manifest") {
    std::string lines;
    for (size_t at = 0;
         at < compiled->kernel.size() && compiled->kernel.compare(at, 8, "//@maco ") == 0;) {
      const size_t end = compiled->kernel.find('\n', at);
      lines += compiled->kernel.substr(at, end - at + 1);
      at = end + 1;
    }
    return finish(lines);
  }
  if (options.pipeline.target == "cpu") {
    console.error("--emit=" + emit + " needs a GPU target, and --target=cpu is none");
    return kBadUsage;
  }
  console.detail("compiling with NVRTC");
  std::string image;
  const runtime::Status status = runtime::compile_kernel(
      compiled->kernel, emit == "ptx" ? ptx_arch(options.pipeline.target) : options.pipeline.target,
      common.verbose, image);
  if (!status) {
    console.show(diagnostics);
    console.error(status.message);
    return kRunFailed;
  }
  return finish(image);
}

}  // namespace
}  // namespace maco::tools

int main(int argc, char** argv) {
  return maco::tools::guarded("macoc", maco::tools::run, argc, argv);
}
