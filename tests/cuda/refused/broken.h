#pragma once
// See error_in_header.maco.
__device__ inline flaot twice(float v) { return 2.0f * v; }
