// Who writes and reads what a pointer among a function's parameters points to.
#pragma once

#include <clang/AST/Decl.h>
#include <clang/Basic/SourceManager.h>

namespace maco::frontend::cuda {

struct Writes {
  clang::SourceLocation at;  // where it surely writes, as far as types say; invalid: nowhere
  /// Through what isn't followed here: objects that hold the pointer, others' functions.
  bool maybe = false;
};
/// Where a function writes through one of its parameters.
Writes writes_through(const clang::SourceManager& sources, const clang::FunctionDecl& f,
                      const clang::ParmVarDecl& parameter);

/// Where a function reads through one of its parameters before it writes there, in the order of
/// its text. Invalid where the first access writes, or isn't followed.
clang::SourceLocation first_read(const clang::SourceManager& sources, const clang::FunctionDecl& f,
                                 const clang::ParmVarDecl& parameter);

}  // namespace maco::frontend::cuda
