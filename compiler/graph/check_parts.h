// The checks of a graph one by one. check_graph makes them all, with the places that a Graph has. A
// frontend makes each while it builds, with the places in its text: so a rule and its message stand
// here alone.
//
// Where nothing else is said, a check returns false if it reported an error.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/graph/check.h"
#include "compiler/graph/expressions.h"
#include "compiler/graph/report.h"
#include "compiler/ops/op.h"
#include "ir/graph.h"

namespace maco::graph {

/// The first op that writes a tensor, and where.
struct Writer {
  int64_t op = -1;
  ir::Loc loc;
};

/// Names, and where each was given first.
using Places = std::unordered_map<std::string, ir::Loc>;

struct Check {
  const ir::Graph& graph;
  CheckOptions options;
  Report& report;

  // What is known so far.
  Variables variables{};
  Places dims{}, tensors{}, ops{}, phases{}, regions{};
  std::vector<Writer> writers{};  // by tensor

  // What a text adds.
  bool incomplete = false;  // parts of it couldn't be read: a name may be defined there
  bool hidden_ops = false;  // so may ops and tensors, though all names of other things are known
  /// For how many ops a name may stand: by their own name, or by their first output's.
  std::unordered_map<std::string, int> called{};

  size_t errors = 0;    // reported so far
  size_t compared = 0;  // names compared in search of similar ones

