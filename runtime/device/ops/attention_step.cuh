// attention_step: attention of a few new rows over a cache and over themselves, from the result of
// the matmul before it. Queries, keys and values are read from its rows, normed and rotated (rope)
// on the way. A task is some query rows of some heads that share keys, over one of several splits
// of the cache; attention_merge merges the splits.
//
// Keys and values come through pages (attention_pages.cuh), a few blocks of keys in a round: what a
// warp does with its sixteen keys of one block needn't wait for its work on other blocks. Blocks
// begin with the first key that some new row sees. With a window later rows don't see some of the
// keys after it; there are fewer of these than a warp has of a block. Warps, and behind them
// splits, merge their results in order. So the order of additions follows from the number of keys
// and of splits, and from whether a task has more than eight rows.

namespace maco::ops {

// The rows, heads and keys of a task.
template <class C>
struct StepTile {
  static constexpr i64 kBlocks = C::HQ / C::HB;  // of heads
  i64 split, head, kv_head, first, rows, all, old;
  MACO_FN StepTile(Context& ctx, u32 tile) {
    split = tile % C::splits;
    head = (i64)(tile / C::splits) % kBlocks * C::HB;
    kv_head = head / (C::HQ / C::HKV);
    first = (i64)(tile / C::splits) / kBlocks * C::BT;
    all = C::rows::get(ctx);
    rows = least(C::BT, all - first);
    old = C::length::get(ctx) - all;
  }
  // The first old key that a row sees.
  MACO_FN i64 begin() const { return first_seen<C>(old + 1); }
  // Those old keys from there on that some rows see, but not all.
  MACO_FN Sight edge() const {
    const i64 missing = maco::most(C::window - 1 - old, 0);  // keys that the window has room for
    const int some = (int)least(maco::most(all - 1 - missing, 0), old - begin());
    return {some, some, 0, some, (int)(first - missing)};
  }
};

template <class C>
MACO_OP void attention_step_load(Context& ctx, Args args, u32 tile) {
  const StepTile<C> t(ctx, tile);
  if (t.rows <= 0) return;
  constexpr int kKeys = StepShape<C>::kKeys;
  // As for a matmul's norm: the weights are few, but far away.
  const auto fetch = [&](int operand, i64 bytes) {
    const char* weights = args.ptr<const char>(operand);
    for (i64 i = loader_thread() * kLineBytes; i < bytes; i += kLoaders * kLineBytes)
      prefetch(weights + i);
  };
  constexpr int kNorms = StepShape<C>::kNorms;
  constexpr i64 kNormBytes = C::D * (i64)sizeof(typename C::N);
  if constexpr (C::q_normed) fetch(kNorms, kNormBytes);
  if constexpr (C::k_normed) fetch(kNorms + (C::q_normed ? 1 : 0), kNormBytes);
  if constexpr (C::by_radians) fetch(8, C::R / 2 * (i64)sizeof(float));
  if constexpr (C::tabled) {
    constexpr i64 kRowBytes = C::table_cols * (i64)sizeof(typename C::T);
    for (int table = 8; table < 10; ++table) {
      const char* first =
          args.ptr<const char>(table) + (C::position::get(ctx) + t.first) * kRowBytes;
      for (i64 i = loader_thread() * kLineBytes; i < t.rows * kRowBytes; i += kLoaders * kLineBytes)
        prefetch(first + i);
    }
  }
  head_load<C, 3, kKeys, kStepRound>(ctx, args, t.kv_head, t.begin() + t.split * kKeys,
                                     C::splits * kKeys, t.old);
}

// Operands, in order:
// - q, k and v [rows, q_cols ...]; this attention's heads begin at columns q_begin, k_begin and
//   v_begin. With `stored`, k and v are the caches, which have the new rows already.
// - the caches [.., HKV*D]
// - y [rows,HQ*D] or, with several splits, the operand of attention_merge
// - the new rows of keys and values to append, [rows,HKV*D]
// - with `tabled` cosines and sines as for rope_tables; with `by_radians` the frequencies as for
//   rope_frequencies
// - the weights of the norms of q and of k, if they have one.
// C: X (of all but y, norms and rope's operands), Y, T (of the tables), N (of the norms), rows,
// length (keys, including new ones), position (of the first new row), HQ, HKV, D, R (rotated
// elements of a head), HB (heads of a task), BT (its rows), splits, q_cols, k_cols, v_cols,
// q_begin, k_begin, v_begin, causal, stored, turned, tabled, by_radians, interleaved, q_normed,
// k_normed, q_eps, k_eps, table_cols as for rope_tables, factor and turns(i) as for rope, and the
// parameters of attention_scores.
template <class C>
struct AttentionStep {
  using S = StepShape<C>;
  using X = typename C::X;
  using Y = typename C::Y;
  using N = typename C::N;
  using Keys = typename Either<(kWarpLanes == 1), LoneStep<C>, WarpStep<C>>::type;
  // Elements in pairs. The first kTurned pairs are rotated; the others are pairs of adjacent
  // elements.
  static constexpr int kPairs = S::D / 2, kTurned = (int)C::R / 2;
  static constexpr int kShare = (kPairs + kWarpLanes - 1) / kWarpLanes;

