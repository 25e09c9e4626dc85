// What the user is told: errors, warnings and notes with file, line, column, the line itself and a
// caret.
//
// Errors that a user can cause are reported here and never thrown or asserted; a broken invariant
// of MACO itself is MACO_CHECK (ir/check.h). All errors of a file are collected: code that reports
// one goes on where it can.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace maco::ir {

/// A place in a source text. `line` and `column` count from 1 (columns in bytes); line 0: no place
/// is known. `length` is how many bytes the caret underlines, at least 1. `context` is an index
/// into Diagnostics::contexts ("in iteration i = 3"), or -1.
struct Loc {
  int32_t file = -1;
  int32_t line = 0;
  int32_t column = 0;
  int32_t length = 1;
  int32_t context = -1;

  bool known() const { return line > 0; }
  /// Places are not part of what a graph means: any two are equal, so that structures holding them
  /// compare by meaning.
  friend bool operator==(const Loc&, const Loc&) { return true; }
};

enum class Severity : uint8_t { Error, Warning, Note };

struct Diagnostic {
  Severity severity = Severity::Error;
  Loc loc;
  std::string message;
};

/// Collects diagnostics in the order of reporting and renders them. Not thread safe. Copyable.
class Diagnostics {
 public:
  /// Registers a source text; `name` is what is printed ("tp_mlp.json", "<stdin>"). Returns its id
  /// for Loc::file.
  int32_t add_file(std::string name, std::string text);
  const std::string& file_name(int32_t file) const;
  const std::string& file_text(int32_t file) const;
  /// Registers a context such as "in iteration i = 3" and returns its index for Loc::context.
  /// `outer` is the enclosing context or -1; both are printed.
  int32_t add_context(std::string text, int32_t outer = -1);

  void error(Loc loc, std::string message);
  void warning(Loc loc, std::string message);
  /// Belongs to the diagnostic reported before it.
  void note(Loc loc, std::string message);

  /// Errors reported since the start or the last clear(); warnings and notes don't count.
  bool has_errors() const { return errors_ > 0; }
  int errors() const { return errors_; }
  /// In the order of reporting.
  const std::vector<Diagnostic>& all() const { return list_; }
  /// Forgets what was reported; files and contexts stay.
  void clear();

  /// All diagnostics as text:
  ///   tp_mlp.json:14:25: error: 'matmul' cannot ...
  ///      14 |     {"op": "matmul", ...
  ///         |                             ^~~~~~~~~~
  /// A long line is cut around the caret. `color`: use ANSI colours. `most`: how many errors to
  /// show, with their notes, before a line that counts the others; 0: all. Warnings are those of
  /// limited(`most_warnings`).
  std::string render(bool color = false, int most = 0, int most_warnings = 0) const;
  /// all() with at most `most` warnings of a kind, and only one for all iterations of a repeat. The
  /// last warning shown of a kind has a note that says how many more there are. Warnings are of one
  /// kind if they differ only in quoted text and in numbers. 0: all() as it is.
  std::vector<Diagnostic> limited(int most) const;

 private:
  struct File {
    std::string name, text;
    std::vector<size_t> line_starts;
  };
  struct Context {
    std::string text;
    int32_t outer;
  };
  std::vector<File> files_;
  std::vector<Context> contexts_;
  std::vector<Diagnostic> list_;
  int errors_ = 0;
};

/// `message` without its quoted text: the same for all ops with the same fault.
std::string without_names(std::string_view message);

/// "; did you mean 'allreduce'?" if one of `candidates` is close to `word` (edit distance at most a
/// third), else "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace maco::ir
