// Boards are data: boards/*.json, embedded, and files that users name. Each figure has its source.
// The figures of the H200 are measured by MACO's own benchmarks. Most others are data sheets' upper
// limits; data sheets count both directions of a link together, of which half is taken, and rates
// of dense matrices.

#include "compiler/cost/boards.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "cmake/embedded.h"
#include "compiler/cost/machine.h"
#include "ir/check.h"

extern const maco::EmbeddedFile maco_boards[];
extern const size_t maco_boards_count;

namespace maco::cost {

namespace {

using nlohmann::json;

// A figure's key in the file, and the least and most that it may be.
struct FigureKey {
  const char* key;
  Figure Board::* figure;
  double least, most;
};
constexpr double kMostRate = 1e18, kMostMicroseconds = 1e6;
const FigureKey kFigures[] = {
    {"matrix_flops_per_s", &Board::flops, 1, kMostRate},
    {"f32_flops_per_s", &Board::f32_flops, 1, kMostRate},
    {"memory_bytes_per_s", &Board::memory_rate, 1, kMostRate},
    {"link_bytes_per_s", &Board::link_rate, 1, kMostRate},
    {"sm_memory_bytes_per_s", &Board::sm_memory_rate, 1, kMostRate},
    {"sm_plain_bytes_per_s", &Board::sm_plain_rate, 1, kMostRate},
    {"sm_link_bytes_per_s", &Board::sm_link_rate, 1, kMostRate},
    {"hand_over_us", &Board::hand_over, 0, kMostMicroseconds},
    {"packet_hand_over_us", &Board::packet_hand_over, 0, kMostMicroseconds},
    {"hop_us", &Board::hop, 0, kMostMicroseconds},
    {"task_us", &Board::task, 0, kMostMicroseconds},
    {"f32_reached", &Board::f32_reached, 1e-6, 1},
    {"nccl_us", &Board::nccl, 0, kMostMicroseconds},
};

class Reader {
 public:
  std::string why;  // the first thing that is wrong

  std::optional<Board> read(const json& file) {
    if (!file.is_object()) return wrong("is no object");
    std::set<std::string> known = {"board", "target", "description", "sms", "comm_sms"};
    for (const FigureKey& f : kFigures) known.insert(f.key);
    for (const auto& [key, value] : file.items())
      if (!known.count(key))
        return wrong(fmt::format(
            "has an unknown key '{}'{}", key,
            ir::did_you_mean(key, std::vector<std::string>(known.begin(), known.end()))));
    Board b;
    b.board = text(file, "board");
    b.of_target = text(file, "target");
    b.description = text(file, "description");
    const Figure sms = figure(file, "sms", 1, 1024), comm = figure(file, "comm_sms", 1, 1023);
    for (const FigureKey& f : kFigures) b.*f.figure = figure(file, f.key, f.least, f.most);
    if (!why.empty()) return std::nullopt;
    b.sms = static_cast<int32_t>(sms.value);
    b.sms_source = sms.source;
    b.default_comm = static_cast<int32_t>(comm.value);
    if (b.sms != sms.value || b.default_comm != comm.value)
      return wrong("has a number of SMs that isn't whole");
    if (b.default_comm >= b.sms)
      return wrong("has no SM that computes: 'comm_sms' are all of 'sms'");
    return b;
  }

 private:
  std::nullopt_t wrong(std::string what) {
    if (why.empty()) why = std::move(what);
    return std::nullopt;
  }
  std::string text(const json& file, const char* key) {
    const auto at = file.find(key);
    if (at != file.end() && at->is_string() && !at->get_ref<const std::string&>().empty())
      return at->get<std::string>();
    wrong(fmt::format("has no text '{}'", key));
    return "";
  }
  Figure figure(const json& file, const char* key, double least, double most) {
    const auto at = file.find(key);
    if (at == file.end() || !at->is_object() || at->size() != 2 || !at->contains("value") ||
        !(*at)["value"].is_number() || !at->contains("source") || !(*at)["source"].is_string()) {
      wrong(fmt::format(R"(has no figure '{}', written as {{"value": 1.5, "source": "measured"}})",
                        key));
      return {};
    }
    const Figure f{(*at)["value"].get<double>(), (*at)["source"].get<std::string>()};
    if (!(f.value >= least && f.value <= most))
      wrong(fmt::format("has {} for '{}', which is {} to {}", f.value, key, least, most));
    return f;
  }
};

}  // namespace

bool is_board_file(std::string_view board) {
  return board.find('/') != board.npos ||
         (board.size() > 5 && board.substr(board.size() - 5) == ".json");
}

std::optional<Board> read_board(const std::string& text, std::string& why) {
  const json file = json::parse(text, nullptr, false);
  if (file.is_discarded()) {
    why = "is no JSON";
    return std::nullopt;
  }
  Reader reader;
  std::optional<Board> board = reader.read(file);
  why = reader.why;
  return board;
}

std::optional<Board> read_board_file(const std::string& path, std::string& why) {
  std::ifstream file(path);
  if (!file) {
    why = "can't be read";
    return std::nullopt;
  }
  std::ostringstream text;
  text << file.rdbuf();
  return read_board(text.str(), why);
}

const std::vector<Board>& all_boards() {
  static const std::vector<Board> boards = [] {
    std::vector<Board> list;
    for (size_t i = 0; i < maco_boards_count; ++i) {
      std::string why;
      std::optional<Board> board = read_board(maco_boards[i].text, why);
      MACO_CHECK(board, std::string(maco_boards[i].name) + " " + why);
      list.push_back(std::move(*board));
    }
    // By architecture, each one's default first.
    const auto rank = [](const Board& b) {
      const auto& all = all_architectures();
      const auto of = std::find_if(all.begin(), all.end(),
                                   [&](const Architecture& a) { return a.target == b.of_target; });
      return std::pair(of - all.begin(), of == all.end() || of->default_board != b.board);
    };
    std::stable_sort(list.begin(), list.end(),
                     [&](const Board& a, const Board& b) { return rank(a) < rank(b); });
    return list;
  }();
  return boards;
}

}  // namespace maco::cost
