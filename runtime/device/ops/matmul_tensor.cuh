// matmul with both operands coming through pages, in blocks (tensor_cores.cuh). The result's tile
// stays in registers until its part of K has been added. It is multiplied on tensor cores, or by
// ordinary arithmetic (thread_tile.cuh, C::blocks).
//
// Tensor cores take at least 64 rows of one operand, the tall one. It is a if the tile has as many
// rows; else it is b, and the rows of a are the wide operand. Blocks of both operands come in the
// order of K: a's block before b's, and b's before that of a pair's other b, which has sums of its
// own.

namespace maco::ops {

// What becomes of the elements that a task stores besides (C::Send): nothing.
template <class C>
struct NoSend {
  // With few rows: of one element, before it is stored.
  static MACO_FN void element(const MatmulTile<C>&, const Args&, i64, i64, typename C::Y) {}
  // On tensor cores: of V adjacent elements, at a row of the tile and a column of the result.
  struct Pusher {
    MACO_FN Pusher(Context&, const Args&, u32) {}
    template <int V>
    MACO_FN void store(const MatmulTile<C>&, i64, i64, const Vec<typename C::Y, V>&) const {}
  };
};

// What is added to elements before they are stored (C::Add): nothing.
template <class C>
struct NoAddition {
  static constexpr bool kAdds = false;
  template <int V>
  struct Parts {};
  MACO_FN NoAddition(Context&, const Args&, u32) {}
  template <int V>
  MACO_FN void fetch(const MatmulTile<C>&, i64, i64, Parts<V>&) const {}
  template <int V>
  MACO_FN void add(const Parts<V>&, i64, Vec<typename C::Y, V>&) const {}
};

// Where a run of elements is stored (C::Target): in the result.
template <class C>
struct ToResult {
  MACO_FN explicit ToResult(const Context&) {}
  template <class Place>
  MACO_FN typename C::Y* at(const Args& args, const MatmulTile<C>& t, const Place& place) const {
    return args.ptr<typename C::Y>(C::y_at) + place.element(t);
  }
};

// What becomes of a tile's sums before they are finished (C::Turn): nothing.
template <class C>
struct NoTurn {
  template <class Tile>
  static MACO_FN void turn(const Args&, const MatmulTile<C>&, Tile&) {}
};

template <class C>
struct TensorShape {
  using T = typename C::X;
  static constexpr bool kSwap = C::BM < 64;  // b is the tall operand
  static constexpr bool kGroups = C::method::kGroups, kBulk = kGroups || C::blocks;
  // K is the slow axis of b[K,N].
  static constexpr bool kAcross = !C::transpose_b;
  static constexpr int kParts = MatmulTile<C>::kParts, kSums = C::has_pair ? 2 : 1;
  static_assert(!C::has_pair || (!kSwap && kParts == 1), "pairs have tall tiles and all of K");
  using A = AccOf<T>;
  static constexpr int kDepth = kBlockOf<T>;                           // of a block
  static constexpr int kBlocks = (int)((C::K + kDepth - 1) / kDepth);  // of all parts
  // Matmuls that differ only in K share code if K is whole steps, by the same rule as in the
  // compiler (compiler/functions/matmul.cpp).
  static constexpr int kSharedStep = 128;
  static constexpr bool kShared = kGroups && C::BK == C::K && C::K % kSharedStep == 0;
  // The blocks of the tile's part of K.
  static MACO_FN Blocks blocks(const Context& ctx, const MatmulTile<C>& t) {
    int all = kBlocks;
    if constexpr (kShared) all = (int)C::K_of(ctx) / kDepth;
    return {t.part, kParts, (all - t.part + kParts - 1) / kParts, kDepth};
  }
  using PagesA = BlockPages<(int)C::BM>;
  using PagesB = BlockPages<(int)C::BN>;
  // Pages of a step: a block of a and the blocks of b for it. They are adjacent if the ring has
  // room for whole steps and tasks begin with one.
  static constexpr int kStepPages = PagesA::kPages + kSums * PagesB::kPages;
  static constexpr bool kTogether = kGroups && sizeof(T) == 2 && C::BM == 128 &&
                                    (kSums * C::BN == 256 || C::BN == 192) &&
                                    kSums * PagesB::kPages == 2 && kRingPages % kStepPages == 0;
  static constexpr int kTall = (int)(kSwap ? C::BN : C::BM), kWide = (int)(kSwap ? C::BM : C::BN);
  static constexpr bool kTallAcross = kSwap && kAcross, kWideAcross = !kSwap && kAcross;
  using Tile = typename Either<
      C::blocks && (kWarpLanes > 1), ThreadTile<T, kTall, kWide, kTallAcross, kWideAcross>,
      TensorTile<T, kTall, kWide, kTallAcross, kWideAcross, kGroups, kSums, kTogether>>::type;
};

// ---- the loader -------------------------------------------------------------

// Copies boxes of kBoxLines lines through the operand's map into free pages, as tensor_fill does.
// kDepth: elements of K in a block. kSome: only boxes that have some of the first `rows` rows.
template <class P, int kBoxLines, int kDepth, bool kAcross, bool kSome = false>
MACO_FN void tensor_fill_boxes(PageFiller& pages, const TensorMap* map, i64 first, int block,
                               const Blocks& blocks, int rows = 0) {
  MACO_UNROLL
  for (int p = 0; p < P::kPages; ++p) {
    int lines = P::lines(p);
    const int all = lines;
    if constexpr (kSome)
      lines = (int)most(0, least(lines, round_up(rows - p * kPageLines, kBoxLines)));
    const int here =
        P::kBlocks == 1 || block + P::kBlocks <= blocks.count ? P::kBlocks : blocks.count - block;
    pages.expect_boxes((u32)(here * lines * kLineBytes));
    for (int q = 0; q < here; ++q) {
      const i64 k = blocks.k(block + q);
      MACO_UNROLL
      for (int l = 0; l < lines; l += kBoxLines) {
        char* to = pages.page() + (q * all + l) * kLineBytes;
        const int at = p * kPageLines + l;
        if constexpr (kAcross) {
          pages.copy_box(to, map, k + at % kDepth, first + at / kDepth * kDepth);
        } else {
          pages.copy_box(to, map, first + at, k, kSome ? first + rows : 0x7fffffff);
        }
      }
    }
    pages.publish_boxes();
  }
}

// One of the loader's threads does this; returns false if the run stops. Each copy occurs only once
// in the code, for the sake of the instruction cache.
template <class C>
MACO_FN bool matmul_fill_boxes(PageFiller& pages, const Args& args, const MatmulTile<C>& t) {
  using S = TensorShape<C>;
  using A = typename S::PagesA;
  using B = typename S::PagesB;
  constexpr bool kAAhead = C::a_ahead, kBAhead = all_b_ahead<C>(), kApart = kAAhead != kBAhead;
  constexpr int kPagesB = S::kSums * B::kPages;
  constexpr int kBoxB = S::kAcross ? (int)least(least(S::kDepth, C::BN), kPageLines) : B::kBoxLines;
  const TensorMap *a = args.map(0), *b = args.map(1),
                  *other = C::has_pair ? args.map(other_of<C>()) : b;
  const Blocks blocks = S::blocks(pages.ctx, t);
  if constexpr (S::kTogether)
    if (!pages.align_boxes(S::kStepPages)) return false;
  // If one operand may be loaded before the other is there, as many of its blocks are loaded as the
  // ring has room for.
  constexpr int kStep = A::kBlocks > B::kBlocks ? A::kBlocks : B::kBlocks,
                kStepPages = kStep / A::kBlocks * A::kPages + kStep / B::kBlocks * kPagesB,
                kEarly = kApart ? (int)kRingPages / kStepPages * kStep : 0;
  const int early = kEarly < blocks.count ? kEarly : blocks.count;
  // The early blocks of one operand, then those of the other, then all the rest.
  enum : int { kFirst, kOther, kRest };
  const u32 index = pages.index, slot = pages.slot, round = pages.round;
  MACO_ROLLED
  for (int pass = kApart ? kFirst : kRest; pass <= kRest; ++pass) {
    if (pass == kOther) pages.index = index, pages.slot = slot, pages.round = round;
    if (pass == (kApart ? kOther : kRest)) {
      // One b of a pair alone can't come ahead. The loader has left the wait for the rest to the
      // op.
      if ((kApart || (!kAAhead && any_b_ahead<C>())) && !await_passed(pages.ctx)) return false;
      boxes_begin();
    }
    const bool with_a = pass == kRest || kAAhead == (pass == kFirst),
               with_b = pass == kRest || kBAhead == (pass == kFirst);
    const int end = pass == kRest ? blocks.count : early;
    MACO_ROLLED
    for (int block = pass == kRest ? early : 0; block < end; ++block) {
      constexpr bool kBoth = A::kBlocks == 1 && B::kBlocks == 1;
      if constexpr (kBoth)
        if (!pages.template await_free<A::kPages + kPagesB>()) return false;
      if (block % A::kBlocks == 0) {
        if (!with_a) {
          pages.skip(A::kPages);
        } else {
          if constexpr (!kBoth)
            if (!pages.template await_free<A::kPages>()) return false;
          constexpr bool kSome = !C::rows::is_constant;
          tensor_fill_boxes<A, kSome ? (int)C::a_box_rows : A::kBoxLines, S::kDepth, false, kSome>(
              pages, a, t.row, block, blocks, (int)t.rows);
        }
      }
      if (block % B::kBlocks == 0) {
        if (!with_b) {
          pages.skip(kPagesB);
        } else {
          if constexpr (!kBoth)
            if (!pages.template await_free<kPagesB>()) return false;
          MACO_UNROLL
          for (int s = 0; s < S::kSums; ++s)
            tensor_fill_boxes<B, kBoxB, S::kDepth, S::kAcross>(pages, s == 0 ? b : other, t.col,
                                                               block, blocks);
        }
      }
    }
  }
  return true;
}
template <class C>
MACO_FN void matmul_boxes_load(Context& ctx, const Args& args, u32 index) {
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  PageFiller pages(ctx);
  int lane;
  if (elected(lane)) matmul_fill_boxes<C>(pages, args, t);
  pages.finish(lane);
}

template <class C>
MACO_FN void matmul_tensor_load(Context& ctx, const Args& args, u32 index) {
  using S = TensorShape<C>;
  using T = typename S::T;
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  const T* a = args.ptr<const T>(0);
  const T *b = args.ptr<const T>(1), *other = C::has_pair ? args.ptr<const T>(other_of<C>()) : b;
  const Blocks blocks = S::blocks(ctx, t);
  PageFiller pages(ctx);
  for (int block = 0; block < blocks.count; ++block) {
    if (block % S::PagesA::kBlocks == 0 &&
        !tensor_fill<typename S::PagesA, (int)C::BM, false, C::K, C::K>(
            pages, a, t.row, t.row + t.rows, block, blocks))
      return;
    for (int s = 0; s < S::kSums; ++s)
      if (block % S::PagesB::kBlocks == 0 &&
          !tensor_fill<typename S::PagesB, (int)C::BN, S::kAcross, C::K, S::kAcross ? C::N : C::K>(
              pages, s == 0 ? b : other, t.col, t.end, block, blocks))
        return;
  }
  pages.finish();
}

// ---- the consumers ----------------------------------------------------------

// An operand's blocks as they come: the pages that hold the current blocks.
template <class P, int kRows>
struct BlockTaker {
  Block block;
  PageUse first{};  // of the pages held: the first
  MACO_FN explicit BlockTaker(const PageTaker& pages) : block(pages.pages) {}
  // How many pages come with block `at`.
  static MACO_FN int pages_of(int at) { return at % P::kBlocks == 0 ? P::kPages : 0; }
  // Takes block `at`, whose pages have arrived; the blocks behind it in its page are taken with it.
  MACO_FN void take(PageTaker& pages, int at) {
    if (at % P::kBlocks != 0) return;
    MACO_UNROLL
    for (int p = 0; p < P::kPages; ++p) {
      const PageUse page = pages.take_landed();
      if (p == 0) first = page;
    }
    block.slot = first.slot;
  }
  MACO_FN Block at(int index) const {
    Block b = block;
    b.line = index % P::kBlocks * kRows;
    return b;
  }
  // Releases the pages of which block `index` is the last.
  MACO_FN void release(PageTaker& pages, int index, bool last) const {
    if (index % P::kBlocks != P::kBlocks - 1 && !last) return;
    PageUse page = first;
    MACO_UNROLL
    for (int p = 0; p < P::kPages; ++p, page.next()) pages.release_page(page);
  }
};

// Stores runs of the result's rows, each with the operands that were loaded for it.
template <class C>
struct MatmulStore {
  using Y = typename C::Y;
  using Adder = typename C::Add;
  const MatmulTile<C>& t;
  const Args& args;
  const typename C::Send::Pusher pusher;
  const Adder adder;
  const typename C::Target target;

