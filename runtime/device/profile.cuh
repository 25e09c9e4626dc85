// profile.cuh: the times at which tasks waited, worked and signalled (TaskStamps), in kernels
// compiled with MACO_PROFILE. In other kernels all of this is empty and costs no instruction.
//
// Threads note times in their Context; thread 0 of the role stores them when the task is over.

namespace maco {

template <bool on>
struct Profile {
  u64 begun = 0;
  u32 waited = 0, computed = 0, page_wait = 0, packet_wait = 0;

  static MACO_FN u32 ticks(u64 from, u64 to) {
    return to - from < 0xffffffffull ? (u32)(to - from) : 0xffffffffu;
  }
  static MACO_FN u32 sum(u32 a, u32 b) { return a + b < a ? 0xffffffffu : a + b; }

  MACO_FN void profile_begin() {
    begun = sm_clock();
    waited = computed = page_wait = packet_wait = 0;
  }
  MACO_FN void profile_waited() { waited = ticks(begun, sm_clock()); }
  MACO_FN void profile_computed() { computed = ticks(begun, sm_clock()); }
  // Called around a wait within a task.
  MACO_FN u64 profile_pause() const { return sm_clock(); }
  // For looks in a loop: `since` or, if that is 0, the time of the first look that has to be
  // repeated.
  MACO_FN u64 profile_first_pause(u64 since) const { return since != 0 ? since : sm_clock(); }
  MACO_FN void profile_page(u64 since) {
    if (warp_lane() == 0) page_wait = sum(page_wait, ticks(since, sm_clock()));
  }
  MACO_FN void profile_packet(u64 since) {
    if (warp_lane() == 0 && since != 0) packet_wait = sum(packet_wait, ticks(since, sm_clock()));
  }

  // Consumers, after the task's signals. Everything was written when everything was computed.
  MACO_FN void profile_signalled(const LaunchPlaces& launch, u32 task) const {
    profile_stored(launch, task);
    if (consumer_thread() == 0 && task < launch.stamped_tasks)
      store_relaxed(&launch.task_stamps[task].signalled, ticks(begun, sm_clock()));
  }
  // Consumers that leave the signals to the signaller. Nothing waits for what this stores: the
  // thread has no release before the next task's work.
  MACO_FN void profile_stored(const LaunchPlaces& launch, u32 task) const {
    if (consumer_thread() == 0 && task < launch.stamped_tasks) {
      char* to = (char*)(launch.task_stamps + task);
      stamp_store(to, (u32)begun, (u32)(begun >> 32), waited, computed);
      stamp_store(to + 16, computed, page_wait, packet_wait, 0);
    }
    warp_sync();  // other lanes would begin the next task's stamps
  }
  // The signaller, after the signals. `since`: what the consumers' profile_begun returned for the
  // task.
  static MACO_FN void profile_signalled_for(const LaunchPlaces& launch, u32 task, u64 since) {
    if (warp_lane() != 0 || task >= launch.stamped_tasks) return;
    store_relaxed(&launch.task_stamps[task].signalled, ticks(since, sm_clock()));
  }
  MACO_FN u64 profile_begun() const { return begun; }
  // The loader, after the task's copies.
  MACO_FN void profile_filled(const LaunchPlaces& launch, u32 task) const {
    if (loader_thread() != 0 || task >= launch.stamped_tasks) return;
    char* to = (char*)(launch.task_stamps + task) + 32;
    stamp_store(to, (u32)begun, (u32)(begun >> 32), ticks(begun, sm_clock()), page_wait);
  }
  // Consumers, before the first task and after the last.
  static MACO_FN void profile_cta(const LaunchPlaces& launch, int cta, bool begins) {
    if (consumer_thread() != 0) return;
    u64 ns, clock;
    clock_pair(ns, clock);
    char* to = (char*)(launch.cta_stamps + cta) + (begins ? 0 : 16);
    stamp_store(to, (u32)ns, (u32)(ns >> 32), (u32)clock, (u32)(clock >> 32));
  }
};

template <>
struct Profile<false> {
  MACO_FN void profile_begin() {}
  MACO_FN void profile_waited() {}
  MACO_FN void profile_computed() {}
  MACO_FN u64 profile_pause() const { return 0; }
  MACO_FN u64 profile_first_pause(u64) const { return 0; }
  MACO_FN void profile_page(u64) {}
  MACO_FN void profile_packet(u64) {}
  MACO_FN void profile_signalled(const LaunchPlaces&, u32) const {}
  MACO_FN void profile_stored(const LaunchPlaces&, u32) const {}
  static MACO_FN void profile_signalled_for(const LaunchPlaces&, u32, u64) {}
  MACO_FN u64 profile_begun() const { return 0; }
  MACO_FN void profile_filled(const LaunchPlaces&, u32) const {}
  static MACO_FN void profile_cta(const LaunchPlaces&, int, bool) {}
};

}  // namespace maco
