// session.cpp: what sessions on all devices share: a launch's values, and the report of a launch
// that stopped.
#include "runtime/host/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "runtime/host/abi.h"
#include "runtime/host/block_end.h"
#include "runtime/host/group.h"

namespace maco::runtime {
namespace {

using ir::Manifest;
using ir::ManifestRange;

// Dim or scalar `i`, counted over both; nullptr if there is none.
const ManifestRange* variable_at(const Manifest& m, size_t i) {
  if (i < m.dims.size()) return &m.dims[i];
  i -= m.dims.size();
  return i < m.scalars.size() ? &m.scalars[i] : nullptr;
}
const char* kind_of_variable(const Manifest& m, size_t i) {
  return i < m.dims.size() ? "dim" : "scalar";
}

std::string out_of_range(const Manifest& m, size_t variable, int64_t value) {
  const ManifestRange& v = *variable_at(m, variable);
  return fmt::format("{} '{}' is {}, but must be from {} to {}", kind_of_variable(m, variable),
                     v.name, value, v.lo, v.hi);
}

// Why the kernel doesn't accept the value; "" if it does.
std::string wrong_value(const ir::ManifestValue& v, int64_t value) {
  if (value < v.lo || value > v.hi)
    return fmt::format("'{}' is {}, but the kernel was compiled for {} to {}", v.expr.str(), value,
                       v.lo, v.hi);
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())
    return fmt::format("'{}' is {}, which does not fit 32 bits", v.expr.str(), value);
  return "";
}

std::string known_names(const Manifest& m) {
  std::string names;
  for (const auto* list : {&m.dims, &m.scalars})
    for (const ManifestRange& r : *list) names += (names.empty() ? "'" : ", '") + r.name + "'";
  return names.empty() ? "it has none" : "it has " + names;
}

std::string task(const Manifest& m, const Report& r) {
  if (r.call >= m.calls.size()) return fmt::format("task {} (call {})", r.place, r.call);
  const ir::ManifestCall& call = m.calls[r.call];
  return fmt::format("task '{}' ({}) tile {}", call.op, call.op_kind, r.tile);
}

std::string event(const std::vector<ir::ManifestEvents>& names, const char* kind, uint32_t id) {
  const std::optional<std::string> name = ir::event_name(names, int64_t{id});
  return name ? fmt::format("event '{}' ({} event {})", *name, kind, id)
              : fmt::format("{} event {}", kind, id);
}

// The op of the task in `r`. Packets from peers travel within it, packets of its own rank come to
// it.
std::string op(const Manifest& m, const Report& r) {
  return r.call < m.calls.size() ? fmt::format("'{}'", m.calls[r.call].op)
                                 : fmt::format("call {}", r.call);
}

std::string waited(uint64_t timeout_ms) {
  if (timeout_ms == 0) return "waited without progress";
  if (timeout_ms % 1000 == 0) return fmt::format("waited {} s without progress", timeout_ms / 1000);
  return fmt::format("waited {} ms without progress", timeout_ms);
}

std::string awaited(const Manifest& m, int rank, const Report& r) {
  switch (r.kind) {
    case kWaitLocal: return event(m.local_names, "local", r.event);
    case kWaitPeer:
      return fmt::format("rank {}'s {}", r.source, event(m.peer_names, "peer", r.event));
    case kWaitPacket:
      if (r.source == rank)
        return fmt::format("its rank's packets, operand {} of {}", r.event, op(m, r));
      return fmt::format("rank {}'s packets of {} (operand {})", r.source, op(m, r), r.event);
    case kWaitHanded: return fmt::format("{} to come back from NCCL", op(m, r));
    case kWaitMate: return "the other SM of its pair, which shares the tile";
    default: return "a page of shared memory between its loader and its consumers";
  }
}

// Whether `a` could be the cause of `b`. It can if it comes first: in an earlier launch (their
// numbers wrap), or in an earlier task of the Program, which numbers calls and their tiles in
// order.
bool explains(const Report& a, const Report& b) {
  const auto rank = [](const Report& r) {
    if (r.state != 2) return r.state == 0 ? 3 : 2;
    return r.kind == kBadIndex || r.kind == kWaitThreads ||
                   (r.kind >= kBadVariable && r.kind <= kSpent)
               ? 0
               : 1;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) > 1) return false;
  if (a.epoch != b.epoch) return static_cast<int32_t>(a.epoch - b.epoch) < 0;
  return std::tie(a.call, a.tile) < std::tie(b.call, b.tile);
}

}  // namespace