  // How many elements of a run are contiguous in every row.
  template <int kRun>
  static constexpr int kVector = vector_width(C::N % kRun == 0 ? kRun : C::N, sizeof(Y));
  template <int kRun>
  struct Fetched {
    typename C::template MoreRun<kVector<kRun>> pieces[kRun / kVector<kRun>];
    typename Adder::template Parts<kVector<kRun>> parts[kRun / kVector<kRun>];
  };
  // Where a run begins. Offsets that the compiler knows are kept apart from the others, so that the
  // others are computed once.
  struct Place {
    static constexpr bool kSwap = TensorShape<C>::kSwap;
    i64 row, col, more_rows, more_cols;
    MACO_FN Place(const MatmulTile<C>& t, const RunPlace& at)
        : row(kSwap ? at.wide : at.tall),
          col(t.col + (kSwap ? at.tall : at.wide)),
          more_rows(kSwap ? at.more_wide : at.more_tall),
          more_cols(kSwap ? at.more_tall : at.more_wide) {}
    MACO_FN bool has_row(const MatmulTile<C>& t) const {
      if constexpr (C::rows::is_constant)
        if (C::rows::value % C::BM == 0) return true;
      return row + more_rows < t.rows;
    }
    MACO_FN bool has_col(const MatmulTile<C>& t, int i) const {
      return C::N % C::BN == 0 || col + more_cols + i < t.end;
    }
    MACO_FN i64 element(const MatmulTile<C>& t) const {
      return ((t.row + row) * C::N + col) + (more_rows * C::N + more_cols);
    }
  };

