// What the parts of `build` share. Each part reads its piece of the tree into BuildContext::graph
// and reports what is wrong with it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "compiler/frontend/reporter.h"
#include "compiler/graph/check_parts.h"
#include "compiler/ops/op.h"
#include "ir/graph.h"
#include "ir/raw.h"

namespace maco::frontend {

using graph::allowed;
using graph::entry_of;
using graph::ExprUse;
using graph::kMaxOps;  // after unrolling; of iterations too
using graph::list_words;
using graph::quoted;
using graph::Variable;
using graph::words_of_dtypes;

inline constexpr int64_t kMaxTensors = kMaxOps;  // for tensors that repeats declare

/// The variables of the repeats around a piece of the tree, and the context of this iteration for
/// its diagnostics.
struct Env {
  struct LoopVar {
    std::string name;
    int64_t value = 0;
  };
  std::vector<LoopVar> vars;
  int32_t context = -1;
};

/// What is known about a tensor besides its declaration; same index as in Graph::tensors.
struct TensorState {
  bool poisoned = false;  // its type is not known because of an error already reported
};

/// What is known about an op besides ir::Op; same index as in Graph::ops.
struct OpState {
  bool broken = false;  // an error was reported, or the op reads a poisoned tensor
  ir::Loc name_loc;
};

/// Ranges of `sm_roles` that are right by themselves.
struct RangesAt {
  ir::Loc loc;
  std::vector<ir::RoleRange> ranges;
};

/// A read of a name that no earlier op has written.
struct PendingRead {
  std::string name;
  ir::Loc loc;
  size_t op = 0;
  bool excused = false;  // an earlier op whose outputs couldn't be read may have written it
};

struct BuildContext {
  const BuildOptions& options;
  ir::Diagnostics& diagnostics;  // for contexts; reports go to `report`
  Reporter report;

  ir::Graph graph;
  graph::Check check;
  bool world_sound = true, tensors_sound = true;

  std::unordered_map<std::string, size_t> tensor_of;  // name to index
  std::vector<TensorState> tensor_state;
  std::vector<OpState> op_state;
  std::unordered_map<std::string, size_t> op_of;  // name to index
  std::vector<PendingRead> pending;
  std::vector<RangesAt> ranges;  // whether they take every op depends on shapes

  const Env* env = nullptr;         // the repeats around the current piece, if any
  int64_t ops = 0, iterations = 0;  // so far, against kMaxOps
  int64_t tensors = 0;              // those that repeats declare, against kMaxTensors
  bool unrolled_too_much = false;
  // Contexts of iterations, made when needed.
  std::map<std::tuple<int32_t, const Raw*, int64_t>, int32_t> contexts;
  // Keys for which unknown keys were mistaken, by the place of their map.
  std::set<std::tuple<int32_t, int32_t, std::string>> misspelt;

