// Finds where things from other headers that the user's text names are declared, and whether they
// can be used in kernel.cu. Other names are refused.
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

  /// Notes a declaration that the user's text names at `at`. Reports the first use of one that
  /// kernel.cu can't have.
  void use(const clang::NamedDecl& decl, clang::SourceLocation at);
  /// Notes the use of a macro from another header.
  void use_macro(const std::string& name, clang::SourceLocation defined, clang::SourceLocation at);

  /// Standard C++ headers that declare what was named: "type_traits".
  const std::set<std::string>& standard() const { return standard_; }
  /// CUDA's headers that kernel.cu has to include, whoever included them here: "cuda_bf16.h".
  const std::set<std::string>& of_cuda() const { return of_cuda_; }

 private:
  /// The file's name below its `include` folder: "bits/stl_pair.h", "curand_kernel.h".
  std::string header(clang::SourceLocation loc) const;
  void note_header(std::string_view file);
  void refuse(const std::string& what, clang::SourceLocation declared, clang::SourceLocation at);

  const clang::SourceManager& sources_;
  Reports& reports_;
  std::set<std::string> standard_, of_cuda_, told_;
  std::set<const clang::Decl*> seen_;
};

}  // namespace maco::frontend::cuda
