// Keeps Clang's errors about a file until it is known what the kernel needs; errors elsewhere are
// ignored.
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

  /// Reports the errors at places for which `needed` holds: the error's own place, or the place
  /// that asked for the template instance with the error. Call while the file is open.
  void report(const clang::SourceManager& sources,
              const std::function<bool(clang::SourceLocation)>& needed, KernelReply& reply) const;
  /// Reports all errors.
  void report_all(KernelReply& reply) const;
  bool any() const { return !errors_.empty(); }
  /// The places of the errors in the user's files.
  std::vector<clang::SourceLocation> places() const;
  /// What is wrong with the text behind the user's, which is the graph's use of the kernel.
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
  bool told_ = false;  // whether the last error was kept; its notes are kept, too
};

}  // namespace maco::frontend::cuda
