// Runs passes. macoc, maco-opt, maco-run, the library and the tests all run them here, so that a
// pass is checked, dumped, timed and proved the same way everywhere.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/pipeline/options.h"
#include "compiler/pipeline/registry.h"

namespace maco::passes {

/// What is known about the passes that ran.
struct PassLog {
  std::vector<std::pair<std::string, double>> seconds;  // by pass, in order; without proofs
  std::map<std::string, int64_t> statistics;
  /// As PassContext::fusions.
  std::map<std::string, std::vector<std::string>> fusions;
  /// The pass after which a proof failed (verify_each); empty if none did.
  std::string broken_by;
  std::string right_after;    // the last pass after which everything was right
  bool proof_failed = false;  // whether any proof failed
};

/// Runs passes on the graph or Program that it is given. After an error, or after the pass that
/// `stop_after` names, it runs nothing more and returns its argument, so that a pipeline needs no
/// conditions.
class PassManager {
 public:
  /// `options` and `diagnostics` have to outlive the manager. If `context` (from make_context) is
  /// nothing, the manager is stopped from the start, with an error.
  PassManager(std::optional<PassContext> context, const PipelineOptions& options,
              ir::Diagnostics& diagnostics);

  /// Runs the pass of this name on a form that it takes, and proves the result if verify_each is
  /// set. The overload for graphs doesn't run the pass that lowers.
  ir::Graph run(std::string_view pass, ir::Graph graph);
  Unit run(std::string_view pass, Unit unit);
  /// Proves a Program, as the pass `verify` does; with verify_each only if it has changed since the
  /// last proof. `shared`: no pass that makes symmetric memory smaller is to come.
  bool prove(const ir::Program& program, bool shared = true);

  /// Whether there was no error so far.
  bool ok() const { return !failed_; }
  /// Whether nothing more is run.
  bool stopped() const { return failed_ || ended_; }
  const PassLog& log() const { return log_; }

 private:
  /// Whether calls fit the device functions that they name. Reports if not.
  bool calls_hold(const ir::Program& program);
  /// Writes the dumps that were asked for after a pass.
  void show(const Pass& pass, Unit& unit);

  const PipelineOptions& options_;
  ir::Diagnostics& diagnostics_;
  std::optional<PassContext> context_;
  PassLog log_;
  std::optional<std::string> text_;   // what the last pass left, if changes are asked for
  int number_ = 0;                    // how many passes have run
  std::optional<ir::Program> tiled_;  // the result of the last pass that lowers
  std::optional<ir::Program> proved_;
  bool failed_ = false, ended_ = false;
  bool structured_ = false;  // a pass has looked at the Program's structure
};

}  // namespace maco::passes