Status check_range(const ir::Manifest& manifest, int rank, size_t tensor, size_t offset,
                   size_t bytes) {
  if (rank < 0 || rank >= manifest.world)
    return Status::failure(fmt::format("no rank {} of {}", rank, manifest.world));
  if (tensor >= manifest.tensors.size())
    return Status::failure(fmt::format("no tensor {} of {}", tensor, manifest.tensors.size()));
  const ir::ManifestTensor& t = manifest.tensors[tensor];
  const auto most = static_cast<size_t>(t.max_elements * ir::size_of(t.dtype));
  if (offset > most || bytes > most - offset)
    return Status::failure(fmt::format("'{}' has {} bytes, not {}{}", t.name, most, bytes,
                                       offset == 0 ? "" : fmt::format(" behind {}", offset)));
  return {};
}

Status check_binding(const ir::Manifest& manifest, int rank, size_t tensor, const void* memory) {
  if (Status s = check_range(manifest, rank, tensor); !s) return s;
  const std::string& name = manifest.tensors[tensor].name;
  if (!memory) return Status::failure(fmt::format("'{}' is bound to a null pointer", name));
  if (reinterpret_cast<uintptr_t>(memory) % kTensorAlignment != 0)
    return Status::failure(fmt::format("'{}' is bound to {}, which is no multiple of {}", name,
                                       memory, kTensorAlignment));
  return {};
}

Status check_group(const Group& group, const ir::Manifest& m, const SessionOptions& options) {
  if (group.size() != m.world)
    return Status::failure(fmt::format("there are {} processes, but the graph has {} rank{}",
                                       group.size(), m.world, m.world == 1 ? "" : "s"));
  if (options.check_access || options.replay)
    return Status::failure(
        "the check of accesses and replays look at all ranks: run them in one process");
  return {};
}

namespace {

// A tensor's address, on a rank of this process, in a launch with these places.
const void* address_in(const Session& session, TensorPlaces places, int rank, size_t tensor) {
  for (const TensorPlace& place : places)
    if (place.tensor == tensor) return place.at[static_cast<size_t>(rank - session.here().first)];
  return session.address(rank, tensor);
}

}  // namespace

Status check_places(const Session& session, TensorPlaces places) {
  const ir::Manifest& m = session.manifest();
  const RanksHere here = session.here();
  std::vector<bool> placed(m.tensors.size());
  for (const TensorPlace& place : places) {
    if (place.tensor >= m.tensors.size())
      return Status::failure(
          fmt::format("there is no tensor {}: there are {}", place.tensor, m.tensors.size()));
    const std::string& name = m.tensors[place.tensor].name;
    if (placed[place.tensor]) return Status::failure(fmt::format("'{}' is given two places", name));
    placed[place.tensor] = true;
    if (place.at.size() != static_cast<size_t>(here.count))
      return Status::failure(
          fmt::format("'{}' has {} addresses for {} ranks", name, place.at.size(), here.count));
    for (int r = 0; r < here.count; ++r)
      if (Status s =
              check_binding(m, here.first + r, place.tensor, place.at[static_cast<size_t>(r)]);
          !s)
        return s;
  }
  return {};
}

Status check_bound(const Session& session, TensorPlaces places) {
  const ir::Manifest& m = session.manifest();
  std::vector<bool> placed(m.tensors.size());
  for (const TensorPlace& place : places) placed[place.tensor] = true;
  for (int rank = 0; rank < m.world; ++rank)
    for (size_t t = 0; t < m.tensors.size(); ++t)
      if (session.is_here(rank) && !placed[t] && !session.address(rank, t))
        return Status::failure(fmt::format("{} '{}' of rank {} has no memory: bind or allocate it",
                                           m.tensors[t].kind, m.tensors[t].name, rank));
  return {};
}