  Context& ctx;
  const Args& args;
  const StepTile<C> t;
  char* const queries;
  char* const new_keys;
  char* const new_values;

  MACO_FN AttentionStep(Context& context, const Args& arguments, u32 tile)
      : ctx(context),
        args(arguments),
        t(context, tile),
        queries(context.scratch()),
        new_keys(queries + S::kAreaBytes),
        new_values(new_keys + S::kAreaBytes) {}

  // A group of the new rows.
  static MACO_FN char* lines_of(char* area, int group) {
    return area + group * (kStepRows * kLineBytes);
  }
  static MACO_FN void put(char* area, int line, i64 d, X value) {
    char* chunk = lines_of(area, (int)(d / kBlockK)) + swizzled(line, (int)(d % kBlockK / kChunk));
    ((X*)chunk)[d % kChunk] = value;
  }

  // A lane's pairs of a head's elements.
  template <class T>
  static MACO_FN void load_pairs(const T* from, float (&a)[kShare], float (&b)[kShare]) {
    MACO_UNROLL
    for (int j = 0; j < kShare; ++j) {
      const int pair = warp_lane() + j * kWarpLanes;
      a[j] = b[j] = 0;
      if (pair < kPairs) {
        a[j] = to_acc(gload(from + first_of(pair)));
        b[j] = to_acc(gload(from + second_of(pair)));
      }
    }
  }
  static MACO_FN void load_pairs(Received<X> from, float (&a)[kShare], float (&b)[kShare]) {
    PacketRun<X, 1> runs[2 * kShare];  // the first of a pair, the second
    receive_together(*from.ctx, from.operand, runs, [&](int i) {
      const int pair = (int)least(warp_lane() + i / 2 * kWarpLanes, kPairs - 1);
      return from + (i % 2 == 0 ? first_of(pair) : second_of(pair));
    });
    MACO_UNROLL
    for (int j = 0; j < kShare; ++j) {
      const bool there = warp_lane() + j * kWarpLanes < kPairs;
      a[j] = there ? to_acc(runs[2 * j].get(0)) : 0.0f;
      b[j] = there ? to_acc(runs[2 * j + 1].get(0)) : 0.0f;
    }
  }
  // A head of a row of queries, keys or values: where it is, and what is done with it.
  struct Row {
    int operand;
    i64 offset;
    bool turns;        // normed, if it has weights, and rotated
    const N* weights;  // of the norm, or nullptr
    float eps;
    i64 position;
    char* area;
    int line;
    X* also;  // a second destination, or nullptr
  };
  static constexpr int kAngles = C::tabled ? TableRow<C>::kOf : 1;
  static MACO_FN bool in_line(int pair) {
    return C::interleaved || (kTurned < kPairs && pair >= kTurned);
  }
  static MACO_FN int first_of(int pair) { return in_line(pair) ? 2 * pair : pair; }
  static MACO_FN int second_of(int pair) { return in_line(pair) ? 2 * pair + 1 : pair + kTurned; }
  MACO_FN void load_row(const Row& row, float (&a)[kShare], float (&b)[kShare]) {
    if constexpr (C::q_packets == C::k_packets && C::k_packets == C::v_packets) {
      load_pairs(to_read<X, C::q_packets>(args, row.operand) + row.offset, a, b);
    } else {
      if (row.operand == 0) load_pairs(to_read<X, C::q_packets>(args, 0) + row.offset, a, b);
      if (row.operand == 1) load_pairs(to_read<X, C::k_packets>(args, 1) + row.offset, a, b);
      if (row.operand == 2) load_pairs(to_read<X, C::v_packets>(args, 2) + row.offset, a, b);
    }
  }
  // One warp norms the row, rotates it, puts it into a line, and stores it. All rows share this
  // code: it runs once in a task, and fetching code takes most of its time.
  MACO_FN void prepare(const Row& row) {
    // What doesn't depend on the row comes before the wait for it. The angles are those of a pair's
    // first element and, if it has its own, of the second.
    float sines[kAngles][kShare] = {}, cosines[kAngles][kShare] = {};
    if constexpr (C::turned) {
      MACO_UNROLL
      for (int j = 0; j < kShare; ++j) {
        const int pair = warp_lane() + j * kWarpLanes;
        if (row.turns && pair < kTurned) {
          if constexpr (C::tabled) {
            MACO_UNROLL
            for (int e = 0; e < kAngles; ++e) {
              cosines[e][j] = TableRow<C>::load(args, 8, row.position, pair, e);
              sines[e][j] = TableRow<C>::load(args, 9, row.position, pair, e);
            }
          } else {
            if constexpr (C::by_radians) {
              const float frequency = gload(args.ptr<const float>(8) + pair);
              sines_at(row.position, frequency, sines[0][j], cosines[0][j]);
            } else {
              sines_of((u64)row.position * C::turns(pair), sines[0][j], cosines[0][j]);
            }
            sines[0][j] = by_factor<C>(sines[0][j]), cosines[0][j] = by_factor<C>(cosines[0][j]);
          }
        }
      }
    }
    [[maybe_unused]] float norm_a[kShare], norm_b[kShare];
    if constexpr (C::q_normed || C::k_normed) {
      if (row.weights) load_pairs(row.weights, norm_a, norm_b);
    }
    float a[kShare], b[kShare];
    load_row(row, a, b);
    if constexpr (C::q_normed || C::k_normed) {
      if (row.weights) {
        float squares = 0;
        MACO_UNROLL
        for (int j = 0; j < kShare; ++j) squares = ffma(a[j], a[j], ffma(b[j], b[j], squares));
        const float scale = norm_scale<S::D>(warp_sum(squares), row.eps);
        MACO_UNROLL
        for (int j = 0; j < kShare; ++j) {
          a[j] = round_to<X>(fmul(fmul(a[j], scale), norm_a[j]));
          b[j] = round_to<X>(fmul(fmul(b[j], scale), norm_b[j]));
        }
      }
    }
    MACO_UNROLL
    for (int j = 0; j < kShare; ++j) {
      const int pair = warp_lane() + j * kWarpLanes;
      if (pair < kPairs) {
        float x = a[j], y = b[j];
        if constexpr (C::turned) {
          if (row.turns && (kTurned == kPairs || pair < kTurned)) {
            x = fsub(fmul(a[j], cosines[0][j]), fmul(b[j], sines[0][j]));
            y = fadd(fmul(b[j], cosines[kAngles - 1][j]), fmul(a[j], sines[kAngles - 1][j]));
          }
        }
        put(row.area, row.line, first_of(pair), from_acc<X>(x));
        put(row.area, row.line, second_of(pair), from_acc<X>(y));
        if (row.also) {
          gstore(row.also + first_of(pair), from_acc<X>(x));
          gstore(row.also + second_of(pair), from_acc<X>(y));
        }
      }
    }
    if constexpr (S::D % 16 != 0) {  // the other half of a step
      if (warp_lane() == 0)
        for (int d = S::D; d < 16 * S::kSteps; ++d) put(row.area, row.line, d, from_acc<X>(0.0f));
    }
  }
  // Prepares the task's queries and, with the first split, the new keys and values: each warp one
  // row.
  MACO_FN void prepare_rows() {
    const i64 position = C::position::get(ctx);
    const int fresh = t.split == 0 ? (int)t.all : 0;
    // One task appends them to the cache.
    const bool appends = t.first == 0 && t.head % (C::HQ / C::HKV) == 0;
    const i64 behind = C::stored ? t.old : 0;
    const N* norms[2] = {};
    if constexpr (C::q_normed) norms[0] = args.ptr<const N>(S::kNorms);
    if constexpr (C::k_normed) norms[1] = args.ptr<const N>(S::kNorms + (C::q_normed ? 1 : 0));
    for (int i = warp(); i < S::kRows + 2 * fresh; i += kWarps) {
      Row what;
      if (i < S::kRows) {
        const i64 row = t.first + i / C::HB, head = t.head + i % C::HB;
        if (row >= t.all) continue;
        what = {0,
                row * C::q_cols + C::q_begin + head * C::D,
                true,
                norms[0],
                (float)C::q_eps,
                position + row,
                queries,
                i,
                nullptr};
      } else {
        const bool key = i < S::kRows + fresh;
        const int row = i - S::kRows - (key ? 0 : fresh);
        const i64 head = t.kv_head * C::D;
        X* to = args.ptr<X>(key ? 6 : 7) + row * S::kCols + head;
        what = {key ? 1 : 2,
                head + (key ? (behind + row) * C::k_cols + C::k_begin
                            : (behind + row) * C::v_cols + C::v_begin),
                key,
                key ? norms[1] : nullptr,
                (float)C::k_eps,
                position + row,
                key ? new_keys : new_values,
                row,
                appends ? to : nullptr};
      }
      prepare(what);
    }
  }