  template <int kRun>
  MACO_FN void fetch(const RunPlace& run_place, Fetched<kRun>& more) const {
    constexpr int V = kVector<kRun>;
    const Place at(t, run_place);
    if (!at.has_row(t)) return;
    MACO_UNROLL
    for (int i = 0; i < kRun / V; ++i) {
      if (!at.has_col(t, i * V)) continue;
      more.pieces[i].load(args, at.element(t) + i * V, at.col + at.more_cols + i * V);
      adder.template fetch<V>(t, at.row + at.more_rows, at.col + at.more_cols + i * V,
                              more.parts[i]);
    }
  }
  static constexpr int kSums = TensorShape<C>::kSums;
  using A = typename TensorShape<C>::A;
  static MACO_FN auto finish(const typename C::More& more, const A (&sums)[kSums]) {
    if constexpr (kSums == 2) {
      return C::finish(more, sums[0], sums[1]);
    } else {
      return C::finish(more, sums[0]);
    }
  }
  // An element that needs nothing but its sums.
  static MACO_FN Y element(const A (&sums)[kSums]) {
    return from_acc<Y>(finish(typename C::More{}, sums));
  }
  // Stores a run. element(i) is its element i, called only if the row and column exist. The
  // elements go through add(piece, place in y, elements).
  template <int kRun, class F, class Add>
  MACO_FN void write(const RunPlace& run_place, F element, Add add) const {
    constexpr int V = kVector<kRun>;
    const Place at(t, run_place);
    if (!at.has_row(t)) return;
    Y* to = target.at(args, t, at);
    MACO_UNROLL
    for (int i = 0; i < kRun; i += V) {
      if (at.has_col(t, i)) {
        Vec<Y, V> v;
        MACO_UNROLL
        for (int e = 0; e < V; ++e) v.v[e] = element(i + e);
        add(i / V, at.element(t) + i, v);
        gstore_vec<V>(to + i, v);
        pusher.template store<V>(t, at.row + at.more_rows, at.col + at.more_cols + i, v);
      }
    }
  }
  template <int kRun>
  MACO_FN void put(const RunPlace& run_place, const Vec<Y, kRun>& run) const {
    write<kRun>(
        run_place, [&](int i) { return run.v[i]; }, [](int, i64, Vec<Y, kVector<kRun>>&) {});
  }
  template <int kRun>
  MACO_FN void store(const RunPlace& run_place, const A (&runs)[kSums][kRun],
                     const Fetched<kRun>& more) const {
    constexpr int V = kVector<kRun>;
    write<kRun>(
        run_place,
        [&](int i) {
          A sums[kSums];
          MACO_UNROLL
          for (int s = 0; s < kSums; ++s)
            sums[s] =
                C::blocks ? fn::add(runs[s][i], A(0)) : runs[s][i];  // no -0: matmul_block.cuh
          return from_acc<Y>(finish(more.pieces[i / V].at(i % V), sums));
        },
        [&](int i, i64 element, Vec<Y, V>& v) {
          adder.template add<V>(more.parts[i], element, v);
        });
  }
};

// A tile's sums, and the pages of its operands as they come.
template <class C>
struct TensorProduct {
  using S = TensorShape<C>;
  using B = BlockTaker<typename S::PagesB, (int)C::BN>;
  // As many blocks at once as a page of either operand has: each end of asynchronous
  // multiplications takes a while. Elements of 8 bits go one block at a time, whatever the tile is,
  // as each block is summed separately.
  static constexpr int kInPage =
      S::PagesA::kBlocks < S::PagesB::kBlocks ? S::PagesA::kBlocks : S::PagesB::kBlocks;
  static constexpr int kAtOnce = sizeof(typename C::X) == 1 ? 1 : kInPage;
  static constexpr bool kWhole =
      kAtOnce == 1 ||
      (S::kShared ? S::kSharedStep / S::kDepth : S::kBlocks) % (kAtOnce * S::kParts) == 0;

