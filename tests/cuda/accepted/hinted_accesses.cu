__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x >= n) return;
  float v =
      __ldcs(x + i) + __ldcg(x + i) + __ldca(x + i) + __ldcv(x + i) + __ldlu(x + i) + __ldg(x + i);
  __stwb(y + i, v);
  __stcg(y + i, v + 1);
  __stcs(y + i, v + 2);
  __stwt(y + i, v + 3);
}
