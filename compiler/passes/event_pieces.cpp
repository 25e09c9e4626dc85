#include "compiler/passes/event_pieces.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace maco::passes {

namespace {

using ir::TaskId;

// A set with more pieces than this stays whole.
constexpr size_t kMostPieces = 32;
// Cutting must save at least this many signals for each wait that it adds.
constexpr int64_t kSignalsAWait = 4;
// Each round drops the sets that aren't worth cutting, so that the others have fewer pieces.
// Further rounds change next to nothing.
constexpr int kRounds = 4;

// Among sets that are cut together, a piece is the tasks that are in the same sets. Sets with too
// many pieces are cut among themselves.
class Cutter {
 public:
  Cutter(const std::vector<std::vector<TaskId>>& sets, const std::vector<int64_t>& uses)
      : sets_(sets), uses_(uses) {
    size_t end = 0;
    first_ = ~size_t{0};
    for (const std::vector<TaskId>& set : sets_)
      for (TaskId t : set) {
        first_ = std::min(first_, index(t));
        end = std::max(end, index(t) + 1);
      }
    if (end > 0) piece_.resize(end - first_);
  }

  EventPieces run() {
    result_.of.resize(sets_.size());
    std::vector<uint32_t> left(sets_.size());
    std::iota(left.begin(), left.end(), 0);
    while (!left.empty()) {
      together_ = std::move(left);
      left.clear();
      refine();
      for (int round = 0; round < kRounds && drop(left); ++round) refine();
      if (together_.empty()) {
        together_ = std::move(left);
        left.clear();
        for (uint32_t s : together_) result_.of[s] = {number(sets_[s])};
      } else {
        add_pieces();
      }
      std::sort(left.begin(), left.end());
    }
    return std::move(result_);
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  uint32_t& piece_of(TaskId t) { return piece_[index(t) - first_]; }

  void refine() {
    std::fill(piece_.begin(), piece_.end(), 0);
    count_ = 1;
    std::vector<uint32_t> part;  // by piece: the part of the piece that is in the set
    for (uint32_t s : together_) {
      part.assign(count_, kNone);
      for (TaskId t : sets_[s]) {
        uint32_t& piece = piece_of(t);
        if (part[piece] == kNone) part[piece] = count_++;
        piece = part[piece];
      }
    }
  }

  std::vector<uint32_t> pieces_of(size_t set) {
    std::vector<uint32_t> pieces;
    seen_.resize(std::max<size_t>(seen_.size(), count_), 0);
    ++stamp_;
    for (TaskId t : sets_[set]) {
      const uint32_t piece = piece_of(t);
      if (std::exchange(seen_[piece], stamp_) != stamp_) pieces.push_back(piece);
    }
    return pieces;
  }

  // Moves the sets that aren't worth cutting to `left`. Returns whether there were any.
  bool drop(std::vector<uint32_t>& left) {
    std::vector<uint32_t> kept;
    for (uint32_t s : together_) {
      const size_t n = pieces_of(s).size();
      const bool worth =
          n <= kMostPieces && kSignalsAWait * uses_[s] * static_cast<int64_t>(n - 1) <=
                                  static_cast<int64_t>(sets_[s].size());
      (worth ? kept : left).push_back(s);
    }
    const bool any = kept.size() < together_.size();
    together_ = std::move(kept);
    return any;
  }

  void add_pieces() {
    std::vector<std::vector<TaskId>> tasks(count_);  // by piece
    std::vector<uint32_t> number_of(count_, kNone);
    for (uint32_t s : together_) {
      const std::vector<uint32_t> pieces = pieces_of(s);
      for (TaskId t : sets_[s])
        if (number_of[piece_of(t)] == kNone) tasks[piece_of(t)].push_back(t);
      for (uint32_t piece : pieces) {
        if (number_of[piece] == kNone) number_of[piece] = number(std::move(tasks[piece]));
        result_.of[s].push_back(number_of[piece]);
      }
    }
  }

  uint32_t number(std::vector<TaskId> tasks) {
    const auto [it, fresh] =
        known_.try_emplace(std::move(tasks), static_cast<uint32_t>(result_.tasks.size()));
    if (fresh) result_.tasks.push_back(it->first);
    return it->second;
  }

  const std::vector<std::vector<TaskId>>& sets_;
  const std::vector<int64_t>& uses_;
  EventPieces result_;
  std::map<std::vector<TaskId>, uint32_t> known_;  // pieces of the result
  std::vector<uint32_t> together_;                 // sets that are being cut
  size_t first_ = 0;                               // task
  std::vector<uint32_t> piece_;                    // by task, from the first
  uint32_t count_ = 0;                             // of pieces
  std::vector<uint32_t> seen_;                     // by piece: the stamp of its last use
  uint32_t stamp_ = 0;
};

}  // namespace

namespace {

// How many of the most awaited sets are looked for in other sets.
constexpr size_t kMostCommon = 16;

// If a set contains another set that is awaited anyway, it consists of that set and the rest: the
// tasks of the other set then signal one event for both. For each set: the other set, or none.
// Rests come behind the sets.
class Covers {
 public:
  Covers(std::vector<std::vector<TaskId>>& sets, std::vector<int64_t>& uses)
      : sets_(sets), uses_(uses) {
    find_common();
    const size_t given = sets_.size();
    cover_.assign(given, kNone);
    rest_.assign(given, kNone);
    for (size_t s = 0; s < given; ++s) {
      const size_t within = largest_within(s);
      if (within == kNone) continue;
      std::vector<TaskId> rest;
      std::set_difference(sets_[s].begin(), sets_[s].end(), sets_[within].begin(),
                          sets_[within].end(), std::back_inserter(rest));
      const auto [it, fresh] = rests_.try_emplace(std::move(rest), sets_.size());
      if (fresh) {
        sets_.push_back(it->first);
        uses_.push_back(0);
      }
      cover_[s] = within;
      rest_[s] = it->second;
      uses_[it->second] += uses_[s];
      uses_[within] += uses_[s];
    }
  }
  static constexpr size_t kNone = ~size_t{0};
  size_t within(size_t s) const { return s < cover_.size() ? cover_[s] : kNone; }
  size_t rest(size_t s) const { return rest_[s]; }

