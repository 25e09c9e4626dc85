// ir::Graph: what to compute. One graph for all ranks (SPMD); shapes are what one rank holds.
//
// The structure is what the user wrote, with `repeat` unrolled: JSON and DSL are two spellings of
// it (compiler/frontend), and two graphs are equal if they mean the same text. What follows from it
// (shapes and dtypes of temporaries) is filled in by compiler/ops/infer.h into the fields marked
// 'inferred', which are neither printed nor compared. ir/graph_text.h prints
// it as DSL.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/dtype.h"
#include "ir/expr.h"
#include "ir/ids.h"
#include "ir/name_index.h"
#include "ir/priority.h"

namespace maco::ir {

struct Dim {
  std::string name;
  int64_t min = 1;
  int64_t max = 1;
  Loc loc;
  std::optional<int64_t> typical = std::nullopt;  // for costs only
  friend bool operator==(const Dim&, const Dim&) = default;
};

enum class TensorKind : uint8_t { Input, Param, State, Scalar, Output, Temp };
std::string_view name(TensorKind kind);

/// A shape with all axes; entries beyond axis 0 are constants once inferred. Axis 0 may depend on
/// dims.
using Shape = std::vector<Expr>;

struct Tensor {
  std::string name;
  TensorKind kind = TensorKind::Temp;
  DType dtype = DType::F32;  // declared; inferred for Temp
  // Declared; inferred for Temp; empty for Scalar. Inference replaces `world` by its value.
  Shape shape;
  int64_t range_lo = 0, range_hi = 0;  // Scalar: half-open range
  std::optional<int64_t> typical;      // Scalar: for costs only
  Loc loc;
  friend bool operator==(const Tensor& a, const Tensor& b) {
    if (a.name != b.name || a.kind != b.kind) return false;
    if (a.kind == TensorKind::Temp) return true;
    return a.dtype == b.dtype && a.shape == b.shape && a.range_lo == b.range_lo &&
           a.range_hi == b.range_hi && a.typical == b.typical;
  }
};

/// Nested lists and maps of integer expressions, numbers and texts: the value of an attribute with
/// a structure of its own (`args`, `reads`). A text that parses as an expression becomes one; words
/// are variables.
struct AttrTree {
  struct Entry;
  using List = std::vector<AttrTree>;
  using Map = std::vector<Entry>;  // in the order of writing
  std::variant<Expr, double, std::string, List, Map> value;
  Loc loc;
  const AttrTree* find(std::string_view key) const;  // of a map
  /// The text of a leaf: "x" of the word x, "3" of 3.
  std::string text() const;
  friend bool operator==(const AttrTree& a, const AttrTree& b);
};
struct AttrTree::Entry {
  std::string key;
  AttrTree value;
  Loc key_loc;
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// The value of an op's attribute as written: a boolean, an integer expression, a number with
/// fraction or exponent, a word or string, a list of integer expressions (`shape`, `perm`), named
/// numbers (`scaling`), or a tree.
using AttrValue = std::variant<bool, Expr, double, std::string, std::vector<Expr>,
                               std::map<std::string, double>, AttrTree>;
struct Attr {
  AttrValue value;
  Loc loc;
  friend bool operator==(const Attr&, const Attr&) = default;
};

enum class Overlap : uint8_t { None, Conservative, Aggressive };
enum class Schedule : uint8_t { Static, Dynamic };
enum class Backend : uint8_t { P2P, Nccl, Nvshmem };
std::string_view name(Overlap v);
std::string_view name(Schedule v);
std::string_view name(Backend v);

struct Op {
  std::string kind;  // "matmul"; the schema is found in compiler/ops/registry.h
  // Given by the user, or the name of the first output, or "<kind>_<n>" for ops without outputs.
  std::string name;
  bool named = false;  // was the name given by the user?
  std::vector<TensorId> in, out;
  std::map<std::string, Attr> attrs;  // only those that were written (passes may add some)
  std::optional<DType> dtype;         // the `dtype` attribute (for cast, too)
  std::vector<std::string> after;     // names of ops
  std::optional<std::string> phase;
  std::optional<Overlap> overlap;
  std::optional<std::string> overlap_group;
  Priority priority = Priority::Normal;
  Loc loc;                     // of the op's kind word
  std::vector<Loc> in_loc;     // of each input's name
  std::vector<Loc> after_loc;  // of each name in `after`
  Loc phase_loc;
  Loc out_loc;
  friend bool operator==(const Op&, const Op&) = default;
};

struct RoleCounts {
  std::optional<int64_t> compute, comm, scheduler;
  friend bool operator==(const RoleCounts&, const RoleCounts&) = default;
};
struct RoleRange {
  int64_t begin = 0, end = 0;      // SMs, end not included
  std::string role;                // "compute", "comm" or "scheduler"
  std::vector<std::string> tasks;  // kinds of ops that run here; empty: all of the role's
  Loc loc;
  friend bool operator==(const RoleRange&, const RoleRange&) = default;
};
struct RoleAuto {
  friend bool operator==(const RoleAuto&, const RoleAuto&) = default;
};
using Roles = std::variant<RoleAuto, RoleCounts, std::vector<RoleRange>>;
struct RoleVariant {
  std::optional<Expr> condition;  // nothing: else
  Roles roles;
  Loc loc;
  friend bool operator==(const RoleVariant&, const RoleVariant&) = default;
};
struct SmRoles {
  std::variant<Roles, std::vector<RoleVariant>> value;
  Loc loc;
  friend bool operator==(const SmRoles&, const SmRoles&) = default;
};

struct OverlapRegion {
  std::string name;
  std::vector<std::string> ops;
  Loc loc;
  friend bool operator==(const OverlapRegion&, const OverlapRegion&) = default;
};
struct Phase {
  std::string name;
  std::vector<std::string> depends_on;
  Loc loc;
  friend bool operator==(const Phase&, const Phase&) = default;
};
struct Pipeline {
  std::vector<std::vector<std::string>> stages;  // names of ops
  int64_t microbatches = 1;
  Loc loc;
  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

/// A CUDA kernel of the user's, as the frontend read it (compiler/frontend/cuda). Ops `cuda` with
/// `unit = name` run it. Each text is complete: it includes the user's own headers.
struct CudaUnit {
  std::string name;
  std::string original;  // the kernel and what it uses, as written
  std::string device;    // the same as functions of a task
  friend bool operator==(const CudaUnit&, const CudaUnit&) = default;
};

/// Names that stand for several ranks: `output[0] @ others`, `signal(to = others)`.
inline constexpr const char *kAllRanks = "all", *kOtherRanks = "others";

/// Chunks of a buffer as a statement of a user's algorithm names them: `scratch[2:4] @ rank + 1`.
struct ChunkRange {
  std::string buffer;       // "input", "output" or "scratch"
  Expr begin;               // over rank and world, as all expressions here
  std::optional<Expr> end;  // not included; none: one chunk
  /// Whose chunks: none: those of the rank that executes the statement; kAllRanks or kOtherRanks:
  /// those of each of these ranks.
  std::optional<Expr> rank;
  Loc loc;
  friend bool operator==(const ChunkRange& a, const ChunkRange& b) {
    return a.buffer == b.buffer && a.begin == b.begin && a.end == b.end && a.rank == b.rank;
  }
};
/// A statement of a user's algorithm.
struct ChunkOp {
  std::string kind;  // a word of kChunkOps
  std::vector<ChunkRange> from, to;
  std::optional<Expr> condition;            // `if`: the ranks that do it
  std::optional<Expr> block;                // of threads; its statements run in order
  std::optional<Expr> peer;                 // signal: `to`, wait: `from`
  std::optional<Expr> tag;                  // signal and wait
  std::optional<Expr> semaphore;            // acquire and release
  std::optional<std::vector<Expr>> blocks;  // barrier
  bool packets = false, relaxed = false;
  std::optional<Expr> unit;  // bytes of a piece
  Loc loc;
  friend bool operator==(const ChunkOp& a, const ChunkOp& b) {
    const auto fields = [](const ChunkOp& o) {
      return std::tie(o.kind, o.from, o.to, o.condition, o.block, o.peer, o.tag, o.semaphore,
                      o.blocks, o.packets, o.relaxed, o.unit);
    };
    return fields(a) == fields(b);
  }
};
inline constexpr const char* kChunkOps[] = {"copy", "put",     "get",     "reduce", "signal",
                                            "wait", "acquire", "release", "barrier"};
/// A user's algorithm for a collective, chunk by chunk (docs/algorithms.md), with `repeat`
/// unrolled. Ops with `algorithm = name` use it.
struct UserAlgorithm {
  std::string name;
  std::string of;                // kind of the collective: "allreduce"
  std::optional<Expr> world;     // of the graphs that may use it; none: any
  Expr chunks = 1;               // that the input is cut into
  Expr scratch = 0;              // chunks of scratch memory on each rank
  bool in_place = false;         // input and output are one memory
  std::vector<Expr> semaphores;  // their first values; the others begin with 0
  std::vector<ChunkOp> ops;
  Loc loc;
  friend bool operator==(const UserAlgorithm& a, const UserAlgorithm& b) {
    const auto fields = [](const UserAlgorithm& x) {
      return std::tie(x.name, x.of, x.world, x.chunks, x.scratch, x.in_place, x.semaphores, x.ops);
    };
    return fields(a) == fields(b);
  }
};

struct Graph {
  std::string name;
  int64_t world = 1;
  std::vector<Dim> dims;
  std::vector<Tensor> tensors;  // declared ones in declaration order, temporaries when defined
  std::vector<Op> ops;          // definition order
  SmRoles sm_roles;
  Schedule schedule = Schedule::Static;
  Overlap overlap = Overlap::Aggressive;
  std::vector<OverlapRegion> overlap_regions;
  std::vector<Phase> phases;
  std::optional<Pipeline> pipeline;
  Backend backend = Backend::P2P;
  std::optional<int64_t> comm_buffer_bytes;
  std::vector<CudaUnit> cuda_units;
  std::vector<UserAlgorithm> algorithms;
  std::map<std::string, Loc> key_loc;  // where each graph-level key stands, for diagnostics
  Loc loc;

