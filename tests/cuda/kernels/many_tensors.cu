// The sum of many arrays, each a parameter of its own.
__global__ void many_tensors(const float* a0, const float* a1, const float* a2, const float* a3,
                             const float* a4, const float* a5, const float* a6, const float* a7,
                             const float* a8, const float* a9, const float* a10, const float* a11,
                             const float* a12, const float* a13, const float* a14, const float* a15,
                             const float* a16, const float* a17, const float* a18, const float* a19,
                             const float* a20, const float* a21, const float* a22, const float* a23,
                             const float* a24, const float* a25, const float* a26, const float* a27,
                             float* total) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  total[i] = a0[i] + a1[i] + a2[i] + a3[i] + a4[i] + a5[i] + a6[i] + a7[i] + a8[i] + a9[i] +
             a10[i] + a11[i] + a12[i] + a13[i] + a14[i] + a15[i] + a16[i] + a17[i] + a18[i] +
             a19[i] + a20[i] + a21[i] + a22[i] + a23[i] + a24[i] + a25[i] + a26[i] + a27[i];
}
