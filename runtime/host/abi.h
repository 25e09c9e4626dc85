// What host and kernel share, for host code. The text itself has no guard: kernel.cu has it once.
#pragma once

#include "runtime/device/abi.cuh"
