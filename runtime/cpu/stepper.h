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

/// A task by its place in the stream of a CTA; `launch` counts from 0.
struct TaskPlace {
  int rank = 0, launch = 0, cta = 0, place = 0;
  friend auto operator<=>(const TaskPlace&, const TaskPlace&) = default;
};

/// All ranks on one thread, each at its own launch: a rank begins one when its last has ended.
/// Every CTA stops before the waits of its next task until it is told to run it; loaders, and tasks
/// that a rank skips, run by themselves.
class Stepper {
 public:
  /// Appends the contexts of a rank's launch.
  using Open = std::function<void(int rank, int launch, std::vector<CpuContext*>& contexts)>;
  Stepper(int world, int launches, ContextCode code, Open open);
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  enum class Went : uint8_t {
    Ended,      // it ran to its end, with its signals
    Waits,      // one of its waits isn't satisfied; it goes on by itself once it is
    Elsewhere,  // its CTA is at another task
    Stopped,    // it gave up: an index that the data gave was out of range
  };
  Went step(const TaskPlace& task);
  /// Holds nothing back any more: runs until nothing can go on. True if all launches have ended.
  bool finish();

  /// In the order in which they ended.
  const std::vector<TaskPlace>& ended() const { return ended_; }
  /// The tasks at which CTAs stop or wait that haven't come to the end of their stream.
  std::vector<TaskPlace> standing() const;

 private:
  struct Worker {
    Stepper* owner = nullptr;
    Fibre* fibre = nullptr;
    int launch = 0;
    int place = -1;
    int ended = -1;  // the last place that did
    bool held = false;
    const void* word = nullptr;  // that it polled in vain
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
  std::vector<int> launch_;     // of each rank; launches_ when it is through
  std::deque<Worker> workers_;  // of all launches
  std::vector<TaskPlace> ended_;
};

/// What a Stepper can be made of.
class Steppable {
 public:
  virtual ~Steppable() = default;
  /// Begins anew, with empty temporaries, slots and events, and lets `drive` run tasks of
  /// `launches` launches with these values. `before` is called before a rank begins a launch, and
  /// may write its tensors.
  virtual Status step(int launches, const LaunchValues& values,
                      const std::function<void(int rank, int launch)>& before,
                      const std::function<void(Stepper&)>& drive) = 0;
  /// Where the buffers of `program`, from which this was made, lie on each rank.
  virtual std::vector<RankAddresses> addresses(const ir::Program& program) = 0;
  /// Of launch 0 of `step`.
  virtual uint32_t first_epoch() const = 0;
};

}  // namespace maco::runtime
