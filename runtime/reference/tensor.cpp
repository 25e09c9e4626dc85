#include "runtime/reference/tensor.h"

#include <fmt/format.h>

#include "ir/check.h"
#include "runtime/reference/numbers.h"
#include "runtime/reference/parallel.h"

namespace maco::reference {

int64_t product(const Extents& extents) {
  int64_t n = 1;
  for (int64_t e : extents) n *= e;
  return n;
}

std::string to_string(const Extents& extents) {
  return fmt::format("[{}]", fmt::join(extents, ","));
}

std::string describe(ir::DType type, const Extents& extents) {
  return fmt::format("{}{}", ir::name(type), to_string(extents));
}

Tensor::Tensor(ir::DType type, Extents extents) : dtype(type), shape(std::move(extents)) {
  bytes.resize(static_cast<size_t>(product(0, static_cast<int>(shape.size())) * ir::size_of(type)));
}

Tensor Tensor::of(ir::DType type, Extents extents, const std::vector<double>& values) {
  Tensor t(type, std::move(extents));
  t.store(values);
  return t;
}

int64_t Tensor::elements() const { return static_cast<int64_t>(bytes.size()) / ir::size_of(dtype); }

int64_t Tensor::product(int first, int last) const {
  int64_t n = 1;
  for (int a = first; a < last; ++a) n *= shape[static_cast<size_t>(a)];
  return n;
}

double Tensor::at(int64_t i) const { return decode(dtype, element(i)); }
void Tensor::set(int64_t i, double value) { encode(dtype, value, element(i)); }

namespace {
template <class T>
std::vector<T> values_of(const Tensor& t) {
  std::vector<T> v(static_cast<size_t>(t.elements()));
  parallel_for(t.elements(), 2,
               [&](int64_t b, int64_t e) { decode(t.dtype, t.element(b), e - b, v.data() + b); });
  return v;
}
template <class T>
void store_all(Tensor& t, const std::vector<T>& v) {
  MACO_CHECK(static_cast<int64_t>(v.size()) == t.elements(), describe(t.dtype, t.shape));
  parallel_for(t.elements(), 4,
               [&](int64_t b, int64_t e) { encode(t.dtype, v.data() + b, e - b, t.element(b)); });
}
}  // namespace

std::vector<double> Tensor::doubles() const { return values_of<double>(*this); }
std::vector<float> Tensor::floats() const { return values_of<float>(*this); }
std::vector<int32_t> Tensor::integers() const { return values_of<int32_t>(*this); }
void Tensor::store(const std::vector<double>& values) { store_all(*this, values); }
void Tensor::store(const std::vector<int32_t>& values) { store_all(*this, values); }

}  // namespace maco::reference
