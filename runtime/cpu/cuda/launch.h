// launch.h: runs a kernel as its author wrote it, launched block by block. The kernel's text
// follows, then launch_end.h.

#pragma once

#include "block.h"
#include "words.h"

#define MACO_CPU 1

// Blocks run one after the other.
#define __shared__ thread_local
#define maco_dynamic_shared() (maco_cuda::dynamic_shared())
