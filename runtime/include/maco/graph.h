// Task graphs: read from their text, or built call by call.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "maco/result.h"

namespace maco {

enum class DType : uint8_t { F32, F16, BF16, F8E4M3, F8E5M2, I32, U8 };
/// Short names: `using namespace maco::types`.
namespace types {
inline constexpr DType f32 = DType::F32, f16 = DType::F16, bf16 = DType::BF16,
                       f8e4m3 = DType::F8E4M3, f8e5m2 = DType::F8E5M2, i32 = DType::I32,
                       u8 = DType::U8;
}  // namespace types
/// Bytes of an element.
MACO_API int64_t size_of(DType type);
/// "bf16".
MACO_API std::string_view name_of(DType type);

enum class TensorKind : uint8_t { Input, Param, State, Output };

/// A tensor for which the caller provides memory.
struct TensorInfo {
  std::string name;
  TensorKind kind = TensorKind::Input;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;  // of one rank, dims at their maxima
  int64_t bytes = 0;           // of that shape
};
/// A dim or a scalar: an integer that each launch gets.
struct VariableInfo {
  std::string name;
  int64_t lowest = 0, highest = 0;  // both included
};

/// A valid graph: it can be compiled, or compiling it says why not. Immutable. Copies share it, and
/// any number of threads may use one at once.
class MACO_API Graph {
 public:
  /// Parses a graph from its text, JSON or the language of .maco files. Diagnostics call it `name`.
  /// `collectives`: texts of collectives that its ops may name as their algorithm besides the
  /// graph's own.
  static Result<Graph> parse(std::string text, std::string name = "<graph>",
                             const std::vector<std::string>& collectives = {});
  /// Reads a graph from a file.
  static Result<Graph> read(const std::string& path);

  const std::string& name() const;
  int world() const;
  std::vector<TensorInfo> tensors() const;
  std::vector<VariableInfo> dims() const;
  std::vector<VariableInfo> scalars() const;
  /// The graph's text: parse() gives an equal graph.
  std::string to_maco() const;
  std::string to_json() const;

  struct Data;
  explicit Graph(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  // Moving a graph copies it: there is no empty graph.
  Graph(const Graph&) = default;
  Graph& operator=(const Graph&) = default;
  const Data& data() const { return *data_; }

 private:
  std::shared_ptr<const Data> data_;
};

/// An MSCCL++ execution plan (JSON, schema of version 0.9) as the text of a .maco file: the plan's
/// algorithm as a collective, which Graph::parse accepts among its `collectives`, and a graph that
/// uses it. `elements`: of that graph's input on each rank; 0: 65,536, or the next number that
/// fits.
MACO_API Result<std::string> import_plan(std::string json, int64_t elements = 0,
                                         DType dtype = DType::BF16);

// ---- graphs built in C++ ------------------------------------------------------------------------

/// The place of a call, for diagnostics.
using Where = std::source_location;

/// An integer type other than bool and char.
template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

/// An integer expression over dims, scalars, `rank` and `world`: an extent, a position.
class Expr {
 public:
  template <Integer T>
  Expr(T value) : text_(std::to_string(value)) {}     // NOLINT: integers are expressions,
  Expr(const char* text) : text_(text) {}             // NOLINT: and so are
  Expr(std::string text) : text_(std::move(text)) {}  // NOLINT: texts of them
  /// The rank that runs the graph, and the number of ranks.
  static Expr rank() { return Expr("rank"); }
  static Expr world() { return Expr("world"); }
  const std::string& text() const { return text_; }

  friend Expr operator+(const Expr& a, const Expr& b) { return join(a, " + ", b); }
  friend Expr operator-(const Expr& a, const Expr& b) { return join(a, " - ", b); }
  friend Expr operator*(const Expr& a, const Expr& b) { return join(a, " * ", b); }
  /// Rounds down, as in Python.
  friend Expr operator/(const Expr& a, const Expr& b) { return join(a, " / ", b); }
  friend Expr operator%(const Expr& a, const Expr& b) { return join(a, " % ", b); }

