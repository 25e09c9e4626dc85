// launch_end.h: the entry of a kernel's shared object, behind its text.

struct maco_launch_arguments {
  char* const* tensors;
  const long long* numbers;
};
static void maco_thread(void* arguments) {
  const auto& a = *static_cast<maco_launch_arguments*>(arguments);
  maco_original::maco_launch(a.tensors, a.numbers);
}

// Returns the number of the first block whose threads wait for each other for ever, or -1.
extern "C" __attribute__((visibility("default"))) long long maco_launch_grid(
    const unsigned* grid, const unsigned* block, char* shared, char* const* tensors,
    const long long* numbers) {
  maco_cuda::Block& b = maco_cuda::block_of_thread();
  maco_launch_arguments arguments{tensors, numbers};
  b.extent = {block[0], block[1], block[2]};
  b.grid = {grid[0], grid[1], grid[2]};
  b.threads = static_cast<int>(block[0] * block[1] * block[2]);
  b.shared = shared;
  b.dynamic_at = 0;
  long long number = 0;
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x, ++number) {
        b.at = {x, y, z};
        if (!maco_cuda::run_block(b, maco_thread, &arguments)) return number;
      }
  return -1;
}
