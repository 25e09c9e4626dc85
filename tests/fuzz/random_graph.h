// Seeded random graphs that can be executed: valid, with values that stay near 1, so that results
// can be compared.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "ir/dtype.h"
#include "runtime/host/session.h"

namespace maco::fuzz {

/// Numbers of ranks that are covered.
inline constexpr int kWorlds[] = {1, 2, 3, 4, 5, 7, 8};
/// Element types that are covered.
inline constexpr ir::DType kDTypes[] = {ir::DType::F32, ir::DType::F16, ir::DType::BF16,
                                        ir::DType::I32};
enum class RolesKind : uint8_t { Auto, Counts, Ranges };
inline constexpr size_t kRolesKinds = 3;

/// Into how many graphs the features that a dtype takes are divided.
inline constexpr uint64_t kRounds = 2;
/// How many graphs are made of each of these: one is compiled with two kinds of roles, the other
/// with the third.
inline constexpr uint64_t kGraphsOfRoles = 2;
/// Seeds below this one cover every feature with every dtype that it takes, at every number of
/// ranks, without and with dims, for every kind of roles: each with each.
inline constexpr uint64_t kCoveringSeeds =
    std::size(kWorlds) * std::size(kDTypes) * 2 * kRounds * kGraphsOfRoles;

/// What counts as covered: the kinds of ops, for an all-reduce its algorithm ("allreduce oneshot").
const std::vector<std::string>& features();
/// Whether an op of this feature takes `dtype` as its first operand or, without operands, gives it.
/// (A barrier counts as f32.)
bool takes(const std::string& feature, ir::DType dtype);

/// What a graph must have, chosen by its seed.
struct Plan {
  int world = 1;
  ir::DType dtype = ir::DType::F32;  // of the forced features' first operands
  bool dims = false;                 // some operand of each forced op has a dim
  RolesKind roles = RolesKind::Auto;
  std::optional<RolesKind> other_roles;  // with which it is compiled once more
  std::vector<std::string> forced;       // features
};
Plan plan_of(uint64_t seed);

/// An op as text, with what it reads and makes.
struct OpText {
  std::string feature;
  std::string kind;
  std::vector<std::string> in, out;
  std::vector<std::string> attrs;  // "axis = 1"
  std::vector<std::string> after;  // names of earlier ops
  std::string name;                // "" if it has none of its own
  bool changes_state = false;      // out[0] is a state
  // Statements before and behind it; `in` includes what they read.
  std::string first = "", last = "";
  std::string type = "";     // of the result, which is an output then: "f32[3, 4]"
  bool no_operands = false;  // `in` is read by `first`
};

struct RandomGraph {
  uint64_t seed = 0;
  Plan plan;
  std::vector<OpText> ops;
  std::vector<runtime::LaunchValues> launches;

  /// The DSL.
  std::string text() const { return text(plan.roles, true); }
  /// `settings`: with overlap, phases, regions, priorities.
  std::string text(RolesKind roles, bool settings) const {
    return text(std::vector<bool>(ops.size(), true), roles, settings);
  }
  /// With some ops only; none of these reads what a left-out op makes.
  std::string text(const std::vector<bool>& kept, RolesKind roles, bool settings) const;

  // What `text` prints before and behind the ops.
  std::vector<std::pair<std::string, std::string>> declarations;  // name, statement
  // results that are outputs although something reads them
  std::vector<std::string> outputs_anyway;
  std::array<std::string, kRolesKinds> roles_statements;  // by kind
  std::vector<std::string> set_statements;
  std::vector<std::pair<std::string, std::vector<std::string>>> regions;
};
RandomGraph random_graph(uint64_t seed);

}  // namespace maco::fuzz
