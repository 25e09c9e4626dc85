// Graphs in, kernels out.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/pipeline/manager.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::api {

using Options = passes::PipelineOptions;

/// The whole content of a file. Nothing if it can't be read (`error` says why).
std::optional<std::string> read_file(const std::string& path, std::string& error);

/// Reads a graph from its text, JSON or DSL; `name` stands for it in diagnostics. `algorithms`:
/// files with collectives that its ops may name besides the graph's own. Returns nothing, after
/// reporting, if something is wrong with it.
std::optional<ir::Graph> read_graph(std::string name, std::string text,
                                    ir::Diagnostics& diagnostics,
                                    const std::vector<std::string>& algorithms = {});
/// As read_graph, with texts of collectives in place of files.
std::optional<ir::Graph> read_graph_with(std::string name, std::string text,
                                         const std::vector<std::string>& collectives,
                                         ir::Diagnostics& diagnostics);

/// Turns an MSCCL++ execution plan into a .maco file: a collective, and a graph that uses it.
/// `elements`: of the input on each rank; 0: a usual number. See frontend/mscclpp_plan.h.
std::optional<std::string> import_plan(std::string name, std::string text, int64_t elements,
                                       ir::DType dtype, ir::Diagnostics& diagnostics);

/// Reads the kernels of ops `cuda` for the options' target, as the pass read-kernels does. Returns
/// false, after reporting, if a kernel can't be a task.
bool read_kernels(ir::Graph& graph, const Options& options, ir::Diagnostics& diagnostics);

/// Keeps, of the variants of a graph's `sm_roles`, the one that the options name, or the only one,
/// as the pass take-variant does.
/// Returns false, after reporting, if there is no such variant.
bool take_variant(ir::Graph& graph, const Options& options, ir::Diagnostics& diagnostics);
/// Whether `sm_roles` has several variants, and the options choose none.
bool has_variants(const ir::Graph& graph, const Options& options);

/// A first draft of a graph with a kernel from a CUDA source; see frontend/cuda_kernels.h.
std::string graph_of_kernel(const std::string& path, const std::string& kernel,
                            const Options& options, ir::Diagnostics& diagnostics);

struct Compiled {
  ir::Graph graph;      // the given graph, inferred, with its kernels and the taken variant
  ir::Program program;  // synced and proved; of the first variant
  std::string kernel;   // kernel.cu
  /// If `sm_roles` has variants: each variant alone, and its condition (nothing: else).
  std::vector<Compiled> variants{};
  std::optional<ir::Expr> condition{};
  std::map<std::string, int64_t> statistics;
  /// What was fused, and what wasn't and why: for each such text the ops that it concerns.
  std::map<std::string, std::vector<std::string>> fusions;
};

/// Compiles a graph, whoever made it. Returns nothing, after reporting, if something is wrong with
/// the graph or it can't be compiled. `log` is also filled if the compilation failed.
std::optional<Compiled> compile(ir::Graph graph, const Options& options,
                                ir::Diagnostics& diagnostics, passes::PassLog* log = nullptr);

/// The kernel.cu of a synced Program; "" if an error was reported. The Program is taken as it is:
/// run the verifier first.
std::string emit_kernel(const ir::Graph& graph, const ir::Program& program, const Options& options,
                        ir::Diagnostics& diagnostics);

/// What a graph can be made into.
enum class Product : uint8_t {
  Dsl,
  Json,
  Graph,
  Program,
  Cuda,
  Manifest,
  Ptx,
  Cubin,
  Dot,
  TaskDot
};
/// "dsl", "json", ...: their names, in that order.
const std::vector<std::string>& product_names();
std::optional<Product> find_product(std::string_view name);

/// Compiles CUDA source for an architecture: "sm_90a" gives its cubin, "compute_90a" PTX. Returns
/// false, with the reason in `error`, if it can't.
using CudaCompiler = std::function<bool(const std::string& source, const std::string& architecture,
                                        std::string& image, std::string& error)>;

/// One product of a graph.
struct Made {
  std::string bytes;
  std::optional<Compiled> compiled;  // set if the graph had to be compiled for it
  std::string cuda_error;            // the CudaCompiler's error; the graph is right
  bool ok = false;
};
/// Makes a product with as little work as possible. `cuda` is needed only for PTX and cubins.
Made make(Product product, ir::Graph graph, const Options& options, const CudaCompiler& cuda,
          ir::Diagnostics& diagnostics, passes::PassLog* log = nullptr);

}  // namespace maco::api
