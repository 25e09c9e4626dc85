// launch_values.cpp: the values of a launch, checked and evaluated.
#include "runtime/host/launch_values.h"

#include <fmt/format.h>

#include <limits>

#include "runtime/host/abi.h"
#include "runtime/host/session.h"

namespace maco::runtime {
namespace {

using ir::Manifest;
using ir::ManifestRange;

const char* kind_of_variable(const Manifest& m, size_t i) {
  return i < m.dims.size() ? "dim" : "scalar";
}

std::string known_names(const Manifest& m) {
  std::string names;
  for (const auto* list : {&m.dims, &m.scalars})
    for (const ManifestRange& r : *list) names += (names.empty() ? "'" : ", '") + r.name + "'";
  return names.empty() ? "it has none" : "it has " + names;
}

}  // namespace

const ManifestRange* variable_at(const Manifest& m, size_t i) {
  if (i < m.dims.size()) return &m.dims[i];
  i -= m.dims.size();
  return i < m.scalars.size() ? &m.scalars[i] : nullptr;
}

std::string out_of_range(const Manifest& m, size_t variable, int64_t value) {
  const ManifestRange& v = *variable_at(m, variable);
  return fmt::format("{} '{}' is {}, but must be from {} to {}", kind_of_variable(m, variable),
                     v.name, value, v.lo, v.hi);
}

std::string wrong_value(const ir::ManifestValue& v, int64_t value) {
  if (value < v.lo || value > v.hi)
    return fmt::format("'{}' is {}, but the kernel was compiled for {} to {}", v.expr.str(), value,
                       v.lo, v.hi);
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())
    return fmt::format("'{}' is {}, which does not fit 32 bits", v.expr.str(), value);
  return "";
}

Status check_variables(const Manifest& m) {
  const size_t count = m.dims.size() + m.scalars.size();
  if (count <= size_t{kMaxVariables}) return {};
  return Status::failure(
      fmt::format("'{}' has {} dims and scalars, but launches of captured graphs, and those with "
                  "some in memory, take at most {}",
                  m.name, count, kMaxVariables));
}

Status list_variables(const Manifest& m, const LaunchValues& values,
                      const LaunchAddresses& addresses, int rank, RanksHere here,
                      std::vector<LaunchVariable>& out) {
  const auto known = [&](const std::string& name) {
    for (size_t i = 0; const ManifestRange* v = variable_at(m, i); ++i)
      if (v->name == name) return Status{};
    return Status::failure(
        fmt::format("'{}' is no dim or scalar of '{}': {}", name, m.name, known_names(m)));
  };
  for (const auto& [name, value] : values)
    if (Status s = known(name); !s) return s;
  for (const auto& [name, all] : addresses) {
    if (Status s = known(name); !s) return s;
    if (all.at.size() != static_cast<size_t>(here.count))
      return Status::failure(fmt::format("'{}' has {} addresses for {} rank{}", name, all.at.size(),
                                         here.count, here.count == 1 ? "" : "s"));
    if (all.bytes != 4 && all.bytes != 8)
      return Status::failure(
          fmt::format("'{}' is an integer of {} bytes in memory; those of 4 and 8 can be read",
                      name, all.bytes));
  }
  if (!addresses.empty())
    if (Status s = check_variables(m); !s) return s;
  out.clear();
  for (size_t i = 0; const ManifestRange* v = variable_at(m, i); ++i) {
    if (const auto placed = addresses.find(v->name); placed != addresses.end()) {
      const LaunchAddress& from = placed->second;
      const void* at = from.at[static_cast<size_t>(rank - here.first)];
      if (!at || reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(from.bytes) != 0)
        return Status::failure(
            fmt::format("'{}' of rank {} is at {}, which is no address of a {}-bit integer",
                        v->name, rank, at, 8 * from.bytes));
      out.push_back({at, 0, from.bytes, from.from_end});
      continue;
    }
    const auto given = values.find(v->name);
    if (given == values.end() && i >= m.dims.size())
      return Status::failure(fmt::format("scalar '{}' has no value; it takes one from {} to {}",
                                         v->name, v->lo, v->hi));
    const int64_t value = given == values.end() ? v->hi : given->second;
    if (value < v->lo || value > v->hi) return Status::failure(out_of_range(m, i, value));
    out.push_back({.value = value});
  }
  return {};
}

int64_t read_integer(const ir::Manifest& m, const std::string& name, const LaunchAddress& address,
                     size_t here) {
  const void* at = address.at[here];
  int64_t value =
      address.bytes == 8 ? *static_cast<const int64_t*>(at) : *static_cast<const int32_t*>(at);
  for (size_t i = 0; const ManifestRange* v = variable_at(m, i); ++i)
    if (v->name == name && address.from_end && value < 0) value += v->hi + 1;
  return value;
}

Variables given_to_launches(const std::vector<LaunchVariable>& variables) {
  Variables all{};
  for (size_t i = 0; i < variables.size() && i < size_t{kMaxVariables}; ++i) {
    const LaunchVariable& v = variables[i];
    all.given[i] = v.at ? reinterpret_cast<uintptr_t>(v.at) : static_cast<u64>(v.value);
    const u64 bit = u64{1} << i % 64;
    if (v.at) all.placed[i / 64] |= bit;
    if (v.bytes == 8) all.wide[i / 64] |= bit;
    if (v.from_end) all.from_end[i / 64] |= bit;
  }
  return all;
}

Status check_values(const Manifest& m) {
  if (m.values.size() <= size_t{kMaxValues}) return {};
  return Status::failure(fmt::format("the kernel has {} launch values, more than the {} that fit",
                                     m.values.size(), kMaxValues));
}

Status evaluate_values(const Manifest& m, const LaunchValues& values, int rank,
                       std::vector<int32_t>& out) {
  if (rank < 0 || rank >= m.world)
    return Status::failure(fmt::format("rank {} is outside [0, {})", rank, m.world));
  std::vector<LaunchVariable> variables;
  if (Status s = list_variables(m, values, {}, rank, {}, variables); !s) return s;
  LaunchValues all;
  for (size_t i = 0; i < variables.size(); ++i) all[variable_at(m, i)->name] = variables[i].value;

  MACO_TRY(check_values(m));
  auto lookup = [&](std::string_view name) -> std::optional<int64_t> {
    if (name == "rank") return rank;
    if (name == "world") return m.world;
    auto it = all.find(std::string(name));
    if (it == all.end()) return std::nullopt;
    return it->second;
  };
  out.clear();
  for (const ir::ManifestValue& v : m.values) {
    ir::EvalResult result = ir::evaluate(v.expr, lookup);
    if (result.value) result.error = wrong_value(v, *result.value);
    if (!result.error.empty())
      return Status::failure(fmt::format("rank {}: {}", rank, result.error));
    out.push_back(static_cast<int32_t>(*result.value));
  }
  return {};
}

}  // namespace maco::runtime
