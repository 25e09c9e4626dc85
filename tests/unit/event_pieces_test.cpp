// Overlapping sets of tasks become few events: a task signals once for all sets that it is in.
#include "compiler/passes/event_pieces.h"

#include <algorithm>
#include <iterator>

#include "tests/catch.h"

namespace maco::test {
namespace {

using ir::TaskId;
using passes::cut_sets;

using Tasks = std::vector<TaskId>;

void add(Tasks& tasks, uint32_t begin, uint32_t end) {
  for (uint32_t t = begin; t < end; ++t) tasks.push_back(TaskId{t});
}
Tasks range(uint32_t begin, uint32_t end) {
  Tasks tasks;
  add(tasks, begin, end);
  return tasks;
}
// The union of a set's pieces, which have to be disjoint.
Tasks joined(const passes::EventPieces& pieces, size_t set) {
  Tasks all;
  for (uint32_t piece : pieces.of[set])
    std::copy(pieces.tasks[piece].begin(), pieces.tasks[piece].end(), std::back_inserter(all));
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  return all;
}
size_t signals(const passes::EventPieces& pieces) {
  size_t n = 0;
  for (const Tasks& tasks : pieces.tasks) n += tasks.size();
  return n;
}

TEST_CASE("sets that share most of their tasks share an event for it") {
  std::vector<Tasks> sets;
  for (uint32_t s = 0; s < 14; ++s) {
    sets.push_back(range(1000, 1896));
    add(sets.back(), 2000 + 16 * s, 2016 + 16 * s);
  }
  const passes::EventPieces pieces = cut_sets(sets, std::vector<int64_t>(sets.size(), 1));
  CHECK(pieces.tasks.size() == 15);
  CHECK(signals(pieces) == 896 + 14 * 16);
  for (size_t s = 0; s < sets.size(); ++s) {
    CHECK(pieces.of[s].size() == 2);
    CHECK(joined(pieces, s) == sets[s]);
  }
}

TEST_CASE("sets stay whole where their pieces would be too many waits") {
  std::vector<Tasks> sets = {range(0, 512)};
  std::vector<int64_t> uses = {100};
  for (uint32_t t = 0; t < 512; t += 4) {
    sets.push_back(range(t, t + 4));
    uses.push_back(4);
  }
  const passes::EventPieces pieces = cut_sets(sets, uses);
  CHECK(pieces.tasks.size() == sets.size());
  for (size_t s = 0; s < sets.size(); ++s) {
    CHECK(pieces.of[s].size() == 1);
    CHECK(joined(pieces, s) == sets[s]);
  }
}

TEST_CASE("sets that are too many pieces of small ones are cut among themselves") {
  std::vector<Tasks> sets;
  for (uint32_t t = 0; t < 1024; t += 16) sets.push_back(range(t, t + 16));
  for (uint32_t s = 0; s < 8; ++s) {
    sets.push_back(range(0, 896));
    add(sets.back(), 896 + 16 * s, 912 + 16 * s);
  }
  const passes::EventPieces pieces = cut_sets(sets, std::vector<int64_t>(sets.size(), 2));
  CHECK(pieces.tasks.size() == 65);  // the small ones, and what the large ones share
  CHECK(signals(pieces) == 1024 + 896);
  for (size_t s = 0; s < sets.size(); ++s) CHECK(joined(pieces, s) == sets[s]);
}

TEST_CASE(
    "two sets that many wait for stay events of their own in sets that each hold one of them") {
  const Tasks low = range(0, 64), high = range(64, 128);
  std::vector<Tasks> sets = {low, high};
  std::vector<int64_t> uses = {32, 32};
  for (uint32_t t = 0; t < 64; t += 2) {
    sets.push_back(low);
    add(sets.back(), 64 + t, 66 + t);
    sets.push_back(range(t, t + 2));
    add(sets.back(), 64, 128);
    uses.insert(uses.end(), 2, 1);
  }
  const passes::EventPieces pieces = cut_sets(sets, uses);
  CHECK(pieces.tasks.size() == 2 + 64);
  CHECK(signals(pieces) == 2 * 128);
  for (size_t s = 0; s < sets.size(); ++s) CHECK(joined(pieces, s) == sets[s]);
}

}  // namespace
}  // namespace maco::test