 private:
  static Expr join(const Expr& a, const char* op, const Expr& b) {
    return Expr("(" + a.text_ + ")" + op + "(" + b.text_ + ")");
  }
  std::string text_;
};
using Shape = std::vector<Expr>;

/// A value of a graph that is being built. Of no use without its builder.
struct Tensor {
  uint64_t builder = 0;
  size_t index = 0;
};

/// Attributes that any op accepts in addition to its own.
struct Common {
  std::string name = {};                // of the result; for an op without results, the op's
  std::optional<DType> dtype = {};      // of the result; default: that of the first operand
  std::optional<Tensor> into = {};      // the state that the result becomes
  std::vector<std::string> after = {};  // names of ops that come before, whatever their data
  std::string phase = {}, overlap = {}, overlap_group = {}, priority = {};
};

/// The value of an attribute. A text is a word ("relu") or an expression ("pos + 1"). A text that
/// begins with '[' or '{' is a list or map of the language ("{x: [[bx, bx + 1]]}"), in which
/// tensors are given by name.
class Attr {
 public:
  using Value =
      std::variant<bool, int64_t, double, std::string, Shape, std::map<std::string, double>>;
  template <std::same_as<bool> T>
  Attr(T value) : value_(value) {}  // NOLINT: values of any
  template <Integer T>
  Attr(T value) : value_(static_cast<int64_t>(value)) {}                   // NOLINT: of these
  Attr(double value) : value_(value) {}                                    // NOLINT: types
  Attr(const char* text) : value_(std::string(text)) {}                    // NOLINT: are
  Attr(std::string text) : value_(std::move(text)) {}                      // NOLINT: attributes
  Attr(const Expr& value) : value_(value.text()) {}                        // NOLINT
  Attr(Shape value) : value_(std::move(value)) {}                          // NOLINT
  Attr(std::map<std::string, double> value) : value_(std::move(value)) {}  // NOLINT
  const Value& value() const { return value_; }

 private:
  Value value_;
};
using Attrs = std::vector<std::pair<std::string, Attr>>;

struct MatmulAttrs {
  bool transpose_b = false;
  std::string activation = "none";  // relu, silu, gelu
};
struct RopeAttrs {
  int64_t head_dim = 0;
  std::optional<Expr> position = {};  // default: the second operand
  double theta = 10000;
  bool interleaved = false;
  std::map<std::string, double> scaling = {};
  int64_t rotary_dim = 0;       // how many elements of a head are rotated; 0: all
  double attention_factor = 1;  // of cosines and sines
};
struct AttentionAttrs {
  int64_t head_dim = 0;
  bool causal = false;
  std::optional<double> scale = {};    // default: 1 / sqrt(head_dim)
  std::optional<Expr> length = {};     // default: all rows of the keys
  std::optional<int64_t> window = {};  // keys that a row sees, the last being its own; needs causal
  std::optional<double> softcap = {};  // scores become softcap * tanh(score / softcap)
};
struct SliceAttrs {
  int axis = 0;
  std::optional<Expr> begin = {}, end = {};
  int64_t step = 1;
};
struct ReduceAttrs {
  std::string reduce = "sum";      // max, min, avg
  std::string algorithm = "auto";  // oneshot, twoshot, ring, or a collective of the graph by name
};

/// The tag and the ranks of a message: expressions over `rank` and `world`.
struct MessageAttrs {
  Expr tag = 0;
  Expr condition = 1;  // the language's `if`: ranks where it is 0 take no part
};

struct DimRange {
  int64_t lowest = 1;
  std::optional<int64_t> typical = {};  // the compiler optimizes for it; default: the most
};

/// Builds a graph call by call; docs/ops.md says what each op takes and gives. Calls report
/// nothing: build() finds mistakes, and says where the call stands. Not thread safe.
class MACO_API GraphBuilder {
 public:
  explicit GraphBuilder(std::string name, int world = 1, Where where = Where::current());
  // A builder that was moved from may only be destroyed or assigned to.
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&&) noexcept;
  GraphBuilder& operator=(GraphBuilder&&) noexcept;

