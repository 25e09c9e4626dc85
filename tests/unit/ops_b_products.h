// Checks of matmul on the simulated threads of device_mock.h, against sums in double. A part of
// ops_b_device.h, which includes it: what it needs comes before.

// ---- matmul -----------------------------------------------------------------

enum class Rows { Fixed, Dims, Tensor, DimsTensor };

template <class X_, class W_, class Y_, i64 N_, i64 K_, i64 BM_, i64 BN_, bool kTransposed,
          bool kFewRows, Rows kRows = Rows::Fixed, int kPage = 4096>
struct Product {
  using X = X_;
  using W = W_;
  using Y = Y_;
  using rows = Value<0>;
  static constexpr bool kDims = kRows == Rows::Dims || kRows == Rows::DimsTensor;
  using plan_rows = std::conditional_t<kDims, Value<0>, Const<kFewRows ? 8 : 9>>;
  static constexpr bool transpose_b = kTransposed, boxes = false, in_line = false, blocks = false,
                        a_packets = false, y_packets = false;
  using method = std::conditional_t<
      kFewRows, ops::ByDot,
      std::conditional_t<kRows == Rows::Dims, ops::ByRows,
                         std::conditional_t<kRows == Rows::Tensor, ops::ByMma,
                                            std::conditional_t<kRows == Rows::DimsTensor,
                                                               ops::ByRowsMma, ops::ByBlock>>>>;
  static constexpr i64 few_rows =
      kTransposed && K_ % 8 == 0 && is_same<X, W> && sizeof(X) == 2 ? 32 : 8;
  static constexpr i64 slice = N_ >= 4096 ? 64 : N_ >= 1024 ? 32 : 16;
  static constexpr double scale = 1;  // of elements
  static constexpr i64 N = N_, K = K_, BK = K_, BM = BM_, BN = BN_, b_page_bytes = kPage;
  struct More {
    AccOf<X> bias;
  };
  struct Asks {
    Asked<1, const AccOf<X>*> bias;
    void ask(const Args& args, i64, i64 col) { bias.ask(args.ptr<const AccOf<X>>(3) + col); }
    More more(const Args& args) { return {bias.take(args.ctx, 3).v[0]}; }
  };
  static More fetch(const Args& args, i64 row, i64 col) {
    Asks asks;
    asks.ask(args, row, col);
    return asks.more(args);
  }
  template <int V>
  struct MoreRun {
    Elements<AccOf<X>, V> bias;
    void load(const Args& args, i64, i64 col) { bias.load(args.ptr<const AccOf<X>>(3) + col); }
    More at(int i) const { return {bias.get(i)}; }
  };
  static auto finish(const More& more, AccOf<X> sum) { return fn::relu(fn::add(sum, more.bias)); }
  static auto finish(const Args& args, i64 row, i64 col, AccOf<X> sum) {
    return finish(fetch(args, row, col), sum);
  }
};

// A lone row, whose weights come as they lie in memory.
template <class T, class Y, i64 N, i64 K, i64 BN, int kPage = 16384>
struct Line : Product<T, T, Y, N, K, 1, BN, true, true, Rows::Fixed, kPage> {
  using rows = Const<1>;
  using plan_rows = Const<1>;
  static constexpr bool in_line = true, b_ahead = true;
};

// A lone row, whose weights come in chunks, or in boxes of kRows columns of b by kDepth of K.
template <class T, class Y, i64 N, i64 K, i64 BN>
struct Lone : Product<T, T, Y, N, K, 1, BN, true, true, Rows::Fixed, 16384> {
  using rows = Const<1>;
  using plan_rows = Const<1>;
};
template <class C, i64 kRows, i64 kDepth>
struct Boxed : C {
  static constexpr bool boxes = true;
  static constexpr i64 b_box_rows = kRows, b_box_cols = kDepth;
};

// Its rows and results are packets.
template <class C>
struct InPackets : C {
  static constexpr bool a_packets = true, y_packets = true;
};

// Both operands of many rows come in blocks, without tensor cores.
template <class C>
struct InBlocks : C {
  static constexpr bool blocks = true;
};
// A config as kernels have it for calls with these stages.
template <class Config, bool kPair = false, bool kNorm = false, bool kTurn = false,
          bool kAppend = false>
struct Staged : Config {
  static constexpr bool has_pair = kPair, has_halve = false;
  static constexpr int other_at = 2, norm_at = kPair ? 3 : 2, sines_at = 2;
  static constexpr int y_at = 2 + kPair + kNorm + kTurn, cache_at = y_at + 1,
                       next_cache_at = y_at + 2;
  template <bool kHas, template <class> class Has, template <class> class Without>
  using Slot = typename Either<kHas, Has<Staged>, Without<Staged>>::type;
  using Rows = Slot<kNorm, ops::NormRows, ops::PlainRows>;
  using Turn = Slot<kTurn, ops::TurnHeads, ops::NoTurn>;
  using Target = Slot<kAppend, ops::ToCaches, ops::ToResult>;
  using Add = ops::NoAddition<Staged>;
  using Send = ops::NoSend<Staged>;
  using Order = ops::TilesInOrder<Staged>;
};
template <class Config>
using Alone = Staged<Config>;
// Sums that are nothing but rounded products: of -0 or 0.
template <class C>
struct Tiny : C {
  static constexpr double scale = 1e-30;
  static auto finish(const typename C::More&, AccOf<typename C::X> sum) { return sum; }
  static auto finish(const Args&, i64, i64, AccOf<typename C::X> sum) { return sum; }
};
// As boxes do: what lies beyond b is zeros.
template <class C>
void load_boxes(Context& ctx, const Args& args, u32 tile) {
  using One = Alone<C>;
  using P = ops::MatmulPages<One, 1>;
  using W = typename C::W;
  const ops::MatmulTile<One> t(ctx, tile);
  const W* const b = args.ptr<const W>(1);
  PageFiller pages(ctx);
  ops::matmul_slices<i64>(
      t.col, t.end, ops::kMatmulPass<P>, P::kCols, P::kDepth, C::K, [&](i64 n, i64 k) {
        W* const page = (W*)pages.acquire();
        if (!page) return false;
        for (i64 i = loader_thread(); i < P::kCols * P::kDepth; i += kLoaders) {
          const i64 col = n + i / P::kDepth, at = k + i % P::kDepth;
          page[i] = col < C::N && at < C::K ? b[col * C::K + at] : from_acc<W>(0.0f);
        }
        pages.publish();
        return true;
      });
  pages.finish();
}
// What boxes do, copies of chunks do here.
template <class C>
void load_product(Context& ctx, u32 tile) {
  const Args args{ctx, nullptr};
  if constexpr (C::boxes)
    load_boxes<C>(ctx, args, tile);
  else if constexpr (C::blocks)
    ops::matmul_tensor_load<Alone<C>>(ctx, args, tile);
  else
    ops::matmul_load<Alone<C>>(ctx, args, tile);
}