  bool error(ir::Loc loc, std::string message, const Report::Hint& hint = {}) {
    ++errors;
    return report.error(loc, std::move(message), hint);
  }
  void note(ir::Loc loc, std::string message) { report.note(loc, std::move(message)); }
  /// The place of a graph-level key, if it is known.
  ir::Loc key(const std::string& name) const {
    const auto found = graph.key_loc.find(name);
    return found == graph.key_loc.end() ? graph.loc : found->second;
  }
  const Writer& writer(ir::TensorId id) const {
    static const Writer none;
    return index(id) < writers.size() ? writers[index(id)] : none;
  }
};

// --- words of messages ---------------------------------------------------------------------------

inline constexpr const char *kGraphName = "the name of the graph", *kDimName = "the name of a dim",
                            *kTensorName = "the name of a tensor",
                            *kPhaseName = "the name of a phase",
                            *kRegionName = "the name of an overlap region",
                            *kCondition = "the condition of a variant";

// What a value must be.
inline constexpr const char *kTrueOrFalse = "true or false", *kIntegers = "a list of integers",
                            *kInteger = "an integer or an expression", *kNumber = "a number",
                            *kTree = "a list or a map";
/// An axis. `tensor`: "tensor 'x'".
std::string axis_of(size_t axis, const std::string& tensor);
/// Entry `i` of a list. `what`: "'shape' of 'reshape'".
std::string entry_of(size_t i, const std::string& what);
std::vector<std::string> words_of_dtypes();

/// `text` for a message: in quotes, cut, control characters replaced.
std::string quoted(std::string_view text);
/// "a, b or c", each in quotes; `last`: "or", "and".
std::string list_words(const std::vector<std::string>& words, std::string_view last = "or");
/// ops::did_you_mean with a limit on time: a graph full of wrong names is refused quickly.
std::string suggest(Check& c, std::string_view word, const std::vector<std::string>& candidates);

// --- names and values ----------------------------------------------------------------------------

/// `name` must be a name that the language allows. `what`: "the name of a dim".
bool check_name(Check& c, const std::string& name, ir::Loc loc, const std::string& what);
/// `name` must be new among `known`, to which it is added. `what`: "dim".
bool declare(Check& c, Places& known, const std::string& what, const std::string& name,
             ir::Loc loc);
/// As declare, for things that a definition names. `what`: "phases".
bool give_name(Check& c, Places& known, const std::string& what, const std::string& name,
               ir::Loc loc);
/// `what` must be an integer from `lo` to `hi`.
bool check_within(Check& c, int64_t value, int64_t lo, int64_t hi, ir::Loc loc,
                  const std::string& what);
/// `what` must be one of `words`.
bool check_word(Check& c, const std::string& word, const std::vector<std::string>& words,
                ir::Loc loc, const std::string& what);
/// Reports that `what` is none of what is expected. Returns false.
bool wrong_type(Check& c, ir::Loc loc, const std::string& what, const std::string& expected,
                const std::string& found, const std::string& hint = "");
/// Reports that `what` lacks a key. Returns false.
bool missing_key(Check& c, ir::Loc loc, const std::string& what, const std::string& key);
/// Reports a key that `what` can't have. Returns false.
bool unknown_key(Check& c, ir::Loc loc, const std::string& what, const std::string& key,
                 const Report::Hint& hint);

/// Where an expression stands.
struct ExprAt {
  ir::Loc loc;
  std::string what;  // "axis 0 of tensor 'x'"
  ExprUse use = ExprUse::Attribute;
  const ir::Expr* guard = nullptr;  // ranks where it is 0 don't evaluate the expression
  /// The place of a name in its text; none: `loc`.
  std::function<ir::Loc(const std::string& name)> place{};
  /// What an unknown name may be, if the text says more than the graph does.
  std::function<std::string(const std::string& name)> hint{};
};
/// Names must be known and allowed there, and there must be a value on every rank.
bool check_expr(Check& c, const ir::Expr& e, const ExprAt& at);

// --- declarations --------------------------------------------------------------------------------

struct DimPlaces {
  ir::Loc max, min, typical;
};
/// Checks the range of a dim, and declares it for expressions. `readable`: whether its text was;
/// if not, nothing is concluded from its range.
bool check_dim(Check& c, const ir::Dim& dim, const DimPlaces& at, bool readable = true);

struct ScalarPlaces {
  ir::Loc range, first, end, typical;
};
/// As check_dim, for a scalar.
bool check_scalar(Check& c, const ir::Tensor& scalar, const ScalarPlaces& at, bool readable = true);

/// A tensor has 1 to 4 axes.
bool check_axes(Check& c, size_t axes, ir::Loc loc, const std::string& tensor);
/// An extent is at least 1, and depends on dims in axis 0 only. check_expr must have passed.
bool check_extent(Check& c, const ir::Expr& e, size_t axis, ir::Loc loc, const std::string& tensor);
/// A tensor isn't larger than any machine's memory.
bool check_bytes(Check& c, const ir::Tensor& t, ir::Loc loc);

// --- ops -----------------------------------------------------------------------------------------

/// The op's definition, or nullptr and an error. `hint` is asked first.
const ops::OpDef* check_kind(Check& c, const std::string& kind, ir::Loc loc,
                             const Report::Hint& hint = {});
struct Counted {
  const char* verb;  // "takes"
  const char* what;  // "input"
  int lo, hi;        // hi -1: any number
};
bool check_count(Check& c, const std::string& kind, size_t count, const Counted& rule, ir::Loc loc);
/// An op reads tensors, not scalars.
bool check_read(Check& c, const ir::Op& op, const ir::Tensor& t, ir::Loc loc);
/// A read of a tensor that no earlier op wrote. `writer`: of the later op, if there is one.
/// `hint`: what the name may be, if nothing has this name.
void unwritten_read(Check& c, const std::string& name, ir::Loc loc, size_t op, const Writer& writer,
                    const Report::Hint& hint = {});
/// One op writes a tensor, once; inputs are never written. To be called before `id` is appended to
/// op.out; notes the writer. `hint`: how to mend a second write.
bool check_write(Check& c, const ir::Op& op, size_t index_of_op, ir::TensorId id, ir::Loc loc,
                 const Report::Hint& hint = {});
/// Outputs and temporaries are written.
void check_written(Check& c);
/// The keys of rope's 'scaling', and what its value must be.
const std::vector<std::string>& scaling_keys();
std::string scaling_map();
/// A number fits in f32.
bool check_number(Check& c, double number, ir::Loc loc, const std::string& what);
/// Reports an attribute that the op doesn't have.
void unknown_attr(Check& c, const std::string& kind, const std::string& name, ir::Loc loc,
                  const Report::Hint& hint);

// --- constraints ---------------------------------------------------------------------------------

/// "'after' of 'y'", "overlap region 'r'"
std::string after_of(const ir::Op& op);
std::string region_text(const ir::OverlapRegion& region);
/// `name` must name exactly one op. `user`: "'after' of 'y'".
bool check_op_name(Check& c, const std::string& name, ir::Loc loc, const std::string& user);
/// `name` must name a phase. `user`: "op 'y'".
bool check_phase_name(Check& c, const std::string& name, ir::Loc loc, const std::string& user);

/// Members of an overlap region and their places: known ops, each once, at least one.
/// `loc`: of the list.
void check_members(Check& c, const ir::OverlapRegion& region, const std::vector<ir::Loc>& places,
                   ir::Loc loc);
struct PipelinePlaces {
  ir::Loc stages;
  std::vector<ir::Loc> stage;
  std::vector<std::vector<ir::Loc>> op;
};
/// Stages of a pipeline: known ops, each once, none empty.
void check_stages(Check& c, const ir::Pipeline& pipeline, const PipelinePlaces& at);

// --- sm_roles ------------------------------------------------------------------------------------

const std::vector<std::string>& role_words();
inline constexpr const char *kFirstSm = "the first SM of a range",
                            *kEndOfSms = "the end of a range of SMs";
/// SMs of the role 'scheduler', which `key` asks for, need the schedule 'dynamic'.
bool check_scheduler(Check& c, const std::string& key, ir::Loc loc);
/// A range has SMs. `first`, `end`: where its ends are given.
bool check_sms(Check& c, const ir::RoleRange& range, ir::Loc loc, ir::Loc first, ir::Loc end);
/// A range may run ops of `kind`, which isn't among its tasks yet. `hint`: what an unknown kind is.
bool check_task(Check& c, const ir::RoleRange& range, const std::string& kind, ir::Loc loc,
                const Report::Hint& hint = {});
/// There are ranges, and no two share SMs. `loc`: of the list.
bool check_ranges(Check& c, const std::vector<ir::RoleRange>& ranges, ir::Loc loc);
/// The last variant, and no other, is 'else'. `loc`: of the list.
bool check_variants(Check& c, const std::vector<ir::RoleVariant>& variants, ir::Loc loc);

// --- the parts of check_graph --------------------------------------------------------------------

void check_dims(Check& c);
/// Returns false if an op's id refers to no tensor: then nothing else can be checked.
bool check_ids(Check& c);
void check_tensors(Check& c);
/// Checks kinds, names, operands, attributes.
void check_ops(Check& c);
bool check_attrs(Check& c, const ir::Op& op);
/// Checks `after`, phases, regions and the pipeline.
void check_constraints(Check& c);
/// Checks what `sm_roles` says by itself: counts, ranges, variants.
void check_roles(Check& c);

}  // namespace maco::graph
