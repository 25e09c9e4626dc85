// Rules that fold ops of one kind into the ops that read them, or into the op before them.
#pragma once

#include <map>
#include <string>

#include "compiler/passes/fuse/uses.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

/// A rule is a class that says which ops stay, and what becomes of the others.
class Fold {
 public:
  /// Folds ops of `kind` into the ops that read them or, with `made_by`, into the op that makes
  /// their operand; `where` names these in the notes: "matmuls".
  Fold(ir::Graph& graph, PassContext& context, std::string kind, std::string where,
       bool made_by = false);
  virtual ~Fold() = default;
  /// Folds what it can. Notes of each op "slice stays: ..." or "slice in the ops that read it", and
  /// adds the ops that are gone to the statistics.
  void run();

 protected:
  /// Whether to look at an op of the kind.
  virtual bool concerns(const ir::Op&) const { return true; }
  /// Why the op stays, or "".
  virtual std::string refuse(const ir::Op& op) = 0;
  /// Makes other ops do what `op` does, which is then removed.
  virtual void fold(const ir::Op& op) = 0;

  /// The reason that all ops of the kind behind `y` share, as `find` finds it the first time.
  template <class Find>
  const std::string& shared_reason(ir::TensorId y, Find find) {
    const auto [it, fresh] = reasons_.try_emplace(y);
    if (fresh) it->second = find();
    return it->second;
  }
  const std::vector<size_t>& readers(ir::TensorId t) const { return uses_.readers[index(t)]; }
  size_t place_of(const ir::Op& op) const { return static_cast<size_t>(&op - graph_.ops.data()); }
  int64_t columns_in(ir::TensorId t) const { return *graph_[t].shape.back().constant(); }

  ir::Graph& graph_;
  PassContext& context_;
  const Uses uses_;

 private:
  const std::string kind_, where_;
  const bool made_by_;
  std::map<ir::TensorId, std::string> reasons_;
};

}  // namespace maco::passes
