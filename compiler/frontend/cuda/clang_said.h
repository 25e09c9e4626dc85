// What Clang says of a file, until it is known of what the kernel needs: the rest of the file is
// not looked at.
#pragma once

#include <clang/Basic/Diagnostic.h>

#include <functional>
#include <string>
#include <vector>

#include "compiler/frontend/cuda/facts.h"

namespace maco::frontend::cuda {

class Said : public clang::DiagnosticConsumer {
 public:
  void HandleDiagnostic(clang::DiagnosticsEngine::Level level,
                        const clang::Diagnostic& info) override;

  /// Reports the errors that are about places for which `needed` holds: where they stand, or what
  /// asked for the instance of a template that they are in. While the file is open.
  void report(const clang::SourceManager& sources,
              const std::function<bool(clang::SourceLocation)>& needed, KernelReply& reply) const;
  /// Reports all of them.
  void report_all(KernelReply& reply) const;
  bool any() const { return !errors_.empty(); }
  /// Where errors of the user's files stand.
  std::vector<clang::SourceLocation> places() const;
  /// What is wrong with the text behind the user's: the use in the graph.
  const std::vector<std::string>& behind() const { return behind_; }

 private:
  struct Line {
    KernelError error;
    clang::SourceLocation at;
    bool behind = false;  // in the text behind the user's
  };
  struct Error {
    Line line;
    std::vector<Line> notes;
  };
  static void put(const Error& error, KernelReply& reply);

  std::vector<Error> errors_;
  std::vector<std::string> behind_;
  bool told_ = false;  // the last error was kept, and so are its notes
};

}  // namespace maco::frontend::cuda
