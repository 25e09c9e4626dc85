// Runs a kernel one task at a time, in an order that the caller gives.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "runtime/cpu/access.h"
#include "runtime/cpu/fibres.h"
#include "runtime/host/session.h"

namespace maco::runtime {

/// A task, by its place in a CTA's stream; `launch` counts from 0.
struct TaskPlace {
  int rank = 0, launch = 0, cta = 0, place = 0;
  friend auto operator<=>(const TaskPlace&, const TaskPlace&) = default;
};

/// Runs all ranks on one thread, each at its own launch: a rank begins a launch when its previous
/// one has ended. Every CTA stops before the waits of its next task until it is told to run the
/// task. Loaders, and tasks that a rank skips, run by themselves.
class Stepper {
 public:
  /// Appends the contexts of a rank's launch.
  using Open = std::function<void(int rank, int launch, std::vector<CpuContext*>& contexts)>;
  Stepper(int world, int launches, ContextCode code, Open open);
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  enum class Went : uint8_t {
    Ended,      // the task ran to its end, with its signals
    Waits,      // one of its waits isn't satisfied; it goes on once it is
    Elsewhere,  // its CTA is at another task
    Stopped,    // it gave up: an index from data was out of range
  };
  Went step(const TaskPlace& task);
  /// Holds nothing back any more: runs until nothing can go on. Returns whether all launches have
  /// ended.
  bool finish();

  /// The tasks that have ended, in order.
  const std::vector<TaskPlace>& ended() const { return ended_; }
  /// The tasks at which CTAs stop or wait, for CTAs that haven't reached the end of their stream.
  std::vector<TaskPlace> standing() const;

 private:
  struct Worker {
    Stepper* owner = nullptr;
    Fibre* fibre = nullptr;
    int launch = 0;
    int place = -1;
    int ended = -1;  // the last place that has ended
    bool held = false;
    const void* word = nullptr;  // the word that it polled last, in vain
  };
  static Worker& worker_of(maco_cpu::RoleContext* c) {
    return *static_cast<Worker*>(
        static_cast<Fibre*>(static_cast<CpuContext*>(c)->executor)->executor);
  }
  static void pause(maco_cpu::RoleContext* c, const void* word, unsigned spins);
  static void changed(maco_cpu::RoleContext* c, const void* word);
  static void task(maco_cpu::RoleContext* c, int place, bool begins);
  static TaskPlace place_of(const Worker& worker) {
    const CpuContext& c = *worker.fibre->context;
    return {c.rank, worker.launch, c.cta, worker.place};
  }
  void begin(int rank);
  void settle();

  FibreThread thread_;
  const Open open_;
  const int launches_;
  bool free_ = false;
  std::vector<int> launch_;     // by rank; launches_ when it has finished
  std::deque<Worker> workers_;  // of all launches
  std::vector<TaskPlace> ended_;
};

/// What a Stepper can run.
class Steppable {
 public:
  virtual ~Steppable() = default;
  /// Begins anew, with empty temporaries, slots and events, and lets `drive` run tasks of
  /// `launches` launches with these values. Calls `before` before a rank begins a launch; it may
  /// write the rank's tensors.
  virtual Status step(int launches, const LaunchValues& values,
                      const std::function<void(int rank, int launch)>& before,
                      const std::function<void(Stepper&)>& drive) = 0;
  /// The addresses of the buffers of `program`, from which this was made, on each rank.
  virtual std::vector<RankAddresses> addresses(const ir::Program& program) = 0;
  /// The epoch of launch 0 of `step`.
  virtual uint32_t first_epoch() const = 0;
};

}  // namespace maco::runtime
