// matmul, maps, norms, softmax, reductions, rope, attention: the device functions on as many
// threads as a GPU has.
#include <sys/mman.h>

#include <random>

#include "tests/catch.h"
#include "tests/unit/device_fibres.h"

// Device code is held to nvcc's warnings, not to these; and optimising so many small instances
// takes longer than running them.
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#ifdef __OPTIMIZE__
#pragma GCC optimize("O0")
#endif
namespace many_lanes {
#define MOCK_CONSUMERS 256
#define MOCK_WARP_LANES 32
#include "tests/unit/ops_b_device.h"
}  // namespace many_lanes

TEST_CASE("products") { many_lanes::check_products(); }
TEST_CASE("products on tensor cores") { many_lanes::check_tensor_products(); }
TEST_CASE("products by threads of operands in blocks") { many_lanes::check_products_in_blocks(); }
TEST_CASE("products that share K") { many_lanes::check_shared_products(); }
TEST_CASE("a product's bits don't depend on its tiles") { many_lanes::check_product_bits(); }
TEST_CASE("maps") { many_lanes::check_maps(); }
TEST_CASE("elements far from a tile's first") { many_lanes::check_far_elements(); }
TEST_CASE("norms") { many_lanes::check_all_norms(); }
TEST_CASE("long sums") { many_lanes::check_long_sums(); }
TEST_CASE("reductions") { many_lanes::check_all_reductions(); }
TEST_CASE("rope") { many_lanes::check_ropes(); }
TEST_CASE("attention") { many_lanes::check_attentions(); }
TEST_CASE("attention of many rows") { many_lanes::check_attention_tiles(); }
TEST_CASE("attention of new rows over a cache") { many_lanes::check_steps(); }
TEST_CASE("products that turn heads") { many_lanes::check_turned_products(); }
TEST_CASE("products that append to caches") { many_lanes::check_appended_products(); }
TEST_CASE("products that norm their rows, and pairs") { many_lanes::check_formed_products(); }
