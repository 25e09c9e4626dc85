// Products of four warps on tensor cores, only declared likewise.

namespace maco {

template <int kWide, bool kBf16, int kTallAcross, int kWideAcross>
void wgmma(float (&d)[kWide / 8][4], u32 tall, u32 wide);
template <int kWide, bool kE4m3>
void wgmma_f8(float (&d)[kWide / 8][4], u32 tall, u32 wide, bool more_sums);
template <int kWide, bool kBf16>
void wgmma_new(float (&d)[kWide / 8][4], u32 tall, u32 wide);
template <int kWide, bool kBf16>
void wgmma_rows(float (&d)[kWide / 8][4], const u32 (&tall)[4], u32 wide);
void wgmma_begin();
void wgmma_end();
void wgmma_wait();
template <int kNext = 64>
MACO_FN u32 wgmma_operand(const void*) {
  return 0;
}

}  // namespace maco
