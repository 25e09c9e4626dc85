#include "runtime/host/settings.h"

#include <random>

#include "tests/catch.h"

namespace maco::runtime {

using test::Contains;

TEST_CASE("settings that are the same everywhere don't differ") {
  const Settings one = {{"--seed", "2"}, {"the kernel", "1a2b", true}};
  CHECK(differences({one, one, one}).empty());
  CHECK(differences({one}).empty());
}

TEST_CASE("what differs is told with the values of all ranks") {
  const auto seed = [](const char* value) {
    return Settings{{"--seed", value}, {"--check", "given"}};
  };
  CHECK(differences({seed("2"), seed("3")}) == "--seed is 2 on rank 0, 3 on rank 1");
  CHECK(differences({seed("2"), seed("3"), seed("2"), seed("4")}) ==
        "--seed is 2 on ranks 0 and 2, 3 on rank 1, 4 on rank 3");
  CHECK(differences({{{"--seed", "2"}, {"--dim n", "4"}}, {{"--seed", "3"}, {"--dim n", "5"}}}) ==
        "--seed is 2 on rank 0, 3 on rank 1; --dim n is 4 on rank 0, 5 on rank 1");
}

TEST_CASE("a setting that a rank lacks is not given there") {
  CHECK(differences({{}, {{"--scalar pos", "3+"}}}) ==
        "--scalar pos is not given on rank 0, 3+ on rank 1");
  CHECK(differences({{{"--rtol", "not given"}}, {}}).empty());
}

TEST_CASE("what follows from another difference isn't told") {
  const auto told = [](const char* options, const char* kernel) {
    return Settings{{"options", options}, {"the kernel", kernel, true}};
  };
  CHECK(differences({told("a", "1"), told("b", "2")}) == "options is a on rank 0, b on rank 1");
  CHECK(differences({told("a", "1"), told("a", "2")}) == "the kernel is 1 on rank 0, 2 on rank 1");
}

TEST_CASE("settings come back from their text, whatever their bytes") {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(random() % 9, ' ');
    for (char& c : text) c = static_cast<char>(random());
    return text;
  };
  for (int i = 0; i < 300; ++i) {
    Settings settings;
    for (size_t n = random() % 5; n > 0; --n)
      settings.push_back({word(), word(), random() % 2 == 0});
    const auto back = unpack(pack(settings));
    REQUIRE(back);
    CHECK(*back == settings);
    // Half of it is refused, or is settings that are whole.
    const std::string text = pack(settings);
    for (size_t end = 0; end < text.size(); ++end)
      if (const auto half = unpack(text.substr(0, end))) CHECK(half->size() < settings.size());
  }
  for (const char* wrong : {"", "0123456789abcdef", "settings 2\n", "settings 1\n3 abc",
                            "settings 1\n99999999999999999999 a\n", "settings 1\n-1 a\n"})
    CHECK_FALSE(unpack(wrong));
}

TEST_CASE("a session's settings name what all ranks must have") {
  SessionOptions options;
  const Settings usual = settings_of("no kernel", options);
  options.ranks_per_gpu = 2;
  options.peer_memory = "nccl";
  options.profiled_tasks = 3;
  options.first_epoch = 9;
  const std::string other = differences({usual, settings_of("another kernel", options)});
  CHECK_THAT(other, Contains("the kernel is ") &&
                        Contains("the number of ranks on a GPU is 1 on rank 0, 2 on rank 1") &&
                        Contains("peer memory is auto on rank 0, nccl on rank 1") &&
                        Contains("a profile is not given on rank 0, asked for on rank 1") &&
                        Contains("the first epoch is 1 on rank 0, 9 on rank 1"));
  // Each rank has its own patience.
  options = {};
  options.timeout_ms = 5;
  options.jitter = 3;
  CHECK(differences({usual, settings_of("no kernel", options)}).empty());
}

}  // namespace maco::runtime
