// Takes a kernel and what it uses out of its file, and makes functions of a task from them.
#pragma once

#include <memory>

#include "compiler/frontend/cuda/clang_edits.h"
#include "compiler/frontend/cuda/clang_said.h"

namespace maco::frontend::cuda {

class Extraction {
 public:
  virtual ~Extraction() = default;
  /// Finds the declarations that the kernel needs, and the functions that it may call
  /// (Kernel::reachable).
  virtual void find_needed() = 0;
  /// Whether a place of the user's files is in what the kernel needs.
  virtual bool is_needed(clang::SourceLocation at) const = 0;
  /// Whether the kernel names something that Clang couldn't parse, anywhere in the files. Call
  /// after find_needed().
  virtual bool is_broken() const = 0;
  /// Writes the texts of the reply, or how the file must be read again before, or what is wrong.
  virtual void write() = 0;
};
std::unique_ptr<Extraction> make_extraction(Kernel& kernel, const Preprocessed& seen,
                                            const Said& said, const KernelRequest& request,
                                            KernelReply& reply, Reports& reports, Again& again);

}  // namespace maco::frontend::cuda