template <class C>
std::vector<typename C::Y> multiply(i64 rows, double* error, bool stopped = false) {
  using X = typename C::X;
  using W = typename C::W;
  using Y = typename C::Y;
  Tensor<X> a(rows * C::K, 1, C::scale);
  Tensor<W> b(C::N * C::K, 2, C::scale);
  Tensor<AccOf<X>> bias(C::N, 3);
  Tensor<Y> y(rows * C::N);
  std::vector<void*> operands = {a.data(), b.data(), y.data(), bias.data()};
  [[maybe_unused]] auto packets = [&] {
    if constexpr (C::a_packets)
      return std::pair(in_packets(a), in_packets(y));
    else
      return 0;
  }();
  if constexpr (C::a_packets) {
    for (auto& word : packets.second) word = ~word;  // of another launch
    operands[0] = packets.first.data();
    operands[2] = packets.second.data();
  }
  // one block has no rows
  const i64 tiles =
      (std::max<i64>(rows, C::BM + 1) + C::BM - 1) / C::BM * ((C::N + C::BN - 1) / C::BN);
  for (i64 t = 0; t < tiles; ++t)
    run_tile(
        operands, {rows}, static_cast<int>(C::b_page_bytes),
        [&](Context& ctx) { load_product<C>(ctx, static_cast<u32>(t)); },
        [&](Context& ctx) {
          if (stopped) store_relaxed(&ctx.memory()->stop, 1);
          ops::matmul<Alone<C>>(ctx, Args{ctx, nullptr}, static_cast<u32>(t));
        });
  if constexpr (C::a_packets) out_of_packets(packets.second, y);
  if (error) {
    std::vector<double> expected;
    bool equal = true;
    for (i64 m = 0; m < rows; ++m)
      for (i64 n = 0; n < C::N; ++n) {
        if constexpr (is_same<AccOf<X>, i32>) {
          u32 sum = static_cast<u32>(bias.v[static_cast<size_t>(n)]);
          for (i64 k = 0; k < C::K; ++k)
            sum += static_cast<u32>(a.v[static_cast<size_t>(m * C::K + k)]) *
                   static_cast<u32>(
                       b.v[static_cast<size_t>(C::transpose_b ? n * C::K + k : k * C::N + n)]);
          equal = equal && y.v[static_cast<size_t>(m * C::N + n)] ==
                               from_acc<Y>(std::max(static_cast<i32>(sum), 0));
        } else {
          double sum = bias[n];
          for (i64 k = 0; k < C::K; ++k)
            sum += a[m * C::K + k] * b[C::transpose_b ? n * C::K + k : k * C::N + n];
          expected.push_back(std::max(sum, 0.0));
        }
      }
    *error = is_same<AccOf<X>, i32> ? (equal ? 0 : HUGE_VAL) : error_of(y, expected);
  }
  return y.v;
}
template <class C>
void check_product(i64 rows) {
  double error = HUGE_VAL;
  multiply<C>(rows, &error);
  INFO("rows " << rows << " N " << C::N << " K " << C::K << " BM " << C::BM << " BN " << C::BN
               << " transposed " << C::transpose_b);
  CHECK(error < bound_of<typename C::Y>());
}
template <class C>
bool same_bits(const std::vector<typename C::Y>& a, const std::vector<typename C::Y>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(typename C::Y)) == 0;
}

template <class C>
void check_packets(i64 rows) {
  check_product<InPackets<C>>(rows);
  CHECK(same_bits<C>(multiply<InPackets<C>>(rows, nullptr), multiply<C>(rows, nullptr)));
  // When a run stops, nobody takes what a task may have computed from too little.
  const auto left = multiply<InPackets<C>>(rows, nullptr, true);
  CHECK(std::all_of(left.begin(), left.end(),
                    [](auto y) { return std::isinf(static_cast<double>(to_acc(y))); }));
}

// In boxes and not: the same bits.
template <class T, class Y, i64 N, i64 K, i64 BN, i64 kRows, i64 kDepth>
void check_boxes() {
  using Not = Lone<T, Y, N, K, BN>;
  using In = Boxed<Not, kRows, kDepth>;
  check_product<In>(1);
  INFO("N " << N << " K " << K << " boxes " << kRows << " x " << kDepth);
  CHECK(same_bits<In>(multiply<In>(1, nullptr), multiply<Not>(1, nullptr)));
  check_packets<In>(1);
}

