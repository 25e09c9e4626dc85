// Reports of proofs that fail, in the names of the user's graph.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/verify/verify.h"
#include "compiler/verify/witness.h"
#include "ir/diagnostics.h"
#include "ir/program.h"

namespace maco::verify {

/// "rank(1)", "others".
std::string to_string(ir::RankRef ref);
/// "self x 8", "shift(1) x %0".
std::string to_string(const ir::Program& program, const ir::Block& block);
/// "p[0:64, 0:512]", as a task on `rank` sees it; a pitch that isn't the buffer's is added.
std::string to_string(const ir::Program& program, const ir::Region& region, int rank);

/// Counts what is wrong and passes the first of a kind on to the diagnostics.
class Reporter {
 public:
  Reporter(const ir::Program& program, ir::Diagnostics& diagnostics, size_t max_reports,
           std::vector<Witness>* witnesses = nullptr)
      : program_(program),
        diagnostics_(diagnostics),
        max_reports_(max_reports),
        witnesses_(witnesses) {}

  /// True if it is one of those that are written out; notes belong to such a one only.
  bool error(std::string message, ir::Loc loc = {});
  bool error(ir::TaskId task, std::string message) { return error(std::move(message), loc(task)); }
  void note(ir::TaskId task, std::string message) {
    diagnostics_.note(loc(task), std::move(message));
  }
  /// How an error that is written out comes about.
  void witness(Witness witness) {
    if (witnesses_) witnesses_->push_back(std::move(witness));
  }
  /// Ends the phase: says how many were not written out. `what`: "races".
  void summarise(std::string_view what);
  bool failed() const { return errors_ > 0; }

  /// The place of the task's op in the graph, if it is known.
  ir::Loc loc(ir::TaskId task) const;

 private:
  const ir::Program& program_;
  ir::Diagnostics& diagnostics_;
  size_t max_reports_;
  std::vector<Witness>* witnesses_;
  size_t errors_ = 0;
};

}  // namespace maco::verify
