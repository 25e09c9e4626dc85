// The device intrinsics for unit tests (mock_intrinsics.h, mock_tensor_cores.h), and what stands in
// for waits and pages: MOCK_CONSUMERS threads in warps of MOCK_WARP_LANES, each a fibre, so that
// barriers and shuffles mean what they mean on a GPU. Included inside a namespace of the test's
// own, once for each number of threads; the includes and the fibres are in device_fibres.h. Pages
// come from a queue that the loader fills before the consumers start.
//
// No include guard: see above.

#include "tests/unit/mock_intrinsics.h"

#include "runtime/device/abi.cuh"

namespace maco {
struct Cta {
  static constexpr int kHeadBytes = 65536, kScratchBytes = 49152, kPages = 1, kPageBytes = 16384;
  static constexpr int kPrepared = 0, kSignallers = 0, kWorld = 64;
  static constexpr bool kScouts = false;
};
// The page size of the call that runs.
inline i64 mock_page_bytes = 0;
}  // namespace maco

#include "runtime/device/numbers.cuh"

#include "runtime/device/profile.cuh"

#include "runtime/device/context.cuh"

namespace maco {

enum Patience : int { kPatienceLocal };
struct WatchState {
  explicit WatchState(int) {}
};
struct Watch {
  const void* word = nullptr;
  Watch(Context&, WatchState&, const void*, Patience, u32, u32, int) {}
  bool again() { throw std::logic_error("a packet that nobody sends"); }
  void give_up(u32, u32) {}
};
}  // namespace maco

#include "runtime/device/packets.cuh"

namespace maco {

// A fresh page holds bytes of NaNs: what was not copied shows up in results.
template <class T>
void page_copy(char* to, const T* from, i64 count) {
  const char* page = device_fibres::pages().back();
  if (to < page || to + static_cast<size_t>(count) * sizeof(T) > page + mock_page_bytes)
    throw std::logic_error("copy beyond the page");
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
}
struct PageFiller {
  Context& ctx;
  explicit PageFiller(Context& c) : ctx(c) {}
  char* acquire() { return device_fibres::pages().push(static_cast<size_t>(mock_page_bytes)); }
  void publish() {}
  u32 index = 0, slot = 0, round = 0;
  char* acquire_boxes(u32) { return acquire(); }
  template <int>
  bool await_free() {
    return true;
  }
  void expect_boxes(u32) {}
  void copy_box(char*, const TensorMap*, i64, i64, i64 = 0) {}
  void copy_run_box(char*, const TensorMap*, i64, i64, i64) {}
  void copy_rows(char*, const TensorMap*, i64, i64) {}
  void publish_boxes() {}
  char* page() const { return device_fibres::pages().back(); }
  void copy_line(char* to, const char* from, u32 bytes) { page_copy(to, from, bytes); }
  bool align_boxes(u32) { return true; }
  void skip(int) {}
  void finish(int = 0) {}
};
template <u32>
struct BoxFiller {
  PageFiller& filler;
  explicit BoxFiller(PageFiller& f) : filler(f) {}
  bool acquire(u32) { return filler.acquire() != nullptr; }
  void publish() {}
};
inline bool await_passed(Context&) { return true; }
constexpr u32 kRingPages = 3 << 18;
inline const char* page_wait(Context& ctx) {
  cta_sync();
  return device_fibres::pages().at(ctx.page_index++);
}
inline void page_release(Context&) { cta_sync(); }
struct PageUse {
  u32 slot, round;
  void next() { ++slot; }
  PageUse behind(u32 count) const { return {slot + count, 0}; }
};
struct PageTaker {
  Context& ctx;
  const char* const pages = device_fibres::pages().first();
  u32 index;
  explicit PageTaker(Context& c) : ctx(c), index(c.page_index) {}
  bool landed(int) const { return true; }
  void align(u32) {}
  void await(int) {}
  void await_some(int) {}
  PageUse next_page() const { return {index, 0}; }
  PageUse take_landed() { return {index++, 0}; }
  const char* take() { return device_fibres::pages().at(index++); }
  const char* take_awaited() { return take(); }
  const char* page(PageUse use) const { return device_fibres::pages().at(use.slot); }
  void release_together(int) {}
  void release() {}
  void release_page(PageUse) {}
  void finish() { ctx.page_index = index; }
};

// Runs one tile: loader(ctx), then consumer(ctx) on all threads, with operands and launch values.
template <class Loader, class Consumer>
void run_tile(const std::vector<void*>& operands, const std::vector<i64>& values, int page_bytes,
              Loader loader, Consumer consumer) {
  std::vector<i32> all(values.begin(), values.end());
  all.resize(kMaxValues);
  device_fibres::reset(sizeof(CtaMemory));
  Context first(1, 0, 0);
  CtaLaunch& told = first.launch();
  told = {};
  told.all_values = all.data();
  std::copy_n(all.begin(), kStagedValues, told.values);
  first.memory()->stop = 0;
  mock_page_bytes = page_bytes;
  for (size_t i = 0; i < operands.size(); ++i)
    first.memory()->found[0].operands[i] = static_cast<char*>(operands[i]);
  loader(first);
  const u32 filled = static_cast<u32>(device_fibres::pages().size());
  u32 used = 0;
  device_fibres::run(kConsumers, [&] {
    Context ctx = first;
    ctx.page_index = 0;
    consumer(ctx);
    used = ctx.page_index;
  });
  if (filled != used)
    throw std::logic_error("loader and consumers disagree about the number of pages");
}

}  // namespace maco

#include "tests/unit/mock_tensor_cores.h"

#undef MACO_FN
#undef MACO_OP
#undef MACO_UNROLL
#undef MACO_ROLLED
