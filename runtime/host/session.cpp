// session.cpp: what sessions on all devices share: the values of a launch, and the story of one
// that stopped.
#include "runtime/host/session.h"

#include <fmt/format.h>

#include <limits>

#include "runtime/host/abi.h"

namespace maco::runtime {
namespace {

using ir::Manifest;
using ir::ManifestRange;

Status in_range(const char* what, const ManifestRange& range, int64_t value) {
  if (value >= range.lo && value <= range.hi) return {};
  return Status::failure(fmt::format("{} '{}' is {}, but must be from {} to {}", what, range.name,
                                     value, range.lo, range.hi));
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

// The op whose task `r` is about; packets travel within an op.
std::string op(const Manifest& m, const Report& r) {
  return r.call < m.calls.size() ? fmt::format("'{}'", m.calls[r.call].op)
                                 : fmt::format("call {}", r.call);
}

std::string waited(uint64_t timeout_ms) {
  if (timeout_ms == 0) return "waited without progress";
  if (timeout_ms % 1000 == 0) return fmt::format("waited {} s without progress", timeout_ms / 1000);
  return fmt::format("waited {} ms without progress", timeout_ms);
}

// A rank that only left because another one had.
bool is_consequence(const Report& r) { return r.state == 2 && r.kind == kPeerAborted; }

}  // namespace

Status evaluate_values(const Manifest& m, const LaunchValues& values, int rank,
                       std::vector<int32_t>& out) {
  if (rank < 0 || rank >= m.world)
    return Status::failure(fmt::format("rank {} is outside [0, {})", rank, m.world));
  LaunchValues all;
  for (const ManifestRange& dim : m.dims) {
    auto given = values.find(dim.name);
    const int64_t value = given == values.end() ? dim.hi : given->second;
    if (Status s = in_range("dim", dim, value); !s) return s;
    all[dim.name] = value;
  }
  for (const ManifestRange& scalar : m.scalars) {
    auto given = values.find(scalar.name);
    if (given == values.end())
      return Status::failure(fmt::format("scalar '{}' has no value; it takes one from {} to {}",
                                         scalar.name, scalar.lo, scalar.hi));
    if (Status s = in_range("scalar", scalar, given->second); !s) return s;
    all[scalar.name] = given->second;
  }
  for (const auto& [name, value] : values)
    if (!all.contains(name))
      return Status::failure(
          fmt::format("'{}' is no dim or scalar of '{}': {}", name, m.name, known_names(m)));

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
  for (const ir::Expr& e : m.values) {
    ir::EvalResult result = ir::evaluate(e, lookup);
    if (!result.value) return Status::failure(fmt::format("rank {}: {}", rank, result.error));
    if (*result.value < std::numeric_limits<int32_t>::min() ||
        *result.value > std::numeric_limits<int32_t>::max())
      return Status::failure(fmt::format("rank {}: '{}' is {}, which does not fit 32 bits", rank,
                                         e.str(), *result.value));
    out.push_back(static_cast<int32_t>(*result.value));
  }
  return {};
}

std::string explain_report(const Manifest& m, int rank, const Report& r, uint64_t timeout_ms) {
  if (r.state == 0) return "";
  if (r.state != 2) return fmt::format("rank {}: stopped, but its report is not complete", rank);
  const std::string who = fmt::format("rank {}, SM {}: {}", rank, r.cta, task(m, r));
  const std::string counts = fmt::format("expected {}, seen {}", r.expected, r.seen);
  switch (r.kind) {
    case kTimeoutLocal:
      return fmt::format("{} {} for {}: {}", who, waited(timeout_ms),
                         event(m.local_names, "local", r.event), counts);
    case kTimeoutPeer:
      return fmt::format("{} {} for rank {}'s {}: {}", who, waited(timeout_ms), r.source,
                         event(m.peer_names, "peer", r.event), counts);
    case kTimeoutPacket:
      return fmt::format("{} {} for rank {}'s packets of {} (operand {}): {}", who,
                         waited(timeout_ms), r.source, op(m, r), r.event, counts);
    case kTimeoutPage:
      return fmt::format(
          "{} {} for a page of shared memory between its loader and its consumers: {}", who,
          waited(timeout_ms), counts);
    case kBadIndex: {
      const std::string op = r.call < m.calls.size() ? fmt::format("op '{}'", m.calls[r.call].op)
                                                     : fmt::format("call {}", r.call);
      return fmt::format("rank {}: {}: index {} is outside [0, {})", rank, op, r.index, r.limit);
    }
    case kPeerAborted: {
      std::string waiting;
      if (r.waited == kTimeoutLocal)
        waiting = event(m.local_names, "local", r.waited_event);
      else if (r.waited == kTimeoutPeer)
        waiting = fmt::format("rank {}'s {}", r.waited_source,
                              event(m.peer_names, "peer", r.waited_event));
      else if (r.waited == kTimeoutPacket)
        waiting = fmt::format("rank {}'s packets of {}", r.waited_source, op(m, r));
      else if (r.waited == kTimeoutPage)
        waiting = "a page of shared memory";
      if (!waiting.empty()) waiting = fmt::format(", while {} waited for {}", task(m, r), waiting);
      if (r.source >= m.world) return fmt::format("rank {}: stopped by the host{}", rank, waiting);
      if (r.source >= 0 && r.source != rank)
        return fmt::format("rank {}: stopped because rank {} had stopped{}", rank, r.source,
                           waiting);
      return fmt::format("rank {}: stopped because another rank had stopped{}", rank, waiting);
    }
    default:
      return fmt::format("{} stopped for the unknown reason {}", who, r.kind);
  }
}

std::string explain_reports(const Manifest& m, std::span<const Report> reports,
                            uint64_t timeout_ms) {
  std::string out;
  for (const bool consequences : {false, true})
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      if (reports[rank].state == 0 || is_consequence(reports[rank]) != consequences) continue;
      if (!out.empty()) out += '\n';
      out += explain_report(m, static_cast<int>(rank), reports[rank], timeout_ms);
    }
  return out;
}

}  // namespace maco::runtime