// In blocks and not: the same bits.
template <class X, class Y, i64 N, i64 K, i64 BM, i64 BN, bool kTransposed>
void check_blocks(i64 rows) {
  using C = Product<X, X, Y, N, K, BM, BN, kTransposed, false, Rows::Fixed, 16384>;
  check_product<InBlocks<C>>(rows);
  CHECK(same_bits<C>(multiply<InBlocks<C>>(rows, nullptr), multiply<C>(rows, nullptr)));
}
template <bool kTransposed>
void check_block_tiles() {
  check_blocks<float, float, 300, 200, 128, 128, kTransposed>(131);
  check_blocks<float, f16, 72, 77, 16, 32, kTransposed>(19);
  check_blocks<float, bf16, 132, 36, 32, 128, kTransposed>(40);
  check_blocks<float, f8e4m3, 100, 33, 64, 64, kTransposed>(65);
  check_blocks<float, float, 64, 4, 128, 32, kTransposed>(9);
  check_blocks<i32, i32, 65, 43, 16, 64, kTransposed>(33);
  check_blocks<bf16, float, 130, 100, 64, 128, kTransposed>(70);
}
inline void check_products_in_blocks() {
  check_block_tiles<true>();
  check_block_tiles<false>();
  check_blocks<float, float, 33, 40, 16, 16, true>(17);
  using Odd = Tiny<Product<float, float, float, 32, 36, 16, 32, false, false, Rows::Fixed, 16384>>;
  CHECK(same_bits<Odd>(multiply<InBlocks<Odd>>(17, nullptr), multiply<Odd>(17, nullptr)));
  check_blocks<f8e5m2, f8e4m3, 20, 150, 16, 16, true>(21);
  check_blocks<f16, float, 20, 70, 128, 16, true>(90);
}

inline void check_products() {
  // Few rows: K whole pages, odd, less than a vector; N of whole tiles and not.
  check_product<Product<bf16, bf16, bf16, 40, 1024, 1, 16, true, true>>(1);
  // A row in registers, and one that is too long for them.
  check_product<Product<bf16, bf16, f32, 40, 2048, 1, 16, true, true, Rows::Fixed, 16384>>(1);
  check_product<Product<f16, f16, f16, 24, 8192, 1, 24, true, true, Rows::Fixed, 16384>>(1);
  // In line: slices of one page and of several, tiles of one group of columns and of several, a row
  // in registers and one that isn't.
  check_product<Line<bf16, bf16, 40, 2048, 16>>(1);
  check_product<Line<bf16, f32, 1200, 2048, 600>>(1);
  check_product<Line<bf16, f32, 48, 2048, 24, 8192>>(1);
  check_product<Line<f16, f16, 24, 4096, 24>>(1);
  check_product<Line<f16, f16, 56, 1024, 24>>(1);
  check_product<Line<bf16, f32, 80, 512, 32>>(1);
  check_product<Line<bf16, bf16, 96, 256, 64>>(1);
  check_product<Line<bf16, f32, 24, 6144, 16>>(1);
  check_product<Line<bf16, f32, 40, 3072, 24>>(1);
  check_product<Line<bf16, f32, 304, 3072, 304, 8192>>(1);
  check_product<Line<f16, f32, 24, 5120, 16>>(1);
  check_product<Line<bf16, bf16, 16, 7168, 8>>(1);
  check_product<Line<bf16, bf16, 24, 8192, 8>>(1);
  check_product<Line<f16, f32, 8, 14336, 8>>(1);
  check_product<Line<bf16, f32, 16, 18432, 8>>(1);
  // In boxes: of K that is whole boxes and not, a row in registers and not.
  check_boxes<bf16, f32, 40, 2048, 16, 8, 1024>();
  check_boxes<bf16, f32, 40, 2304, 24, 8, 1024>();
  check_boxes<f16, f32, 24, 1280, 24, 8, 1024>();
  check_boxes<bf16, f32, 48, 3840, 32, 16, 512>();
  check_boxes<f16, f16, 24, 7424, 24, 8, 1024>();
  check_product<Product<bf16, bf16, f32, 24, 600, 8, 24, true, true>>(7);
  check_product<Product<f32, bf16, f32, 17, 259, 4, 8, true, true>>(3);
  check_product<Product<bf16, f32, f16, 9, 7, 2, 8, true, true>>(2);
  check_product<Product<f32, f32, f32, 1, 1, 1, 8, true, true>>(1);
  check_product<Product<f16, f8e4m3, f16, 12, 1037, 2, 16, true, true>>(2);
  check_product<Product<f32, f8e5m2, f32, 10, 700, 8, 8, true, true>>(8);
  check_product<Product<i32, i32, i32, 11, 300, 4, 8, true, true>>(3);
  // On tensor cores, where lanes have some.
  check_product<Product<bf16, bf16, bf16, 40, 64, 16, 24, true, true>>(16);
  check_product<Product<f16, f16, f32, 72, 1096, 16, 64, true, true, Rows::Fixed, 16384>>(11);
  check_product<Product<bf16, bf16, f32, 200, 520, 32, 136, true, true, Rows::Fixed, 16384>>(29);
  check_product<Product<bf16, bf16, bf16, 130, 520, 4, 128, true, true, Rows::Fixed, 16384>>(3);
  check_product<Product<bf16, bf16, bf16, 40, 520, 1, 16, false, true>>(1);
  check_product<Product<bf16, bf16, f32, 70, 333, 8, 64, false, true>>(7);
  check_product<Product<f32, f32, f32, 13, 97, 4, 16, false, true>>(4);
  check_product<Product<f32, f8e4m3, f32, 1, 5, 2, 16, false, true>>(2);
  check_product<Product<f32, bf16, f32, 1025, 33, 2, 64, false, true>>(2);
  check_product<Product<i32, i32, f32, 20, 50, 2, 16, false, true>>(2);
  check_product<Product<f32, f32, f32, 40, 1000, 8, 16, false, true, Rows::Fixed, 16384>>(8);
  // Many rows.
  check_product<Product<bf16, bf16, bf16, 64, 256, 64, 64, true, false>>(64);
  check_product<Product<bf16, bf16, bf16, 100, 100, 32, 32, true, false>>(61);
  check_product<Product<f32, bf16, f32, 33, 37, 16, 16, true, false>>(17);
  check_product<Product<bf16, f32, f16, 5, 131, 128, 32, true, false>>(130);
  check_product<Product<f16, f8e4m3, f16, 130, 70, 16, 64, true, false>>(19);
  check_product<Product<i32, i32, i32, 20, 43, 16, 32, true, false>>(33);
  check_product<Product<f32, f32, f32, 1, 1, 16, 16, true, false>>(9);
  check_product<Product<bf16, bf16, bf16, 64, 256, 64, 64, false, false>>(64);
  check_product<Product<bf16, bf16, f32, 101, 100, 32, 32, false, false>>(61);
  check_product<Product<f32, f32, f32, 30, 37, 16, 16, false, false>>(17);
  check_product<Product<f32, bf16, f32, 129, 50, 64, 128, false, false, Rows::Fixed, 16384>>(70);
  check_product<Product<bf16, f8e5m2, bf16, 77, 64, 16, 64, false, false>>(20);
  check_product<Product<i32, i32, i32, 20, 43, 16, 32, false, false>>(33);
  // In packets, with vectors that every lane has and that some have: the same bits.
  check_packets<Product<bf16, bf16, bf16, 40, 2048, 1, 16, true, true, Rows::Fixed, 16384>>(1);
  check_packets<Line<bf16, bf16, 40, 2048, 16>>(1);
  check_packets<Line<bf16, bf16, 16, 12288, 16>>(1);
  check_packets<Line<bf16, bf16, 16, 5120, 8>>(1);
  check_packets<Product<bf16, bf16, f32, 24, 600, 8, 24, true, true>>(7);
  check_packets<Product<f32, bf16, f32, 17, 264, 4, 8, true, true>>(3);
  check_packets<Product<bf16, bf16, bf16, 40, 64, 16, 24, true, true>>(16);
  check_packets<Product<f16, f16, f32, 72, 1096, 16, 64, true, true, Rows::Fixed, 16384>>(11);
  check_packets<Product<bf16, bf16, bf16, 40, 520, 1, 16, false, true>>(1);
  // Rows that a dim gives: both ways from one config.
  for (i64 rows : {1, 2, 8, 9, 33}) {
    check_product<Product<bf16, bf16, bf16, 48, 300, 32, 32, true, false, Rows::Dims>>(rows);
    check_product<Product<bf16, bf16, bf16, 48, 300, 32, 32, false, false, Rows::Dims>>(rows);
  }
  for (i64 rows : {1, 2, 5})
    check_product<Product<bf16, bf16, bf16, 48, 300, 8, 16, true, true, Rows::Dims>>(rows);
}

