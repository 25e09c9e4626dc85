#include "compiler/api/match.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/manifest.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/passes/passes.h"
#include "compiler/pipeline/manager.h"
#include "compiler/pipeline/pipeline.h"

namespace maco::api {

namespace {

// A tensor of the caller's, as a Program or a kernel knows it.
struct Bound {
  std::string tensor;
  std::string_view kind;
  ir::DType dtype;
  int64_t elements;
};

// Checks that a Program or a kernel (`what`) has the graph's number of ranks and the same tensors
// of the caller's.
void check_bound(const ir::Graph& graph, const char* what, int64_t world,
                 const std::vector<Bound>& list, ir::Diagnostics& diagnostics) {
  const auto wrong = [&]<class... Args>(fmt::format_string<Args...> text, Args&&... args) {
    diagnostics.error(
        {}, fmt::format("the {} {}", what, fmt::format(text, std::forward<Args>(args)...)));
  };
  if (world != graph.world) wrong("is for {} ranks, but the graph for {}", world, graph.world);
  std::set<std::string> missing;
  for (const ir::Tensor& t : graph.tensors)
    if (t.kind != ir::TensorKind::Temp && t.kind != ir::TensorKind::Scalar) missing.insert(t.name);
  for (const Bound& b : list) {
    if (missing.erase(b.tensor) == 0) {
      wrong("has a tensor '{}' that the graph doesn't have, or has it twice", b.tensor);
      continue;
    }
    const ir::Tensor& t = graph[*graph.find_tensor(b.tensor)];
    const int64_t elements = ir::max_elements(graph, t.shape);
    if (b.kind != ir::name(t.kind) || b.dtype != t.dtype || b.elements != elements)
      wrong("takes '{}' as {} of {} {}, but in the graph it is {} of {} {}", b.tensor, b.kind,
            b.elements, ir::name(b.dtype), ir::name(t.kind), elements, ir::name(t.dtype));
  }
  for (const std::string& name : missing) wrong("lacks the graph's '{}'", name);
}

// Compares ranges in whatever order they are declared.
bool same_ranges(std::vector<ir::ManifestRange> a, std::vector<ir::ManifestRange> b) {
  for (auto* list : {&a, &b})
    std::sort(list->begin(), list->end(),
              [](const auto& x, const auto& y) { return x.name < y.name; });
  return a == b;
}

/// The graph without what passes choose and a user may choose differently.
ir::Graph without_choices(ir::Graph graph) {
  graph.sm_roles = {};
  std::vector<std::string> choices = {"method", "tile", "algorithm"};
  for (const ops::MatmulStage& stage : ops::matmul_stages())
    if (stage.tasks)
      for (const ops::AttrSpec& attr : stage.attrs) choices.push_back(attr.name);
  for (ir::Op& op : graph.ops)
    for (const std::string& chosen : choices) op.attrs.erase(chosen);
  return graph;
}

/// Gives sums the epilogues that they have in `carried`, whoever has chosen so.
void finish_sums(ir::Graph& graph, const ir::Graph& carried, passes::PassContext& context) {
  for (const ir::Op& finished : carried.ops) {
    if (!ops::is_collective(finished) || !finished.attrs.count("epilogue")) continue;
    const std::string &sent = carried[finished.in[0]].name, &made = carried[finished.out[0]].name;
    for (size_t i = 0; i + 1 < graph.ops.size(); ++i) {
      ir::Op& sum = graph.ops[i];
      const ir::Op& next = graph.ops[i + 1];
      if (sum.kind != finished.kind || graph[sum.in[0]].name != sent || next.out.size() != 1 ||
          graph[next.out[0]].name != made)
        continue;
      const auto product = ops::product_of(graph, sum);
      if (!product) continue;
      sum.attrs["algorithm"] = {std::string("oneshot"), sum.loc};
      ops::move_as_made(graph[*product], sum);
    }
  }
  passes::fuse_by("sum", graph, context);
}

/// Whether the graph that a Program carries is what the passes on graphs make of `graph`, except
/// for their choices: without fusion, with all of it, or without the rules that `told` leaves out.
/// Reports if not.
bool carries(const ir::Graph& graph, const ir::Program& program,
             const passes::PipelineOptions& told, ir::Diagnostics& diagnostics) {
  if (!program.graph) return true;
  const ir::Graph& carried = *program.graph;
  const ir::Graph wanted = without_choices(carried);
  std::vector<passes::PipelineOptions> tried(2);
  tried[1].fuse = false;
  if (!told.no_fuse.empty()) tried.emplace_back().no_fuse = told.no_fuse;
  for (passes::PipelineOptions& options : tried) {
    ir::Diagnostics unheard;
    options.target = program.target;
    options.board = program.board;
    passes::PassManager manager(passes::make_context(options, unheard), options, unheard);
    ir::Graph made = graph;
    for (const char* pass : {"check-support", "canonicalize", "prepare-operands"})
      made = manager.run(pass, std::move(made));
    auto context = passes::make_context(options, unheard);
    if (!manager.ok() || !context) continue;
    if (options.fuse) {
      if (!passes::fuse_before_algorithms(made, *context)) continue;
      if (context->left_out.count("sum") == 0) finish_sums(made, carried, *context);
    }
    if (without_choices(std::move(made)) == wanted) return true;
  }
  diagnostics.error({}, "the Program carries another graph");
  if (told.fuse && told.no_fuse.empty())
    diagnostics.note({}, "a Program of --no-fuse=NAME,... has to be run with the same option");
  return false;
}

}  // namespace

bool check_program(const ir::Graph& graph, const ir::Program& program,
                   const passes::PipelineOptions& options, ir::Diagnostics& diagnostics) {
  const int before = diagnostics.errors();
  const passes::Unit unit = program;
  auto context = passes::make_context(unit, options, diagnostics);
  if (!context ||
      !passes::check_form("a kernel", passes::Form::Synced, passes::Form::Synced, unit, *context))
    return false;
  std::vector<Bound> bound;
  for (const ir::Buffer& b : program.buffers)
    if (b.kind != ir::BufferKind::Temp && b.kind != ir::BufferKind::Slot)
      bound.push_back({b.tensor, ir::name(b.kind), b.dtype, b.max_elements()});
  check_bound(graph, "Program", program.world, bound, diagnostics);
  std::vector<ir::ManifestRange> dims, scalars;
  for (const ir::Variable& v : program.variables)
    (v.scalar ? scalars : dims).push_back({v.name, v.range.lo, v.range.hi});
  if (!same_ranges(dims, codegen::dims_of(graph)) ||
      !same_ranges(scalars, codegen::scalars_of(graph)))
    diagnostics.error({}, "the Program's dims and scalars are not those of the graph");
  codegen::check_calls(program, diagnostics);
  return carries(graph, program, options, diagnostics) && diagnostics.errors() == before;
}

bool check_manifest(const ir::Graph& graph, const ir::Manifest& manifest,
                    ir::Diagnostics& diagnostics) {
  const int before = diagnostics.errors();
  std::vector<Bound> bound;
  for (const ir::ManifestTensor& t : manifest.tensors)
    bound.push_back({t.name, t.kind, t.dtype, t.max_elements});
  check_bound(graph, "kernel", manifest.world, bound, diagnostics);
  if (!same_ranges(manifest.dims, codegen::dims_of(graph)))
    diagnostics.error({}, "the kernel's dims are not those of the graph");
  if (!same_ranges(manifest.scalars, codegen::scalars_of(graph)))
    diagnostics.error({}, "the kernel's scalars are not those of the graph");
  for (const ir::ManifestTensor& t : manifest.tensors)
    if (const auto id = graph.find_tensor(t.name); id && graph[*id].shape != t.shape)
      diagnostics.error(
          {}, fmt::format("the kernel's '{}' has another shape than the graph's", t.name));
  return diagnostics.errors() == before;
}

}  // namespace maco::api
