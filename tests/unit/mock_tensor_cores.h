// Products on tensor cores for device_mock.h, a twin of mma.cuh and wgmma.cuh. A part of
// device_mock.h, which includes it.

namespace maco {

constexpr bool kHasMma = kWarps > 1;
// What the lanes of a warp hold of 8 x 8 matrices, as PTX says of ldmatrix and mma.m16n8k16.
template <bool kTranspose>
void load_matrices(u32 (&to)[4], const void* line) {
  static const u16* lines[kConsumers];
  lines[consumer_thread()] = static_cast<const u16*>(line);
  warp_sync();
  const int lane = warp_lane(), first = consumer_thread() - lane;
  for (int m = 0; m < 4; ++m) {
    u16 pair[2];
    for (int e = 0; e < 2; ++e) {
      const int fast = lane % 4 * 2 + e, slow = lane / 4;
      pair[e] = kTranspose ? lines[first + m * 8 + fast][slow] : lines[first + m * 8 + slow][fast];
    }
    std::memcpy(&to[m], pair, 4);
  }
  warp_sync();
}
inline u32 transpose_matrix(u32 matrix) {
  static u32 rows[kConsumers];
  rows[consumer_thread()] = matrix;
  warp_sync();
  const int lane = warp_lane(), first = consumer_thread() - lane;
  u16 pair[2];
  for (int e = 0; e < 2; ++e) {
    const int row = lane % 4 * 2 + e, column = lane / 4;
    pair[e] = static_cast<u16>(rows[first + row * 4 + column / 2] >> (16 * (column % 2)));
  }
  warp_sync();
  u32 to;
  std::memcpy(&to, pair, 4);
  return to;
}
namespace mock {
// d += a b, whose words have 4 / sizeof(T) elements each.
template <class T, class Bits>
void multiply_fragments(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  constexpr int kOf = 4 / static_cast<int>(sizeof(T)), kDeep = 8 * kOf;  // of a word; K
  static u32 held[kConsumers][6];
  const int lane = warp_lane(), first = consumer_thread() - lane;
  const u32 own[6] = {a[0], a[1], a[2], a[3], b0, b1};
  std::memcpy(held[consumer_thread()], own, sizeof own);
  warp_sync();
  const auto element = [&](int thread, int word, int at) {
    return to_acc(T{static_cast<Bits>(held[first + thread][word] >> (32 / kOf * at))});
  };
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
    for (int k = 0; k < kDeep; ++k) {
      const int lower = k % (kDeep / 2), upper = k / (kDeep / 2);
      d[i] += element(row % 8 * 4 + lower / kOf, row / 8 + upper * 2, k % kOf) *
              element(col * 4 + lower / kOf, 4 + upper, k % kOf);
    }
  }
  warp_sync();
}
}  // namespace mock
template <bool kBf16>
void multiply_matrices(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  mock::multiply_fragments<std::conditional_t<kBf16, bf16, f16>, u16>(d, a, b0, b1);
}
template <bool kE4m3>
void multiply_matrices_f8(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  mock::multiply_fragments<std::conditional_t<kE4m3, f8e4m3, f8e5m2>, u8>(d, a, b0, b1);
}

namespace mock {
// Products of four warps: what each has of them, from lines of 128 bytes whose chunks change places
// by their address, as PTX says of wgmma and 128-byte swizzling. Operands count 16 bytes from a
// multiple of 2^33 on, which their three highest bits tell, and how many lines further the next 64
// rows are, across.
struct WgmmaLines {
  u64 memory;
  int next;
};
inline WgmmaLines wgmma_lines[8];
}  // namespace mock
template <int kNext = 64>
u32 wgmma_operand(const void* lines) {
  const auto at = reinterpret_cast<u64>(lines);
  u32 which = 0;
  const auto other = [&](const mock::WgmmaLines& l) {
    return l.next != 0 && (l.memory != at >> 33 || l.next != kNext);
  };
  while (which < 8 && other(mock::wgmma_lines[which])) ++which;
  if (at % 1024 != 0 || which == 8)
    throw std::logic_error("lines of a product don't lie where they could");
  mock::wgmma_lines[which] = {at >> 33, kNext};
  return static_cast<u32>(at >> 4 & 0x1fffffff) | which << 29;
}
inline void wgmma_begin() {}
inline void wgmma_end() {}
inline void wgmma_wait() {}
namespace mock {
// Elements k and k + 1 of row r.
template <bool kAcross>
u32 wgmma_pair(u32 operand, int r, int k) {
  u32 pair = 0;
  const WgmmaLines& lines = wgmma_lines[operand >> 29];
  for (int e = 0; e < 2; ++e) {
    const int line = kAcross ? r / 64 * lines.next + k + e : r, at = kAcross ? r % 64 : k + e;
    u32 unit = operand + static_cast<u32>(line * 8 + at / 8);
    unit ^= unit >> 3 & 7;
    const u64 place = lines.memory << 33 | static_cast<u64>(unit & 0x1fffffff) << 4;
    pair |= static_cast<u32>(reinterpret_cast<const u16*>(place)[at % 8]) << (16 * e);
  }
  return pair;
}
template <int kWide, bool kBf16, bool kAcross>
void wgmma_columns(float (&d)[kWide / 8][4], const u32 (&tall)[4], u32 wide) {
  const int k = warp_lane() % 4 * 2;
  for (int j = 0; j < kWide / 8; ++j) {
    const int column = j * 8 + warp_lane() / 4;
    multiply_matrices<kBf16>(d[j], tall, wgmma_pair<kAcross>(wide, column, k),
                             wgmma_pair<kAcross>(wide, column, k + 8));
  }
}
}  // namespace mock
template <int kWide, bool kBf16, int kTallAcross, int kWideAcross>
void wgmma(float (&d)[kWide / 8][4], u32 tall, u32 wide) {
  const int row = warp() % 4 * 16 + warp_lane() / 4, k = warp_lane() % 4 * 2;
  u32 own[4];
  for (int i = 0; i < 4; ++i)
    own[i] = mock::wgmma_pair<kTallAcross != 0>(tall, row + i % 2 * 8, k + i / 2 * 8);
  mock::wgmma_columns<kWide, kBf16, kWideAcross != 0>(d, own, wide);
}
// Pairs of elements of 16 bits are fours of 8 bits.
template <int kWide, bool kE4m3>
void wgmma_f8(float (&d)[kWide / 8][4], u32 tall, u32 wide, bool more_sums) {
  const int row = warp() % 4 * 16 + warp_lane() / 4, k = warp_lane() % 4 * 2;
  u32 own[4];
  for (int i = 0; i < 4; ++i)
    own[i] = mock::wgmma_pair<false>(tall, row + i % 2 * 8, k + i / 2 * 8);
  for (int j = 0; j < kWide / 8; ++j) {
    if (!more_sums)
      for (float& x : d[j]) x = 0;
    const int column = j * 8 + warp_lane() / 4;
    multiply_matrices_f8<kE4m3>(d[j], own, mock::wgmma_pair<false>(wide, column, k),
                                mock::wgmma_pair<false>(wide, column, k + 8));
  }
}
template <int kWide, bool kBf16>
void wgmma_new(float (&d)[kWide / 8][4], u32 tall, u32 wide) {
  for (auto& column : d)
    for (float& x : column) x = 0;
  wgmma<kWide, kBf16, 0, 0>(d, tall, wide);
}
template <int kWide, bool kBf16>
void wgmma_rows(float (&d)[kWide / 8][4], const u32 (&tall)[4], u32 wide) {
  mock::wgmma_columns<kWide, kBf16, true>(d, tall, wide);
}

}  // namespace maco
