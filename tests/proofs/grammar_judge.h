// What becomes of a mutant: which check refuses it, or how its run compares with the reference.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/program.h"
#include "runtime/cpu/compile.h"
#include "tests/proofs/grammar_subjects.h"

namespace maco::proofs {

/// kernel.cu without its manifest.
std::string code_of(const std::string& kernel);
/// The manifest's keys that a launch uses, as text.
std::string launch_of(const std::string& kernel);

struct Verdict {
  // "parse", "structure", "race", ..., "calls", "match", "kernel": refused; "same Program", "same
  // kernel"; "accepted"
  std::string word;
  std::string why;  // the first error
  std::optional<ir::Program> program;
  std::string kernel;  // of an accepted one that has another
};
/// Judges as maco-opt --verify and maco-run --program do.
Verdict judge(const GraphSubject& subject, const std::string& text);

/// An accepted mutant's kernel, run against the reference on fibres and on threads with jitter,
/// with accesses checked; what went wrong, or "".
struct Runnable {
  const GraphSubject* subject = nullptr;
  ir::Program program;
  std::string kernel;
  uint64_t seed = 0;
  uint64_t timeout_ms = 10000;  // without progress for so long, a launch hangs
};
std::string run(const Runnable& mutant, const std::shared_ptr<runtime::CpuLibrary>& library,
                size_t index);

/// A function's output, from a process of its own; how that process ended if there was none.
struct Ended {
  std::string said;
  std::string fault;  // "crashed: signal 11", "hung: no result after 60 s", or ""
};
Ended in_child(const std::function<std::string()>& work, int seconds);

/// work(0) to work(count - 1), run in several processes.
std::vector<std::string> in_workers(size_t count, int workers,
                                    const std::function<std::string(size_t)>& work);

}  // namespace maco::proofs
