// group_place.cpp: a process's place in its group, as launchers tell it in the environment.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>

#include "runtime/host/group.h"

namespace maco::runtime {
namespace {

// Variables that mpirun, torchrun and the like set for the processes that they start.
struct Launcher {
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Launcher kLaunchers[] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                   {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
constexpr const char* kNames[] = {"MACO_GROUP",          "MASTER_ADDR",    "MASTER_PORT",
                                  "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID",
                                  "SLURM_JOB_ID"};
constexpr const char* kAlone =
    "(with --peer-memory threads one process runs all ranks, whatever the environment says)";

std::optional<std::string> value_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::optional<std::string>(text) : std::nullopt;
}

// The value of a variable that must be a whole number from 0 on; nothing if it isn't set.
std::optional<int> number_of(const char* variable, Status& status) {
  const auto text = value_of(variable);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [used, error] = std::from_chars(text->data(), end, value);
  if (error == std::errc() && used == end && value >= 0) return value;
  if (status)
    status = Status::failure(fmt::format(
        "{} is '{}', which is no whole number from 0 to 2147483647 {}", variable, *text, kAlone));
  return std::nullopt;
}

// This process's place according to a launcher; nothing, without a failure, if the launcher set
// neither variable.
std::optional<GroupPlace> place_of(const Launcher& l, Status& status) {
  const auto rank = number_of(l.rank, status), size = number_of(l.size, status),
             local_rank = number_of(l.local_rank, status),
             local_size = number_of(l.local_size, status);
  if (!status || (!rank && !size && !local_rank && !local_size)) return std::nullopt;
  const auto fail = [&](const std::string& why) {
    status = Status::failure(why);
    return std::nullopt;
  };
  if (!rank || !size) {
    const char* set = rank ? l.rank : size ? l.size : local_rank ? l.local_rank : l.local_size;
    const std::string missing = rank   ? fmt::format("{} is", l.size)
                                : size ? fmt::format("{} is", l.rank)
                                       : fmt::format("{} and {} are", l.rank, l.size);
    return fail(fmt::format("{} is '{}', but {} not set: a process of a group needs both {}", set,
                            value_of(set).value_or(""), missing, kAlone));
  }
  const std::string both = fmt::format("{} is '{}' and {} is '{}'", l.rank, *rank, l.size, *size);
  if (*size < 1 || *rank >= *size) return fail(both + ": that is no rank of a group");
  if (*size > Group::kMostRanks)
    return fail(fmt::format("{} is '{}', but a group has at most {} ranks", l.size, *size,
                            Group::kMostRanks));
  if (local_size && *local_size != *size)
    return fail(
        fmt::format("{} is {} and {} is {}: ranks on several hosts can't map each other's "
                    "memory",
                    l.size, *size, l.local_size, *local_size));
  if (local_rank && *local_rank >= *size)
    return fail(fmt::format("{} is {}, but {} is {}", l.local_rank, *local_rank, l.size, *size));
  return GroupPlace{*rank, *size, ""};
}

}  // namespace

std::vector<std::string> group_variables() {
  std::vector<std::string> all;
  for (const Launcher& l : kLaunchers)
    all.insert(all.end(), {l.rank, l.size, l.local_rank, l.local_size});
  all.insert(all.end(), std::begin(kNames), std::end(kNames));
  return all;
}

std::optional<GroupPlace> group_from_environment(Status& status) {
  std::optional<GroupPlace> place;
  Status first;
  // One launcher may have started another: the first that sets all variables counts.
  for (const Launcher& l : kLaunchers) {
    Status wrong;
    place = place_of(l, wrong);
    if (place) break;
    if (first) first = wrong;
  }
  if (!place) {
    status = first;
    return std::nullopt;
  }
  if (place->size == 1) return std::nullopt;
  const bool address = value_of("MASTER_ADDR").has_value(),
             port = value_of("MASTER_PORT").has_value();
  if (address != port && !value_of("MACO_GROUP")) {
    status = Status::failure(fmt::format(
        "{} is set, but {} is not: a group's name is made of both {}",
        address ? "MASTER_ADDR" : "MASTER_PORT", address ? "MASTER_PORT" : "MASTER_ADDR", kAlone));
    return std::nullopt;
  }
  for (const char* part : kNames) place->name += value_of(part).value_or("") + ".";
  return place;
}

}  // namespace maco::runtime
