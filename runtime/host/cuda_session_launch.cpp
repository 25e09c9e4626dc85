#include "runtime/host/cuda_session_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace maco::runtime {

namespace {

// For each launch, the time of the slowest rank of all processes.
Status slowest_of(Group& group, std::vector<double>& times) {
  std::vector<std::string> all;
  MACO_TRY(group.exchange(
      {reinterpret_cast<const char*>(times.data()), times.size() * sizeof(double)}, all));
  for (const std::string& one : all)
    for (size_t i = 0; i < times.size() && (i + 1) * sizeof(double) <= one.size(); ++i) {
      double time = 0;
      std::memcpy(&time, one.data() + i * sizeof time, sizeof time);
      times[i] = std::max(times[i], time);
    }
  return {};
}

}  // namespace

Status CudaSession::set_values_here(int rank, const LaunchValues& values,
                                    const LaunchAddresses& addresses) {
  // Numbers are checked before the launch, even if launches check them again.
  std::vector<int32_t> out;
  if (addresses.empty()) MACO_TRY(evaluate_values(manifest_, values, rank, out));
  at(rank).set_values(out);
  if (!numbered_) return {};
  std::vector<LaunchVariable> variables;
  MACO_TRY(list_variables(manifest_, values, addresses, rank, here_, variables));
  at(rank).set_variables(variables);
  return {};
}

Status CudaSession::enqueue(int rank, int launches, bool timed) {
  CudaRank& r = at(rank);
  if (timed) r.enqueue_gate(gate_address_, gate_value_);
  for (int i = 0; i < launches; ++i) {
    const auto first = static_cast<size_t>(2 * i);
    MACO_TRY(r.enqueue(epoch_ + static_cast<uint32_t>(i), timed ? r.event(first) : nullptr,
                       timed ? r.event(first + 1) : nullptr));
  }
  return {};
}

Status CudaSession::enqueue_handed(int rank, int launches) {
  for (int i = 0; i < launches; ++i) MACO_TRY(at(rank).enqueue_handed());
  return {};
}

Status CudaSession::count(int launches) {
  launched_ += launches;
  if (launched_ <= launches_between_resets(manifest_) / (numbered_ ? 2 : 1)) return {};
  MACO_TRY(wait());
  if (!numbered_) MACO_TRY(reset());  // otherwise it was done already
  launched_ = launches;
  return {};
}

// Launches `launches` times on all ranks and waits. Whatever happens, all ranks have ended, or have
// been given up, when it returns.
Status CudaSession::run(int launches, bool timed) {
  MACO_TRY(count(launches));
  begin();
  ++gate_value_;
  // Ahead of the gate, if everything fits there.
  const bool ahead = manifest_.handed.size() <= size_t{kHandedBatch};
  auto step = [&](int i) {
    const int r = here_.first + i;
    threads_.meet();
    Status status = enqueue(r, launches, timed);
    if (status && ahead) status = enqueue_handed(r, launches);
    if (!status) failed_ = true;
    threads_.meet();
    // Also if a rank has failed: the others' kernels must run to see its abort.
    if (timed && i == 0) {
      if (options_.group) static_cast<void>(options_.group->meet());
      std::atomic_ref<uint32_t>(*gate_).store(gate_value_, std::memory_order_release);
    }
    if (status && !ahead) status = enqueue_handed(r, launches);
    Status ended = at(r).wait(give_up_);
    if (!ended) failed_ = true;
    return status ? ended : status;
  };
  std::vector<Status> statuses = threads_.run(step, [this] { watch(); });
  epoch_ += static_cast<uint32_t>(launches);
  return conclude(std::move(statuses));
}

// Prepares a launch before it goes to streams.
Status CudaSession::ready_to_enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                                     TensorPlaces places, bool captured) {
  // An earlier launch that stopped has left its report; and addresses must not change under a
  // kernel that reads them.
  const bool stopped = any_report();
  if (stopped && captured)
    return Status::failure("a launch has stopped: wait says why, when nothing is captured");
  if (stopped && options_.group) return Status::failure("a launch has stopped: wait says why");
  const bool moved =
      std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->moved(); });
  if (stopped || (moved && !options_.group)) MACO_TRY(wait());
  if (moved && options_.group) {  // other processes need not wait because of memory here
    begin();
    MACO_TRY(all_of(wait_for_last()));
  }
  if (const auto refused = refuse_handed(captured, addresses); !refused) return refused;
  if (!numbered_ && (captured || !addresses.empty())) {
    MACO_TRY(check_variables(manifest_));
    MACO_TRY(number());
  }
  return set_values(values, addresses, places);
}

