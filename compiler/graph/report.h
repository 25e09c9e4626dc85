// Where checks of a graph report.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "ir/diagnostics.h"

namespace maco::graph {

class Report {
 public:
  /// Makes the end of a message that takes time to find: "; did you mean 'x'?". Asked only if the
  /// message is shown.
  using Hint = std::function<std::string()>;

  virtual ~Report() = default;
  /// Returns false if the error is dropped because it was reported before; notes that follow are
  /// dropped too.
  bool error(ir::Loc loc, std::string message, const Hint& hint = {}) {
    return take(loc, std::move(message), hint);
  }
  /// A note that belongs to the error reported before it.
  virtual void note(ir::Loc loc, std::string message) = 0;

 protected:
  virtual bool take(ir::Loc loc, std::string message, const Hint& hint) = 0;
};

/// Reports everything at once.
class DirectReport : public Report {
 public:
  explicit DirectReport(ir::Diagnostics& diagnostics) : diagnostics_(diagnostics) {}
  void note(ir::Loc loc, std::string message) override {
    diagnostics_.note(loc, std::move(message));
  }

 protected:
  bool take(ir::Loc loc, std::string message, const Hint& hint) override {
    diagnostics_.error(loc, hint ? message + hint() : std::move(message));
    return true;
  }

 private:
  ir::Diagnostics& diagnostics_;
};

}  // namespace maco::graph
