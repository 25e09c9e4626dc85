#include "compiler/api/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "compiler/api/command_line.h"
#include "compiler/api/dot.h"
#include "compiler/codegen/codegen.h"
#include "compiler/frontend/cuda_kernels.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/mscclpp_plan.h"
#include "compiler/graph/check.h"
#include "compiler/passes/graph_edit.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/unit_text.h"
#include "ir/program_text.h"
#include "ir/variants.h"

namespace maco::api {

namespace {

// compute_90a for sm_90a; its PTX also suits later machines.
std::string ptx_architecture(const std::string& target) {
  return "compute_" + target.substr(target.find('_') + 1);
}

std::string manifest_lines(const std::string& kernel) {
  size_t end = 0;
  while (kernel.compare(end, 8, "//@maco ") == 0) end = kernel.find('\n', end) + 1;
  return kernel.substr(0, end);
}

// Makes a product from the graph behind the passes on graphs, before it becomes a Program.
Made make_graph(Product product, ir::Graph graph, Options options, ir::Diagnostics& diagnostics,
                passes::PassLog* log) {
  options.stop_after = "choose-tiles";
  auto result = passes::run_pipeline(std::move(graph), options, diagnostics);
  if (log) *log = std::move(result.log);
  Made made;
  made.ok = result.ok;
  if (made.ok)
    made.bytes = product == Product::Dot ? dot_of_graph(std::get<ir::Graph>(result.unit))
                                         : passes::to_text(result.unit);
  return made;
}

using Variants = std::vector<ir::RoleVariant>;

// How sources of ops `cuda` are read.
frontend::CudaSettings cuda_settings(const Options& options) {
  return {options.target, options.include_folders, options.defines};
}

// Compiles a checked graph with one choice of roles.
std::optional<Compiled> compile_one(ir::Graph graph, const Options& options,
                                    ir::Diagnostics& diagnostics, passes::PassLog* log) {
  Options all = options;
  all.stop_after.clear();
  auto result = passes::run_pipeline(std::move(graph), all, diagnostics);
  if (log) *log = result.log;
  if (!result.ok) return std::nullopt;
  Compiled c;
  c.graph = std::move(result.source);
  c.program = std::get<ir::Program>(std::move(result.unit));
  c.statistics = std::move(result.log.statistics);
  c.fusions = std::move(result.log.fusions);
  c.kernel = emit_kernel(c.graph, c.program, options, diagnostics);
  if (c.kernel.empty()) return std::nullopt;
  return c;
}

// Dumps of one of several variants say so.
std::function<void(const passes::Dump&)> of_variant(
    const std::function<void(const passes::Dump&)>& to, int64_t variant) {
  if (!to) return {};
  return [to, variant](passes::Dump dump) {
    dump.file = fmt::format("variant{}-{}", variant, dump.file);
    dump.pass = fmt::format("{} of variant {}", dump.pass, variant);
    to(dump);
  };
}

// Compiles a checked graph with all choices of roles that are asked for. Each is compiled by the
// whole pipeline, which takes one of them.
std::optional<Compiled> compile_right(ir::Graph graph, const Options& options,
                                      ir::Diagnostics& diagnostics, passes::PassLog* log) {
  if (!has_variants(graph, options))
    return compile_one(std::move(graph), options, diagnostics, log);
  // Kernels are read once for all variants, whose graphs then have them.
  if (!read_kernels(graph, options, diagnostics)) return std::nullopt;
  const Variants variants = std::get<Variants>(graph.sm_roles.value);
  // Ops that roles name aren't fused, which may order sums differently; then no variant fuses.
  Options same = options;
  same.fuse = options.fuse && !passes::roles_name_ops(graph);
  Compiled all;
  std::vector<ir::KernelVariant> kernels;
  for (const ir::RoleVariant& v : variants) {
    same.variant = static_cast<int64_t>(kernels.size()) + 1;
    same.print = of_variant(options.print, same.variant);
    same.dump = of_variant(options.dump, same.variant);
    // A message about one variant isn't repeated for the next.
    ir::Diagnostics said = diagnostics;
    auto compiled = compile_one(graph, same, said, log);
    if (!compiled || kernels.empty()) diagnostics = std::move(said);
    if (!compiled) return std::nullopt;
    compiled->condition = v.condition;
    kernels.push_back({v.condition, compiled->kernel});
    all.variants.push_back(std::move(*compiled));
  }
  all.graph = std::move(graph);
  all.program = all.variants[0].program;
  all.kernel = ir::join_variants(kernels);
  return all;
}

}  // namespace

std::optional<std::string> read_file(const std::string& path, std::string& error) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    error = fmt::format("can't read '{}': it is a directory", path);
    return std::nullopt;
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    error = fmt::format("can't read '{}': {}", path, std::strerror(errno));
    return std::nullopt;
  }
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::optional<ir::Graph> read_graph(std::string name, std::string text,
                                    ir::Diagnostics& diagnostics,
                                    const std::vector<std::string>& algorithms) {
  const int32_t file = diagnostics.add_file(std::move(name), std::move(text));
  const auto collectives = frontend::read_collectives(algorithms, diagnostics);
  if (!collectives) return std::nullopt;
  return frontend::parse_graph(file, diagnostics, *collectives);
}