Status check_addresses(const Session& session, const LaunchAddresses& addresses,
                       TensorPlaces places) {
  const ir::Manifest& m = session.manifest();
  const RanksHere here = session.here();
  for (const auto& [name, all] : addresses) {
    for (size_t r = 0; r < all.at.size(); ++r) {
      const int rank = here.first + static_cast<int>(r);
      const auto at = reinterpret_cast<uintptr_t>(all.at[r]);
      for (size_t t = 0; t < m.tensors.size() && here.has(rank); ++t) {
        const ir::ManifestTensor& tensor = m.tensors[t];
        if (tensor.kind != "output" && tensor.kind != "state") continue;
        const auto begin = reinterpret_cast<uintptr_t>(address_in(session, places, rank, t));
        const auto bytes = static_cast<size_t>(tensor.max_elements * ir::size_of(tensor.dtype));
        if (begin != 0 && at + static_cast<size_t>(all.bytes) > begin && at < begin + bytes)
          return Status::failure(fmt::format(
              "'{}' of rank {} lies in {} '{}', which the launch writes: copy it to other memory "
              "before",
              name, rank, tensor.kind, tensor.name));
      }
    }
  }
  return {};
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

Status evaluate_values(const Manifest& m, const LaunchValues& values, int rank,
                       std::vector<int32_t>& out) {
  if (rank < 0 || rank >= m.world)
    return Status::failure(fmt::format("rank {} is outside [0, {})", rank, m.world));
  std::vector<LaunchVariable> variables;
  if (Status s = list_variables(m, values, {}, rank, {}, variables); !s) return s;
  LaunchValues all;
  for (size_t i = 0; i < variables.size(); ++i) all[variable_at(m, i)->name] = variables[i].value;

  if (m.values.size() > size_t{kMaxValues})
    return Status::failure(fmt::format("the kernel has {} launch values, more than the {} that fit",
                                       m.values.size(), kMaxValues));
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

std::string explain_report(const Manifest& m, int rank, const Report& r, uint64_t timeout_ms) {
  if (r.state == 0) return "";
  if (r.state != 2) return fmt::format("rank {}: stopped, but its report is not complete", rank);
  const std::string where = fmt::format("rank {}, SM {}", rank, r.cta);
  if (r.kind == kBadIndex)
    return fmt::format("rank {}: op {}: index {} is outside [0, {})", rank, op(m, r), r.index,
                       r.limit);
  if (r.kind == kWaitThreads)
    return fmt::format("rank {}: op {}: {}", rank, op(m, r),
                       describe(static_cast<BlockEnd>(r.limit), r.index, timeout_ms));
  if (r.kind == kBadVariable && variable_at(m, r.event))
    return fmt::format("rank {}: {}", rank, out_of_range(m, r.event, r.index));
  if (r.kind == kBadValue && r.event < m.values.size())
    return fmt::format("rank {}: {}", rank, wrong_value(m.values[r.event], r.index));
  if (r.kind == kSpent)
    return fmt::format(
        "rank {}: {} launches without a wait, and counters must be reset: launch again", rank,
        launches_between_resets(m));
  if ((r.kind < kWaitLocal || r.kind > kWaitPage) && r.kind != kWaitHanded && r.kind != kWaitMate)
    return fmt::format("{}: {} stopped for the unknown reason {}", where, task(m, r), r.kind);
  const std::string what =
      fmt::format("{}: expected {}, seen {}", awaited(m, rank, r), r.expected, r.seen);
  if (r.stopped_by == 0)
    return fmt::format("{}: {} {} for {}", where, task(m, r), waited(timeout_ms), what);
  const int64_t by = int64_t{r.stopped_by} - 1;
  return fmt::format("{}: stopped by {} while {} waited for {}", where,
                     by < m.world ? fmt::format("rank {}", by) : "the host", task(m, r), what);
}

namespace {

// The ranks with reports, causes first.
std::vector<size_t> by_cause(std::span<const Report> reports) {
  std::vector<size_t> ranks(reports.size());
  std::iota(ranks.begin(), ranks.end(), size_t{0});
  std::stable_sort(ranks.begin(), ranks.end(), [&](size_t a, size_t b) {
    if (explains(reports[a], reports[b])) return true;
    return !explains(reports[b], reports[a]) && reports[a].stopped_by == 0 &&
           reports[b].stopped_by != 0;
  });
  return ranks;
}

}  // namespace

std::optional<Stopped> first_stopped(const Manifest& m, std::span<const Report> reports) {
  if (reports.empty()) return std::nullopt;
  const size_t first = by_cause(reports).front();
  const Report& r = reports[first];
  if (r.state != 2) return std::nullopt;
  const int rank = static_cast<int>(first);
  if (r.kind == kBadIndex || r.kind == kWaitThreads || (r.kind >= kBadVariable && r.kind <= kSpent))
    return Stopped{rank, r.kind == kBadIndex || r.kind == kWaitThreads ? op(m, r) : "", "",
                   r.kind == kBadIndex ? r.limit : 0, r.index};
  return Stopped{rank, task(m, r), awaited(m, rank, r), int64_t{r.expected}, int64_t{r.seen}};
}

std::string explain_reports(const Manifest& m, std::span<const Report> reports,
                            uint64_t timeout_ms) {
  std::string out;
  for (size_t rank : by_cause(reports)) {
    const std::string line = explain_report(m, static_cast<int>(rank), reports[rank], timeout_ms);
    if (!line.empty()) out += (out.empty() ? "" : "\n") + line;
  }
  return out;
}

// Slots are reset to a flag at a distance of 2^31 from the next launch's flags.
int64_t launches_between_resets(const ir::Manifest& manifest) {
  return (int64_t{1} << 31) / manifest.packet_uses - 1;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Report cause_of(std::span<const Report> ctas) {
  const auto first = std::min_element(ctas.begin(), ctas.end(), explains);
  if (first == ctas.end()) return {};
  Report cause = *first;
  // The first wait need not be the one whose deadline passed first, but time was up for all.
  const auto expired = [](const Report& r) { return r.state != 0 && r.stopped_by == 0; };
  if (std::any_of(ctas.begin(), ctas.end(), expired)) cause.stopped_by = 0;
  return cause;
}

}  // namespace maco::runtime
