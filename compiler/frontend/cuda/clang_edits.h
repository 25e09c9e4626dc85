// Changes the user's texts: what the preprocessor saw of them, places that can be changed, and
// macros that must be written out before a place can be changed.
#pragma once

#include <clang/Lex/PPCallbacks.h>
#include <clang/Lex/Preprocessor.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/frontend/cuda/facts.h"

namespace maco::frontend::cuda {

/// What the preprocessor saw of one file each time it was entered. Offsets are into that file.
struct FileText {
  struct Cut {
    unsigned begin = 0, end = 0;
  };
  struct Include {
    unsigned begin = 0, end = 0;  // the directive
    clang::FileID file;           // a file of the user's that it enters; invalid otherwise
    std::string system;           // the system header that it enters: "<cuda_fp16.h>"
  };
  std::vector<Cut> cuts;  // conditions, and the text that they leave out
  std::vector<Include> includes;
  std::vector<Cut> macros;  // #define and #undef
};

struct Preprocessed {
  /// A directive of the user's: #define with all its text, or #undef.
  struct Macro {
    clang::SourceLocation at;
    std::string name, text;
  };
  std::map<clang::FileID, FileText> files;
  std::set<std::string> macros;                 // that the user's files define
  std::vector<Macro> directives;                // in their order
  std::map<std::string, int> entered;           // how often a file is included, by its name
  std::vector<clang::SourceLocation> clusters;  // __cluster_dims__, __block_size__
  /// Headers that weren't found, with the places of their directives.
  std::vector<std::pair<clang::SourceLocation, std::string>> missing;
  /// Uses, in the user's files, of macros from other headers.
  struct Use {
    clang::SourceLocation at, defined;
    std::string name;
  };
  std::vector<Use> uses;
};

/// A change of the text.
struct Edit {
  unsigned begin = 0, end = 0;
  std::string text;
  // At one place, an insertion comes before a replacement.
  bool operator<(const Edit& other) const {
    if (begin != other.begin || end != other.end)
      return begin != other.begin ? begin < other.begin : end < other.end;
    return begin == end && text < other.text;
  }
};

using Edits = std::map<clang::FileID, std::set<Edit>>;

/// How the file must be read again before a kernel's text can be written.
struct Again {
  struct Expansion {
    std::string path;
    unsigned begin = 0, end = 0;  // of the text that a macro of the user's makes
    std::string text;             // what it makes
    bool exact = false;           // without blanks around it
    bool operator<(const Expansion& other) const {
      return std::tie(path, begin) < std::tie(other.path, other.begin);
    }
  };
  std::set<Expansion> expansions;
  bool brackets = false;  // the kernel is a template whose parameters all have defaults
  std::vector<std::string> template_args;  // of the wanted instance
  bool any() const { return brackets || !template_args.empty() || !expansions.empty(); }
};

/// Fills `seen` while a file is preprocessed.
std::unique_ptr<clang::PPCallbacks> watch(clang::Preprocessor& pp, Preprocessed& seen);

class Editor {
 public:
  Editor(clang::ASTContext& context, const Preprocessed& seen, Reports& reports, Again& again)
      : context_(context),
        sources_(context.getSourceManager()),
        seen_(seen),
        reports_(reports),
        again_(again) {}

  unsigned offset(clang::SourceLocation loc) const {
    return sources_.getDecomposedExpansionLoc(loc).second;
  }
  clang::FileID file_of(clang::SourceLocation loc) const {
    return sources_.getDecomposedExpansionLoc(loc).first;
  }
  /// A token's place in its file. For a token that a macro of CUDA's makes, it is the macro's
  /// place, unless the token is part of an argument.
  clang::SourceLocation in_file(clang::SourceLocation loc, bool end) const;
  /// Whether the text can be changed there. Text that a macro of the user's makes can't: the macro
  /// is written out first, and the file read again.
  bool editable(clang::SourceLocation loc);
  bool editable(clang::SourceLocation begin, clang::SourceLocation end) {
    const bool at_begin = editable(begin), at_end = editable(end);
    return at_begin && at_end;
  }
  /// The text that the user's macros make of `text`; CUDA's macros stay.
  std::string expanded(clang::SourceLocation at, clang::StringRef text) const;
  /// Replaces the text from one token to another.
  void edit(Edits& edits, clang::SourceLocation begin, clang::SourceLocation end, std::string text);
  /// Inserts texts before and behind an expression.
  void enclose(Edits& edits, clang::SourceLocation begin, clang::SourceLocation end,
               std::string before, std::string behind);

  clang::ASTContext& context() const { return context_; }
  clang::SourceManager& sources() const { return sources_; }

 protected:
  clang::ASTContext& context_;
  clang::SourceManager& sources_;
  const Preprocessed& seen_;
  Reports& reports_;
  Again& again_;

 private:
  bool made_by_macro(clang::SourceLocation loc) const;
};

}  // namespace maco::frontend::cuda
