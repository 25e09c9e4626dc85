// The footprints with which a later access may still conflict, by address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace maco::passes {

/// Footprints by number. Addresses are cut into segments; in a segment the live footprints are the
/// same.
class LiveBytes {
 public:
  LiveBytes() { segments_[INT64_MIN]; }

  void add(uint32_t footprint, bool writes, int64_t begin, int64_t end) {
    if (refs_.size() <= footprint) refs_.resize(footprint + 1, 0);
    split(begin), split(end);
    for (auto at = segments_.find(begin); at != segments_.end() && at->first < end; ++at) {
      (writes ? at->second.writes : at->second.reads).push_back(footprint);
      ++refs_[footprint];
    }
  }

  /// The footprints that live between two addresses, ascending; those that read only if `reads` is
  /// set.
  std::vector<uint32_t> between(int64_t begin, int64_t end, bool reads) const {
    std::vector<uint32_t> found;
    for (auto at = std::prev(segments_.upper_bound(begin));
         at != segments_.end() && at->first < end; ++at) {
      found.insert(found.end(), at->second.writes.begin(), at->second.writes.end());
      if (reads) found.insert(found.end(), at->second.reads.begin(), at->second.reads.end());
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  /// Removes the footprints with numbers below `first_kept` between two addresses. Calls `dead` for
  /// each one that lives nowhere any more.
  template <class Dead>
  void clear(int64_t begin, int64_t end, uint32_t first_kept, const Dead& dead) {
    split(begin), split(end);
    for (auto at = segments_.find(begin); at != segments_.end() && at->first < end; ++at)
      for (std::vector<uint32_t>* list : {&at->second.reads, &at->second.writes})
        std::erase_if(*list, [&](uint32_t f) {
          if (f >= first_kept) return false;
          if (--refs_[f] == 0) dead(f);
          return true;
        });
  }

 private:
  struct Segment {  // up to the next
    std::vector<uint32_t> reads, writes;
  };
  void split(int64_t at) {
    const auto before = std::prev(segments_.upper_bound(at));
    if (before->first == at) return;
    for (const std::vector<uint32_t>* list : {&before->second.reads, &before->second.writes})
      for (uint32_t f : *list) ++refs_[f];
    segments_.emplace(at, before->second);
  }

  std::map<int64_t, Segment> segments_;  // by where they begin
  std::vector<uint32_t> refs_;           // by footprint: in how many segments it lives
};

}  // namespace maco::passes
