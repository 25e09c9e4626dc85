// macoc: a task graph in, one CUDA kernel out.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "compiler/api/compile.h"
#include "compiler/api/dump.h"
#include "compiler/api/explain.h"
#include "compiler/api/import_model.h"
#include "compiler/api/report.h"
#include "ir/program_text.h"
#include "runtime/host/jit.h"
#include "tools/compile_arguments.h"
#include "tools/products.h"
#include "tools/progress.h"

namespace maco::tools {
namespace {

/// Prints the story of an op.
int explain(const CompileArguments& a, const std::string& text, const Console& console) {
  std::optional<api::TraceTimes> measured;
  api::TraceKernel traced;
  if (!a.profile.empty()) {
    std::string error;
    const auto trace = read_input(a.profile, error);
    if (trace) measured = api::read_trace(*trace, error, &traced);
    if (!measured) {
      console.error(trace ? fmt::format("{}: {}", a.profile, error) : error);
      return kBadUsage;
    }
  }
  ir::Diagnostics diagnostics;
  auto graph = api::read_graph(input_name(a.input), text, diagnostics, a.options.algorithms);
  ir::Program unpruned;
  api::Options options = a.options;
  options.after_pass = [&](const passes::Pass& pass, passes::Unit& unit) {
    if (pass.name == "insert-sync") unpruned = std::get<ir::Program>(unit);
  };
  const auto compiled =
      graph ? api::compile(std::move(*graph), options, diagnostics) : std::nullopt;
  console.show(diagnostics);
  if (!compiled) return kBadGraph;
  if (!compiled->variants.empty()) {
    console.error(
        "each variant of 'sm_roles' has an explanation of its own: choose one with --variant");
    return kBadUsage;
  }
  std::string error;
  if (measured) error = api::other_kernel(traced, compiled->program);
  if (!error.empty()) {
    console.error(fmt::format("{}: {}", a.profile, error));
    return kBadUsage;
  }
  const auto story =
      api::explain_op(*compiled, unpruned, a.explained, measured ? &*measured : nullptr, error);
  if (!story) {
    console.error(error);
    return kBadUsage;
  }
  std::fputs(story->c_str(), stdout);
  return kOk;
}

/// Writes a checkpoint's graphs and weights.json into a folder.
int import_checkpoint(const ImportArguments& a) {
  ir::Diagnostics diagnostics;
  const auto model = api::import_model(a.input, a.architecture, a.model, diagnostics);
  a.console.show(diagnostics);
  if (!model) return kBadGraph;
  std::error_code error;
  const std::filesystem::path folder = a.output;
  std::filesystem::create_directories(folder, error);
  Products files;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream out(files.begin((folder / name).string()), std::ios::binary);
    return static_cast<bool>(out << text << std::flush);
  };
  bool written = write("weights.json", model->weights);
  for (const auto& [kind, text] : model->graphs) written = written && write(kind + ".maco", text);
  std::string why;
  if (!written || !files.finish(why)) {
    a.console.error(why.empty() ? fmt::format("{}: can't be written", a.output) : why);
    return kBadUsage;
  }
  // Graphs of an earlier import don't belong to these weights.
  for (const char* kind : frontend::huggingface::kKinds)
    if (!model->graphs.contains(kind))
      std::filesystem::remove(folder / (std::string(kind) + ".maco"), error);
  return kOk;
}

/// An execution plan of MSCCL++'s as a graph.
int import_plan(const ImportArguments& a) {
  std::string error;
  const auto fail = [&] {
    a.console.error(error);
    return kBadUsage;
  };
  const auto text = read_input(a.input, error);
  if (!text) return fail();
  ir::Diagnostics diagnostics;
  const auto graph = api::import_plan(input_name(a.input), *text, a.elements,
                                      a.dtype.value_or(ir::DType::BF16), diagnostics);
  a.console.show(diagnostics);
  if (!graph) return kBadGraph;
  return write_product(a.output.empty() ? "-" : a.output, *graph, error) ? kOk : fail();
}

int import(int argc, char** argv) {
  ImportArguments a;
  if (const int status = read_import_arguments(argc, argv, a); status >= 0) return status;
  return a.is_folder ? import_checkpoint(a) : import_plan(a);
}

int run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "import") return import(argc - 1, argv + 1);
  // No graph's file has such a name.
  if (argc > 1 && std::string_view(argv[1]).find_first_of("-./") == std::string_view::npos &&
      !std::filesystem::exists(argv[1]))
    if (const std::string near = ir::did_you_mean(argv[1], {"import"}); !near.empty()) {
      Console{use_color("auto")}.error(fmt::format("no file and no command '{}'{}", argv[1], near));
      return kBadUsage;
    }
  CompileArguments a;
  if (const int status = read_compile_arguments(argc, argv, a); status >= 0) return status;
  const Console& console = a.console;
  std::string error;
  const auto fail = [&](int status, const std::string& message) {
    console.error(message);
    return status;
  };
  if (!a.passes.connect(a.options, console)) return kBadUsage;
  const auto text = read_input(a.input, error);
  if (!text) return fail(kBadUsage, error);
  const bool is_source = is_cuda_source(a.input, *text) ||
                         (!a.kernel.empty() && text->find("__global__") != std::string::npos);
  if (!a.kernel.empty() && !is_source)
    return fail(kBadUsage, fmt::format("--kernel names a kernel of CUDA source, and '{}' is none",
                                       input_name(a.input)));
  if (is_source) {
    ir::Diagnostics diagnostics;
    const std::string graph = api::graph_of_kernel(a.input, a.kernel, a.options, diagnostics);
    console.show(diagnostics);
    if (graph.empty()) return kBadGraph;
    return write_product(a.output, graph, error) ? kOk : fail(kBadUsage, error);
  }
  const api::Product product = *api::find_product(a.emit);
  const bool device_code = product == api::Product::Ptx || product == api::Product::Cubin;

  if (ir::is_program_text(*text))
    return fail(kBadUsage, fmt::format("'{0}' is a Program: maco-opt takes one, and maco-run its "
                                       "graph with --program {0}",
                                       a.input));
  if (const std::string other = other_file(a.input, *text); !other.empty())
    return fail(kBadUsage, other);
  ir::Diagnostics diagnostics;
  auto graph = api::read_graph(input_name(a.input), *text, diagnostics, a.options.algorithms);
  if (!graph)
    if (const std::string dump = api::passes_made(*text, a.options.algorithms); !dump.empty())
      return fail(kBadUsage, dump_text(input_name(a.input), dump));
  if (graph && !a.explained.empty()) return explain(a, *text, console);
  api::Made made;
  if (graph) {
    if (device_code && a.options.target == "cpu")
      return fail(kBadUsage, "--emit=" + a.emit + " needs a GPU target, and --target=cpu is none");
    Progress progress(console);
    progress.step("compiling the graph");
    const auto cuda = [&](const std::string& source, const std::string& architecture,
                          std::string& image, std::string& why) {
      console.detail("compiling with NVRTC");
      progress.step("compiling the kernel with NVRTC");
      const runtime::Status status =
          runtime::compile_kernel(source, architecture, console.verbose, image);
      why = status.message;
      return bool(status);
    };
    passes::PassLog log;
    made = api::make(product, std::move(*graph), a.options, cuda, diagnostics, &log);
    if (!log.seconds.empty()) a.passes.show_times(log);
    if (diagnostics.has_errors()) add_notes(log, a.options, a.input, diagnostics);
  }
  if (made.compiled && a.report) std::fputs(api::report(*made.compiled).c_str(), stderr);
  console.show(diagnostics);
  if (diagnostics.has_errors()) return kBadGraph;
  if (!made.ok) return fail(kRunFailed, made.cuda_error);
  return write_product(a.output, made.bytes, error) ? kOk : fail(kBadUsage, error);
}

}  // namespace
}  // namespace maco::tools

int main(int argc, char** argv) {
  return maco::tools::guarded("macoc", maco::tools::run, argc, argv);
}
