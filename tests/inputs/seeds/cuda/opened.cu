__global__ void k(float* y) {
  y[0] = s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s <
         s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < s < 1;
}
