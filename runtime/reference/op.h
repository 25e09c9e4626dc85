// What an op of the reference sees: one use of it on one rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "runtime/reference/tensor.h"
#include "runtime/status.h"

namespace maco::reference {

using runtime::Status;
/// Values of dims and scalars by name. A dim that is missing has its maximum.
using Values = std::map<std::string, int64_t, std::less<>>;

/// An expression's value on a rank, or why it has none.
ir::EvalResult evaluate_on(const ir::Graph& graph, const Values& values, int rank,
                           const ir::Expr& e);

/// One op on one rank. Inputs are only read. Outputs have their actual shape and dtype, and begin
/// with zeros (for an in-place op, with the state's old value); they are stored when the op has
/// returned. An op that fails calls fail and returns.
class Call {
 public:
  Call(const ir::Graph& graph, const ir::Op& op, const Values& values, int rank)
      : graph_(graph), op_(op), values_(values), rank_(rank) {}

  const ir::Op& op() const { return op_; }
  int rank() const { return rank_; }
  int world() const { return static_cast<int>(graph_.world); }

  std::vector<const Tensor*> in;
  std::vector<Tensor> out;

  bool has(const std::string& attr) const { return op_.attrs.count(attr) > 0; }
  const ir::Graph& graph() const { return graph_; }
  /// The value on this rank, with dims and scalars. A failed evaluation fails the call and gives 0.
  int64_t evaluate(const ir::Expr& e);
  /// Evaluated on this rank, with dims and scalars; a number may be a whole float (2.0). A failed
  /// evaluation fails the call and gives 0.
  int64_t integer(const std::string& attr, int64_t otherwise);
  double number(const std::string& attr, double otherwise);
  bool flag(const std::string& attr, bool otherwise) const;
  std::string word(const std::string& attr, const std::string& otherwise) const;
  /// The integers of a list.
  std::vector<int64_t> list(const std::string& attr);
  /// A named number of a map such as `scaling`.
  double field(const std::string& attr, const std::string& name, double otherwise) const;

  void fail(const std::string& why);
  /// Fails because an index from data is not within [0, limit). `at`: its place in the tensor of
  /// indices.
  void bad_index(int64_t index, int64_t limit, int64_t at);
  const Status& status() const { return status_; }

 private:
  const ir::AttrValue* find(const std::string& attr) const;
  const ir::Graph& graph_;
  const ir::Op& op_;
  const Values& values_;
  int rank_;
  Status status_;
};

/// Whether an op's outputs hold only elements of its inputs, unchanged except for a conversion of
/// type.
enum class Moves : uint8_t { Nothing, FirstInput, AllInputs };

/// The interpretation of a kind of op.
struct OpEntry {
  std::string kind;
  /// One rank by itself.
  void (*eval)(Call& call) = nullptr;
  /// All ranks at once; calls[r] is rank r's.
  void (*collective)(std::vector<Call>& calls) = nullptr;
  /// The output is the state that is also the first input: out[0] begins with its old value, and
  /// in[0] must not be read.
  bool in_place = false;
  Moves moves = Moves::Nothing;
  /// Outputs that are states begin with their old values.
  bool updates = false;
};

/// The entry of `kind`, or nullptr. send, recv and barrier have none, as they compute nothing
/// (reference.cpp).
const OpEntry* find_entry(std::string_view kind);

/// Registers the meaning of a kind of op for the whole process, from any thread, before the first
/// graph that uses it is run or checked. Returns "", or why it can't be registered: the kind has a
/// meaning already, or not exactly one of `eval` and `collective` is set.
[[nodiscard]] std::string register_op(OpEntry entry);

/// Whether the op makes no values of its own.
bool only_moves(const ir::Op& op);
/// An op moves elements of `from` to `to`, as Moves says; each send moves to every recv.
struct Move {
  ir::TensorId from, to;
};
std::vector<Move> moves_of(const ir::Graph& graph);

}  // namespace maco::reference
