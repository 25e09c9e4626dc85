// What the two halves of the reader share: the parsed kernel, and places for reports.
#pragma once

#include <clang/AST/ASTContext.h>
#include <clang/AST/Decl.h>
#include <clang/Basic/SourceManager.h>

#include <string>
#include <vector>

#include "compiler/frontend/cuda_reader.h"

namespace maco::frontend::cuda {

/// Whether the place is in the user's own files.
bool is_users(const clang::SourceManager& sources, clang::SourceLocation loc);

/// Whether the declaration is a function that no device runs.
bool runs_on_host(const clang::Decl& decl);

/// Reports at a place in the user's source.
class Reports {
 public:
  Reports(const clang::SourceManager& sources, KernelReply& reply)
      : sources_(sources), reply_(reply) {}
  void error(clang::SourceLocation loc, std::string message) {
    add(loc, std::move(message), false);
  }
  void warning(clang::SourceLocation loc, std::string message) {
    add(loc, std::move(message), false);
    reply_.warnings.push_back(std::move(reply_.errors.back()));
    reply_.errors.pop_back();
  }
  void note(clang::SourceLocation loc, std::string message) { add(loc, std::move(message), true); }
  void in_graph(std::string attribute, std::string message);
  void in_arg(size_t arg, std::string message);
  bool any() const { return !reply_.errors.empty(); }

 private:
  void add(clang::SourceLocation loc, std::string message, bool note);
  const clang::SourceManager& sources_;
  KernelReply& reply_;
};

struct Kernel {
  clang::ASTContext& context;
  const clang::FunctionDecl* function = nullptr;  // with its body; for a template the instance
  /// Every function with a body that the kernel may call; itself first.
  std::vector<const clang::FunctionDecl*> reachable;
  bool has_warp_word = false;  // lanes of a warp do something together: shuffle, vote, wait
};

/// Reports what can't be a task, in the bodies of reachable functions.
void check_refusals(Kernel& kernel, const KernelRequest& request, Reports& reports);
/// Whether a tensor of the dtype can be passed as a pointer to this element.
bool holds(const clang::ASTContext& context, clang::QualType element, ir::DType dtype);
/// What a first draft of a graph says about a kernel; about `instance` if it is a template.
KernelShape shape_of(clang::ASTContext& context, const clang::FunctionDecl& kernel,
                     const clang::FunctionDecl& instance);
/// Arguments of a kernel template: from a launch in the file, from another instance, or guessed.
/// Nothing if the template takes arguments other than types and numbers.
std::vector<std::string> guess_template(clang::ASTContext& context,
                                        const clang::FunctionDecl& kernel);
/// Chooses numbers for the integers of a shape, and counts the elements of each tensor that the
/// blocks that can be followed then touch.
void guess_extents(clang::ASTContext& context, const clang::FunctionDecl& instance,
                   KernelShape& shape);
/// Checks the kernel's parameters against the graph's arguments.
void check_signature(const Kernel& kernel, const KernelRequest& request, Reports& reports);
/// Whether the function waits for the threads of the block.
bool is_block_barrier(const clang::FunctionDecl* function);
/// Evaluates the kernel's integers for the threads of sample blocks. Reports accesses outside of
/// what the graph declares, and barriers that some threads miss.
void check_samples(const Kernel& kernel, const KernelRequest& request, Reports& reports);

// Stands behind the user's text: makes an instance of a template, and identifies the function that
// is meant.
inline constexpr const char* kMeant = "maco_kernel_that_is_meant";

/// A name as other code may write it: without unnamed namespaces and, unless wanted, without inline
/// ones.
std::string written_name(const clang::NamedDecl& decl, bool inline_too = true);
/// The type as C++ spells it: "float", "unsigned char", "const float *".
std::string type_text(const clang::ASTContext& context, clang::QualType type);

}  // namespace maco::frontend::cuda
