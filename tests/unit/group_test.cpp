// Who a process is by its environment, and how processes meet; in threads here.
#include "runtime/host/group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "tests/catch.h"

namespace maco::runtime {
namespace {

using test::Contains;

// Only these of the variables that say who a process is, until the end.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& only) {
    for (const std::string& name : group_variables()) {
      const char* text = std::getenv(name.c_str());
      old_[name] = text ? std::optional<std::string>(text) : std::nullopt;
      unsetenv(name.c_str());
    }
    for (const auto& [name, value] : only) {
      REQUIRE(old_.count(name) == 1);
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : old_)
      if (value)
        setenv(name.c_str(), value->c_str(), 1);
      else
        unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> old_;
};

struct Found {
  std::optional<GroupPlace> place;
  std::string why;
};
Found found(const std::map<std::string, std::string>& only) {
  const Environment environment(only);
  Status status;
  auto place = group_from_environment(status);
  return {place, status.message};
}

// A name that no other test has.
std::string group_name() {
  static int count = 0;
  return fmt::format("test {} {}", getpid(), count++);
}

// What each of some ranks is told when it meets the others; they come at once.
std::vector<std::string> meet(const std::vector<GroupPlace>& places,
                              const std::vector<Settings>& told, uint64_t timeout_ms = 20000) {
  std::vector<std::string> said(places.size());
  std::vector<std::unique_ptr<Group>> groups(places.size());  // all last as long as the longest
  std::vector<std::thread> threads;
  for (size_t i = 0; i < places.size(); ++i)
    threads.emplace_back([&, i] {
      Status status;
      groups[i] = Group::join(places[i], told[i], timeout_ms, status);
      said[i] = status.message;
    });
  for (std::thread& t : threads) t.join();
  return said;
}

}  // namespace

TEST_CASE("a rank and a size make a place") {
  for (const auto& [rank, size] : std::vector<std::pair<std::string, std::string>>{
           {"RANK", "WORLD_SIZE"},
           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
           {"PMI_RANK", "PMI_SIZE"}}) {
    const Found here = found({{rank, "2"}, {size, "3"}});
    REQUIRE(here.place);
    CHECK(here.place->rank == 2);
    CHECK(here.place->size == 3);
    CHECK_FALSE(found({{rank, "0"}, {size, "1"}}).place);
  }
  CHECK_FALSE(found({}).place);
  CHECK(found({}).why.empty());
  // Names alone say nothing of a rank.
  CHECK(found({{"MASTER_ADDR", "here"}}).why.empty());
}