std::optional<ir::Graph> read_graph_with(std::string name, std::string text,
                                         const std::vector<std::string>& collectives,
                                         ir::Diagnostics& diagnostics) {
  const int32_t file = diagnostics.add_file(std::move(name), std::move(text));
  std::vector<frontend::Raw> raws;
  for (size_t i = 0; i < collectives.size(); ++i) {
    auto raw = frontend::parse_collectives(
        diagnostics.add_file(fmt::format("<collectives {}>", i + 1), collectives[i]), diagnostics);
    if (!raw) return std::nullopt;
    raws.push_back(std::move(*raw));
  }
  return frontend::parse_graph(file, diagnostics, raws);
}

std::optional<std::string> import_plan(std::string name, std::string text, int64_t elements,
                                       ir::DType dtype, ir::Diagnostics& diagnostics) {
  frontend::PlanOptions options;
  if (elements > 0) options.elements = elements;
  options.dtype = dtype;
  return frontend::import_plan(diagnostics.add_file(std::move(name), std::move(text)), options,
                               diagnostics);
}

bool read_kernels(ir::Graph& graph, const Options& options, ir::Diagnostics& diagnostics) {
  return frontend::read_cuda_kernels(graph, cuda_settings(options), diagnostics);
}

bool has_variants(const ir::Graph& graph, const Options& options) {
  const auto* variants = std::get_if<Variants>(&graph.sm_roles.value);
  return variants && variants->size() > 1 && options.variant == 0;
}

bool take_variant(ir::Graph& graph, const Options& options, ir::Diagnostics& diagnostics) {
  return passes::take_variant(graph, options.variant, diagnostics);
}

std::string graph_of_kernel(const std::string& path, const std::string& kernel,
                            const Options& options, ir::Diagnostics& diagnostics) {
  return frontend::graph_of_cuda_kernel(path, kernel, cuda_settings(options), diagnostics);
}

std::string emit_kernel(const ir::Graph& graph, const ir::Program& program, const Options& options,
                        ir::Diagnostics& diagnostics) {
  codegen::Options code;
  code.command_line = command_line(options);
  return codegen::emit(graph, program, code, diagnostics);
}

std::optional<Compiled> compile(ir::Graph graph, const Options& options,
                                ir::Diagnostics& diagnostics, passes::PassLog* log) {
  if (!graph::check_and_infer(graph, {}, diagnostics)) return std::nullopt;
  return compile_right(std::move(graph), options, diagnostics, log);
}

const std::vector<std::string>& product_names() {
  static const std::vector<std::string> names = {
      "dsl", "json", "graph", "program", "cuda", "manifest", "ptx", "cubin", "dot", "task-dot"};
  return names;
}

std::optional<Product> find_product(std::string_view name) {
  const auto& names = product_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Product>(found - names.begin());
}

Made make(Product product, ir::Graph graph, const Options& options, const CudaCompiler& cuda,
          ir::Diagnostics& diagnostics, passes::PassLog* log) {
  Made made;
  if (!graph::check_and_infer(graph, {}, diagnostics)) return made;
  if (product == Product::Dsl || product == Product::Json) {
    made.ok = true;
    made.bytes = product == Product::Dsl ? frontend::print_dsl(graph) : frontend::print_json(graph);
    return made;
  }
  if (has_variants(graph, options) && product != Product::Cuda) {
    diagnostics.error(
        graph.sm_roles.loc.known() ? graph.sm_roles.loc : graph.loc,
        fmt::format(
            "'sm_roles' has {} variants, and each gives another result: choose one with --variant",
            std::get<Variants>(graph.sm_roles.value).size()));
    return made;
  }
  if (product == Product::Graph || product == Product::Dot)
    return make_graph(product, std::move(graph), options, diagnostics, log);
  made.compiled = compile_right(std::move(graph), options, diagnostics, log);
  made.ok = made.compiled.has_value();
  if (!made.ok) return made;
  switch (product) {
    case Product::Program: made.bytes = ir::print(made.compiled->program); break;
    case Product::TaskDot: made.bytes = dot_of_tasks(made.compiled->program); break;
    case Product::Manifest: made.bytes = manifest_lines(made.compiled->kernel); break;
    case Product::Ptx:
    case Product::Cubin:
      made.ok = cuda(made.compiled->kernel,
                     product == Product::Ptx ? ptx_architecture(options.target) : options.target,
                     made.bytes, made.cuda_error);
      break;
    default: made.bytes = made.compiled->kernel; break;
  }
  return made;
}

}  // namespace maco::api
