// The diagnostics of one build before the user sees them: in file order, and one for all iterations
// of a `repeat`.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/graph/report.h"
#include "ir/diagnostics.h"

namespace maco::frontend {

class Reporter : public graph::Report {
 public:
  // An error is dropped if the same was reported before, or a similar one in another iteration of a
  // repeat (the same place, and the same text except for numbers and hints).
  bool warning(ir::Loc loc, std::string message);
  /// Adds to the text of the diagnostic reported before it: for hints that take time to find.
  void append(const std::string& hint);
  /// A note that belongs to the diagnostic reported before it.
  void note(ir::Loc loc, std::string message) override;
  /// Takes all of `list`, as if reported here.
  void take(const std::vector<ir::Diagnostic>& list);

  /// How many errors were reported so far, including dropped ones: the cause of a dropped error is
  /// also wrong.
  int errors() const { return errors_; }
  /// Hands everything to `diagnostics`, sorted by place; diagnostics without a place come last.
  void flush(ir::Diagnostics& diagnostics);

 protected:
  bool take(ir::Loc loc, std::string message, const Hint& hint) override;

 private:
  struct Group {
    ir::Diagnostic head;
    std::string text;  // of `head`, without hints
    std::vector<ir::Diagnostic> notes;
    int32_t last_context = -1;  // of the iterations that `more` counts
    int more = 0;               // further iterations
  };
  bool add(ir::Severity severity, ir::Loc loc, std::string message);

  std::vector<Group> groups_;
  /// By place, and text with every number replaced.
  std::map<std::tuple<int32_t, int32_t, int32_t, std::string>, std::vector<size_t>> known_;
  bool dropping_ = false;
  int errors_ = 0;
};

}  // namespace maco::frontend
