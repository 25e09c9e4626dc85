// Where checks of a graph report.
#pragma once

#include <string>
#include <utility>

#include "ir/diagnostics.h"

namespace maco::graph {

class Report {
 public:
  virtual ~Report() = default;
  /// Returns false if the error is dropped because it was reported before; notes that follow are
  /// dropped too.
  virtual bool error(ir::Loc loc, std::string message) = 0;
  /// A note that belongs to the error reported before it.
  virtual void note(ir::Loc loc, std::string message) = 0;
};

/// Reports everything at once.
class DirectReport : public Report {
 public:
  explicit DirectReport(ir::Diagnostics& diagnostics) : diagnostics_(diagnostics) {}
  bool error(ir::Loc loc, std::string message) override {
    diagnostics_.error(loc, std::move(message));
    return true;
  }
  void note(ir::Loc loc, std::string message) override {
    diagnostics_.note(loc, std::move(message));
  }

 private:
  ir::Diagnostics& diagnostics_;
};

}  // namespace maco::graph
