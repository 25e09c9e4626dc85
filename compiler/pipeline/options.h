// How a graph is compiled, and what is shown and checked on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compiler/passes/passes.h"

namespace maco::verify {
struct Witness;
}

namespace maco::passes {

struct Pass;  // registry.h

/// The result of a pass, as text.
struct Dump {
  std::string pass;
  std::string file;  // its name in the dump directory: "09-tile.program"
  std::string text;
  /// What the pass changed, if only that was asked for (print_changed); else empty.
  std::string changes{};
};

struct PipelineOptions {
  // What shapes the kernel.
  std::string target = "sm_90a";  // names of cost/machine.h
  std::string board;              // empty: the target's default
  int64_t sms = 0;                // SMs that one rank may use; 0: all of the board's
  bool load_ahead = true;
  bool fuse = true;                    // --no-fuse
  std::vector<std::string> no_fuse{};  // --no-fuse=NAME,...: rules of `fuse` that are left out
  bool prune = true;                   // --no-prune
  bool packets = true;                 // --no-packets
  /// The number, from 1, of the only wanted variant of `sm_roles`; 0: all (--variant).
  int64_t variant = 0;

  /// Files with collectives that the graph's ops may name as their algorithm, besides the graph's
  /// own.
  std::vector<std::string> algorithms{};

  /// For sources of ops `cuda` (frontend/cuda_kernels.h).
  std::vector<std::string> include_folders{}, defines{};

  // What is shown and checked on the way.
  std::string stop_after;    // name of the last pass to run; empty: all
  bool verify_each = false;  // prove the Program after each pass that changed it
  bool reparse = false;      // print and parse the IR between all passes
  /// Names of passes, or "all", whose results `print` gets as text.
  std::vector<std::string> print_after;
  bool print_changed = false;  // and what each pass changed
  std::function<void(const Dump&)> print{};
  std::function<void(const Dump&)> dump{};  // gets the text after every pass
  /// Called after each pass that succeeded. May replace the unit by another of the same form, for
  /// example one with other tiles, for a tuner.
  std::function<void(const Pass&, Unit&)> after_pass{};
  /// Gets the proofs' witnesses of faults.
  std::vector<verify::Witness>* witnesses = nullptr;
  /// Gets the text of a fault of a user's algorithm (ops/collectives/chunk_witness.h).
  std::string* algorithm_witness = nullptr;
};

/// What passes are told about the machine and by `options`. Returns nothing, after reporting, if
/// there is no such machine or a rank is to use more SMs than it has.
std::optional<PassContext> make_context(const PipelineOptions& options,
                                        ir::Diagnostics& diagnostics);
/// The same for a graph or a Program, which has a target and board of its own.
std::optional<PassContext> make_context(const Unit& unit, const PipelineOptions& options,
                                        ir::Diagnostics& diagnostics);

}  // namespace maco::passes