// On tensor cores: tiles of every shape, whole and not, K of whole blocks and odd.
template <int kBM, int kBN, bool kTransposed>
void check_tensor_tile() {
  constexpr Rows kTensor = Rows::Tensor;
  constexpr int kPage = 16384;
  check_product<
      Product<bf16, bf16, bf16, kBN + 8, 144, kBM, kBN, kTransposed, false, kTensor, kPage>>(kBM +
                                                                                             3);
  check_product<Product<f16, f16, f32, kBN - 9, 70, kBM, kBN, kTransposed, false, kTensor, kPage>>(
      kBM);
  if constexpr (kTransposed && kBM * kBN <= 128 * 128) {
    check_product<
        Product<f8e4m3, f8e4m3, bf16, kBN + 8, 272, kBM, kBN, true, false, kTensor, kPage>>(kBM +
                                                                                            3);
    check_product<
        Product<f8e5m2, f8e5m2, f16, kBN - 9, 139, kBM, kBN, true, false, kTensor, kPage>>(kBM);
  }
}
template <bool kTransposed>
void check_tensor_tiles() {
  check_tensor_tile<16, 64, kTransposed>();
  check_tensor_tile<32, 128, kTransposed>();
  check_tensor_tile<64, 64, kTransposed>();
  check_tensor_tile<64, 256, kTransposed>();
  check_tensor_tile<128, 128, kTransposed>();
}
inline void check_tensor_products() {
  check_tensor_tiles<true>();
  check_tensor_tiles<false>();
  for (i64 rows : {1, 8, 9, 33})
    check_product<Product<bf16, bf16, bf16, 80, 300, 32, 64, true, false, Rows::DimsTensor, 16384>>(
        rows);
}

