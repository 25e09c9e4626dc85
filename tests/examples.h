// The example graphs, as tests read them.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace maco::test {

/// Puts `to` wherever `from` stands in `text`.
inline void replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// The text of an example, its eighty layers cut to two: they are one layer eighty times. Throws
/// std::runtime_error if it can't be read.
inline std::string example_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("can't read " + path.string());
  std::string text(std::istreambuf_iterator<char>(in), {});
  replace(text, "in 0..80", "in 0..2");
  replace(text, "x_80", "x_2");
  return text;
}

}  // namespace maco::test
