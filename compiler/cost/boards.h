// Boards as they stand in files (docs/boards.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/cost/machine.h"

namespace maco::cost {

/// Whether the value of --board is a file's path: it has a '/' or ends with ".json".
bool is_board_file(std::string_view board);
/// The board that `text`, JSON, describes; nothing, and why: "has no figure 'hop_us', ...".
std::optional<Board> read_board(const std::string& text, std::string& why);
/// The same for a file.
std::optional<Board> read_board_file(const std::string& path, std::string& why);

}  // namespace maco::cost
