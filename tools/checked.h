// What --check found for a tensor, over all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/reference/check.h"

namespace maco::tools {

/// The result for a tensor that is right on all ranks that were checked.
struct Checked {
  int ranks = 0;
  int worst_rank = 0;
  double error = 0, bound = 0;                     // there, as in CheckResult
  int64_t elements = 0, not_finite = 0, tied = 0;  // of all ranks together

  void add(int rank, const reference::CheckResult& result);
  void add(const Checked& others);
};

/// "'y': ok on 4 ranks, worst error 0.00015 of 0.01 on rank 2; 3 of 4000 are not finite".
std::string to_line(const std::string& tensor, const Checked& checked);

/// The results as text for other processes, and back; false if the text isn't valid.
std::string pack(const std::vector<Checked>& all);
bool unpack(const std::string& text, std::vector<Checked>& all);

}  // namespace maco::tools
