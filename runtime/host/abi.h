// What host and kernel share, for host code. The text itself has no guard, as kernel.cu contains it
// once.
#pragma once

#ifndef MACO_FN
#define MACO_FN inline
#include "runtime/device/abi.cuh"
#undef MACO_FN
#else
#include "runtime/device/abi.cuh"
#endif