TEST_CASE("half a place is refused, with the half that is missing") {
  const struct {
    const char *set, *missing;
  } halves[] = {{"RANK", "WORLD_SIZE is"},
                {"WORLD_SIZE", "RANK is"},
                {"LOCAL_RANK", "RANK and WORLD_SIZE are"},
                {"LOCAL_WORLD_SIZE", "RANK and WORLD_SIZE are"},
                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE is"},
                {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK is"},
                {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are"},
                {"PMI_RANK", "PMI_SIZE is"},
                {"PMI_SIZE", "PMI_RANK is"},
                {"MPI_LOCALNRANKS", "PMI_RANK and PMI_SIZE are"}};
  for (const auto& half : halves) {
    const Found here = found({{half.set, "1"}});
    CHECK_FALSE(here.place);
    CHECK_THAT(here.why,
               Contains(fmt::format("{} is '1', but {} not set: ", half.set, half.missing)) &&
                   Contains("--peer-memory threads"));
  }
  // What another launcher says in full counts.
  CHECK(found({{"WORLD_SIZE", "2"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).place);
  const Found port = found({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}});
  CHECK_THAT(port.why, Contains("MASTER_PORT is set, but MASTER_ADDR is not"));
}

TEST_CASE("what is no rank of a group is refused, with its value") {
  for (const char* wrong : {"", "x", "1x", " 1", "1.0", "0x1", "-1", "99999999999", "+1"}) {
    CHECK_THAT(found({{"RANK", wrong}, {"WORLD_SIZE", "2"}}).why,
               Contains(fmt::format("RANK is '{}', which is no whole number", wrong)));
    CHECK_THAT(found({{"RANK", "0"}, {"WORLD_SIZE", wrong}}).why,
               Contains(fmt::format("WORLD_SIZE is '{}', which is no whole number", wrong)));
    CHECK_THAT(found({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", wrong}}).why,
               Contains(fmt::format("LOCAL_WORLD_SIZE is '{}', which is no whole number", wrong)));
  }
  CHECK_THAT(found({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).why,
             Contains("RANK is '2' and WORLD_SIZE is '2': that is no rank of a group"));
  CHECK_THAT(found({{"RANK", "0"}, {"WORLD_SIZE", "0"}}).why, Contains("no rank of a group"));
  CHECK_THAT(found({{"RANK", "0"}, {"WORLD_SIZE", "65"}}).why, Contains("at most 64 ranks"));
  CHECK_THAT(found({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}).why,
             Contains("several hosts"));
  CHECK_THAT(found({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}).why,
             Contains("LOCAL_RANK is 2, but WORLD_SIZE is 2"));
}

TEST_CASE("ranks that were told the same meet, others hear what differs") {
  const std::string name = group_name();
  const std::vector<GroupPlace> places = {{0, 3, name}, {1, 3, name}, {2, 3, name}};
  const Settings two = {{"--seed", "2"}}, three = {{"--seed", "3"}};
  for (const std::string& said : meet(places, {two, two, two})) CHECK(said.empty());
  for (const std::string& said : meet(places, {two, three, two}))
    CHECK(said ==
          "the ranks were told different things: --seed is 2 on ranks 0 and 2, 3 on rank 1");
}

TEST_CASE("ranks of groups of other sizes hear that") {
  const std::string name = group_name();
  for (const std::string& said : meet({{0, 2, name}, {2, 3, name}}, {{}, {}}))
    CHECK(said == "rank 2 is one of 3 processes, rank 0 of 2");
}

TEST_CASE("two processes of one rank hear that") {
  const std::string name = group_name();
  for (const int rank : {0, 1, 2}) {
    std::vector<GroupPlace> places = {{0, 3, name}, {1, 3, name}, {2, 3, name}};
    places.push_back(places[static_cast<size_t>(rank)]);
    const auto said = meet(places, {{}, {}, {}, {}}, 3000);
    // At least one process hears of the two, or waits for others in vain. The others meet if the
    // second one came too late to be in their way.
    int told = 0;
    for (const std::string& one : said) {
      const bool named = one.find(fmt::format("two processes say that they are rank {}", rank)) !=
                         std::string::npos;
      // A process that comes after the two have ended waits for them in vain.
      CAPTURE(one);
      const bool late = one.find(" did not come within ") != std::string::npos;
      CHECK((one.empty() || named || late));
      told += named || late ? 1 : 0;
    }
    CHECK(told >= 1);
  }
  // Without a third process, each that has met no other yet hears of the two.
  for (const int rank : {0, 1}) {
    const std::vector<GroupPlace> places = {{rank, 2, name}, {rank, 2, name}};
    for (const std::string& one : meet(places, {{}, {}}))
      CHECK_THAT(one, Contains(fmt::format("two processes say that they are rank {}", rank)) &&
                          Contains(fmt::format("{}", getpid())));
  }
}

TEST_CASE("a rank waits for the end of the last run's process") {
  const std::string name = group_name();
  Status status;
  std::vector<std::unique_ptr<Group>> last(2);
  std::thread other([&] {
    Status met;
    last[1] = Group::join({1, 2, name}, {}, 20000, met);
  });
  last[0] = Group::join({0, 2, name}, {}, 20000, status);
  other.join();
  REQUIRE(last[0]);
  REQUIRE(last[1]);
  std::vector<std::string> said;
  std::thread next([&] { said = meet({{0, 2, name}, {1, 2, name}}, {{}, {}}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  last.clear();
  next.join();
  for (const std::string& one : said) CHECK(one.empty());
}

TEST_CASE("a place is free again when its group has ended") {
  const std::string name = group_name();
  for (int i = 0; i < 3; ++i)
    for (const std::string& said : meet({{0, 2, name}, {1, 2, name}}, {{}, {}}))
      CHECK(said.empty());
}

}  // namespace maco::runtime
