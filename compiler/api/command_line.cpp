#include "compiler/api/command_line.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>

#include "compiler/cost/machine.h"

namespace maco::api {

std::string command_line(const passes::PipelineOptions& o) {
  std::string s = "--target=" + o.target;
  const cost::Machine* usual = cost::find_machine(o.target);
  if (!o.board.empty() && !(usual && usual->board == o.board)) s += " --board=" + o.board;
  if (o.sms > 0) s += fmt::format(" --sms={}", o.sms);
  if (!o.load_ahead) s += " --no-load-ahead";
  if (!o.fuse) s += " --no-fuse";
  if (!o.prune) s += " --no-prune";
  if (!o.packets) s += " --no-packets";
  return s;
}

bool read_command_line(const std::string& text, passes::PipelineOptions& options) {
  passes::PipelineOptions o = options;
  o.target.clear();
  o.board.clear();
  o.sms = 0;
  o.load_ahead = o.fuse = o.prune = o.packets = true;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    const std::string option = word.substr(0, equals),
                      value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (option == "--target")
      o.target = value;
    else if (option == "--board")
      o.board = value;
    else if (option == "--sms")
      o.sms = std::strtoll(value.c_str(), nullptr, 10);
    else if (option == "--no-load-ahead")
      o.load_ahead = false;
    else if (option == "--no-fuse")
      o.fuse = false;
    else if (option == "--no-prune")
      o.prune = false;
    else if (option == "--no-packets")
      o.packets = false;
  }
  if (command_line(o) != text || !cost::find_machine(o.target, o.board)) return false;
  options = std::move(o);
  return true;
}

}  // namespace maco::api
