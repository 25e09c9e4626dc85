// session.cpp: what sessions on all devices check of tensors and their memory.
#include "runtime/host/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/host/group.h"

namespace maco::runtime {
namespace {

using ir::Manifest;
using ir::ManifestRange;

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

namespace {

// A tensor's shape, with dims at their maxima.
std::vector<int64_t> largest_shape(const Manifest& m, const ir::ManifestTensor& tensor) {
  const auto most = [&](std::string_view name) -> std::optional<int64_t> {
    if (name == "world") return m.world;
    for (const ManifestRange& dim : m.dims)
      if (dim.name == name) return dim.hi;
    return std::nullopt;
  };
  std::vector<int64_t> shape;
  for (const ir::Expr& e : tensor.shape) shape.push_back(ir::evaluate(e, most).value.value_or(0));
  return shape;
}

}  // namespace

Status share(Session& own, const Session& other) {
  const Manifest &mine = own.manifest(), &theirs = other.manifest();
  std::vector<std::pair<size_t, size_t>> pairs;  // own, theirs
  for (size_t i = 0; i < mine.tensors.size(); ++i) {
    const ir::ManifestTensor& t = mine.tensors[i];
    if (t.kind != "param" && t.kind != "state") continue;
    for (size_t j = 0; j < theirs.tensors.size(); ++j) {
      const ir::ManifestTensor& o = theirs.tensors[j];
      if (o.name != t.name || o.kind != t.kind) continue;
      if (o.dtype != t.dtype || largest_shape(theirs, o) != largest_shape(mine, t))
        return Status::failure(fmt::format("'{}' is of another type or shape in '{}' than in '{}'",
                                           t.name, theirs.name, mine.name));
      pairs.emplace_back(i, j);
    }
  }
  const RanksHere here = own.here();
  for (const auto& [i, j] : pairs)
    for (int rank = here.first; here.has(rank); ++rank)
      if (void* memory = other.address(rank, j)) MACO_TRY(own.bind(rank, i, memory));
  return {};
}

Status allocate_all(Session& session) {
  const RanksHere here = session.here();
  for (int rank = here.first; here.has(rank); ++rank)
    for (size_t i = 0; i < session.manifest().tensors.size(); ++i)
      MACO_TRY(session.allocate(rank, i));
  return {};
}

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

Status check_streams(const Session& session, size_t streams) {
  const int here = session.here().count;
  if (streams == 0 || streams == static_cast<size_t>(here)) return {};
  return Status::failure(
      fmt::format("{} streams for {} rank{}", streams, here, here == 1 ? "" : "s"));
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

// Slots are reset to a flag at a distance of 2^31 from the next launch's flags.
int64_t launches_between_resets(const ir::Manifest& manifest) {
  return (int64_t{1} << 31) / manifest.packet_uses - 1;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace maco::runtime
