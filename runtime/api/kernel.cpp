#include "maco/kernel.h"

#include <memory>

#include "compiler/api/compile.h"
#include "compiler/api/report.h"
#include "compiler/cost/machine.h"
#include "ir/variants.h"
#include "runtime/api/convert.h"

namespace maco {

namespace {

std::vector<VariableInfo> variables(const std::vector<ir::ManifestRange>& ranges) {
  std::vector<VariableInfo> list;
  for (const ir::ManifestRange& r : ranges) list.push_back({r.name, r.lo, r.hi});
  return list;
}

TensorKind kind_of(const std::string& name) {
  return name == "param"    ? TensorKind::Param
         : name == "state"  ? TensorKind::State
         : name == "output" ? TensorKind::Output
                            : TensorKind::Input;
}

// What a kernel's manifest says; nothing, with the reason, if it has none.
std::optional<Kernel::Data> read_kernel(std::string source, std::string& why) {
  // Variants have the same tensors and variables.
  ir::VariantsResult split = ir::split_variants(source);
  if (split.variants.empty()) {
    why = std::move(split.error);
    return std::nullopt;
  }
  ir::ManifestResult parsed = ir::parse_manifest(split.variants[0].kernel);
  if (!parsed.manifest) {
    why = parsed.error;
    return std::nullopt;
  }
  Kernel::Data data;
  data.source = std::move(source);
  data.manifest = std::move(*parsed.manifest);
  const ir::Manifest& m = data.manifest;
  const auto most = [&](std::string_view name) -> std::optional<int64_t> {
    if (name == "world") return m.world;
    for (const ir::ManifestRange& dim : m.dims)
      if (dim.name == name) return dim.hi;
    return std::nullopt;
  };
  for (const ir::ManifestTensor& t : m.tensors) {
    data.tensors.push_back(
        tensor_info(t.name, kind_of(t.kind), t.dtype, t.shape, t.max_elements, most));
  }
  data.dims = variables(m.dims);
  data.scalars = variables(m.scalars);
  return data;
}

Result<Kernel> compile_graph(const Graph& graph, const CompileOptions& options) {
  api::Options all;
  const cost::Machine* const board =
      options.board.empty() ? nullptr : cost::find_board(options.board);
  all.target = !options.target.empty() ? options.target : board ? board->target : "sm_90a";
  all.board = options.board;
  all.sms = options.sms;
  all.load_ahead = options.load_ahead;
  all.fuse = options.fuse;
  all.no_fuse = options.no_fuse;
  all.prune = options.prune;
  all.packets = options.packets;
  all.include_folders = options.include_folders;
  all.defines = options.defines;
  ir::Diagnostics diagnostics = graph.data().diagnostics;
  auto compiled = api::compile(graph.data().graph, all, diagnostics);
  if (!compiled) return graph_error(diagnostics, options.max_warnings);
  std::string why, report = api::report(*compiled);
  auto data = read_kernel(std::move(compiled->kernel), why);
  if (!data) return error(ErrorCode::InvalidGraph, std::move(why));
  data->report = std::move(report);
  data->warnings = public_diagnostics(diagnostics, options.max_warnings);
  if (compiled->variants.empty()) data->program = std::move(compiled->program);
  return Kernel(std::make_shared<const Kernel::Data>(std::move(*data)));
}

}  // namespace

Result<Kernel> Kernel::from_source(std::string source) {
  std::string why;
  auto data = read_kernel(std::move(source), why);
  if (!data) return error(ErrorCode::InvalidArgument, std::move(why));
  return Kernel(std::make_shared<const Data>(std::move(*data)));
}

const std::string& Kernel::source() const { return data_->source; }
const std::string& Kernel::name() const { return data_->manifest.name; }
const std::string& Kernel::target() const { return data_->manifest.target; }
int Kernel::world() const { return static_cast<int>(data_->manifest.world); }
const std::vector<TensorInfo>& Kernel::tensors() const { return data_->tensors; }
const std::vector<VariableInfo>& Kernel::dims() const { return data_->dims; }
const std::vector<VariableInfo>& Kernel::scalars() const { return data_->scalars; }
const std::string& Kernel::report() const { return data_->report; }
const std::vector<Diagnostic>& Kernel::warnings() const { return data_->warnings; }

Result<Kernel> compile(const Graph& graph, const CompileOptions& options) {
  if (options.sms < 0)
    return error(ErrorCode::InvalidArgument, "a rank can't use a negative number of SMs");
  if (options.max_warnings < 0)
    return error(ErrorCode::InvalidArgument, "'max_warnings' is negative; 0 means all");
  return guarded([&] { return compile_graph(graph, options); });
}

}  // namespace maco