// Tiles that share K: each part adds up its blocks alone.
template <class X, i64 N_, i64 K_, i64 BM_, i64 BN_, i64 BK_, bool kTransposed>
struct Shared : Product<X, X, float, N_, K_, BM_, BN_, kTransposed, false, Rows::Tensor, 16384> {
  static constexpr i64 BK = BK_;
  static constexpr i64 kRows = BM_ + 3;
  using rows = Const<kRows>;
  struct More {};
  template <int V>
  struct MoreRun {
    void load(const Args&, i64, i64) {}
    More at(int) const { return {}; }
  };
  struct Asks {
    void ask(const Args&, i64, i64) {}
    More more(const Args&) { return {}; }
  };
  static More fetch(const Args&, i64, i64) { return {}; }
  static float finish(const More&, float sum) { return sum; }
  static float finish(const Args&, i64, i64, float sum) { return sum; }
};
// Products of four warps, of lines as any copy brings them.
template <class C>
struct Grouped : C {
  using method = ops::ByWgmma;
  static i64 K_of(const Context&) { return C::K; }
};
template <class C>
void load_tile(Context& ctx, u32 tile) {
  const Args args{ctx, nullptr};
  if constexpr (C::method::kGroups)
    ops::matmul_tensor_load<Alone<C>>(ctx, args, tile);
  else
    ops::matmul_load<Alone<C>>(ctx, args, tile);
}
template <class C>
void check_shared() {
  using X = typename C::X;
  Tensor<X> a(C::kRows * C::K, 1), b(C::N * C::K, 2);
  const i64 tiles = (C::kRows + C::BM - 1) / C::BM * ((C::N + C::BN - 1) / C::BN);
  const i64 parts = (C::K + C::BK - 1) / C::BK;
  for (i64 part = 0; part < parts; ++part) {
    Tensor<float> y(C::kRows * C::N);
    for (i64 t = part * tiles; t < (part + 1) * tiles; ++t)
      run_tile(
          {a.data(), b.data(), y.data()}, {}, static_cast<int>(C::b_page_bytes),
          [&](Context& ctx) { load_tile<C>(ctx, static_cast<u32>(t)); },
          [&](Context& ctx) {
            ops::matmul<Alone<C>>(ctx, Args{ctx, nullptr}, static_cast<u32>(t));
          });
    std::vector<double> expected(static_cast<size_t>(C::kRows * C::N));
    for (i64 m = 0; m < C::kRows; ++m)
      for (i64 n = 0; n < C::N; ++n)
        for (i64 k = 0; k < C::K; ++k)
          if (k / (128 / static_cast<i64>(sizeof(X))) % parts == part)
            expected[static_cast<size_t>(m * C::N + n)] +=
                a[m * C::K + k] * b[C::transpose_b ? n * C::K + k : k * C::N + n];
    INFO("part " << part << " of " << parts);
    CHECK(error_of(y, expected) < bound_of<float>());
  }
}
inline void check_shared_products() {
  check_shared<Shared<bf16, 72, 520, 32, 64, 128, true>>();    // five parts, of 128, 128, ... and 8
  check_shared<Shared<f16, 136, 200, 64, 128, 128, false>>();  // two of two blocks
  check_shared<Shared<bf16, 64, 448, 128, 64, 192, true>>();   // three: of 192, 128 and 128
  check_shared<Shared<f8e4m3, 72, 528, 64, 64, 256, true>>();  // three: of 256, 144 and 128
  check_shared<Grouped<Shared<bf16, 136, 200, 64, 128, 128, true>>>();
  check_shared<Grouped<Shared<f8e4m3, 72, 528, 64, 64, 256, true>>>();
  check_shared<Grouped<Shared<f8e5m2, 136, 400, 128, 128, 400, true>>>();
  check_shared<Grouped<Shared<f8e4m3, 200, 300, 16, 128, 300, true>>>();
  check_shared<Grouped<Shared<bf16, 300, 200, 128, 256, 200, true>>>();
  check_shared<Grouped<Shared<f16, 264, 140, 128, 256, 140, false>>>();
  check_shared<Grouped<Shared<bf16, 136, 256, 64, 128, 256, true>>>();  // whole steps of K
}

// A lone row, in tiles of several slices, the last of which may lack some (matmul_row.cuh).
template <i64 N, i64 K, i64 BN>
struct LoneRow : Product<bf16, bf16, f32, N, K, 1, BN, true, true, Rows::Fixed, 16384> {
  using plan_rows = Const<1>;
};
template <i64 K>
void check_lone_rows() {
  const auto check = [](auto one, auto other) {
    double error = 0;
    const auto y = multiply<decltype(one)>(1, &error);
    CHECK(error < bound_of<f32>());
    CHECK(same_bits<decltype(one)>(y, multiply<decltype(other)>(1, nullptr)));
  };
  check(LoneRow<80, K, 8>{}, LoneRow<80, K, 16>{});
  check(LoneRow<80, K, 24>{}, LoneRow<80, K, 40>{});
  check(LoneRow<80, K, 64>{}, LoneRow<80, K, 80>{});
  check(LoneRow<77, K, 8>{}, LoneRow<77, K, 24>{});
  check(LoneRow<80, K, 80>{}, LoneRow<80, K, 8>{});
}

// The same in line.
inline void check_lines() {
  using Row = Line<bf16, f32, 96, 1024, 8>;
  using Rows = Line<bf16, f32, 96, 1024, 96>;
  CHECK(same_bits<Row>(multiply<Row>(1, nullptr), multiply<Rows>(1, nullptr)));
  using One = Line<bf16, f32, 600, 2048, 8>;
  using Many = Line<bf16, f32, 600, 2048, 304>;  // of which several groups are finished
  CHECK(same_bits<One>(multiply<One>(1, nullptr), multiply<Many>(1, nullptr)));
  using Short = Line<f16, f32, 24, 12288, 8>;
  using Long = Line<f16, f32, 24, 12288, 24>;
  CHECK(same_bits<Short>(multiply<Short>(1, nullptr), multiply<Long>(1, nullptr)));
}

