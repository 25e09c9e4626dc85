#include "compiler/api/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "compiler/cost/machine.h"
#include "compiler/passes/fuse/rules.h"

namespace maco::api {

namespace {

// The words of "a,b".
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

}  // namespace

std::string command_line(const passes::PipelineOptions& o) {
  std::string s = "--target=" + o.target;
  const cost::Machine* usual = cost::find_machine(o.target);
  if (!o.board.empty() && !(usual && usual->board == o.board)) s += " --board=" + o.board;
  if (o.sms > 0) s += fmt::format(" --sms={}", o.sms);
  if (!o.load_ahead) s += " --no-load-ahead";
  if (!o.fuse) {
    s += " --no-fuse";
  } else if (!o.no_fuse.empty()) {
    std::vector<std::string> rules = passes::fuse_rule_names();  // in their order, each once
    std::erase_if(rules, [&](const std::string& rule) {
      return std::find(o.no_fuse.begin(), o.no_fuse.end(), rule) == o.no_fuse.end();
    });
    s += fmt::format(" --no-fuse={}", fmt::join(rules, ","));
  }
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
  o.no_fuse.clear();
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
    else if (option == "--no-fuse" && equals == std::string::npos)
      o.fuse = false;
    else if (option == "--no-fuse")
      o.no_fuse = split(value);
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
