// Two ranks of a tensor-parallel product: each has half of the rows of the weights and the columns
// of x that go with them, and an all-reduce adds up what they find. The graph is built in C++,
// compiled, run on all ranks of this process, and checked.
//
//   two_ranks [cpu|cuda] [ranks on a GPU]
#include <maco/maco.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kRanks = 2, kRows = 16, kIn = 64, kOut = 32;

int example(maco::Device device, int ranks_per_gpu) {
  using namespace maco::types;
  maco::GraphBuilder g("two_ranks", kRanks);
  const auto x = g.input("x", f32, {kRows, kIn / kRanks});
  const auto w = g.param("w", f32, {kIn / kRanks, kOut});
  const auto part = g.matmul(x, w);
  g.output("y", g.relu(g.allreduce(part)));
  const maco::Graph graph = g.build().value();

  maco::CompileOptions options;
  options.target = device == maco::Device::Cpu ? "cpu" : "sm_90a";
  options.sms = device == maco::Device::Cpu ? 0 : 64;  // so that both ranks fit on one GPU
  const maco::Kernel kernel = maco::compile(graph, options).value();
  std::printf("%s\n", kernel.report().c_str());

  maco::SessionOptions where;
  where.device = device;
  where.ranks_per_gpu = ranks_per_gpu;
  maco::Session session = maco::Session::open(kernel, where).value();
  session.allocate().value();

  // Of the whole x and the whole w, rank r has columns and rows r, r + kRanks, ...
  std::vector<float> all_x(kRows * kIn), all_w(kIn * kOut);
  for (size_t i = 0; i < all_x.size(); ++i) all_x[i] = static_cast<float>(std::sin(0.1 * i));
  for (size_t i = 0; i < all_w.size(); ++i) all_w[i] = static_cast<float>(std::cos(0.3 * i));
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<float> own_x, own_w;
    for (int r = 0; r < kRows; ++r)
      for (int k = rank; k < kIn; k += kRanks) own_x.push_back(all_x[r * kIn + k]);
    for (int k = rank; k < kIn; k += kRanks)
      for (int n = 0; n < kOut; ++n) own_w.push_back(all_w[k * kOut + n]);
    session.write(rank, "x", own_x.data(), own_x.size() * sizeof(float)).value();
    session.write(rank, "w", own_w.data(), own_w.size() * sizeof(float)).value();
  }
  session.run().value();

  double worst = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<float> y(kRows * kOut);
    session.read(rank, "y", y.data(), y.size() * sizeof(float)).value();
    for (int r = 0; r < kRows; ++r)
      for (int n = 0; n < kOut; ++n) {
        double sum = 0;
        for (int k = 0; k < kIn; ++k) sum += double{all_x[r * kIn + k]} * all_w[k * kOut + n];
        worst = std::fmax(worst, std::fabs(std::fmax(sum, 0) - y[r * kOut + n]));
      }
  }
  std::printf("worst error %.2g\n", worst);
  return worst < 1e-4 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const bool cuda = argc > 1 && std::strcmp(argv[1], "cuda") == 0;
  try {
    return example(cuda ? maco::Device::Cuda : maco::Device::Cpu,
                   argc > 2 ? std::atoi(argv[2]) : 1);
  } catch (const maco::BadResult& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    return EXIT_FAILURE;
  }
}
