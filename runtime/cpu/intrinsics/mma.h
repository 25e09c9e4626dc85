// Products on tensor cores: a lone lane has no part of a matrix, so that they are only declared.

namespace maco {

constexpr bool kHasMma = false;
template <bool kTranspose>
void load_matrices(u32 (&to)[4], const void* line);
u32 transpose_matrix(u32 matrix);
template <bool kBf16>
void multiply_matrices(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <bool kE4m3>
void multiply_matrices_f8(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);

}  // namespace maco
