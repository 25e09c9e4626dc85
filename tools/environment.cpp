#include "tools/environment.h"

#include "runtime/host/cubin_cache.h"

namespace maco::tools {

const std::vector<EnvironmentVariables>& environment_variables() {
  static const std::vector<EnvironmentVariables> all = {
      {{"MACO_CACHE_DIR"}, "where compiled kernels are kept (empty: nowhere)"},
      {{"XDG_CACHE_HOME", "HOME"}, "else below the first, or in ~/.cache"},
      {{"MACO_CACHE_MB"}, "how many megabytes of them (2048)"},
      {{"MACO_CXX", "CXX", "PATH"}, "the CPU target's compiler"},
      {{"MACO_CLANG", "MACO_NVRTC", "MACO_NCCL", "MACO_NVSHMEM"}, "the library's file or folder"},
      {{"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"}, "where else CUDA's headers and libraries may be"},
      {{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, "which of how many processes"},
      {{"MASTER_ADDR", "MASTER_PORT", "MACO_GROUP", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"},
       "whose group it is"},
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
       "the same of Open MPI"},
      {{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID"}, "of MPICH"},
      {{"TMPDIR"}, "for temporary files"},
      {{"NO_COLOR"}, "no colours"}};
  return all;
}

std::string environment_text() {
  constexpr size_t kWidth = 100;
  std::string text, line = "Environment:";
  const auto add = [&](const std::string& word) {
    if (line.size() + 1 + word.size() > kWidth) {
      text += line + "\n";
      line = " ";
    }
    line += " " + word;
  };
  const auto& all = environment_variables();
  for (size_t i = 0; i < all.size(); ++i) {
    for (const char* name : all[i].names) add(std::string(name) + ",");
    std::string word;
    for (const char c : std::string(all[i].what) + (i + 1 < all.size() ? ";" : ".") + " ") {
      if (c != ' ') {
        word += c;
        continue;
      }
      add(word);
      word.clear();
    }
  }
  return text + line + "\n";
}

runtime::Status check_environment() {
  runtime::Status status;
  runtime::CubinCache::standard(status);
  return status;
}

}  // namespace maco::tools
