// What the compiler knows of an op. Each op (or family of ops that differ only in a function) is
// one file in this folder that defines OpDefs. It answers, in this order: which shapes and dtypes
// the op takes and gives (infer); into which tasks it is cut, and what each of them reads and
// writes (tile); which device function runs them. registry.cpp lists the ops.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::ops {

/// How an attribute is written. Int, IntList: integer expressions over rank, world and dims;
/// RuntimeInt: scalars too, evaluated at launch. Number: an integer or a float. Word: one of
/// `words`. Tree: lists and maps, which the op's shape rule checks.
enum class AttrType : uint8_t {
  Bool,
  Int,
  RuntimeInt,
  IntList,
  Number,
  Word,
  DType,
  Scaling,
  Tree
};

struct AttrSpec {
  std::string name;
  AttrType type = AttrType::Int;
  bool required = false;
  std::string default_text;        // for the docs: "false", "1e-6", "1/sqrt(head_dim)"
  std::vector<std::string> words;  // Word
  // Set only by passes (e.g. a fused body); refused in a user's graph.
  bool internal = false;
};

/// How an op is cut into tasks. The pass choose-tiles writes it into the graph, as the attributes
/// `method` and `tile`; tile rules obey it.
struct Cut {
  std::string method{};         // one of OpDef::methods; empty if there is only one way
  std::vector<int64_t> tile{};  // an extent for each of OpDef::tile_axes except spare ones
  friend bool operator==(const Cut&, const Cut&) = default;
};
/// The cut that the graph names; parts that it leaves open are empty.
Cut cut_of(const ir::Op& op);
void set_cut(ir::Op& op, const Cut& cut);
/// Whether the op's cut can be chosen, by its def or by the algorithm that it names.
bool has_choice(const ir::Graph& graph, const ir::Op& op);

class InferContext;
class TileContext;

/// Which end of a message an op is; another op is the other (collectives/messages.h).
enum class MessageEnd : uint8_t { None, Send, Receive };

struct OpDef {
  std::string kind;
  std::string summary;           // for the docs, one line
  int min_in = 1, max_in = 1;    // max_in -1: any number
  int min_out = 1, max_out = 1;  // -1: any number
  std::vector<AttrSpec> attrs;
  bool collective = false;  // takes `overlap_group`, runs on communication workers
  bool internal = false;    // made by passes only ("fused")
  bool barrier = false;     // waits for all ops before it, and all behind wait for it, on all ranks
  MessageEnd message = MessageEnd::None;
  /// Its result has the elements of its operand, of another dtype or the same.
  bool converts = false;
  /// The op's result is its first operand, a state. The op writes a part of it, and so can't write
  /// anywhere else. What it writes there is its second operand.
  bool writes_part = false;
  /// Attributes name its operands and results, too, so that none may be replaced by another.
  bool names_tensors = false;
  /// `dtype` is that of its first result; its operands say those of the others.
  bool dtype_of_first = false;
  /// Checks operands and attributes; sets dtype and shape of the outputs. Reports everything it
  /// finds through the context.
  void (*infer)(InferContext&) = nullptr;
  /// The methods of computing the op, if there are several.
  std::vector<std::string> methods;
  /// What `tile` of a cut lists, {"rows", "columns"}; empty if there is nothing to choose. A cut
  /// may leave out the last `spare_axes`, which then aren't cut.
  std::vector<std::string> tile_axes;
  size_t spare_axes = 0;
  /// The best cut by the cost model, with the op's method if the graph names one. A cut without
  /// extents: there is nothing to choose.
  Cut (*choose)(const TileContext&) = nullptr;
  /// Why the op can't have this cut, or "". The method is one of `methods`, the extents are
  /// positive.
  std::string (*refuse_cut)(const TileContext&, const Cut&) = nullptr;
  /// Why the op is computed far slower than the machine could, and what would help, or "": "runs
  /// without tensor cores: its operands are f32; cast them to bf16 or f16".
  std::string (*slow)(const TileContext&, const Cut&) = nullptr;
  /// Cuts the op into tasks. Called only if infer found no error. May refuse (report an error) what
  /// it can't do.
  void (*tile)(TileContext&) = nullptr;
  /// Why the op can't be in a pipeline stage, or "". Each part of its results along axis 0 must
  /// need only the same part of each input that is `cut` into microbatches (by_rows.h has the usual
  /// answers). Null: nothing is known of its rows.
  std::string (*refuse_stage)(const ir::Graph&, const ir::Op&,
                              const std::vector<bool>& cut) = nullptr;
  /// May it write the state `out` although it reads it? A tile must not read what another tile of
  /// it has written. Null: it may not, but where it is elementwise or by its epilogue.
  bool (*in_place)(const ir::Op&, ir::TensorId out) = nullptr;
  /// What passes have added to the op besides what users may give. Null: nothing.
  struct Added {
    bool inputs = false, outputs = false;
  };
  Added (*passes_add)(const ir::Op&) = nullptr;
  /// What to warn of whoever wrote it, or "". Null: nothing.
  std::string (*warning)(const ir::Graph&, const ir::Op&) = nullptr;
};

