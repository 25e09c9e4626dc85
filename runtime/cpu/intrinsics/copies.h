// The loader's copies into pages, and the barriers that say that pages are full or empty.

namespace maco {

MACO_FN void copy16(void* to, const void* from) {
  host::touch_at_once(from, 16, false);
  std::memcpy(to, from, 16);
}
MACO_FN void copy16_or_zero(void* to, const void* from, bool there) {
  if (there)
    copy16(to, from);
  else
    std::memset(to, 0, 16);
}
MACO_FN bool elected(int& lane) {
  lane = 0;
  return true;
}
MACO_FN void map_begin(const TensorMap*) {}
MACO_FN void boxes_begin() {}
MACO_FN void operands_begin() {}
// `map`: the words of TensorMap.
MACO_FN void copy_box(char* to, const TensorMap* map, i32 row, i32 col, u64*,
                      i32 end = 0x7fffffff) {
  const u64* words = (const u64*)map;
  const i64 rows = (i64)words[1], pitch = (i64)words[2], bytes = (i64)words[3], run = (i64)words[6],
            cols = run > 0 ? col / run * run + run : pitch;
  constexpr i64 line = 128;
  constexpr int kAnything = 0xff;  // mostly NaN
  for (i64 r = 0; r < (i64)words[4]; ++r)
    for (i64 at = 0; at < line; at += 16) {
      char* chunk = to + r * line + (at ^ ((r & 7) << 4));
      const i64 c = col + at / bytes;
      std::memset(chunk, row + r < end ? 0 : kAnything, 16);
      if (row + r >= rows || c >= cols || row + r >= end) continue;
      const i64 there = (cols - c) * bytes < 16 ? (cols - c) * bytes : 16;
      const char* from = (const char*)words[0] + ((row + r) * pitch + c) * bytes;
      host::touch(from, (u64)there, false);
      std::memcpy(chunk, from, (size_t)there);
    }
}
MACO_FN void copy_run_box(char* to, const TensorMap* map, i32 row, i32 run, i32 col, u64* barrier) {
  copy_box(to, map, row, run * (i32)((const u64*)map)[6] + col, barrier);
}
MACO_FN void copy_rows(char* to, const TensorMap* map, i32 row, i32 byte, u64*) {
  const u64* words = (const u64*)map;
  const i64 rows = (i64)words[1], pitch = (i64)words[2] * (i64)words[3],
            width = (i64)words[5] * (i64)words[3];
  for (i64 r = 0; r < (i64)words[4]; ++r) {
    std::memset(to + r * width, 0, (size_t)width);
    if (row + r >= rows || byte >= pitch) continue;
    const i64 there = pitch - byte < width ? pitch - byte : width;
    const char* from = (const char*)words[0] + (row + r) * pitch + byte;
    host::touch(from, (u64)there, false);
    std::memcpy(to + r * width, from, (size_t)there);
  }
}
MACO_FN void copy_line(char* to, const char* from, u32 bytes, u64*) {
  host::touch(from, bytes, false);
  std::memcpy(to, from, bytes);
}
MACO_FN void full_barrier_init(u64*) {}
MACO_FN void full_barrier_arrive(u64* full_barrier, u32 round) {
  store_release_cta((u32*)full_barrier, round + 1);
}
MACO_FN void full_barrier_expect(u64*, u32, u32) {}
MACO_FN void boxes_copied(u64* full_barrier, u32 round) {
  full_barrier_arrive(full_barrier, round);
}
MACO_FN bool is_full(const u64* full_barrier, u32 round) {
  return (i32)(load_acquire_cta((const u32*)full_barrier) - (round + 1)) >= 0;
}
MACO_FN void empty_barrier_init(u64*) {}
MACO_FN void empty_barrier_arrive(u64* empty_barrier, u32 round) {
  store_release_cta((u32*)empty_barrier, round + 1);
}
MACO_FN bool is_empty(const u64* empty_barrier, u32 round) {
  return (i32)(load_acquire_cta((const u32*)empty_barrier) - (round + 1)) >= 0;
}
MACO_FN bool is_empty_soon(const u64* empty_barrier, u32 round) {
  return is_empty(empty_barrier, round);
}
MACO_FN void copies_drain() {}

}  // namespace maco