  PageTaker pages;
  BlockTaker<typename S::PagesA, (int)C::BM> a;
  B b, other;  // other: of a pair
  typename S::Tile tile;
  const int blocks;
  bool landed = false;  // whether the next pages have arrived

  MACO_FN TensorProduct(Context& ctx, const MatmulTile<C>& t)
      : pages(ctx), a(pages), b(pages), other(pages), blocks(S::blocks(ctx, t).count) {}

  // Pages of all operands.
  MACO_FN int pages_of(int block) const { return a.pages_of(block) + S::kSums * b.pages_of(block); }
  // Multiplies kCount blocks.
  template <int kCount>
  MACO_FN void multiply(int block) {
    if (!landed) pages.await(pages_of(block));
    a.take(pages, block);
    b.take(pages, block);
    if constexpr (C::has_pair) other.take(pages, block);
    tile.begin();
    MACO_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if constexpr (S::kSwap) {
        tile.multiply(b.at(block + i), {a.at(block + i)});
      } else if constexpr (C::has_pair) {
        tile.multiply(a.at(block + i), {b.at(block + i), other.at(block + i)});
      } else {
        tile.multiply(a.at(block + i), {b.at(block + i)});
      }
    }
    tile.commit();
    const int next = block + kCount;
    const bool last = next >= blocks;
    // Meanwhile the next pages may arrive.
    if (S::kBulk && !last) landed = pages.landed(pages_of(next));
    tile.wait();
    a.release(pages, next - 1, last);
    b.release(pages, next - 1, last);
    if constexpr (C::has_pair) other.release(pages, next - 1, last);
  }
  MACO_FN void multiply_all() {
    if constexpr (S::kTogether) pages.align(S::kStepPages);
    int block = 0;
    for (; block + kAtOnce <= blocks; block += kAtOnce) multiply<kAtOnce>(block);
    // In a separate loop: in one that may end early, ptxas serialises multiplications (C7520).
    if constexpr (!kWhole)
      for (; block < blocks; ++block) multiply<1>(block);
    pages.finish();
  }
};

