#include "tools/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "compiler/api/compile.h"
#include "ir/manifest.h"

namespace maco::tools {
namespace {

using runtime::Status;

// The graph's params, with dims at their maxima.
std::vector<runtime::WeightWanted> params_of(const ir::Graph& graph) {
  std::vector<runtime::WeightWanted> params;
  for (const ir::Tensor& t : graph.tensors) {
    if (t.kind != ir::TensorKind::Param) continue;
    runtime::WeightWanted& param = params.emplace_back();
    param.name = t.name;
    param.dtype = t.dtype;
    for (const ir::Expr& extent : t.shape) param.shape.push_back(ir::max_elements(graph, {extent}));
  }
  return params;
}

// "16.4 GB"
std::string size_text(double bytes) {
  constexpr std::pair<double, const char*> units[] = {{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}};
  for (const auto& [unit, name] : units)
    if (bytes >= unit || unit == 1e3) return fmt::format("{:.3g} {}", bytes / unit, name);
  return "";
}
std::string size_text(int64_t bytes) { return size_text(static_cast<double>(bytes)); }

}  // namespace

Status Weights::read(const std::string& graphs, const std::string& checkpoint) {
  const std::string path = (std::filesystem::path(graphs) / "weights.json").string();
  std::string error;
  const auto text = api::read_file(path, error);
  if (!text)
    return Status::failure(fmt::format(
        "{}: --weights wants the weights.json that macoc import writes beside its graphs", error));
  auto [map, wrong] = runtime::parse_weights(*text, path);
  if (!map) return Status::failure(wrong);
  map_ = std::move(*map);
  folder_ = checkpoint;
  hash_ = ir::text_hash(*text);
  return {};
}

Status Weights::check(const ir::Graph& graph) {
  const std::vector<runtime::WeightWanted> wanted = params_of(graph);
  MACO_TRY(runtime::check_weights(map_, graph.world, wanted));
  std::vector<runtime::WeightTarget> targets;
  for (const runtime::WeightWanted& param : wanted) {
    params_.insert(param.name);
    runtime::WeightTarget& target = targets.emplace_back();
    target.param = map_.find(param.name);
    for (int rank = 0; rank < graph.world; ++rank) target.places.push_back({rank});
  }
  return files_.open(map_, folder_, runtime::sources_of(targets));
}

Status Weights::load(runtime::Session& session, runtime::Group* group, Progress& progress,
                     const Console& console) const {
  progress.step("loading weights");
  const auto begin = std::chrono::steady_clock::now();
  int64_t bytes = 0;
  runtime::LoadOptions options;
  options.progress = [&](int64_t done, int64_t total) {
    bytes = total;
    progress.update(fmt::format("loading weights: {} of {}", size_text(done), size_text(total)));
  };
  const Status loaded =
      load_weights(session, map_, files_, runtime::targets_of(map_, session), options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  MACO_TRY(group ? group->agree(loaded) : loaded);
  progress.step("");
  if (!group || group->speaks())
    console.say(fmt::format(
        "{} of weights loaded{} in {:.3g} s, {}/s", size_text(bytes), group ? " by rank 0" : "",
        seconds.count(), size_text(static_cast<double>(bytes) / std::max(seconds.count(), 1e-9))));
  return {};
}

Status Weights::read_param(const std::string& name, int rank, reference::Tensor& value) const {
  runtime::WeightTarget target;
  target.param = map_.find(name);
  value = reference::Tensor(target.param->dtype, target.param->shape);
  target.places.push_back({rank, 0, value.bytes.data()});
  return read_weights(map_, files_, {target});
}

}  // namespace maco::tools
