// Finds writes and reads of the data to which a pointer among a function's parameters points.
#pragma once

#include <clang/AST/Decl.h>
#include <clang/Basic/SourceManager.h>

namespace maco::frontend::cuda {

struct Writes {
  clang::SourceLocation at;  // a certain write, as far as types say; invalid: none
  /// There may be writes through what isn't followed here: objects that hold the pointer, functions
  /// of other headers.
  bool maybe = false;
};
/// Where a function writes through one of its parameters.
Writes writes_through(const clang::SourceManager& sources, const clang::FunctionDecl& f,
                      const clang::ParmVarDecl& parameter);

/// Where a function reads through one of its parameters before it writes there, in the order of its
/// text. Invalid if the first access is a write, or isn't followed.
clang::SourceLocation first_read(const clang::SourceManager& sources, const clang::FunctionDecl& f,
                                 const clang::ParmVarDecl& parameter);

}  // namespace maco::frontend::cuda