// The bits don't depend on how the result is cut into tiles, nor on how many rows are done
// together.
inline void check_product_bits() {
  check_lines();
  check_lone_rows<256>();
  check_lone_rows<512>();
  check_lone_rows<1024>();
  check_lone_rows<4096>();
  using Few1 = Product<bf16, bf16, f32, 40, 1300, 8, 8, true, true>;
  using Few2 = Product<bf16, bf16, f32, 40, 1300, 2, 40, true, true>;
  using Few3 = Product<bf16, bf16, f32, 40, 1300, 8, 40, true, true, Rows::Dims, 16384>;
  CHECK(same_bits<Few1>(multiply<Few1>(5, nullptr), multiply<Few2>(5, nullptr)));
  CHECK(same_bits<Few1>(multiply<Few1>(5, nullptr), multiply<Few3>(5, nullptr)));
  const auto one = multiply<Few3>(1, nullptr), five = multiply<Few3>(5, nullptr);
  CHECK(std::memcmp(one.data(), five.data(), 40 * sizeof(float)) == 0);
  // Pages that share the row evenly, and pages that don't.
  using Row1 = Product<bf16, bf16, f32, 40, 2560, 1, 8, true, true, Rows::Fixed, 16384>;
  using Row2 = Product<bf16, bf16, f32, 40, 2560, 1, 40, true, true, Rows::Fixed, 16384>;
  CHECK(same_bits<Row1>(multiply<Row1>(1, nullptr), multiply<Row2>(1, nullptr)));
  using Plain1 = Product<bf16, bf16, f32, 80, 1300, 8, 16, false, true>;
  using Plain2 = Product<bf16, bf16, f32, 80, 1300, 2, 48, false, true>;
  CHECK(same_bits<Plain1>(multiply<Plain1>(5, nullptr), multiply<Plain2>(5, nullptr)));
  using Many1 = Product<bf16, bf16, f32, 80, 300, 16, 16, true, false>;
  using Many2 = Product<bf16, bf16, f32, 80, 300, 64, 64, true, false>;
  CHECK(same_bits<Many1>(multiply<Many1>(20, nullptr), multiply<Many2>(20, nullptr)));
  using Cores1 = Product<bf16, bf16, f32, 80, 300, 16, 64, true, false, Rows::Tensor, 16384>;
  using Cores2 = Product<bf16, bf16, f32, 80, 300, 128, 128, true, false, Rows::Tensor, 16384>;
  CHECK(same_bits<Cores1>(multiply<Cores1>(20, nullptr), multiply<Cores2>(20, nullptr)));
  using Eight1 = Product<f8e5m2, f8e5m2, f32, 80, 1040, 64, 64, true, false, Rows::Tensor, 16384>;
  using Eight2 = Product<f8e5m2, f8e5m2, f32, 80, 1040, 128, 128, true, false, Rows::Tensor, 16384>;
  CHECK(same_bits<Eight1>(multiply<Eight1>(20, nullptr), multiply<Eight2>(20, nullptr)));
}

// Products that norm their rows, and pairs, joined as sum * max(other, 0).
template <class X_, class Y_, i64 N_, i64 K_, i64 BM_, i64 BN_, bool kTransposed, bool kPaired_,
          class G_ = X_, int kPage = 16384>
