// Who touched which bytes of private memory, for all ranks at once, and whether a task comes after
// all of them that it has to come after.
//
// The tasks of a call mostly touch tiles of the same buffers, so that what has been touched is kept
// in groups: of a call and access, and of neighbours among them. Mostly one look at a group is
// enough, since all of it has ended. If not, the boxes that a task meets are looked at one by one.
// Boxes of a space (regions.h) are neighbours there, and a group has one space or none.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/verify/history.h"
#include "compiler/verify/model.h"
#include "compiler/verify/own_clocks.h"
#include "compiler/verify/regions.h"

namespace maco::verify {

/// Intervals that come and go; those that meet one are found in logarithmic time each.
class Intervals {
 public:
  /// `begins` ascends.
  explicit Intervals(std::vector<int64_t> begins);
  /// Interval `i` ends at `end`; INT64_MIN: it isn't there.
  void set(size_t i, int64_t end);
  /// Appends the numbers of those that meet [begin, end).
  void find(int64_t begin, int64_t end, std::vector<uint32_t>& found) const;

 private:
  void find(size_t node, size_t first, size_t count, int64_t begin, int64_t end,
            std::vector<uint32_t>& found) const;
  std::vector<int64_t> begins_;
  size_t leaves_ = 1;
  std::vector<int64_t> ends_;  // the last end below a node
};

class PrivatePast {
 public:
  PrivatePast(const Model& model, const Layout& layout);

  /// Whether the task that `clocks` has started last surely comes after whoever touched what it
  /// touches, on every rank, and is later in the list of tasks too. Remembers it. Adds to `pairs`
  /// those that it had to compare.
  bool visit(uint32_t task, const OwnClocks& clocks, int64_t& pairs);
  /// Forgets tasks that are among the first `ended[s]` of their stream s and the first `listed` of
  /// the list. Every task to come is ordered after the former, and none is among the latter.
  void forget(const int32_t* ended, uint32_t listed);

 private:
  struct Touch {
    Box box;
    uint64_t ranks;
    uint32_t task;
    uint32_t group;
  };
  // The boxes of a group, to be searched; made when it is needed first.
  struct Index {
    explicit Index(const std::vector<Box>& boxes) : table(boxes, ids) {}
    std::vector<uint32_t> ids;  // before `table`, which fills it
    BoxTable table;
    Lists<uint32_t> touches;  // by box
  };
  struct Group {
    int64_t begin = INT64_MAX, end = INT64_MIN;                    // bytes
    int64_t begin_in_space = INT64_MAX, end_in_space = INT64_MIN;  // if it has one
    int32_t space = 0;
    bool writes = false;
    uint32_t interval = 0, interval_in_space = 0;
    // What is there: touches, the last task of the list, and the last place in each stream plus 1;
    // the streams one by one while they are few, then all of them.
    std::vector<uint32_t> there;
    size_t alive = 0;
    uint32_t last_task = 0;
    std::vector<std::pair<uint32_t, int32_t>> few;
    std::vector<int32_t> all;
    std::unique_ptr<Index> index;
  };
  static constexpr size_t kFew = 12;  // streams, or touches that are looked at one after another
  static constexpr uint32_t kMost = 128;  // touches of a group

  // Groups by their intervals, of those in which something is there.
  struct Live {
    std::unique_ptr<Intervals> intervals;
    std::vector<uint32_t> groups;
  };
  void make_groups(const std::vector<uint32_t>& kind, uint32_t kinds);
  void make_intervals(bool writes);
  void set_there(const Group& group, bool there);
  void find(const Box& box, bool writes);
  void add(uint32_t touch);
  void clear(Group& group);
  bool comes_after(Group& group, const Touch& now, int64_t& pairs);
  bool all_ended(const Group& group) const;
  bool comes_after_each(Group& group, const Touch& now, int64_t& pairs);
  bool comes_after_touch(Group& group, uint32_t past, const Touch& now, int64_t& pairs);
  bool takes_rest(uint32_t past, const Box& box);
  Index& indexed(size_t group);

  const Model& model_;
  const OwnClocks* clocks_ = nullptr;
  uint64_t world_ = 0;  // a bit a rank
  std::vector<Touch> touches_;
  std::vector<uint64_t> there_;  // by touch: the ranks of which it is remembered
  // By touch, of those of which some bytes are overwritten and some aren't.
  std::unordered_map<uint32_t, Rest> rests_;
  std::vector<uint32_t> first_touch_;  // by task
  Lists<uint32_t> members_;            // by group: its touches
  std::vector<Group> groups_;
  // Groups that read, and groups that write: without a space, with one by bytes, and in their
  // spaces.
  Live plain_[2], of_spaces_[2], in_spaces_[2];
  const int32_t spaces_;
  std::vector<uint32_t> live_;  // groups in which something is or was there
  std::vector<bool> is_live_;
  std::vector<uint32_t> found_, found_groups_;
  std::vector<BoxTable::Run> runs_;
};

}  // namespace maco::verify