 private:
  void find_common() {
    for (size_t s = 0; s < sets_.size(); ++s)
      if (uses_[s] > 1) common_.push_back(s);
    const auto signals = [&](size_t s) { return uses_[s] * static_cast<int64_t>(sets_[s].size()); };
    std::stable_sort(common_.begin(), common_.end(),
                     [&](size_t a, size_t b) { return signals(a) > signals(b); });
    common_.resize(std::min(common_.size(), kMostCommon));
  }
  // The largest of the common sets that makes up most of set `s`, if it saves enough signals.
  size_t largest_within(size_t s) const {
    size_t best = kNone;
    for (size_t c : common_) {
      const size_t size = sets_[c].size();
      if (size >= sets_[s].size() || 2 * size < sets_[s].size() ||
          kSignalsAWait * uses_[s] > static_cast<int64_t>(size) ||
          (best != kNone && size <= sets_[best].size()) || sets_[c].front() < sets_[s].front() ||
          sets_[c].back() > sets_[s].back())
        continue;
      if (std::includes(sets_[s].begin(), sets_[s].end(), sets_[c].begin(), sets_[c].end()))
        best = c;
    }
    return best;
  }

  std::vector<std::vector<TaskId>>& sets_;
  std::vector<int64_t>& uses_;
  std::vector<size_t> common_, cover_, rest_;
  std::map<std::vector<TaskId>, size_t> rests_;
};

}  // namespace

EventPieces cut_sets(std::vector<std::vector<TaskId>> sets, std::vector<int64_t> uses) {
  const size_t given = sets.size();
  const Covers covers(sets, uses);
  std::vector<size_t> cut;  // sets that don't consist of others
  std::vector<std::vector<TaskId>> to_cut;
  std::vector<int64_t> their_uses;
  for (size_t s = 0; s < sets.size(); ++s) {
    if (covers.within(s) != Covers::kNone) continue;
    cut.push_back(s);
    to_cut.push_back(std::move(sets[s]));
    their_uses.push_back(uses[s]);
  }
  EventPieces found = Cutter(to_cut, their_uses).run();
  std::vector<std::vector<uint32_t>> of(sets.size());
  for (size_t i = 0; i < cut.size(); ++i) of[cut[i]] = std::move(found.of[i]);
  // Contained sets are smaller, so that the recursion ends.
  const auto put_together = [&](const auto& self, size_t s) -> void {
    if (!of[s].empty()) return;
    const size_t within = covers.within(s), rest = covers.rest(s);
    self(self, within);
    of[s] = of[within];
    for (uint32_t piece : of[rest])
      if (std::find(of[s].begin(), of[s].end(), piece) == of[s].end()) of[s].push_back(piece);
  };
  for (size_t s = 0; s < given; ++s) put_together(put_together, s);
  of.resize(given);
  found.of = std::move(of);
  return found;
}

}  // namespace maco::passes