Status CudaSession::enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                            std::span<void* const> streams, TensorPlaces places) {
  const cuda::ContextGuard guard(*driver_);
  MACO_TRY(alive());
  const auto stream_of = [&](int r) {
    return streams.empty()
               ? at(r).own_stream()
               : static_cast<cuda::Stream>(streams[static_cast<size_t>(r - here_.first)]);
  };
  bool captured = false;
  Status status = check_streams(*this, streams.size());
  if (status) status = are_captured(streams, captured);
  if (captured && status) {
    MACO_TRY(ready_to_enqueue(values, addresses, places, true));
    return soon_on_all([&](int r) {
      return at(r).capture_on(stream_of(r), places, static_cast<size_t>(r - here_.first));
    });
  }
  // All processes count in the same way, even if one of them can't launch.
  if (options_.group) {
    MACO_TRY(count(1));
    given_.add(values, addresses);
  }
  if (status) status = ready_to_enqueue(values, addresses, places, false);
  if (!status && !options_.group) return status;
  if (!options_.group) MACO_TRY(count(1));
  enqueued_ = true;
  if (status)
    status = soon_on_all([&](int r) {
      const Status begun =
          at(r).enqueue_on(stream_of(r), epoch_, places, static_cast<size_t>(r - here_.first));
      return begun ? at(r).enqueue_handed() : begun;
    });
  ++epoch_;
  if (status) return {};
  // The other ranks wait in vain for a rank that didn't start.
  if (start_) start_ = status;
  abort_all();
  return options_.group ? status : wait();
}

Status CudaSession::wait() {
  const cuda::ContextGuard guard(*driver_);
  if (options_.group && !dead_.empty()) return Status::failure(dead_);
  const bool launched = std::exchange(enqueued_, false);
  // In a group always, as others may have launched, or number launches.
  if (launched || numbered_ || options_.group) {
    begin();
    std::vector<Status> statuses;
    if (launched) {
      statuses = wait_for_last();
      statuses.insert(statuses.begin(), std::exchange(start_, Status{}));
    }
    MACO_TRY(conclude(std::move(statuses)));
  }
  return dead_.empty() ? renew() : Status{};
}

Status CudaSession::ended(bool& all) {
  const cuda::ContextGuard guard(*driver_);
  all = true;
  for (size_t r = 0; enqueued_ && r < ranks_.size(); ++r) {
    bool one = true;
    MACO_TRY(ranks_[r]->last_ended(one));
    all = all && one;
  }
  // All processes tell its outcome at once, in wait.
  return all && !options_.group ? wait() : Status{};
}

Status CudaSession::ready(const LaunchValues& values, int launches) {
  MACO_TRY(wait());
  Status set = set_values(values);
  if (!options_.group) return set;
  LaunchValues all = values;
  all["(launches)"] = launches;  // no name in a graph looks like this
  return agree_on_values(*options_.group, all, set);
}

Status CudaSession::launch(const LaunchValues& values) {
  const cuda::ContextGuard guard(*driver_);
  MACO_TRY(ready(values, 1));
  return run(1, false);
}

Status CudaSession::read_times(int count, std::vector<double>& times) {
  Status read;
  for (int i = 0; i < count; ++i) {
    for (auto& rank : ranks_) {
      const auto first = static_cast<size_t>(2 * i);
      float ms = 0;
      if (read)
        read =
            driver_->check(driver_->event_elapsed(&ms, rank->event(first), rank->event(first + 1)),
                           "read the time");
      times[static_cast<size_t>(i)] = std::max(times[static_cast<size_t>(i)], 1000.0 * double{ms});
    }
  }
  MACO_TRY(agree(read));
  return options_.group ? slowest_of(*options_.group, times) : Status{};
}

Status CudaSession::bench(const LaunchValues& values, int launches, double& median_us) {
  const cuda::ContextGuard guard(*driver_);
  if (launches < 1) return Status::failure("a benchmark needs at least one launch");
  MACO_TRY(ready(values, launches));
  MACO_TRY(everywhere(
      [&](int r) { return driver_->check(at(r).make_events(2 * kBatch), "make events"); }));
  MACO_TRY(run(std::min(std::clamp(launches / 4, 3, kBatch), batch()), true));  // warm-up
  std::vector<double> times;
  while (static_cast<int>(times.size()) < launches) {
    const int count = std::min(batch(), launches - static_cast<int>(times.size()));
    MACO_TRY(run(count, true));
    std::vector<double> slowest(static_cast<size_t>(count), 0);
    MACO_TRY(read_times(count, slowest));
    times.insert(times.end(), slowest.begin(), slowest.end());
  }
  median_us = median(std::move(times));
  return {};
}

}  // namespace maco::runtime