struct Formed : Product<X_, X_, Y_, N_, K_, BM_, BN_, kTransposed, true, Rows::Dims, kPage> {
  using G = G_;
  using method = ops::ByDot;
  static constexpr bool kPaired = kPaired_;
  static constexpr double eps = 1e-3;
  struct More {};
  template <int V>
  struct MoreRun {
    void load(const Args&, i64, i64) {}
    More at(int) const { return {}; }
  };
  struct Asks {
    void ask(const Args&, i64, i64) {}
    More more(const Args&) { return {}; }
  };
  static More fetch(const Args&, i64, i64) { return {}; }
  static auto finish(const More&, float sum, float other = 1) {
    return fn::mul(sum, fn::relu(other));
  }
  static auto finish(const Args&, i64, i64, float sum, float other = 1) {
    return finish(More{}, sum, other);
  }
};
// A lone row, whose weights come as they lie in memory.
template <class X, class Y, i64 N, i64 K, i64 BN, bool kPaired, class G = X>
struct FormedLine : Formed<X, Y, N, K, 1, BN, true, kPaired, G, 16384> {
  using rows = Const<1>;
  using plan_rows = Const<1>;
  static constexpr bool in_line = true, b_ahead = true, other_ahead = true;
};
template <class C>
void check_formed(i64 rows, bool normed) {
  using X = typename C::X;
  Tensor<X> a(rows * C::K, 1, 2), b(C::N * C::K, 2), other(C::N * C::K, 3);
  Tensor<typename C::G> g(C::K, 4);
  Tensor<typename C::Y> y(rows * C::N);
  std::vector<void*> operands = {a.data(), b.data()};
  if (C::kPaired) operands.push_back(other.data());
  if (normed) operands.push_back(g.data());
  operands.push_back(y.data());
  const i64 tiles = ((rows + C::BM - 1) / C::BM + 1) * ((C::N + C::BN - 1) / C::BN);
  for (i64 t = 0; t < tiles; ++t) {
    const auto tile = static_cast<u32>(t);
    run_tile(
        operands, {rows}, static_cast<int>(C::b_page_bytes),
        [&](Context& ctx) {
          const Args args{ctx, nullptr};
          if constexpr (C::kPaired)
            normed ? ops::matmul_load<Staged<C, true, true>>(ctx, args, tile)
                   : ops::matmul_load<Staged<C, true>>(ctx, args, tile);
          else
            ops::matmul_load<Staged<C, false, true>>(ctx, args, tile);
        },
        [&](Context& ctx) {
          const Args args{ctx, nullptr};
          if constexpr (C::kPaired)
            normed ? ops::matmul<Staged<C, true, true>>(ctx, args, tile)
                   : ops::matmul<Staged<C, true>>(ctx, args, tile);
          else
            ops::matmul<Staged<C, false, true>>(ctx, args, tile);
        });
  }
  std::vector<double> expected;
  for (i64 m = 0; m < rows; ++m) {
    std::vector<double> x;
    double squares = 0;
    for (i64 k = 0; k < C::K; ++k) squares += a[m * C::K + k] * a[m * C::K + k];
    for (i64 k = 0; k < C::K; ++k) {
      const double v = a[m * C::K + k];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(C::K) + C::eps);
      x.push_back(normed ? to_acc(from_acc<X>(static_cast<float>(v * scale * g[k]))) : v);
    }
    for (i64 n = 0; n < C::N; ++n) {
      double sum = 0, second = 0;
      for (i64 k = 0; k < C::K; ++k) {
        const i64 at = C::transpose_b ? n * C::K + k : k * C::N + n;
        sum += x[static_cast<size_t>(k)] * b[at];
        second += x[static_cast<size_t>(k)] * other[at];
      }
      expected.push_back(C::kPaired ? sum * std::max(second, 0.0) : sum);
    }
  }
  INFO("rows " << rows << " N " << C::N << " K " << C::K << " paired " << C::kPaired << " normed "
               << normed);
  CHECK(error_of(y, expected) < bound_of<typename C::Y>());
}
// Many rows, on tensor cores.
template <class X, class Y, i64 N, i64 K, i64 BM, i64 BN>
struct TensorPair : Formed<X, Y, N, K, BM, BN, true, true, X, 16384> {
  using plan_rows = Const<BM>;
  using method = ops::ByMma;
};
// Columns [turned_begin, turned_end) are rotated.
template <class X, i64 N, i64 K, i64 BM, i64 BN, i64 D_, i64 kBegin, i64 kEnd, bool kAdjacent>
struct Turned : Formed<X, X, N, K, BM, BN, true, false, X, 16384> {
  using plan_rows = Const<BM>;
  using method = ops::ByMma;
  static constexpr bool interleaved = kAdjacent;
  static constexpr i64 D = D_, turned_begin = kBegin, turned_end = kEnd;
};
// What such products read: of rows from position 5 on.
template <i64 D_, i64 kRows>
struct Sines {
  using rows = Value<0>;
  using position = Const<5>;
  static constexpr i64 D = D_, BR = kRows;
  static constexpr bool by_radians = false;
  static constexpr double factor = 1;
  static double frequency(i64 pair) {
    return std::pow(100.0, -2.0 * static_cast<double>(pair) / static_cast<double>(D));
  }
  static u64 turns(int pair) {
    return static_cast<u64>(std::ldexp(frequency(pair) / (2 * 3.14159265358979323846), 64));
  }
};
template <class C>
void check_turned(i64 rows) {
  using Angles = Sines<C::D, 24>;
  Tensor<typename C::X> a(rows * C::K, 1, 2), b(C::N * C::K, 2), y(rows * C::N);
  Tensor<float> sines(rows * C::D);
  run_rows(rows, Angles::BR, {sines.data()}, {},
           [](auto& ctx, auto args, u32 t) { ops::rope_sines<Angles>(ctx, args, t); });
  const std::vector<void*> operands = {a.data(), b.data(), sines.data(), y.data()};
  const i64 tiles = ((rows + C::BM - 1) / C::BM + 1) * ((C::N + C::BN - 1) / C::BN);
  for (i64 t = 0; t < tiles; ++t)
    run_tile(
        operands, {rows}, static_cast<int>(C::b_page_bytes),
        [&](Context& ctx) {
          ops::matmul_load<Staged<C, false, false, true>>(ctx, Args{ctx, nullptr},
                                                          static_cast<u32>(t));
        },
        [&](Context& ctx) {
          ops::matmul<Staged<C, false, false, true>>(ctx, Args{ctx, nullptr}, static_cast<u32>(t));
        });
  std::vector<double> expected(static_cast<size_t>(rows * C::N));
  for (i64 m = 0; m < rows; ++m) {
    double* row = expected.data() + m * C::N;
    for (i64 n = 0; n < C::N; ++n)
      for (i64 k = 0; k < C::K; ++k) row[n] += a[m * C::K + k] * b[n * C::K + k];
    for (i64 head = C::turned_begin; head < C::turned_end; head += C::D)
      for (i64 pair = 0; pair < C::D / 2; ++pair) {
        double& first = row[head + (C::interleaved ? 2 * pair : pair)];
        double& second = row[head + (C::interleaved ? 2 * pair + 1 : pair + C::D / 2)];
        const double angle = static_cast<double>(5 + m) * Angles::frequency(pair), x = first;
        first = x * std::cos(angle) - second * std::sin(angle);
        second = second * std::cos(angle) + x * std::sin(angle);
      }
  }
  INFO("rows " << rows << " N " << C::N << " K " << C::K << " heads of " << C::D);
  CHECK(error_of(y, expected) < bound_of<typename C::X>());
}
// Columns from kBegin on are rows of a cache from value 1 on, and those from kNext on of another.
template <class Base, i64 kBegin, i64 kNext>
struct Appended : Base {
  using append_at = Value<1>;
  static constexpr i64 append_begin = kBegin, append_next = kNext;
};
// Each element of the result, as bits, is where it belongs, and nothing else is written.
template <class C, bool kTurned>
void check_appended(i64 rows, i64 at) {
  using X = typename C::X;
  constexpr i64 kFirst = C::append_next - C::append_begin, kNext = C::N - C::append_next;
  const i64 height = at + rows + 3;
  Tensor<X> a(rows * C::K, 1, 2), b(C::N * C::K, 2), y(rows * C::N), own(rows * C::N),
      first(height * kFirst), next(height * kNext + 1);
  Tensor<float> sines(rows * C::D, 3);
  const i64 tiles = ((rows + C::BM - 1) / C::BM + 1) * ((C::N + C::BN - 1) / C::BN);
  const auto run = [&](std::vector<void*> operands, auto load, auto compute) {
    if constexpr (kTurned) operands.insert(operands.begin() + 2, sines.data());
    for (i64 t = 0; t < tiles; ++t)
      run_tile(
          operands, {rows, at}, static_cast<int>(C::b_page_bytes),
          [&](Context& ctx) { load(ctx, Args{ctx, nullptr}, static_cast<u32>(t)); },
          [&](Context& ctx) { compute(ctx, Args{ctx, nullptr}, static_cast<u32>(t)); });
  };
  if constexpr (kTurned) {
    run({a.data(), b.data(), y.data()}, ops::matmul_load<Staged<C, false, false, true>>,
        ops::matmul<Staged<C, false, false, true>>);
    run({a.data(), b.data(), own.data(), first.data(), next.data()},
        ops::matmul_load<Staged<C, false, false, true, true>>,
        ops::matmul<Staged<C, false, false, true, true>>);
  } else {
    run({a.data(), b.data(), y.data()}, ops::matmul_load<Alone<C>>, ops::matmul<Alone<C>>);
    run({a.data(), b.data(), own.data(), first.data(), next.data()},
        ops::matmul_load<Staged<C, false, false, false, true>>,
        ops::matmul<Staged<C, false, false, false, true>>);
  }
  // Columns [begin, end) of the result as rows from `row` on of a matrix, the rest untouched.
  const Tensor<X> untouched(1);
  const auto holds = [&](const Tensor<X>& to, i64 columns, i64 row, i64 begin, i64 end) {
    for (i64 i = 0; i < static_cast<i64>(to.v.size()); ++i) {
      const i64 m = columns > 0 ? i / columns - row : -1, n = columns > 0 ? begin + i % columns : 0;
      const X& want =
          m >= 0 && m < rows && n < end ? y.v[static_cast<size_t>(m * C::N + n)] : untouched.v[0];
      if (std::memcmp(&to.v[static_cast<size_t>(i)], &want, sizeof(X)) != 0) return false;
    }
    return true;
  };
  CHECK(holds(own, C::N, 0, 0, C::append_begin));
  CHECK(holds(first, kFirst, at, C::append_begin, C::append_next));
  CHECK(holds(next, kNext, at, C::append_next, C::N));
}
inline void check_appended_products() {
  check_appended<Appended<Turned<bf16, 192, 72, 64, 128, 64, 0, 128, false>, 64, 128>, true>(65, 7);
  check_appended<Appended<Turned<f16, 200, 128, 64, 64, 32, 32, 160, false>, 96, 160>, true>(64, 0);
  check_appended<Appended<Turned<bf16, 128, 64, 128, 128, 64, 0, 128, true>, 0, 128>, true>(100, 2);
  check_appended<Appended<Turned<bf16, 136, 72, 64, 128, 8, 0, 8, false>, 0, 136>, false>(70, 30);
  check_appended<Appended<Turned<f8e4m3, 208, 128, 64, 64, 16, 0, 16, false>, 144, 176>, false>(70,
                                                                                                1);
}
inline void check_turned_products() {
  check_turned<Turned<bf16, 192, 72, 64, 128, 64, 0, 192, false>>(65);
  check_turned<Turned<bf16, 200, 128, 64, 64, 32, 32, 160, false>>(64);
  check_turned<Turned<f16, 256, 64, 128, 128, 16, 128, 256, true>>(130);
  check_turned<Turned<f16, 120, 64, 128, 64, 32, 0, 64, true>>(100);
}
inline void check_formed_products() {
  check_formed<TensorPair<bf16, bf16, 128, 128, 64, 64>>(64, false);
  check_formed<TensorPair<bf16, f32, 150, 200, 64, 64>>(100, false);
  check_formed<TensorPair<f16, f16, 72, 70, 128, 64>>(130, false);
  check_formed<TensorPair<bf16, bf16, 136, 72, 64, 128>>(65, false);
  check_formed<TensorPair<f8e4m3, bf16, 136, 288, 128, 64>>(129, false);
  for (bool normed : {false, true}) {
    check_formed<Formed<bf16, bf16, 40, 1024, 1, 16, true, true>>(1, normed);
    check_formed<Formed<bf16, bf16, 44, 2304, 1, 24, true, true, f32, 16384>>(1, normed);
    check_formed<Formed<bf16, f32, 72, 520, 16, 64, true, true, bf16, 16384>>(11, normed);
    check_formed<Formed<f16, f32, 130, 264, 4, 128, true, true, f16, 16384>>(3, normed);
    check_formed<Formed<f32, f32, 27, 300, 8, 16, true, true, f32, 16384>>(7, normed);
    check_formed<Formed<f32, f32, 27, 301, 1, 8, true, true, f32, 16384>>(1, normed);
  }
  for (const bool normed : {true, false}) {
    check_formed<FormedLine<bf16, bf16, 40, 2048, 16, true>>(1, normed);
    check_formed<FormedLine<f16, f32, 304, 2048, 200, true, f32>>(1, normed);
    check_formed<FormedLine<bf16, bf16, 24, 6144, 24, true>>(1, normed);
    check_formed<FormedLine<bf16, bf16, 40, 3072, 16, true>>(1, normed);
    check_formed<FormedLine<f16, f16, 16, 7168, 16, true, f32>>(1, normed);
    check_formed<FormedLine<bf16, f32, 40, 1024, 24, true>>(1, normed);
    check_formed<FormedLine<bf16, f32, 64, 256, 32, true>>(1, normed);
    check_formed<FormedLine<bf16, bf16, 8, 8192, 8, true>>(1, normed);
  }
  check_formed<FormedLine<bf16, bf16, 40, 4096, 16, false>>(1, true);
  check_formed<FormedLine<bf16, f32, 8, 18432, 8, false>>(1, true);
  check_formed<Formed<bf16, bf16, 40, 2048, 1, 16, true, false>>(1, true);
  check_formed<Formed<bf16, bf16, 24, 9000, 1, 24, true, false, bf16, 16384>>(1, true);
  check_formed<Formed<bf16, f32, 72, 1096, 16, 64, true, false, f32, 16384>>(9, true);
  check_formed<Formed<f32, f32, 70, 333, 4, 64, false, false>>(3, true);
  check_formed<Formed<bf16, bf16, 40, 520, 1, 16, false, false>>(1, true);
}