  // Calls f(block, group, page) for the keys, or the values, of at most kBlocks blocks. C::pages
  // pages are awaited, and released, together.
  template <int kBlocks, class F>
  static MACO_FN void each_page(PageTaker& pages, int blocks, const F& f) {
    constexpr int kAll = kBlocks * S::kGroups;
    MACO_UNROLL
    for (int first = 0; first < kAll; first += C::pages) {
      const int here = (int)least(most(blocks * S::kGroups - first, 0), C::pages);
      pages.await_some(here);
      MACO_UNROLL
      for (int i = first; i < first + C::pages && i < kAll; ++i)
        if (i / S::kGroups < blocks) f(i / S::kGroups, i % S::kGroups, pages.take_awaited());
      pages.release_together(here);
    }
  }
  // Blocks of which all rows see seen(block) keys here, except for the keys of `edge`, with which
  // the first block begins.
  template <int kBlocks, class Seen>
  static MACO_FN void round_of_keys(Keys& found, PageTaker& pages, int blocks, const Seen& seen,
                                    const Sight& edge) {
    each_page<kBlocks>(pages, blocks, [&](int b, int g, const char* keys) {
      found.score_keys(b, g, keys, Keys::chunk(), seen(b));
    });
    found.template weigh_keys<kBlocks>([&](int b, int) { return seen(b); },
                                       [&](int row) { return edge.from(row); });
    each_page<kBlocks>(pages, blocks, [&](int b, int g, const char* values) {
      const int hidden = S::kEdge && b == 0 ? edge.most : 0;
      if (seen(b) > 0) found.add_values(b, g, values, Keys::chunk(), seen(b), hidden);
      if (hidden > 0) found.add_seen_values(g, values, Keys::chunk(), edge);
    });
  }
  MACO_FN void old_keys(Keys& found) {
    PageTaker pages(ctx);
    constexpr i64 kStride = C::splits * S::kKeys;
    Sight edge = {0, 0, 0, 0, -kStepRows};
    if (S::kEdge && t.split == 0 && warp() == 0) edge = t.edge();
    for (i64 begin = t.begin() + t.split * S::kKeys; begin < t.old; begin += kStepRound * kStride) {
      const int blocks = (int)least(kStepRound, (t.old - begin + kStride - 1) / kStride);
      const auto seen = [&](int b) {
        const int left = (int)least(S::kKeys, t.old - begin - b * kStride) - Keys::chunk();
        return kWarpLanes == 1 ? left : (int)least(left, kStepChunk);
      };
      // A single block has code of its own: the code for four would be fetched even where it is
      // skipped.
      if (kWarpLanes > 1 && blocks == 1)
        round_of_keys<1>(found, pages, blocks, seen, edge);
      else
        round_of_keys<kStepRound>(found, pages, blocks, seen, edge);
      edge = {0, 0, 0, 0, -kStepRows};
    }
    pages.finish();
  }
  MACO_FN void keys_of_new_rows(Keys& found) {
    const int all = (int)t.all;
    const Sight sight = {all, C::causal ? (int)t.first + 1 : all, C::causal ? 1 : 0, all,
                         S::kEdge ? (int)(t.first + 1 - C::window) : 0};
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g) found.score_keys(0, g, lines_of(new_keys, g), 0, all);
    found.template weigh_keys<1>([&](int, int row) { return sight.of(row); },
                                 [&](int row) { return sight.from(row); });
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g)
      found.add_seen_values(g, lines_of(new_values, g), 0, sight);
  }

  MACO_FN void run() {
    if (t.rows <= 0) return;
    prepare_rows();
    cta_sync();
    Keys found;
    MACO_UNROLL
    for (int g = 0; g < S::kGroups; ++g) found.load_queries(g, lines_of(queries, g));
    old_keys(found);
    if (t.split == 0 && warp() == 0) keys_of_new_rows(found);
    found.template merge<3 * S::kAreaBytes>(
        ctx.scratch(), [&](int r, int d, float value, float top, float total) {
          const i64 row = t.first + r / C::HB, head = t.head + r % C::HB;
          if (row >= t.all) return;
          if constexpr (C::splits == 1) {
            gstore(to_write<Y, C::y_packets>(args, 5) + row * C::HQ * C::D + head * C::D + d,
                   from_acc<Y>(fdiv(value, total)));
          } else {
            const auto part = to_write<float, C::y_packets>(args, 5) +
                              ((row * C::splits + t.split) * C::HQ + head) * (C::D + 2);
            gstore(part + d, value);
            if (d == 0) {
              gstore(part + C::D, top);
              gstore(part + C::D + 1, total);
            }
          }
        });
  }
};

template <class C>
MACO_OP void attention_step(Context& ctx, Args args, u32 tile) {
  AttentionStep<C>(ctx, args, tile).run();
}

}  // namespace maco::ops
