// matmul, maps, norms, softmax, reductions, rope, attention: the device functions on a lone thread,
// as on the CPU target.
#include <sys/mman.h>

#include <random>

#include "tests/catch.h"
#include "tests/part.h"
#include "tests/unit/device_fibres.h"

// Device code is held to nvcc's warnings, not to these; and optimising so many small instances
// takes longer than running them.
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC optimize("O0")
namespace lone_lane {
#define MOCK_CONSUMERS 1
#define MOCK_WARP_LANES 1
#include "tests/unit/ops_b_device.h"
}  // namespace lone_lane

using maco::test::by_turns;

TEST_CASE("products") { by_turns(0, lone_lane::check_products); }
TEST_CASE("products on tensor cores") { by_turns(1, lone_lane::check_tensor_products); }
TEST_CASE("products by threads of operands in blocks") {
  by_turns(2, lone_lane::check_products_in_blocks);
}
TEST_CASE("products that share K") { by_turns(3, lone_lane::check_shared_products); }
TEST_CASE("a product's bits don't depend on its tiles") {
  by_turns(4, lone_lane::check_product_bits);
}
TEST_CASE("maps") { by_turns(5, lone_lane::check_maps); }
TEST_CASE("elements far from a tile's first") { by_turns(6, lone_lane::check_far_elements); }
TEST_CASE("norms") { by_turns(7, lone_lane::check_all_norms); }
TEST_CASE("long sums") { by_turns(8, lone_lane::check_long_sums); }
TEST_CASE("reductions") { by_turns(9, lone_lane::check_all_reductions); }
TEST_CASE("rope") { by_turns(10, lone_lane::check_ropes); }
TEST_CASE("attention") { by_turns(11, lone_lane::check_attentions); }
TEST_CASE("attention of many rows") { by_turns(12, lone_lane::check_attention_tiles); }
TEST_CASE("attention of new rows over a cache") { by_turns(13, lone_lane::check_steps); }
TEST_CASE("products that turn heads") { by_turns(14, lone_lane::check_turned_products); }
TEST_CASE("products that append to caches") { by_turns(15, lone_lane::check_appended_products); }
TEST_CASE("products that norm their rows, and pairs") {
  by_turns(16, lone_lane::check_formed_products);
}
