// How functions and kernels are declared, and integers.

#define MACO_FN inline
#define MACO_OP inline
#define MACO_TABLE
#define MACO_KERNEL extern "C" __attribute__((visibility("default"))) void
#define MACO_PAIRS
#define MACO_PARAM const
#define MACO_UNROLL
#define MACO_ROLLED

namespace maco {

struct TensorMap;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

}  // namespace maco
