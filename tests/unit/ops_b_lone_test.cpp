// matmul, maps, norms, softmax, reductions, rope, attention: the device functions on a lone thread,
// as on the CPU target.
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
namespace lone_lane {
#define MOCK_CONSUMERS 1
#define MOCK_WARP_LANES 1
#include "tests/unit/ops_b_device.h"
}  // namespace lone_lane

TEST_CASE("products") { lone_lane::check_products(); }
TEST_CASE("products on tensor cores") { lone_lane::check_tensor_products(); }
TEST_CASE("products by threads of operands in blocks") { lone_lane::check_products_in_blocks(); }
TEST_CASE("products that share K") { lone_lane::check_shared_products(); }
TEST_CASE("a product's bits don't depend on its tiles") { lone_lane::check_product_bits(); }
TEST_CASE("maps") { lone_lane::check_maps(); }
TEST_CASE("elements far from a tile's first") { lone_lane::check_far_elements(); }
TEST_CASE("norms") { lone_lane::check_all_norms(); }
TEST_CASE("long sums") { lone_lane::check_long_sums(); }
TEST_CASE("reductions") { lone_lane::check_all_reductions(); }
TEST_CASE("rope") { lone_lane::check_ropes(); }
TEST_CASE("attention") { lone_lane::check_attentions(); }
TEST_CASE("attention of many rows") { lone_lane::check_attention_tiles(); }
TEST_CASE("attention of new rows over a cache") { lone_lane::check_steps(); }
TEST_CASE("products that turn heads") { lone_lane::check_turned_products(); }
TEST_CASE("products that append to caches") { lone_lane::check_appended_products(); }
TEST_CASE("products that norm their rows, and pairs") { lone_lane::check_formed_products(); }