/// The most inputs and outputs that `op`, which is of `def`, may have. Ops that only passes make
/// may have any number (-1); their own rules count them.
int most_inputs(const OpDef& def, const ir::Op& op);
int most_outputs(const OpDef& def, const ir::Op& op);

/// The def of `kind`, or nullptr.
const OpDef* find_op(std::string_view kind);
/// All ops in the order of the docs, then the registered ones.
std::vector<OpDef> all_ops();

/// The values that an attribute of type Word may have: the words of its spec and, for a
/// collective's algorithm, the registered ones (collectives/algorithms.h) and the user's own.
std::vector<std::string> words_of(const OpDef& op, const AttrSpec& attr,
                                  const std::vector<ir::UserAlgorithm>& own = {});

/// Makes an op known to the whole process, from any thread, before the first graph that uses it is
/// parsed. Its tile rule may call MACO's device functions and registered ones
/// (functions::register_function). `maco-run --check` compares with the op's reference
/// (reference::register_op). Returns "", or why the op can't be registered: its kind is taken, or a
/// rule is missing.
[[nodiscard]] std::string register_op(OpDef def);

/// Gives an op further attributes. To be called before the first graph is read.
void add_attrs(std::string_view kind, const std::vector<AttrSpec>& attrs);
/// Gives an op that has methods one more. To be called likewise.
void add_method(std::string_view kind, const std::string& method);

/// A tensor's type.
struct Type {
  ir::DType dtype = ir::DType::F32;
  ir::Shape shape;  // canonical; constants beyond axis 0
};

/// What infer sees. Attribute getters return the value or the given default, and report wrong types
/// themselves. (The frontend has already checked types against the schema, so getters don't fail
/// for parsed graphs.)
class InferContext {
 public:
  InferContext(ir::Graph& graph, ir::OpId op, ir::Diagnostics& diagnostics);
  const ir::Graph& graph() const { return graph_; }
  const ir::Op& op() const { return graph_[op_]; }
  int inputs() const { return static_cast<int>(op().in.size()); }
  int outputs() const { return static_cast<int>(op().out.size()); }
  /// Type of input i (always known: ops are inferred in definition order).
  Type in(int i) const;
  int rank_of(int i) const { return static_cast<int>(in(i).shape.size()); }
  /// Constant extent of axis `a` (negative counts from the end) of input i; only axis 0 may be
  /// non-constant.
  ir::Expr extent(int i, int axis) const;

  bool has(const std::string& attr) const;
  /// Constant integer attribute, the same on all ranks. Expressions over world are folded; one over
  /// rank, dims or scalars is an error here ("must be a constant").
  int64_t integer(const std::string& attr, int64_t default_value);
  std::optional<ir::Expr> expr(const std::string& attr) const;
  std::vector<ir::Expr> list(const std::string& attr) const;
  double number(const std::string& attr, double default_value) const;
  bool flag(const std::string& attr, bool default_value) const;
  std::string word(const std::string& attr, const std::string& default_value) const;

  /// The dtype that output i should have: the op's `dtype`, else that of the declared output or
  /// state, else `otherwise`.
  ir::DType out_dtype(int i, ir::DType otherwise) const;
  /// Sets the type of output i; if the output is declared, checks that shapes (and dtypes) agree,
  /// naming the declaration in a note.
  void set_out(int i, ir::DType dtype, ir::Shape shape);

  /// Report at the op's kind word, or at input i's name.
  void error(std::string message);
  void error_in(int i, std::string message);
  void error_attr(const std::string& attr, std::string message);
  /// Reports at a place within the op, or at its kind word if that place isn't known.
  void error_at(ir::Loc loc, std::string message);
  /// "declared here" / "defined here" note for input i.
  void note_in(int i);
  bool failed() const { return failed_; }

 private:
  ir::Loc attr_loc(const std::string& attr) const;
  ir::Graph& graph_;
  ir::OpId op_;
  ir::Diagnostics& diagnostics_;
  bool failed_ = false;
};

/// "[64,1024]", "[tokens,8]".
std::string to_string(const ir::Shape& shape);
/// "x[64,1024]": for messages.
std::string describe(const ir::Graph& graph, ir::TensorId tensor);
/// Whether the types may be mixed: both are floats, or both are the same integer type.
bool same_class(ir::DType a, ir::DType b);

/// Infers every op in definition order; fills types of temporaries and of outputs whose type was
/// left open. Checks that each output is written exactly once, nothing is read before it is
/// defined, dims appear in axis 0 only. False if an error was reported.
bool infer(ir::Graph& graph, ir::Diagnostics& diagnostics);

}  // namespace maco::ops