  /// The graph so far. The builder doesn't change.
  Result<Graph> build() const;

  // Declarations. Names are unique; dims and scalars are expressions from then on.

  /// A number of rows from `lowest` to `most` that each launch gives.
  Expr dim(std::string name, int64_t most, DimRange range = {}, Where where = Where::current());
  /// A number from `lowest` up to `end`, excluded, that each launch gives.
  Expr scalar(std::string name, int64_t lowest, int64_t end, std::optional<int64_t> typical = {},
              Where where = Where::current());
  Tensor input(std::string name, DType type, Shape shape, Where where = Where::current());
  Tensor param(std::string name, DType type, Shape shape, Where where = Where::current());
  Tensor state(std::string name, DType type, Shape shape, Where where = Where::current());
  /// Makes `tensor` an output under a name. It may still be read.
  Tensor output(std::string name, Tensor tensor, Where where = Where::current());

  /// Adds a text of collectives that ops may name as their `algorithm` (docs/algorithms.md).
  void collectives(std::string text);

  // Any op by its name, with `results` results.

  std::vector<Tensor> ops(std::string kind, std::vector<Tensor> operands, size_t results,
                          Attrs attrs = {}, const Common& common = {},
                          Where where = Where::current());
  Tensor op(std::string kind, std::vector<Tensor> operands, Attrs attrs = {},
            const Common& common = {}, Where where = Where::current()) {
    return ops(std::move(kind), std::move(operands), 1, std::move(attrs), common, where)[0];
  }
  /// Sets a key of the graph as in JSON: set("schedule", "static").
  void set(std::string key, Attr value, Where where = Where::current());

