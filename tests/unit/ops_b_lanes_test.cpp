// matmul, maps, norms, softmax, reductions, rope, attention: the device functions on as many
// threads as a GPU has.
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
namespace many_lanes {
#define MOCK_CONSUMERS 256
#define MOCK_WARP_LANES 32
#include "tests/unit/ops_b_device.h"
}  // namespace many_lanes

using maco::test::by_turns;

TEST_CASE("products") { by_turns(0, many_lanes::check_products); }
TEST_CASE("products on tensor cores") { by_turns(1, many_lanes::check_tensor_products); }
TEST_CASE("products by threads of operands in blocks") {
  by_turns(2, many_lanes::check_products_in_blocks);
}
TEST_CASE("products that share K") { by_turns(3, many_lanes::check_shared_products); }
TEST_CASE("a product's bits don't depend on its tiles") {
  by_turns(4, many_lanes::check_product_bits);
}
TEST_CASE("maps") { by_turns(5, many_lanes::check_maps); }
TEST_CASE("elements far from a tile's first") { by_turns(6, many_lanes::check_far_elements); }
TEST_CASE("norms") { by_turns(7, many_lanes::check_all_norms); }
TEST_CASE("long sums") { by_turns(8, many_lanes::check_long_sums); }
TEST_CASE("reductions") { by_turns(9, many_lanes::check_all_reductions); }
TEST_CASE("rope") { by_turns(10, many_lanes::check_ropes); }
TEST_CASE("attention") { by_turns(11, many_lanes::check_attentions); }
TEST_CASE("attention of many rows") { by_turns(12, many_lanes::check_attention_tiles); }
TEST_CASE("attention of new rows over a cache") { by_turns(13, many_lanes::check_steps); }
TEST_CASE("products that turn heads") { by_turns(14, many_lanes::check_turned_products); }
TEST_CASE("products that append to caches") { by_turns(15, many_lanes::check_appended_products); }
TEST_CASE("products that norm their rows, and pairs") {
  by_turns(16, many_lanes::check_formed_products);
}