// Finishes and stores a tile's sums.
template <class C, class Tile>
MACO_FN void matmul_tensor_store(Context& ctx, const Args& args, u32 index, const MatmulTile<C>& t,
                                 const Tile& tile) {
  constexpr bool kSwap = TensorShape<C>::kSwap;
  const MatmulStore<C> store{
      t, args, {ctx, args, index}, {ctx, args, index}, typename C::Target(ctx)};
  if constexpr (!kSwap && sizeof(typename C::Y) == 2 && __is_empty(typename C::More) &&
                !C::Add::kAdds && Tile::kFinishes) {
    tile.each_finished(ctx.scratch(), store);
  } else {
    // The most elements of a store.
    constexpr int kRun =
        (int)least(16 / (int)sizeof(typename C::Y), Tile::template kMostRun<kSwap>);
    tile.template each_run<kSwap, kRun>(ctx.scratch(), store);
  }
}

template <class C>
MACO_FN void matmul_tensor(Context& ctx, const Args& args, u32 index) {
  const MatmulTile<C> t(ctx, index);
  if (t.rows <= 0) return;
  TensorProduct<C> product(ctx, t);
  product.multiply_all();
  C::Turn::turn(args, t, product.tile);
  matmul_tensor_store<C>(ctx, args, index, t, product.tile);
}

}  // namespace maco::ops