  // Elementwise.

#define MACO_UNARY(kind)                                                             \
  Tensor kind(Tensor x, const Common& common = {}, Where where = Where::current()) { \
    return op(#kind, {x}, {}, common, where);                                        \
  }
#define MACO_BINARY(kind)                                                                          \
  Tensor kind(Tensor x, Tensor y, const Common& common = {}, Where where = Where::current()) {     \
    return op(#kind, {x, y}, {}, common, where);                                                   \
  }                                                                                                \
  Tensor kind(Tensor x, double value, const Common& common = {}, Where where = Where::current()) { \
    return op(#kind, {x}, {{"value", value}}, common, where);                                      \
  }
  MACO_BINARY(add)
  MACO_BINARY(sub)
  MACO_BINARY(mul)
  MACO_BINARY(div)
  MACO_BINARY(pow)
  MACO_BINARY(maximum)
  MACO_BINARY(minimum)
  // Results are u8, 0 or 1.
  MACO_BINARY(eq)
  MACO_BINARY(ne)
  MACO_BINARY(lt)
  MACO_BINARY(le)
  MACO_BINARY(gt)
  MACO_BINARY(ge)
  MACO_UNARY(relu)
  MACO_UNARY(silu)
  MACO_UNARY(sigmoid)
  MACO_UNARY(tanh)
  MACO_UNARY(exp)
  MACO_UNARY(log)
  MACO_UNARY(sqrt)
  MACO_UNARY(rsqrt)
  MACO_UNARY(sin)
  MACO_UNARY(cos)
  MACO_UNARY(erf)
  MACO_UNARY(neg)
  MACO_UNARY(abs)
  MACO_UNARY(copy)
  Tensor gelu(Tensor x, const std::string& approximate = "none", const Common& common = {},
              Where where = Where::current()) {
    return op("gelu", {x}, {{"approximate", approximate}}, common, where);
  }
  Tensor swiglu(Tensor gate, Tensor up, const Common& common = {}, Where where = Where::current()) {
    return op("swiglu", {gate, up}, {}, common, where);
  }
  Tensor geglu(Tensor gate, Tensor up, const std::string& approximate = "none",
               const Common& common = {}, Where where = Where::current()) {
    return op("geglu", {gate, up}, {{"approximate", approximate}}, common, where);
  }
  /// Needs at least one bound.
  Tensor clamp(Tensor x, std::optional<double> min, std::optional<double> max,
               const Common& common = {}, Where where = Where::current()) {
    Attrs bounds;
    if (min) bounds.emplace_back("min", *min);
    if (max) bounds.emplace_back("max", *max);
    return op("clamp", {x}, std::move(bounds), common, where);
  }
  /// a where `condition`, a u8, isn't 0, else b.
  Tensor where(Tensor condition, Tensor a, Tensor b, const Common& common = {},
               Where at = Where::current()) {
    return op("where", {condition, a, b}, {}, common, at);
  }
  Tensor where(Tensor condition, Tensor a, double value, const Common& common = {},
               Where at = Where::current()) {
    return op("where", {condition, a}, {{"value", value}}, common, at);
  }
  Tensor cast(Tensor x, DType type, Common common = {}, Where where = Where::current()) {
    common.dtype = type;
    return op("cast", {x}, {}, common, where);
  }

  // Matmuls, norms, rows.

  Tensor matmul(Tensor a, Tensor b, const MatmulAttrs& attrs = {}, const Common& common = {},
                Where where = Where::current()) {
    return op("matmul", {a, b}, list(attrs), common, where);
  }
  Tensor matmul_bias(Tensor a, Tensor b, Tensor bias, const MatmulAttrs& attrs = {},
                     const Common& common = {}, Where where = Where::current()) {
    return op("matmul", {a, b, bias}, list(attrs), common, where);
  }
  Tensor rmsnorm(Tensor x, Tensor weight, double eps = 1e-6, const Common& common = {},
                 Where where = Where::current()) {
    return op("rmsnorm", {x, weight}, {{"eps", eps}}, common, where);
  }
  Tensor layernorm(Tensor x, Tensor weight, Tensor bias, double eps = 1e-5,
                   const Common& common = {}, Where where = Where::current()) {
    return op("layernorm", {x, weight, bias}, {{"eps", eps}}, common, where);
  }
  MACO_UNARY(softmax)
  MACO_UNARY(sum)
  MACO_UNARY(mean)
  MACO_UNARY(max)
  MACO_UNARY(argmax)
  Tensor embedding(Tensor table, Tensor ids, const Common& common = {},
                   Where where = Where::current()) {
    return op("embedding", {table, ids}, {}, common, where);
  }

  // Attention.

  Tensor rope(Tensor x, const RopeAttrs& attrs, const Common& common = {},
              Where where = Where::current()) {
    return op("rope", {x}, list(attrs), common, where);
  }
  Tensor rope(Tensor x, Tensor positions, const RopeAttrs& attrs, const Common& common = {},
              Where where = Where::current()) {
    return op("rope", {x, positions}, list(attrs), common, where);
  }
  /// With given cosines and sines: [S, rotary_dim], or a column for each pair.
  Tensor rope_by(Tensor x, Tensor cosines, Tensor sines, const RopeAttrs& attrs,
                 const Common& common = {}, Where where = Where::current()) {
    return op("rope", {x, cosines, sines}, list_given(attrs), common, where);
  }
  Tensor rope_by(Tensor x, Tensor positions, Tensor cosines, Tensor sines, const RopeAttrs& attrs,
                 const Common& common = {}, Where where = Where::current()) {
    return op("rope", {x, positions, cosines, sines}, list_given(attrs), common, where);
  }
  /// With given frequencies, f32 [rotary_dim / 2] in radians, in place of `theta` and `scaling`.
  Tensor rope_by_frequencies(Tensor x, Tensor frequencies, const RopeAttrs& attrs,
                             const Common& common = {}, Where where = Where::current()) {
    return op("rope", {x, frequencies}, list_given(attrs), common, where);
  }
  Tensor rope_by_frequencies(Tensor x, Tensor positions, Tensor frequencies, const RopeAttrs& attrs,
                             const Common& common = {}, Where where = Where::current()) {
    return op("rope", {x, positions, frequencies}, list_given(attrs), common, where);
  }
  Tensor attention(Tensor q, Tensor k, Tensor v, const AttentionAttrs& attrs,
                   const Common& common = {}, Where where = Where::current()) {
    return op("attention", {q, k, v}, list(attrs), common, where);
  }
  /// Stores x in rows `at` and following of `cache`, a state. Returns the state.
  Tensor kv_append(Tensor cache, Tensor x, const Expr& at, Common common = {},
                   Where where = Where::current()) {
    common.into = cache;
    return op("kv_append", {cache, x}, {{"at", at}}, common, where);
  }

  // Movement.

  Tensor reshape(Tensor x, Shape shape, const Common& common = {}, Where where = Where::current()) {
    return op("reshape", {x}, {{"shape", std::move(shape)}}, common, where);
  }
  /// `perm`: empty means the axes in reverse order.
  Tensor transpose(Tensor x, Shape perm = {}, const Common& common = {},
                   Where where = Where::current()) {
    Attrs attrs;
    if (!perm.empty()) attrs.emplace_back("perm", std::move(perm));
    return op("transpose", {x}, std::move(attrs), common, where);
  }
  Tensor slice(Tensor x, const SliceAttrs& attrs, const Common& common = {},
               Where where = Where::current()) {
    return op("slice", {x}, list(attrs), common, where);
  }
  Tensor concat(std::vector<Tensor> xs, int axis, const Common& common = {},
                Where where = Where::current()) {
    return op("concat", std::move(xs), {{"axis", Expr(axis)}}, common, where);
  }
  std::vector<Tensor> split(Tensor x, int axis, size_t parts, const Common& common = {},
                            Where where = Where::current()) {
    return ops("split", {x}, parts, {{"axis", Expr(axis)}}, common, where);
  }

  // Collectives.

  Tensor allreduce(Tensor x, const ReduceAttrs& attrs = {}, const Common& common = {},
                   Where where = Where::current()) {
    return op("allreduce", {x}, list(attrs), common, where);
  }
  Tensor reduce_scatter(Tensor x, const ReduceAttrs& attrs = {}, const Common& common = {},
                        Where where = Where::current()) {
    return op("reduce_scatter", {x}, list(attrs), common, where);
  }
  Tensor allgather(Tensor x, const std::string& algorithm = "auto", const Common& common = {},
                   Where where = Where::current()) {
    return op("allgather", {x}, {{"algorithm", algorithm}}, common, where);
  }
  MACO_UNARY(alltoall)
  Tensor broadcast(Tensor x, int root, const Common& common = {}, Where where = Where::current()) {
    return op("broadcast", {x}, {{"root", Expr(root)}}, common, where);
  }
  Tensor ring_shift(Tensor x, int by = 1, const Common& common = {},
                    Where where = Where::current()) {
    return op("ring_shift", {x}, {{"by", Expr(by)}}, common, where);
  }
  void send(Tensor x, const Expr& dst, const MessageAttrs& attrs = {}, const Common& common = {},
            Where where = Where::current()) {
    ops("send", {x}, 0, {{"dst", dst}, {"tag", attrs.tag}, {"if", attrs.condition}}, common, where);
  }
  /// Receives a tensor of this type and shape.
  Tensor recv(const Expr& src, DType type, Shape shape, const MessageAttrs& attrs = {},
              Common common = {}, Where where = Where::current()) {
    common.dtype = type;
    return op(
        "recv", {},
        {{"src", src}, {"shape", std::move(shape)}, {"tag", attrs.tag}, {"if", attrs.condition}},
        common, where);
  }
  void barrier(const Common& common = {}, Where where = Where::current()) {
    ops("barrier", {}, 0, {}, common, where);
  }
#undef MACO_UNARY
#undef MACO_BINARY

 private:
  static Attrs list(const MatmulAttrs& attrs);
  static Attrs list(const RopeAttrs& attrs);
  static Attrs list_given(const RopeAttrs& attrs);
  static Attrs list(const AttentionAttrs& attrs);
  static Attrs list(const SliceAttrs& attrs);
  static Attrs list(const ReduceAttrs& attrs);
  Tensor declare(const char* kind, std::string name, DType type, Shape shape, Where where);

  struct State;
  static Result<Graph> built(const State& state);
  std::unique_ptr<State> state_;
};

}  // namespace maco
