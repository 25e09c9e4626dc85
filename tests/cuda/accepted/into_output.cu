__global__ void k(const int* x, int* y) {
  const int t = threadIdx.x;
  y[t] = 0;
  if (x[t] & 1) y[t] = __popc(__match_any_sync(__activemask(), x[t] & 4));
}
