#include "compiler/frontend/huggingface/cuts.h"

#include <fmt/format.h>

#include <algorithm>

namespace maco::frontend::huggingface {

namespace {

// Rows whose length is a multiple of this many elements are multiples of 16 bytes in every type.
constexpr int64_t kAligned = 16;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t kMost = int64_t{1} << 40, kMostHeads = int64_t{1} << 16;
void positive(int64_t n, const char* what, int64_t most = kMost) {
  if (n < 1) throw Wrong{fmt::format("{} is {}, but must be at least 1", what, n)};
  if (n > most) throw Wrong{fmt::format("{} is {}, but must be at most {}", what, n, most)};
}

// A cut from the units that each rank has, in order; units below 0 are zeros.
Value cut_of(int64_t whole, int64_t unit, int64_t copies,
             const std::vector<std::vector<int64_t>>& ranks) {
  Value cut = Value::array();
  for (const std::vector<int64_t>& units : ranks) {
    std::vector<Run> runs;
    for (size_t i = 0; i < units.size(); ++i) {
      const int64_t begin = static_cast<int64_t>(i) * unit, from = units[i] * unit;
      if (units[i] < 0) continue;
      if (!runs.empty() && runs.back().end == begin &&
          runs.back().from + begin - runs.back().begin == from)
        runs.back().end += unit;
      else
        runs.push_back({begin, begin + unit, from});
    }
    Value list = Value::array();
    for (const Run& r : runs) list.push_back({r.begin, r.end, r.from});
    cut.push_back(std::move(list));
  }
  const int64_t local = static_cast<int64_t>(ranks[0].size()) * unit;
  return {{"whole", whole}, {"local", local}, {"copies", copies}, {"cut", std::move(cut)}};
}

// The units of each rank for key_cut.
std::vector<std::vector<int64_t>> key_heads(int64_t heads, int64_t world) {
  const int64_t each = ceil_div(heads, world), copies = heads < world ? world / heads : 1;
  std::vector<std::vector<int64_t>> ranks(static_cast<size_t>(world));
  for (int64_t r = 0; r < world; ++r)
    for (int64_t i = 0; i < each; ++i) {
      const int64_t head = r / copies * each + i;
      ranks[static_cast<size_t>(r)].push_back(head < heads ? head : -1);
    }
  return ranks;
}

}  // namespace

Value even_cut(int64_t whole, int64_t world) {
  positive(whole, "the extent");
  int64_t local = ceil_div(whole, world);
  if (whole % world != 0) local = ceil_div(local, kAligned) * kAligned;
  Value cut = Value::array();
  for (int64_t r = 0; r < world; ++r) {
    const int64_t from = r * local, count = std::min(local, whole - from);
    cut.push_back(Value::array());
    if (count > 0) cut.back().push_back({0, count, from});
  }
  return {{"whole", whole}, {"local", local}, {"copies", 1}, {"cut", std::move(cut)}};
}

Value key_cut(int64_t heads, int64_t head_dim, int64_t world) {
  positive(heads, "the number of heads", kMostHeads);
  positive(head_dim, "the size of a head", kMostHeads);
  return cut_of(heads * head_dim, head_dim, heads < world ? world / heads : 1,
                key_heads(heads, world));
}

Value query_cut(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t world) {
  positive(heads, "the number of heads", kMostHeads);
  positive(kv_heads, "the number of heads of keys", kMostHeads);
  positive(head_dim, "the size of a head", kMostHeads);
  if (heads % kv_heads != 0)
    throw Wrong{fmt::format("{} heads are no multiple of {} heads of keys", heads, kv_heads)};
  const int64_t group = heads / kv_heads, copies = kv_heads < world ? world / kv_heads : 1;
  const int64_t each = ceil_div(group, copies);  // ranks with the same key head share its queries
  const auto keys = key_heads(kv_heads, world);
  std::vector<std::vector<int64_t>> ranks(static_cast<size_t>(world));
  for (int64_t r = 0; r < world; ++r)
    for (const int64_t key : keys[static_cast<size_t>(r)])
      for (int64_t i = 0; i < each; ++i) {
        const int64_t in_group = r % copies * each + i;
        ranks[static_cast<size_t>(r)].push_back(
            key < 0 || in_group >= group ? -1 : key * group + in_group);
      }
  return cut_of(heads * head_dim, head_dim, copies, ranks);
}

std::vector<Run> runs_of(const Value& cut, int64_t rank) {
  std::vector<Run> runs;
  for (const Value& r : cut["cut"][static_cast<size_t>(rank)])
    runs.push_back({r[0].get<int64_t>(), r[1].get<int64_t>(), r[2].get<int64_t>()});
  return runs;
}

}  // namespace maco::frontend::huggingface
