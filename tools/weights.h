// maco-run --weights: params from a checkpoint, by the weights.json beside the graph.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "ir/graph.h"
#include "runtime/host/group.h"
#include "runtime/reference/tensor.h"
#include "runtime/weights/load.h"
#include "tools/driver.h"
#include "tools/progress.h"

namespace maco::tools {

class Weights {
 public:
  /// Reads weights.json in `graphs`, and remembers the checkpoint's folder.
  runtime::Status read(const std::string& graphs, const std::string& checkpoint);
  /// Checks that weights.json has the graph's params, and that the checkpoint's files match it.
  /// Called before anything is compiled.
  runtime::Status check(const ir::Graph& graph);

  const runtime::WeightMap& map() const { return map_; }
  /// The graph's params, all of which come from the checkpoint.
  const std::set<std::string>& params() const { return params_; }
  /// The hash of weights.json's text, for processes that must have the same.
  const std::string& hash() const { return hash_; }

  /// Fills the params of the session (in a group in all processes), and reports how fast.
  runtime::Status load(runtime::Session& session, runtime::Group* group, Progress& progress,
                       const Console& console) const;
  /// A param as a rank must have it, also for a rank of another process.
  runtime::Status read_param(const std::string& name, int rank, reference::Tensor& value) const;

 private:
  std::string folder_, hash_;
  runtime::WeightMap map_;
  runtime::WeightFiles files_;
  std::set<std::string> params_;
};

}  // namespace maco::tools
