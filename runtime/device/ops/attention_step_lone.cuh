// attention_step_lone.cuh: the rows of a task for a lane that stands for all.

namespace maco::ops {

template <class C>
struct LoneStep {
  using S = StepShape<C>;
  using X = typename C::X;
  float q[S::kRows][S::D], top[S::kRows], total[S::kRows] = {}, sum[S::kRows][S::D] = {};
  float score[kStepRound][S::kRows][S::kKeys > kStepChunk ? S::kKeys : kStepChunk];

  static MACO_FN int chunk() { return 0; }
  static MACO_FN float at(const char* lines, int line, int d) {
    return to_acc(((const X*)(lines + swizzled(line, d / kChunk)))[d % kChunk]);
  }
  static MACO_FN int wide(int group) { return (int)least(kBlockK, S::D - group * kBlockK); }
  MACO_FN void load_queries(int group, const char* lines) {
    for (int r = 0; r < S::kRows; ++r) {
      top[r] = kLeast;
      for (int d = 0; d < wide(group); ++d) q[r][group * kBlockK + d] = at(lines, r, d);
    }
  }
  MACO_FN void score_keys(int block, int group, const char* keys, int, int count) {
    for (int j = 0; j < count; ++j) {
      float key[kBlockK];
      for (int d = 0; d < wide(group); ++d) key[d] = at(keys, j, d);
      for (int r = 0; r < S::kRows; ++r) {
        float part[8] = {};
        for (int d = 0; d < wide(group); ++d)
          part[d % 8] = ffma(q[r][group * kBlockK + d], key[d], part[d % 8]);
        float& s = score[block][r][j];
        if (group == 0) s = 0;
        for (int e = 0; e < 8; ++e) s = fadd(s, part[e]);
      }
    }
  }
  template <int kBlocks, class Seen, class Hidden>
  MACO_FN void weigh_keys(Seen seen, Hidden hidden) {
    for (int r = 0; r < S::kRows; ++r) {
      const int t = r / (int)C::HB;
      const auto from = [&](int b) { return S::kEdge && b == 0 ? hidden(t) : 0; };
      float high = top[r];
      for (int b = 0; b < kBlocks; ++b)
        for (int j = from(b); j < seen(b, t); ++j) {
          score[b][r][j] = near_score_of_product<C, false>(score[b][r][j]);
          high = fn::maximum(high, score[b][r][j]);
        }
      const float shrink = step_weight(fsub(top[r], high));
      float all = 0;
      for (int b = 0; b < kBlocks; ++b)
        for (int j = from(b); j < seen(b, t); ++j) {
          score[b][r][j] = step_weight(fsub(score[b][r][j], high));
          all = fadd(all, score[b][r][j]);
        }
      total[r] = fadd(fmul(total[r], shrink), all);
      top[r] = high;
      for (int d = 0; d < S::D; ++d) sum[r][d] = fmul(sum[r][d], shrink);
    }
  }
  MACO_FN void add_values(int block, int group, const char* values, int, int seen, int hidden) {
    add_some_values(block, group, values, seen, [=](int j, int) { return j >= hidden; });
  }
  MACO_FN void add_seen_values(int group, const char* values, int, const Sight& sight) {
    add_some_values(0, group, values, sight.most, [=](int j, int t) {
      return j < sight.of(t) && (!S::kEdge || j >= sight.from(t));
    });
  }
  template <class Seen>
  MACO_FN void add_some_values(int block, int group, const char* values, int most, Seen seen) {
    for (int j = 0; j < most; ++j) {
      float value[kBlockK];
      for (int d = 0; d < wide(group); ++d) value[d] = at(values, j, d);
      for (int r = 0; r < S::kRows; ++r)
        if (seen(j, r / (int)C::HB))
          for (int d = 0; d < wide(group); ++d) {
            float& to = sum[r][group * kBlockK + d];
            to = ffma(score[block][r][j], value[d], to);
          }
    }
  }
  template <int kUsed, class F>
  MACO_FN void merge(char*, F f) {
    for (int r = 0; r < S::kRows; ++r)
      for (int d = 0; d < S::D; ++d) f(r, d, sum[r][d], top[r], total[r]);
  }
};

}  // namespace maco::ops
