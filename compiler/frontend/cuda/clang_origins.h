// Where what the user's text names of other headers comes from, and whether it comes along: what
// kernel.cu can't say isn't taken.
#pragma once

#include <clang/AST/Decl.h>
#include <clang/Basic/SourceManager.h>

#include <set>
#include <string>

#include "compiler/frontend/cuda/facts.h"

namespace maco::frontend::cuda {

class Origins {
 public:
  Origins(const clang::SourceManager& sources, Reports& reports)
      : sources_(sources), reports_(reports) {}

  /// A declaration that the user's text names at `at`. Reports the first place of one that doesn't
  /// come along.
  void use(const clang::NamedDecl& decl, clang::SourceLocation at);
  /// A macro of another header.
  void use_macro(const std::string& name, clang::SourceLocation defined, clang::SourceLocation at);

  /// Headers of C++ that declare what was named: "type_traits".
  const std::set<std::string>& standard() const { return standard_; }
  /// Headers of CUDA's that kernel.cu has to include for it, whoever included them here:
  /// "cuda_bf16.h".
  const std::set<std::string>& of_cuda() const { return of_cuda_; }

 private:
  /// "bits/stl_pair.h", "curand_kernel.h": the file's name, with the folders below `include`.
  std::string header(clang::SourceLocation loc) const;
  void note_header(std::string_view file);
  void refuse(const std::string& what, clang::SourceLocation declared, clang::SourceLocation at);

  const clang::SourceManager& sources_;
  Reports& reports_;
  std::set<std::string> standard_, of_cuda_, told_;
  std::set<const clang::Decl*> seen_;
};

}  // namespace maco::frontend::cuda