  friend bool operator==(const Graph& a, const Graph& b);

  Tensor& operator[](TensorId id) { return tensors[index(id)]; }
  const Tensor& operator[](TensorId id) const { return tensors[index(id)]; }
  Op& operator[](OpId id) { return ops[index(id)]; }
  const Op& operator[](OpId id) const { return ops[index(id)]; }
  std::optional<TensorId> find_tensor(std::string_view name) const;
  std::optional<OpId> find_op(std::string_view name) const;
  const Dim* find_dim(std::string_view name) const;
  const CudaUnit* find_cuda_unit(std::string_view name) const;
  const UserAlgorithm* find_algorithm(std::string_view name) const;
  /// The range of a dim or scalar (both ends included), or of `rank` and `world`; for ir::bounds.
  std::optional<Interval> range_of(std::string_view name) const;
  /// The value for which costs are computed: the declared typical value; else the middle of a
  /// scalar's range, a dim's maximum, or the middle of `rank`.
  std::optional<int64_t> typical_of(std::string_view name) const;

 private:
  NameIndex tensor_index_, op_index_;
};

/// The most bytes of a tensor. No machine has so much memory, and products stay far from overflow.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 48;

/// The number of elements when all dims have their maxima; the largest int64_t if it doesn't fit.
int64_t max_elements(const Graph& graph, const Shape& shape);

}  // namespace maco::ir
