#include "compiler/frontend/cuda/clang_origins.h"

#include <clang/AST/DeclCXX.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace maco::frontend::cuda {

using namespace clang;  // NOLINT: its names are all over this file

namespace {

template <size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Headers that nvcc and NVRTC have without an #include, and CUDA's headers that kernel.cu includes
// (Extractor::system_includes). A header's name may go on with digits and the like.
constexpr std::array<std::string_view, 29> kCuda = {"crt/",
                                                    "cuda_runtime",
                                                    "vector_types",
                                                    "vector_functions",
                                                    "device_",
                                                    "sm_",
                                                    "driver_types",
                                                    "builtin_types",
                                                    "texture_",
                                                    "surface_",
                                                    "channel_",
                                                    "host_defines",
                                                    "host_config",
                                                    "math_functions",
                                                    "math_constants",
                                                    "common_functions",
                                                    "cuda_fp16",
                                                    "cuda_bf16",
                                                    "cuda_fp8",
                                                    "cuda_fp6",
                                                    "cuda_fp4",
                                                    "mma.h",
                                                    "cooperative_groups",
                                                    "cuda_device_runtime_api",
                                                    "cuda_awbarrier",
                                                    "cuda_pipeline",
                                                    "library_types",
                                                    "__clang_cuda",
                                                    "prelude.h"};

// C's headers whose macros and types runtime/device/cuda/standard.cuh has for NVRTC.
constexpr std::array<std::string_view, 10> kMacros = {
    "float.h",   "limits.h",        "stdint.h",
    "stddef.h",  "math.h",          "assert.h",
    "stdbool.h", "__stddef_null.h", "__stddef_offsetof.h",
    "__float_"};
constexpr std::array<std::string_view, 37> kTypes = {
    "int8_t",        "int16_t",       "int32_t",        "int64_t",        "uint8_t",
    "uint16_t",      "uint32_t",      "uint64_t",       "intptr_t",       "uintptr_t",
    "intmax_t",      "uintmax_t",     "int_least8_t",   "int_least16_t",  "int_least32_t",
    "int_least64_t", "uint_least8_t", "uint_least16_t", "uint_least32_t", "uint_least64_t",
    "int_fast8_t",   "int_fast16_t",  "int_fast32_t",   "int_fast64_t",   "uint_fast8_t",
    "uint_fast16_t", "uint_fast32_t", "uint_fast64_t",  "size_t",         "ptrdiff_t",
    "ssize_t",       "uint",          "ushort",         "ulong",          "clock_t",
    "nullptr_t",     "wchar_t"};

// The header that declares what stands in an internal file of libstdc++ or libc++.
struct Standard {
  std::string_view file, header;
};
constexpr Standard kStandard[] = {
    {"array", "array"},
    {"bits/move.h", "utility"},
    {"bits/utility.h", "utility"},
    {"bits/stl_pair.h", "utility"},
    {"bits/stl_function.h", "functional"},
    {"bits/invoke.h", "functional"},
    {"bits/std_function.h", "functional"},
    {"bits/std_abs.h", "cmath"},
    {"bits/specfun.h", "cmath"},
    {"cmath", "cmath"},
    {"cstddef", "cstddef"},
    {"cstdint", "cstdint"},
    {"functional", "functional"},
    {"initializer_list", "initializer_list"},
    {"limits", "limits"},
    {"tuple", "tuple"},
    {"type_traits", "type_traits"},
    {"utility", "utility"},
};

bool starts_with_one_of(std::string_view name) {
  return std::any_of(kCuda.begin(), kCuda.end(),
                     [&](std::string_view known) { return name.substr(0, known.size()) == known; });
}

std::string_view last_part(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

/// What the user may write instead.
const char* instead(std::string_view name, std::string_view header) {
  if (header.find("curand") != std::string_view::npos)
    return "give random numbers as an input of the graph";
  if (header.find("cub/") != std::string_view::npos ||
      header.find("thrust/") != std::string_view::npos)
    return "cooperative groups can reduce and scan, and so can ops of the graph";
  if (name.find("barrier") != std::string_view::npos ||
      name.find("pipeline") != std::string_view::npos ||
      name.find("memcpy_async") != std::string_view::npos)
    return "__syncthreads is there, asynchronous copies aren't";
  if (name.find("atomic") != std::string_view::npos) return "atomicAdd and its kind are there";
  if (name.find("complex") != std::string_view::npos) return "float2 is there";
  return "";
}

}  // namespace

std::string Origins::header(SourceLocation loc) const {
  const std::string path = sources_.getFilename(sources_.getFileLoc(loc)).str();
  for (const char* root : {"/include/c++/v1/", "/include/cccl/", "/include/maco/"})
    if (const size_t at = path.rfind(root); at != std::string::npos)
      return path.substr(at + std::string_view(root).size());
  if (const size_t at = path.find("/include/c++/"); at != std::string::npos)
    if (const size_t slash = path.find('/', at + 13); slash != std::string::npos)
      return path.substr(slash + 1);
  if (const size_t at = path.rfind("/include/"); at != std::string::npos)
    return path.substr(at + 9);
  return std::string(last_part(path));
}

void Origins::note_header(std::string_view file) {
  for (const std::string_view name :
       {"cuda_fp16", "cuda_bf16", "cuda_fp8", "cuda_fp6", "cuda_fp4", "mma", "math_constants"})
    if (file.substr(0, name.size()) == name &&
        (file.size() == name.size() || file[name.size()] == '.'))
      of_cuda_.insert(std::string(name) + ".h");
}

void Origins::refuse(const std::string& what, SourceLocation declared, SourceLocation at) {
  const std::string from = header(declared);
  if (!told_.insert(what).second) return;
  const std::string hint = instead(what, from);
  reports_.error(at, fmt::format("'{}' of <{}> doesn't come along: kernel.cu can't include it{}",
                                 what, from, hint.empty() ? "" : "; " + hint));
}

void Origins::use(const NamedDecl& decl, SourceLocation at) {
  const SourceLocation declared = decl.getLocation();
  if (!declared.isValid() || is_users(sources_, declared) || !seen_.insert(&decl).second) return;
  if (sources_.isWrittenInBuiltinFile(sources_.getFileLoc(declared)) ||
      sources_.isWrittenInCommandLineFile(sources_.getFileLoc(declared)))
    return;
  // Names that C's headers take from namespace std.
  if (const auto* shadow = dyn_cast<UsingShadowDecl>(&decl); shadow && !decl.isInStdNamespace()) {
    if (!shadow->getTargetDecl()->getAsFunction()) use(*shadow->getTargetDecl(), at);
    return;
  }
  const std::string name = decl.getQualifiedNameAsString(), from = header(declared);
  const std::string_view file = last_part(from);
  const auto in = [&](std::string_view prefix) {
    return std::string_view(name).substr(0, prefix.size()) == prefix;
  };
  note_header(file);
  if (in("cuda::std::") || in("nvcuda::") || in("cooperative_groups::")) return;
  if (in("cuda::") || in("cub::") || in("thrust::")) return refuse(name, declared, at);
  if (in("std::")) {  // members of its classes, too
    for (const Standard& s : kStandard)
      if (from == s.file) {
        standard_.insert(std::string(s.header));
        return;
      }
    const bool of_c = decl.getIdentifier() && is_one_of(decl.getName().str(), kTypes);
    if (of_c) return;
    // Functions of floats that <cmath> and CUDA's headers declare.
    if (starts_with_one_of(file) || file == "math.h") {
      standard_.insert("cmath");
      return;
    }
    // Functions of <algorithm>, which isn't for devices.
    if (decl.getIdentifier() &&
        (decl.getName() == "min" || decl.getName() == "max" || decl.getName() == "swap")) {
      if (decl.getName() == "swap") standard_.insert("utility");
      return;
    }
    return refuse(name, declared, at);
  }
  // Some libraries declare what CUDA's headers define.
  for (const Decl* redecl : decl.redecls()) {
    const std::string of = header(redecl->getLocation());
    note_header(last_part(of));
    if (starts_with_one_of(of) || starts_with_one_of(last_part(of))) return;
  }
  // C's functions belong to the host, except those that CUDA declares, and are refused as such.
  if (isa<FunctionDecl>(decl)) {
    const auto& f = cast<FunctionDecl>(decl);
    if (f.isExternC() || f.getBuiltinID() != 0) return;
  }
  if (decl.getIdentifier() && is_one_of(decl.getName().str(), kTypes)) return;
  refuse(name, declared, at);
}

void Origins::use_macro(const std::string& name, SourceLocation defined, SourceLocation at) {
  const SourceLocation loc = sources_.getFileLoc(defined);
  if (sources_.isWrittenInBuiltinFile(loc) || sources_.isWrittenInCommandLineFile(loc)) return;
  const std::string from = header(loc);
  const std::string_view file = last_part(from);
  const bool of_c = std::any_of(kMacros.begin(), kMacros.end(), [&](std::string_view known) {
    return file.substr(0, known.size()) == known;
  });
  note_header(file);
  if (starts_with_one_of(from) || starts_with_one_of(file)) return;
  // Devices have no long double.
  if (of_c && name.compare(0, 5, "LDBL_") != 0 && name.compare(0, 9, "HUGE_VALL") != 0) return;
  refuse(name, defined, at);
}

}  // namespace maco::frontend::cuda
