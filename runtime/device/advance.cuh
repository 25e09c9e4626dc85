// advance.cuh: what comes before a launch that has the same arguments each time: it gives the
// launch its number, and its values, which follow from dims and scalars.
//
// Of `Kernel`, beside what worker.cuh names:
//   static constexpr int kVariables, kValues;  // dims and scalars; Launch::values
//   static void each_variable(f);  // f(i, lo, hi): what dim or scalar i may be
//   static void each_value(v, rank, f);  // f(i, value, lo, hi), of these dims and scalars

namespace maco {

// One thread on each rank. All ranks find the same dims and scalars, so that none goes on alone.
// Kernels with more than there is room for are never launched so.
template <class Kernel>
MACO_FN void advance(const Launch& launch, const Variables& variables) {
  static_assert(Kernel::kValues <= kMaxValues, "the values have room");
  if constexpr (Kernel::kVariables <= kMaxVariables) {
    // The kernel behind this waits for this alone, and so for the kernel in front, which this waits
    // for: nothing that leads may end before it has followed.
    lead_launch();
    follow_launch();
    // All loads come first: each takes a while.
    LaunchState& state = *launch.state;
    const u32 refused = state.refused, left = state.left, epoch = state.epoch + 1;
    i64 all[Kernel::kVariables + 1];  // there may be none
    Kernel::each_variable([&](int i, i64, i64) {
      const auto& given = variables.list[i];
      all[i] = given.at ? *given.at : given.value;
    });
    const char* own = launch.symmetric[launch.rank];
    const u32 abort = load_acquire_sys(&((const Control*)(own + kControlAt<Kernel>))->abort);

    if (refused != 0) return;
    bool fits = true;
    const auto refuse = [&](ReportKind kind, int which, i64 is) {
      if (!fits) return;
      fits = false;
      state.refused = 1;
      Report* r = launch.reports;
      r->kind = kind;
      r->epoch = epoch;
      r->event = (u32)which;
      r->index = is;
      store_release_sys(&r->state, 2);
    };
    // After a launch that stopped nothing runs until the host has reset what it left behind.
    if (abort != 0) {
      state.refused = 1;
      return;
    }
    if (left == 0) return refuse(kSpent, 0, 0);
    Kernel::each_variable([&](int i, i64 lo, i64 hi) {
      if (all[i] < lo || all[i] > hi) refuse(kBadVariable, i, all[i]);
    });
    if (!fits) return;
    Kernel::each_value(all, launch.rank, [&](int i, i64 value, i64 lo, i64 hi) {
      if (value < lo || value > hi) refuse(kBadValue, i, value);
      state.values[i] = (i32)value;
    });
    if (!fits) return;
    state.epoch = epoch;
    state.left = left - 1;
  }
}

}  // namespace maco
