#include "compiler/frontend/cuda/clang_prelude.h"

#include <fstream>
#include <sstream>

namespace maco::frontend::cuda {

namespace {

// nvcc includes <assert.h>; the others are functions of its own. Their bodies are never compiled.
constexpr const char* kPrelude = R"cuda(#pragma once
#pragma clang system_header
#include <assert.h>
#pragma push_macro("MACO_FN")
#pragma push_macro("MACO_EACH")
#undef MACO_FN
#undef MACO_EACH
#define MACO_FN static inline __device__
#define MACO_EACH(M)                                                                      \
  M(char) M(signed char) M(short) M(int) M(long) M(long long)                             \
  M(unsigned char) M(unsigned short) M(unsigned int) M(unsigned long)                     \
  M(unsigned long long) M(float) M(double)                                                \
  M(char2) M(char4) M(short2) M(short4) M(int2) M(int4) M(longlong2)                      \
  M(uchar2) M(uchar4) M(ushort2) M(ushort4) M(uint2) M(uint4) M(ulonglong2)               \
  M(float2) M(float4) M(double2)
#define MACO_HINTED(T)                                                                    \
  MACO_FN T __ldca(const T* from) { return *from; }                                       \
  MACO_FN T __ldlu(const T* from) { return *from; }                                       \
  MACO_FN void __stwb(T* to, T value) { *to = value; }                                    \
  MACO_FN void __stcg(T* to, T value) { *to = value; }                                    \
  MACO_FN void __stcs(T* to, T value) { *to = value; }
MACO_EACH(MACO_HINTED)
#undef MACO_HINTED
MACO_FN unsigned long __ldcg(const unsigned long* from) { return *from; }
MACO_FN unsigned long __ldcs(const unsigned long* from) { return *from; }
MACO_FN unsigned long __ldcv(const unsigned long* from) { return *from; }
MACO_FN void __stwt(unsigned long* to, unsigned long value) { *to = value; }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define MACO_PAIRS(name, ...) \
  MACO_FN float2 name##_rn(__VA_ARGS__) { return float2{}; } \
  MACO_FN float2 name##_rd(__VA_ARGS__) { return float2{}; } \
  MACO_FN float2 name##_ru(__VA_ARGS__) { return float2{}; } \
  MACO_FN float2 name##_rz(__VA_ARGS__) { return float2{}; }
MACO_PAIRS(__fadd2, float2, float2)
MACO_PAIRS(__fmul2, float2, float2)
MACO_PAIRS(__ffma2, float2, float2, float2)
#undef MACO_PAIRS
#endif
#pragma pop_macro("MACO_EACH")
#pragma pop_macro("MACO_FN")
)cuda";

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

std::map<std::string, std::string> prelude_files(const std::string& resources,
                                                 const std::string& cuda_folder) {
  std::map<std::string, std::string> files = {{kPreludeFile, kPrelude}};
  // As variables they can be copied, and templates deduce their types from them.
  const std::string path = resources + "/include/__clang_cuda_builtin_vars.h";
  std::string text = read(path);
  for (const char* name : {"threadIdx", "blockIdx", "blockDim", "gridDim"}) {
    const std::string of = std::string(" __cuda_builtin_") + name + "_t " + name + ";";
    const size_t at = text.find(of);
    if (at == std::string::npos) continue;
    text.replace(
        at, of.size(),
        std::string(std::string(name).ends_with("Idx") ? " uint3 " : " dim3 ") + name + ";");
  }
  if (!text.empty()) files[path] = text;
  // This header declares two of them again, with their usual types.
  if (!cuda_folder.empty()) files[cuda_folder + "/include/curand_mtgp32_kernel.h"] = "";
  return files;
}

}  // namespace maco::frontend::cuda
