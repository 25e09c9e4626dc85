// Takes a kernel out of its file, with what it uses, and makes functions of a task of it.
#pragma once

#include <memory>

#include "compiler/frontend/cuda/clang_edits.h"
#include "compiler/frontend/cuda/clang_said.h"

namespace maco::frontend::cuda {

class Extraction {
 public:
  virtual ~Extraction() = default;
  /// Which declarations the kernel needs, and which functions it may call (Kernel::reachable).
  virtual void find_needed() = 0;
  /// Whether a place of the user's files is in what the kernel needs.
  virtual bool is_needed(clang::SourceLocation at) const = 0;
  /// Whether it names what Clang could make nothing of, wherever that stands. Once what is needed
  /// has been found.
  virtual bool is_broken() const = 0;
  /// The texts of the reply; or what has to be read again before, or is wrong.
  virtual void write() = 0;
};
std::unique_ptr<Extraction> make_extraction(Kernel& kernel, const Preprocessed& seen,
                                            const Said& said, const KernelRequest& request,
                                            KernelReply& reply, Reports& reports, Again& again);

}  // namespace maco::frontend::cuda
