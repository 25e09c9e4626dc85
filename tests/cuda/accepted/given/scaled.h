#pragma once
__device__ inline float scaled(float v) { return 2.0f * v; }
