// advance.cuh: what a launch is told. A launch with the same arguments each time finds its number
// and its values itself; the values follow from dims and scalars.
//
// Members of `Kernel`, besides those that worker.cuh names:
//   static constexpr int kVariables, kValues;  // dims and scalars; launch values
//   static void each_variable(f);  // f(i, lo, hi): the range of dim or scalar i
//   static void each_value(v, rank, f);  // f(i, value, lo, hi), from these dims and scalars

namespace maco {

// Threads issue all loads from far memory before they use any of the results: each trip takes a
// while.

// What a launch is told; each thread holds a part of it. It has the first values, unless the launch
// computes them, and the places of the ranks' memory. On the CPU target each role has a copy of the
// values, and only consumers have the places.
template <class Kernel>
struct Told {
  static constexpr int kStep = kLaunchCopies > 1 ? 1 : kConsumers;
  static constexpr int kMany = (kStagedValues + kStep - 1) / kStep;
  static constexpr int kPlaces = (Kernel::kWorld + kConsumers - 1) / kConsumers;
  const bool has_values;
  i32 values[kMany];
  char* symmetric[kPlaces];

  MACO_FN explicit Told(const Launch& launch) : has_values(launch.state == nullptr) {
    if (has_values) each_value([&](int k, int i) { values[k] = launch.values[i]; });
    each_place([&](int k, int r) { symmetric[k] = launch.symmetric[r]; });
  }
  MACO_FN void keep(CtaLaunch& to, char** places) const {
    if (has_values) each_value([&](int k, int i) { to.values[i] = values[k]; });
    each_place([&](int k, int r) { places[r] = symmetric[k]; });
  }
  // f(number in this thread, number)
  template <class F>
  static MACO_FN void each_value(F f) {
    if (kLaunchCopies == 1 && is_loader()) return;
    const int first = kLaunchCopies > 1 ? 0 : consumer_thread();
    MACO_UNROLL
    for (int k = 0; k < kMany; ++k)
      if (const int i = first + k * kStep; i < kStagedValues) f(k, i);
  }
  template <class F>
  static MACO_FN void each_place(F f) {
    if (is_loader()) return;
    MACO_UNROLL
    for (int k = 0; k < kPlaces; ++k)
      if (const int r = consumer_thread() + k * kConsumers; r < Kernel::kWorld) f(k, r);
  }
};

// The state of this CTA's launches, or null.
MACO_FN LaunchState* own_state(const Launch& launch) {
  return launch.state ? launch.state + cta_id() * kLaunchCopies + launch_copy() : nullptr;
}

// How a launch numbers itself. One thread of each CTA does this; on the CPU target one of each
// role. All ranks find the same dims and scalars, so that none continues alone. Kernels with more
// variables than there is room for are never launched in this way.
template <class Kernel>
class Advance {
  static_assert(Kernel::kValues <= kMaxValues, "the values have room");
  static constexpr int kVariables = Kernel::kVariables <= kMaxVariables ? Kernel::kVariables : 0;

 public:
  MACO_FN void ask(const Launch& launch, const LaunchState& state) {
    before_ = state.epoch;
    refused_ = state.refused;
    left_ = state.left;
    const Variables& from = launch.variables;
    MACO_UNROLL
    for (int i = 0; i < kVariables; ++i) {
      const bool placed = bit(from.placed, i), wide = bit(from.wide, i);
      variables_[i] = !placed ? (i64)from.given[i]
                      : wide  ? *(const i64*)from.given[i]
                              : (i64) * (const i32*)from.given[i];
      from_end_[i] = placed && bit(from.from_end, i);
    }
    abort_ = load_relaxed(&launch.control->abort);
  }

  // Stores the values in `to`, and those for which it has no room in the state. Returns false if
  // the launch does nothing; if `reports`, also says why.
  MACO_FN bool values(const Launch& launch, LaunchState& state, CtaLaunch& to, bool reports) {
    // After a launch that stopped nothing runs until the host has reset what it left behind.
    if (abort_ != 0) refused_ = 1;
    if (refused_ != 0) return false;
    if (left_ == 0) refuse(kSpent, 0, 0);
    if constexpr (Kernel::kVariables <= kMaxVariables) {
      Kernel::each_variable(Variable{*this});
      if (refused_ == 0)
        Kernel::each_value(variables_, launch.rank, Taken{*this, to.values, state.values});
    }
    if (refused_ != 0 && reports) {
      Report* r = launch.reports;
      r->kind = why_;
      r->epoch = before_ + 1;
      r->event = (u32)which_;
      r->index = is_;
      store_release_sys(&r->state, 2);
    }
    return refused_ == 0;
  }

  // Updates the state for the next launch. Called behind a barrier: before it others read the
  // state.
  MACO_FN void keep(LaunchState& state) const {
    state.refused = refused_;
    if (refused_ != 0) return;
    state.epoch = before_ + 1;
    state.left = left_ - 1;
  }

 private:
  // No lambdas: a compiler might not inline those that are called for hundreds of values.
  struct Variable {
    Advance& launch;
    MACO_FN void operator()(int i, i64 lo, i64 hi) const {
      if (launch.from_end_[i] && launch.variables_[i] < 0) launch.variables_[i] += hi + 1;
      launch.check(kBadVariable, i, launch.variables_[i], lo, hi);
    }
  };
  struct Taken {
    Advance& launch;
    i32 *staged, *others;
    MACO_FN void operator()(int i, i64 value, i64 lo, i64 hi) const {
      launch.check(kBadValue, i, value, lo, hi);
      (i < kStagedValues ? staged : others)[i] = (i32)value;
    }
  };
  static MACO_FN bool bit(const u64 (&words)[kMaxVariables / 64], int i) {
    return (words[i / 64] >> i % 64 & 1) != 0;
  }
  MACO_FN void check(ReportKind kind, int which, i64 is, i64 lo, i64 hi) {
    if (is < lo || is > hi) refuse(kind, which, is);
  }
  MACO_FN void refuse(ReportKind kind, int which, i64 is) {
    if (refused_ != 0) return;
    refused_ = 1;
    why_ = kind;
    which_ = which;
    is_ = is;
  }
  u32 before_ = 0, refused_ = 0, left_ = 0, abort_ = 0;
  u32 why_ = 0;
  int which_ = 0;
  i64 is_ = 0;
  i64 variables_[kVariables + 1] = {};  // there may be none
  bool from_end_[kVariables + 1] = {};
};

}  // namespace maco