  BuildContext(const BuildOptions& o, ir::Diagnostics& d)
      : options(o), diagnostics(d), check{graph, {.internal_ops = o.internal_ops}, report} {
    tensors_sound = !o.incomplete;
    check.incomplete = check.hidden_ops = o.incomplete;
  }
  bool error(ir::Loc loc, std::string message, const graph::Report::Hint& hint = {}) {
    return report.error(loc, std::move(message), hint);
  }
  void note(ir::Loc loc, std::string message) { report.note(loc, std::move(message)); }
};

// --- fields.cpp: maps with fixed keys, and values of one type --------------------------------

/// "the integer 5", "a list": for 'expected ..., found ...'.
std::string describe(const Raw& raw);
/// "; write 4" for 4.0 where an integer is expected, or "".
std::string whole_number(const Raw& raw);

/// Reports duplicate keys, and keys that aren't among `allowed`. `what`: "tensor 'x'".
void check_keys(BuildContext& c, const Raw& map, const std::string& what,
                const std::vector<std::string>& allowed);
void check_duplicate_keys(BuildContext& c, const Raw& map, const std::string& what);
/// Reports that `expected` ("a list of names") was expected if `raw` isn't of `kind`.
bool expect(BuildContext& c, const Raw& raw, Raw::Kind kind, const std::string& what,
            const std::string& expected);
/// suggest() for a key of `map`. The suggested key isn't reported as missing later.
std::string suggest_key(BuildContext& c, const Raw& map, const std::string& key,
                        const std::vector<std::string>& allowed);
/// If `hint` suggests a key of `map`, that key isn't reported as missing later.
void mark_meant(BuildContext& c, const Raw& map, const std::string& hint);
/// Whether `map` has no `key`; reports that at `loc`.
bool is_missing(BuildContext& c, const Raw& map, const std::string& what, const std::string& key,
                ir::Loc loc);
/// The value of `key`, or nullptr and an error "tensor 'x' has no 'kind'".
const Raw* require(BuildContext& c, const Raw& map, const std::string& what,
                   const std::string& key);
/// Reports '{...}' in a text outside of any repeat; returns whether there is one.
bool needs_repeat(BuildContext& c, const Raw& raw);
/// A string that is an identifier. `what`: "the name of the op".
std::optional<std::string> read_name(BuildContext& c, const Raw& raw, const std::string& what);
/// A list of identifiers or, with `or_one`, also a single one. Wrong entries are reported and left
/// out.
std::vector<std::pair<std::string, ir::Loc>> read_names(BuildContext& c, const Raw& raw,
                                                        const std::string& what, bool or_one,
                                                        bool* complete = nullptr);
/// Reads one of `words`.
std::optional<std::string> read_word(BuildContext& c, const Raw& raw, const std::string& what,
                                     const std::vector<std::string>& words);
/// Reads an integer that is known when compiling (an expression over `world` is allowed).
std::optional<int64_t> read_integer(BuildContext& c, const Raw& raw, const std::string& what);
/// As read_integer, in [lo, hi].
std::optional<int64_t> read_constant(BuildContext& c, const Raw& raw, const std::string& what,
                                     int64_t lo, int64_t hi);
/// The index of `word` in `words`, as an enumerator.
template <class Enum>
std::optional<Enum> read_enum(BuildContext& c, const Raw& raw, const std::string& what,
                              const std::vector<std::string>& words) {
  const auto word = read_word(c, raw, what, words);
  if (!word) return std::nullopt;
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == *word) return static_cast<Enum>(i);
  return std::nullopt;
}

// --- build_expr.cpp --------------------------------------------------------------------------

/// Reads an integer, or a string that is an expression. Reports what is wrong, including division
/// by zero and overflow on any rank. Ranks where `guard` is 0 don't evaluate it.
std::optional<ir::Expr> read_expr(BuildContext& c, const Raw& raw, const std::string& what,
                                  ExprUse use, const ir::Expr* guard = nullptr);

// --- the parts of a graph --------------------------------------------------------------------

void build_dims(BuildContext& c, const Raw& dims);
void build_tensors(BuildContext& c, const Raw& tensors);
/// The graph's `collectives`, and those in other files that its ops name.
void build_algorithms(BuildContext& c, const Raw& root);
/// Those in other files that `named` says are named.
void build_named_algorithms(BuildContext& c, const std::function<bool(const std::string&)>& named);
void build_ops(BuildContext& c, const Raw& ops);
/// Runs after all ops: names ops, and reports reads of what nothing writes and outputs that nothing
/// writes.
void finish_ops(BuildContext& c);
/// Reads the attributes of `op` from the keys that aren't common to all ops. Returns false if an
/// error was reported.
bool build_attrs(BuildContext& c, const ops::OpDef& def, const Raw& raw, ir::Op& op);
/// Whether `raw` names its operands by keys, which build_attrs reports; a wrong number of operands
/// then isn't reported.
bool names_operands(const BuildContext& c, const ops::OpDef& def, const Raw& raw);
const std::vector<std::string>& common_op_keys();
void build_phases(BuildContext& c, const Raw& phases);
void build_regions(BuildContext& c, const Raw& regions);
void build_pipeline(BuildContext& c, const Raw& pipeline);
/// Checks `after` and `phase` of every op.
void check_references(BuildContext& c);
/// Needs the ops and the schedule.
void build_roles(BuildContext& c, const Raw& roles);

// --- repeat.cpp ------------------------------------------------------------------------------

bool is_repeat(const Raw& op);
/// Calls `body` for each op of `ops` that isn't a repeat, in order, with `{...}` replaced and
/// places marked with their iteration. An op in which a replacement failed is reported, and passed
/// unreplaced with `sound` = false.
using OpBody = void (*)(BuildContext& c, const Raw& op, bool sound);
void unroll_ops(BuildContext& c, const Raw& ops, const Env& env, OpBody body);
/// Calls `body` for the `tensors` of each iteration of each repeat in `ops`.
using TensorsBody = void (*)(BuildContext& c, const Raw& tensors);
void unroll_tensors(BuildContext& c, const Raw& ops, const Env& env, TensorsBody body);

}  // namespace maco::frontend
