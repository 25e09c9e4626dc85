// What kernel.cu says of itself in its `//@maco` comment lines: all that a host needs to bind and
// launch it, and the graph from which it was compiled, so that the file alone can be checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.h"
#include "ir/expr.h"
#include "ir/program.h"

namespace maco::ir {

/// The version of the comment lines. A kernel of another version is refused.
inline constexpr int kManifestVersion = 15;

struct ManifestTensor {
  std::string name;
  std::string kind;  // "input", "param", "state", "output"
  DType dtype = DType::F32;
  std::vector<Expr> shape;  // over dims
  int64_t max_elements = 0;
};
struct ManifestRange {  // a dim or a scalar
  std::string name;
  int64_t lo = 0, hi = 0;  // both ends included
  friend bool operator==(const ManifestRange&, const ManifestRange&) = default;
};
struct ManifestValue {
  Expr expr;               // over dims, scalars, rank, world
  int64_t lo = 0, hi = 0;  // both ends included: what the code was compiled for
};
struct ManifestCall {
  std::string op, op_kind;  // names of the graph, for reports
};
/// A temporary that a user's kernel writes, on the CPU target. No task touches the bytes right
/// before and behind it.
struct ManifestTemporary {
  std::string name;
  DType dtype = DType::F32;
  int64_t max_elements = 0;
  int64_t offset = 0;  // in the arena
  int64_t before = 0, behind = 0;
};
/// A matrix of which a kernel copies boxes: a tensor, or a place in the temporaries.
struct ManifestMap {
  int64_t tensor = -1;  // index into tensors; -1: temporaries
  int64_t offset = 0;   // bytes from there
  DType dtype = DType::F32;
  int64_t rows = 0, cols = 0, box_rows = 0, box_cols = 0;
  int64_t run = 0;  // columns that boxes don't cross, as for ir::Load::Box; 0: a row
  static constexpr int64_t kLine = 128, kMostRow = 2048;  // bytes of a row of a box
  /// Whether a box's rows are lines, whose chunks are swizzled as ir::Load::Box says.
  bool lines() const { return box_cols * size_of(dtype) == kLine; }
  friend bool operator==(const ManifestMap&, const ManifestMap&) = default;
};
/// A collective that a library carries out beside the kernel. Two words of Launch::handed begin and
/// end it.
struct ManifestHanded {
  int64_t number = 0;  // its place in Launch::handed
  std::string op;
  CollectiveKind kind = CollectiveKind::AllReduce;  // to RingShift
  Reduction reduce = Reduction::Sum;
  int64_t peer = 0;  // broadcast: the root; ring_shift: how far it goes
  DType dtype = DType::F32;
  // Operand and result: an index into tensors, or -1 and the byte offset in the temporaries.
  int64_t x = -1, x_offset = 0, y = -1, y_offset = 0;
  // Rows and columns of a block, or of the tensor where the kind has no blocks. With `value` < 0
  // there are `rows` rows; else Launch::values[value] says how many, at most `rows`.
  int64_t rows = 1, value = -1, cols = 1;
  bool x_blocks() const {
    return kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::AllToAll;
  }
  bool y_blocks() const {
    return kind == CollectiveKind::AllGather || kind == CollectiveKind::AllToAll;
  }
};
struct ManifestEvents {  // events [first, first of the next), for reports
  int64_t first = 0;
  // The name of the first event. If it ends in a number, the others' names count on from it; if it
  // ends in "4..7", they are "8..11" and so on.
  std::string name;
};
/// The name of event `id`, nothing if the list doesn't say.
std::optional<std::string> event_name(const std::vector<ManifestEvents>& names, int64_t id);
/// Adds the name of the event that follows those named so far.
void add_event_name(std::vector<ManifestEvents>& names, int64_t id, const std::string& name);

struct Manifest {
  int version = kManifestVersion;
  std::string name;
  int64_t world = 1;
  std::string target;
  int64_t ctas = 0;
  // Threads of a CTA on a GPU. Spare threads only complete a group for which registers are divided.
  int64_t consumers = 0, loaders = 0, signallers = 0, spare = 0;
  int64_t shared_bytes = 0;             // dynamic shared memory of a CTA
  int64_t arena_bytes = 0;              // temporaries of a rank
  int64_t symmetric_bytes = 0;          // slots of a rank; the words of peer events follow them
  int64_t local_events = 0;             // u32 counters in the rank's private memory
  int64_t peer_events = 0;              // x world u32 words in symmetric memory, after the slots
  int64_t packet_uses = 1;              // how many flags a launch's packets use; flags have 32 bits
  std::string backend = "p2p";          // the graph's backend, which allocates symmetric memory
  std::vector<ManifestTensor> tensors;  // the order of Launch::tensors
  std::vector<ManifestTemporary> temporaries;
  std::vector<ManifestMap> maps;  // the order of Launch::maps
  std::vector<ManifestRange> dims, scalars;
  std::vector<ManifestValue> values;  // Launch::values
  // Tasks wait on their rank only for tasks of the same or earlier calls. With this, reports find
  // the cause of a stopped launch.
  std::vector<ManifestCall> calls;
  std::vector<ManifestHanded> handed;  // in the order in which they are handed over
  std::vector<ManifestEvents> local_names, peer_names;
  // Command-line options that shaped the kernel, e.g. "--no-load-ahead".
  std::string options;
  std::string graph;      // DSL text
  std::string code_hash;  // of the file's other lines, to notice edits; 16 hex digits
  /// The ir::text_hash of the Program from which the code was made. --check-access, which needs the
  /// Program's regions, compares it.
  std::string program_hash;
  int64_t threads() const { return consumers + loaders + signallers + spare; }
};

/// The comment lines, each beginning with "//@maco ", with a checksum of each key's value.
/// Deterministic.
std::string print_manifest(const Manifest& manifest);
struct ManifestResult {
  std::optional<Manifest> manifest;
  // Why there is no manifest: "no '//@maco' lines", "version 9 is newer than this program's 3", or
  // a key for which the code was compiled has been edited.
  std::string error;
  // Whether the code's hash is not the recorded one, or a key on which the code doesn't depend
  // (names, the graph) has been edited.
  bool edited = false;
};
ManifestResult parse_manifest(std::string_view kernel_source);
/// 64-bit FNV-1a, sixteen hex digits.
std::string text_hash(std::string_view text);
/// The hash of all lines that are not manifest lines.
std::string code_hash(std::string_view kernel_source);

}  // namespace maco::ir
