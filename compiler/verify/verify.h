// The proofs: does a Program keep what its stage promises?
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/program.h"

namespace maco::verify {

struct Witness;

struct VerifyOptions {
  /// Where all ranks do the same up to a rotation of the ranks, one of them is followed for all.
  /// Never changes the verdict.
  bool use_symmetry = true;
  /// Races: first tries a short proof, of all ranks and launches at once. Never changes the
  /// verdict.
  bool at_once = true;
  /// Tasks between two clean-ups of what is remembered; 0: as suits the size. Never changes the
  /// verdict.
  size_t forget_every = 0;
  /// Holds symmetric memory against Limits::symmetric_bytes.
  bool symmetric_limit = true;
  /// Violations of one kind that are written out; the rest is counted in a last error.
  size_t max_reports = 20;
  /// Gets a witness without a schedule (complete, in witness.h, adds it) for each deadlock, race
  /// and wrong order that is written out, in the same order.
  std::vector<Witness>* witnesses = nullptr;
};

/// What was done; for benchmarks and tests.
struct VerifyStatistics {
  int64_t launches = 0;  // that were followed
  int64_t nodes = 0;     // tasks times ranks times launches; at once: times ranks
  int64_t pairs = 0;     // of accesses, or of one and several others, that were compared
  int64_t joins = 0;     // of clocks, or of what one says of a rank; at once
  bool symmetric = false;
  bool at_once = false;  // the short proof was enough
};

/// Proves all that program.stage promises and that of the stages before it; false if something is
/// wrong, which is then in `diagnostics` in an order that depends on the Program alone.
///
/// The proofs, in this order; each presupposes those before it, and the first that fails is the
/// last that is tried:
///   - structure: ids, regions within their buffers, who may write what; from `planned` on
///     addresses, from `scheduled` on streams and roles;
///   - defined: what is read has been written before, on every rank, and outputs are written;
///   - lifetimes (planned): no temporary or slot is read where another has been written
///     since;
///   - overlays (planned): no task writes bytes that it reads as something else;
///   - resources (scheduled): what a CTA uses is there, and all CTAs run at once;
///   - counts (synced): what a wait waits for is exactly what will arrive, on every
///     rank, and packets have flags that tell them apart;
///   - scope (synced): every signal is a release and every wait an acquire, with enough reach;
///   - hand-overs (synced): what is handed over to a library is taken back before anything may
///     touch it again;
///   - own packets (synced): packets of temporaries can be told from those of other launches;
///   - order (synced): the streams and events of all ranks have no cycle, which would be a
///     deadlock;
///   - races (synced): every two accesses to the same bytes, one of them a write, are ordered, and
///     as the list of tasks orders them;
///   - operands (synced): a collective takes one value of its operand, on all ranks;
///   - contributions (synced): every collective delivers what it promises, and whatever moves data
///     between ranks promises something.
bool verify(const ir::Program& program, ir::Diagnostics& diagnostics);
bool verify(const ir::Program& program, ir::Diagnostics& diagnostics, const VerifyOptions& options,
            VerifyStatistics* statistics = nullptr);

}  // namespace maco::verify
