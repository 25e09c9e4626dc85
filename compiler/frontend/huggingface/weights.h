// weights.json: which bytes of which file of a checkpoint go where (docs/models.md).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/huggingface/architecture.h"
#include "compiler/frontend/huggingface/checkpoint.h"
#include "ir/diagnostics.h"

namespace maco::frontend::huggingface {

/// Collects the sources of the params of a model's graphs, and accounts for every tensor of its
/// checkpoint.
class WeightTable {
 public:
  WeightTable(const Checkpoint& checkpoint, int64_t world, ir::Diagnostics& diagnostics)
      : checkpoint_(checkpoint), world_(world), diagnostics_(diagnostics) {}

  /// Adds a param. A param of a known name has to be equal. Returns false, after reporting, if the
  /// checkpoint doesn't have it in this form.
  bool add(const ParamOrigin& param);
  /// Returns false, after reporting, if a tensor of the checkpoint, or a part of one, is used
  /// nowhere. Names that match a pattern needn't be used. `architecture`: its file's name in
  /// messages.
  bool account(const std::vector<std::string>& ignored, const std::string& architecture);
  /// The members `files`, `sources` and `params`.
  void write(nlohmann::ordered_json& weights) const;

 private:
  bool check_values(const ParamOrigin& param);
  bool check_source(const ParamOrigin& param, const Origin& origin);
  nlohmann::ordered_json parts(const ParamOrigin& param, int64_t rank, bool& ok);
  bool fail(ir::Loc loc, const std::string& message);

  const Checkpoint& checkpoint_;
  int64_t world_;
  ir::Diagnostics& diagnostics_;
  std::vector<std::string> order_;
  std::map<std::string, nlohmann::ordered_json> params_;
  std::set<std::string> used_;
  /// The rows that origins take of a source, if they don't take all.
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> ranges_;
  struct Ranged {
    int64_t rows = 0;  // of the whole source, as its origin sees it
    ir::Loc loc;
  };
  std::map<std::string, Ranged> ranged_;
};

}  // namespace maco::frontend::huggingface
