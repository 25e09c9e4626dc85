# -Wno-restrict: g++ 12 sees overlaps in std::string that are none. Clang, which tests/inputs is built with, warns of its headers, too.
# maco_library(name sources... LINK libraries...): a static library with the project's warnings.
function(maco_settings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wshadow $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<CXX_COMPILER_ID:GNU>:-Werror> $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
  # Where its flags are others after all, the compiler reads the headers themselves.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-error=invalid-pch>)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
  if(MACO_SANITIZE)
    # Instrumented code makes g++ warn of variables that are initialised.
    target_compile_options(${target} PUBLIC -fsanitize=${MACO_SANITIZE} -fno-omit-frame-pointer -g $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_link_options(${target} PUBLIC -fsanitize=${MACO_SANITIZE})
  endif()
endfunction()

# Standard headers that most files use are read once, compiled with the flags of `from`, for all these targets; `from` may be one of them.
# A file that forgets to include one still compiles so: the lint test finds it (names_included), and the preset gpu builds without this.
function(maco_precompiled from)
  foreach(target IN LISTS ARGN)
    if(target STREQUAL from)
      target_precompile_headers(${target} PRIVATE <cmake/precompiled.h>)
    else()
      target_precompile_headers(${target} REUSE_FROM ${from})
    endif()
    # g++ 12 forgets which of these are the system's, and sees accesses out of bounds in std::string that are none.
    if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
      target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
    endif()
  endforeach()
endfunction()

if(MACO_STATIC)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()

function(maco_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  maco_settings(${name})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
endfunction()

function(maco_program name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  maco_settings(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()

# fmt: header-only where the programs must run on machines that lack its shared library.
if(MACO_STATIC)
  set(MACO_FMT fmt::fmt-header-only)
else()
  set(MACO_FMT fmt::fmt)
endif()
