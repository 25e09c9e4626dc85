// What the two halves of the reader share: the parsed kernel, and places for reports.
#pragma once

#include <clang/AST/ASTContext.h>
#include <clang/AST/Decl.h>
#include <clang/Basic/SourceManager.h>

#include <string>
#include <vector>

#include "compiler/frontend/cuda_reader.h"

namespace maco::frontend::cuda {

/// Is it declared in the user's own files?
bool is_users(const clang::SourceManager& sources, clang::SourceLocation loc);

/// Reports at a place in the user's source.
class Reports {
 public:
  Reports(const clang::SourceManager& sources, KernelReply& reply)
      : sources_(sources), reply_(reply) {}
  void error(clang::SourceLocation loc, std::string message) {
    add(loc, std::move(message), false);
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
  const clang::FunctionDecl* function = nullptr;  // with its body; of a template, its instance
  /// Every function with a body that it may call, itself first.
  std::vector<const clang::FunctionDecl*> reachable;
  bool has_warp_word = false;  // lanes of a warp do something together: shuffle, vote, wait
};

/// What can't be a task: in the bodies of reachable functions.
void check_refusals(Kernel& kernel, const KernelRequest& request, Reports& reports);
/// What the kernel's declaration says.
KernelShape shape_of(clang::ASTContext& context, const clang::FunctionDecl& kernel);
/// The kernel's parameters against the graph's arguments.
void check_signature(const Kernel& kernel, const KernelRequest& request, Reports& reports);
/// Does it wait for the threads of the block?
bool is_block_barrier(const clang::FunctionDecl* function);
/// Runs the integers of the kernel for the threads of sample blocks: accesses that leave what the
/// graph declares, barriers that some threads miss.
void check_samples(const Kernel& kernel, const KernelRequest& request, Reports& reports);

// Behind the user's text: makes an instance of a template, and says which function is meant.
inline constexpr const char* kMeant = "maco_kernel_that_is_meant";

/// A name as others may write it: without namespaces that have none, and inline ones if wanted.
std::string written_name(const clang::NamedDecl& decl, bool inline_too = true);
/// "float", "unsigned char", "const float *": as C++ has it.
std::string type_text(const clang::ASTContext& context, clang::QualType type);

}  // namespace maco::frontend::cuda
