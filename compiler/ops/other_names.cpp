// Tables of other projects' names: PyTorch, JAX, ONNX, NCCL, Hugging Face, MLIR, CUDA. A name for
// something that MACO has is mapped to MACO's name. For the others a hint says what to write
// instead.
#include "compiler/ops/other_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/ops/op.h"
#include "ir/diagnostics.h"

namespace maco::ops {

namespace {

/// Keys are lower-case names without '_', '-' and ':', in which projects differ.
using Names = std::map<std::string, std::string, std::less<>>;

std::string plain_name(std::string_view text) {
  std::string plain;
  for (char c : text)
    if (c != '_' && c != '-' && c != ':')
      plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return plain;
}

std::string found_in(const Names& names, std::string_view key) {
  const auto found = names.find(key);
  return found == names.end() ? "" : found->second;
}

const Names& op_synonyms() {
  static const Names names = {
      {"a2a", "alltoall"},
      {"absolute", "abs"},
      {"addmm", "matmul"},
      {"allgatherbase", "allgather"},
      {"allgatherintotensor", "allgather"},
      {"alltoallsingle", "alltoall"},
      {"amax", "max"},
      {"astype", "cast"},
      {"bcast", "broadcast"},
      {"biasadd", "add"},
      {"cacheupdate", "kv_append"},
      {"cat", "concat"},
      {"chunk", "split"},
      {"clip", "clamp"},
      {"clipbyvalue", "clamp"},
      {"clone", "copy"},
      {"collectivepermute", "ring_shift"},
      {"concatenate", "concat"},
      {"contiguous", "copy"},
      {"convert", "cast"},
      {"cosine", "cos"},
      {"dense", "matmul"},
      {"divide", "div"},
      {"dot", "matmul"},
      {"elementwiseadd", "add"},
      {"elementwisemul", "mul"},
      {"embed", "embedding"},
      {"equal", "eq"},
      {"equals", "eq"},
      {"expanddims", "reshape"},
      {"fabs", "abs"},
      {"fastgelu", "gelu"},
      {"flashattention", "attention"},
      {"flashattn", "attention"},
      {"flatten", "reshape"},
      {"fullyconnected", "matmul"},
      {"geluandmul", "geglu"},
      {"gelunew", "gelu"},
      {"gelutanh", "gelu"},
      {"gemm", "matmul"},
      {"greater", "gt"},
      {"greaterequal", "ge"},
      {"greaterorequal", "ge"},
      {"greaterthan", "gt"},
      {"greaterthanorequal", "ge"},
      {"hadamard", "mul"},
      {"identity", "copy"},
      {"ifelse", "where"},
      {"indexselect", "embedding"},
      {"inversesqrt", "rsqrt"},
      {"irecv", "recv"},
      {"isend", "send"},
      {"kvcacheappend", "kv_append"},
      {"kvcacheupdate", "kv_append"},
      {"layernormalization", "layernorm"},
      {"less", "lt"},
      {"lessequal", "le"},
      {"lessorequal", "le"},
      {"lessthan", "lt"},
      {"lessthanorequal", "le"},
      {"linear", "matmul"},
      {"ln", "log"},
      {"logistic", "sigmoid"},
      {"mha", "attention"},
      {"minus", "sub"},
      {"mm", "matmul"},
      {"multiheadattention", "attention"},
      {"multiply", "mul"},
      {"narrow", "slice"},
      {"negate", "neg"},
      {"negative", "neg"},
      {"notequal", "ne"},
      {"notequals", "ne"},
      {"pagedattention", "attention"},
      {"permute", "transpose"},
      {"plus", "add"},
      {"pmax", "allreduce"},
      {"pmean", "allreduce"},
      {"power", "pow"},
      {"ppermute", "ring_shift"},
      {"psum", "allreduce"},
      {"psumscatter", "reduce_scatter"},
      {"realdiv", "div"},
      {"receive", "recv"},
      {"reducemax", "max"},
      {"reducemean", "mean"},
      {"reducescattertensor", "reduce_scatter"},
      {"reducesum", "sum"},
      {"rmsnormalization", "rmsnorm"},
      {"rotary", "rope"},
      {"rotaryembedding", "rope"},
      {"rotarypositionembedding", "rope"},
      {"scaleddotproductattention", "attention"},
      {"sdpa", "attention"},
      {"select", "where"},
      {"selfattention", "attention"},
      {"shift", "ring_shift"},
      {"siluandmul", "swiglu"},
      {"sine", "sin"},
      {"squareroot", "sqrt"},
      {"squeeze", "reshape"},
      {"subtract", "sub"},
      {"swapaxes", "transpose"},
      {"swapdims", "transpose"},
      {"swish", "silu"},
      {"sync", "barrier"},
      {"synchronize", "barrier"},
      {"t", "transpose"},
      {"tensorsplit", "split"},
      {"times", "mul"},
      {"to", "cast"},
      {"truediv", "div"},
      {"truedivide", "div"},
      {"unsqueeze", "reshape"},
      {"updatecache", "kv_append"},
      {"view", "reshape"},
  };
  return names;
}

constexpr const char* kOwnKernel = "a CUDA kernel of your own can do it (docs/cuda-kernels.md)";
constexpr const char* kBind = "declare a param and bind its values";
constexpr const char* kStack = "reshape each to have an axis of 1, then write concat";
constexpr const char* kRepeat =
    "write concat(x, x, axis = ...); add, sub, mul, div and others broadcast their second operand";

/// How to do without an op, as the text that follows "; ".
const Names& ways_out() {
  static const Names ways = {
      {"all", kOwnKernel},
      {"amin", "write n = neg(x), m = max(n), neg(m)"},
      {"any", kOwnKernel},
      {"arange", kBind},
      {"argmin", "write argmax(n) with n = neg(x)"},
      {"argsort", kOwnKernel},
      {"batchnorm", "with fixed statistics it is a mul and an add of params [N]"},
      {"batchnormalization", "with fixed statistics it is a mul and an add of params [N]"},
      {"bmm",
       "'matmul' takes a second operand of 2 axes: slice and reshape the batch and write a "
       "matmul for each, or have a CUDA kernel of your own do it (docs/cuda-kernels.md)"},
      {"batchmatmul",
       "'matmul' takes a second operand of 2 axes: slice and reshape the batch and write a matmul "
       "for each, or have a CUDA kernel of your own do it (docs/cuda-kernels.md)"},
      {"broadcastto", kRepeat},
      {"ceil", kOwnKernel},
      {"constant", kBind},
      {"conv", kOwnKernel},
      {"conv1d", kOwnKernel},
      {"conv2d", kOwnKernel},
      {"conv3d", kOwnKernel},
      {"crossentropy", kOwnKernel},
      {"cumprod", kOwnKernel},
      {"cumsum", kOwnKernel},
      {"dequantize", "write cast(q, dtype = ...) and mul"},
      {"dropout", "where nothing is trained it does nothing: leave it out"},
      {"einsum",
       "write it with transpose, reshape and matmul, or have a CUDA kernel of your own do "
       "it (docs/cuda-kernels.md)"},
      {"elu", kOwnKernel},
      {"expand", kRepeat},
      {"flip", kOwnKernel},
      {"floor", kOwnKernel},
      {"full", kBind},
      {"gather",
       "rows of a table by index are 'embedding', the blocks of all ranks 'allgather'; "
       "otherwise a CUDA kernel of your own can do it (docs/cuda-kernels.md)"},
      {"groupnorm", kOwnKernel},
      {"hstack", "did you mean 'concat'?"},
      {"isnan", "write ne(x, x)"},
      {"leakyrelu", "write maximum(x, s) with s = mul(x, value = slope)"},
      {"logicaland", "of u8 write where(a, b, value = 0)"},
      {"logicalnot", "of u8 write eq(x, value = 0)"},
      {"logicalor", "of u8 write where(a, a, b)"},
      {"logicalxor", "of two u8 that are 0 or 1 write ne(a, b)"},
      {"logsoftmax", "write log(s) with s = softmax(x, dtype = f32)"},
      {"logsumexp", kOwnKernel},
      {"maskedfill", "write where(k, x, value = ...) with k = eq(mask, value = 0)"},
      {"maxpool2d", kOwnKernel},
      {"min",
       "for two tensors it is 'minimum'; over the last axis write n = neg(x), m = max(n), neg(m)"},
      {"mish", kOwnKernel},
      {"norm", kOwnKernel},
      {"onehot", kOwnKernel},
      {"ones", kBind},
      {"prod", kOwnKernel},
      {"quantize", "write mul(x, value = 1 / scale as a number) and cast"},
      {"quickgelu", "write mul(x, s) with s = sigmoid(t) and t = mul(x, value = 1.702)"},
      {"rand", kBind},
      {"randn", kBind},
      {"reciprocal", "write pow(x, value = -1)"},
      {"reduce",
       "'allreduce' gives the result to all ranks; within a rank there are 'sum', 'mean' "
       "and 'max'"},
      {"reducemin", "write n = neg(x), m = max(n), neg(m)"},
      {"reglu", "write relu(gate) and mul with up"},
      {"relu2", "write r = relu(x) and mul(r, r)"},
      {"relu6", "write clamp(x, min = 0, max = 6)"},
      {"repeatinterleave", kRepeat},
      {"roll", "write slice for each part and concat"},
      {"round", kOwnKernel},
      {"scatter",
       "to other ranks it is 'send' and 'recv'; otherwise a CUDA kernel of your own can "
       "do it (docs/cuda-kernels.md)"},
      {"sendrecv", "write 'send' and 'recv', or 'ring_shift'"},
      {"sign", kOwnKernel},
      {"softplus", "write log(t) with t = add(e, value = 1) and e = exp(x)"},
      {"softcap", "write mul by 1 / cap, tanh, mul by cap"},
      {"sort", kOwnKernel},
      {"square", "write mul(x, x)"},
      {"stack", kStack},
      {"std", kOwnKernel},
      {"tile", kRepeat},
      {"topk",
       "the largest alone is 'argmax'; otherwise a CUDA kernel of your own can do it "
       "(docs/cuda-kernels.md)"},
      {"tril", kOwnKernel},
      {"triu", kOwnKernel},
      {"unbind", "write split and reshape"},
      {"var", kOwnKernel},
      {"vstack", "did you mean 'concat'?"},
      {"zeros", kBind},
  };
  return ways;
}

/// An attribute that the op has, or a hint, by op; "": for any op. Of several attributes the first
/// that the op has counts.
using AttributeHints =
    std::map<std::string, std::vector<std::pair<std::string, std::string>>, std::less<>>;

const AttributeHints& attribute_hints() {
  static const std::string transposed =
      "; 'matmul' transposes its second operand only (transpose_b): write t = transpose(a) ahead, "
      "and t in its place";
  static const std::string no_mask =
      "; 'attention' has no masks but 'causal', 'window' and 'length'; with others a CUDA kernel "
      "of "
      "your own can do it (docs/cuda-kernels.md)";
  static const std::string windows = "; write window = n: with its own, a query sees n keys";
  static const AttributeHints hints = {
      {"",
       {{"base", "theta"},
        {"dim", "axis"},
        {"dims", "perm"},
        {"epsilon", "eps"},
        {"offset", "position"},
        {"op", "reduce"},
        {"peer", "dst"},
        {"peer", "src"},
        {"pos", "position"},
        {"pos", "at"},
        {"reduceop", "reduce"},
        {"reduction", "reduce"},
        {"exponent", "value"},
        {"other", "value"},
        {"scalar", "value"},
        {"shift", "by"},
        {"size", "shape"},
        {"src", "root"},
        {"start", "begin"},
        {"startpos", "position"},
        {"startpos", "at"},
        {"stop", "end"},
        {"to", "dst"},
        {"to", "dtype"},
        {"from", "src"},
        {"type", "dtype"},
        {"varianceepsilon", "eps"}}},
      {"clamp",
       {{"amax", "max"},
        {"amin", "min"},
        {"clipvaluemax", "max"},
        {"clipvaluemin", "min"},
        {"high", "max"},
        {"low", "min"},
        {"maximum", "max"},
        {"maxval", "max"},
        {"minimum", "min"},
        {"minval", "min"}}},
      {"attention",
       {{"attnmask", no_mask},
        {"iscausal", "causal"},
        {"mask", no_mask},
        {"slidingwindow", "window"},
        {"slidingwindowsize", "window"},
        {"localwindowsize", windows},
        {"windowsize", windows},
        {"windowleft", windows},
        {"attnlogitsoftcapping", "softcap"},
        {"logitcap", "softcap"},
        {"logitsoftcap", "softcap"},
        {"logitssoftcap", "softcap"},
        {"softcapping", "softcap"},
        {"dropout", "; where nothing is trained dropout does nothing: leave it out"},
        {"dropoutp", "; where nothing is trained dropout does nothing: leave it out"},
        {"kvheads", "; how many heads there are follows from the columns and 'head_dim'"},
        {"nheads", "; how many heads there are follows from the columns and 'head_dim'"},
        {"numheads", "; how many heads there are follows from the columns and 'head_dim'"},
        {"numkvheads", "; how many heads there are follows from the columns and 'head_dim'"},
        {"seqlen", "length"},
        {"smscale", "scale"},
        {"softmaxscale", "scale"}}},
      {"matmul",
       {{"adja", transposed},
        {"adjb", "transpose_b"},
        {"adjx", transposed},
        {"adjy", "transpose_b"},
        {"alpha", "; write mul(y, value = ...) behind it"},
        {"bias", "; the bias is the third operand: matmul(a, b, bias)"},
        {"outdtype", "dtype"},
        {"transa", transposed},
        {"transb", "transpose_b"},
        {"transpose", "transpose_b"},
        {"transposea", transposed},
        {"transposew", "transpose_b"},
        {"transposex", transposed},
        {"transposey", "transpose_b"}}},
      {"rope",
       {{"dim", "head_dim"},
        {"ropetheta", "theta"},
        {"ropescaling", "scaling"},
        {"rotarydim", "rotary_dim"},
        {"rotarydims", "rotary_dim"},
        {"rotaryndims", "rotary_dim"},
        {"rotaryembeddim", "rotary_dim"},
        {"ropedim", "rotary_dim"},
        {"partialrotaryfactor", "; write rotary_dim = ..., that part of 'head_dim'"},
        {"rotarypct", "; write rotary_dim = ..., that part of 'head_dim'"},
        {"attentionscaling", "attention_factor"},
        {"invfreq", "; frequencies of pairs are the last operand"},
        {"frequencies", "; frequencies of pairs are the last operand"},
        {"nheads", "; how many heads there are follows from the columns and 'head_dim'"},
        {"numheads", "; how many heads there are follows from the columns and 'head_dim'"},
        {"positionids", "; positions from memory are the second operand"},
        {"positions", "; positions from memory are the second operand"}}},
  };
  return hints;
}

/// Words for dtypes, kinds, keys and attributes' values. Some have several meanings; the allowed
/// words decide.
const std::multimap<std::string, std::string, std::less<>>& word_synonyms() {
  static const std::multimap<std::string, std::string, std::less<>> words = {
      // dtypes
      {"bf", "bf16"},
      {"bfloat", "bf16"},
      {"bfloat16", "bf16"},
      {"bool", "u8"},
      {"byte", "u8"},
      {"char", "u8"},
      {"double", "f32"},
      {"e4m3", "f8e4m3"},
      {"e4m3fn", "f8e4m3"},
      {"e5m2", "f8e5m2"},
      {"f64", "f32"},
      {"f8", "f8e4m3"},
      {"f8e4m3fn", "f8e4m3"},
      {"float", "f32"},
      {"float16", "f16"},
      {"float32", "f32"},
      {"float64", "f32"},
      {"float8", "f8e4m3"},
      {"float8e4m3", "f8e4m3"},
      {"float8e4m3fn", "f8e4m3"},
      {"float8e5m2", "f8e5m2"},
      {"fp16", "f16"},
      {"fp32", "f32"},
      {"fp64", "f32"},
      {"fp8", "f8e4m3"},
      {"fp8e4m3", "f8e4m3"},
      {"fp8e5m2", "f8e5m2"},
      {"half", "f16"},
      {"i64", "i32"},
      {"i8", "u8"},
      {"int", "i32"},
      {"int", "scalar"},
      {"int32", "i32"},
      {"int32t", "i32"},
      {"int64", "i32"},
      {"int64t", "i32"},
      {"int8", "u8"},
      {"long", "i32"},
      {"nvbfloat16", "bf16"},
      {"nvfp8e4m3", "f8e4m3"},
      {"nvfp8e5m2", "f8e5m2"},
      {"tf32", "f32"},
      {"u32", "i32"},
      {"uchar", "u8"},
      {"uint8", "u8"},
      {"uint8t", "u8"},
      {"unsignedchar", "u8"},
      // kinds of tensors
      {"arg", "input"},
      {"argument", "input"},
      {"buffer", "state"},
      {"cache", "state"},
      {"const", "param"},
      {"constant", "param"},
      {"in", "input"},
      {"index", "scalar"},
      {"inout", "state"},
      {"mutable", "state"},
      {"out", "output"},
      {"parameter", "param"},
      {"placeholder", "input"},
      {"result", "output"},
      {"symbol", "dim"},
      {"variable", "state"},
      {"weight", "param"},
      {"weights", "param"},
      // keys
      {"args", "in"},
      {"axis", "shape"},
      {"collective", "collectives"},
      {"datatype", "dtype"},
      {"depends", "after"},
      {"dependencies", "after"},
      {"dependson", "after"},
      {"deps", "after"},
      {"dimensions", "shape"},
      {"dims", "shape"},
      {"elementtype", "dtype"},
      {"elemtype", "dtype"},
      {"group", "overlap_group"},
      {"id", "name"},
      {"initializers", "tensors"},
      {"inputs", "in"},
      {"kind", "op"},
      {"label", "name"},
      {"maximum", "max"},
      {"microbatchcount", "microbatches"},
      {"minimum", "min"},
      {"nodes", "ops"},
      {"nranks", "world"},
      {"numlocalranks", "world"},
      {"nummicrobatches", "microbatches"},
      {"numranks", "world"},
      {"operands", "in"},
      {"operations", "ops"},
      {"operators", "ops"},
      {"optype", "op"},
      {"originalmaxpositionembeddings", "original_max_position"},
      {"outputs", "out"},
      {"ranks", "world"},
      {"regions", "overlap_regions"},
      {"results", "out"},
      {"roles", "sm_roles"},
      {"size", "shape"},
      {"sizes", "shape"},
      {"tensor", "tensors"},
      {"tp", "world"},
      {"type", "dtype"},
      {"type", "kind"},
      {"type", "op"},
      {"version", "maco"},
      {"worldsize", "world"},
      // words of attributes
      {"1shot", "oneshot"},
      {"2shot", "twoshot"},
      {"add", "sum"},
      {"average", "avg"},
      {"communication", "comm"},
      {"default", "auto"},
      {"identity", "none"},
      {"linear", "none"},
      {"maximum", "max"},
      {"mean", "avg"},
      {"medium", "normal"},
      {"minimum", "min"},
      {"no", "none"},
      {"off", "none"},
      {"peer", "p2p"},
      {"swish", "silu"},
      {"worker", "compute"},
      {"workers", "compute"},
      // statements of collectives
      {"load", "get"},
      {"notify", "signal"},
      {"read", "get"},
      {"recv", "wait"},
      {"send", "put"},
      {"store", "put"},
      {"write", "put"},
  };
  return words;
}

/// The last part of "torch.nn.functional.relu", or "ncclAllReduce" without its prefix.
std::string last_part(std::string_view kind) {
  if (const size_t dot = kind.rfind('.'); dot != std::string_view::npos)
    kind.remove_prefix(dot + 1);
  std::string plain = plain_name(kind);
  for (std::string_view prefix : {"nccl", "mpii", "mpi", "aten", "cublas"})
    if (plain.size() > prefix.size() && plain.compare(0, prefix.size(), prefix) == 0)
      return plain.substr(prefix.size());
  return plain;
}

}  // namespace

std::vector<std::string> op_kinds() {
  std::vector<std::string> kinds;
  for (const OpDef& def : all_ops())
    if (!def.internal) kinds.push_back(def.kind);
  return kinds;
}

std::vector<std::string> other_op_names() {
  std::vector<std::string> names;
  for (const Names* table : {&op_synonyms(), &ways_out()})
    for (const auto& [name, meaning] : *table) names.push_back(name);
  return names;
}

std::string synonym_of(std::string_view kind) {
  const std::string plain = last_part(kind);
  for (const std::string& own : op_kinds())
    if (plain_name(own) == plain) return own;
  return found_in(op_synonyms(), plain);
}

std::string hint_for_op(std::string_view kind) {
  if (const std::string own = synonym_of(kind); !own.empty()) {
    const std::string plain = last_part(kind);
    std::string how;
    if (plain == "linear" || plain == "dense" || plain == "fullyconnected")
      how = " with transpose_b = true, and the bias as its third operand";
    if (plain == "addmm") how = " with the bias as its third operand";
    if (plain == "gelunew" || plain == "gelutanh" || plain == "fastgelu")
      how = " with approximate = tanh";
    if (plain == "psum") how = " with reduce = sum";
    if (plain == "pmax") how = " with reduce = max";
    if (plain == "pmean") how = " with reduce = avg";
    return fmt::format("; did you mean '{}'{}?", own, how);
  }
  const std::string way = found_in(ways_out(), last_part(kind));
  return way.empty() ? "" : "; " + way;
}

std::string near_op(std::string_view kind) {
  std::string hint = hint_for_op(kind);
  if (!hint.empty()) return hint;
  const std::string near = ir::did_you_mean(kind, op_kinds());
  return near.empty() ? kOwnKernelHint : near;
}

std::string hint_for_attr(std::string_view kind, std::string_view attr) {
  const OpDef* def = find_op(kind);
  const auto has = [&](const std::string& name) {
    return name == "dtype" ||
           (def != nullptr && std::any_of(def->attrs.begin(), def->attrs.end(), [&](const auto& s) {
              return s.name == name && !s.internal;
            }));
  };
  const std::string plain = plain_name(attr);
  const bool of_rows = kind == "argmax" || kind == "layernorm" || kind == "max" || kind == "mean" ||
                       kind == "rmsnorm" || kind == "softmax" || kind == "sum";
  if (of_rows &&
      (plain == "axis" || plain == "dim" || plain == "dims" || plain == "normalizedshape"))
    return fmt::format("; '{}' is over the last axis, always", kind);
  for (const std::string_view op : {kind, std::string_view()}) {
    const auto found = attribute_hints().find(op);
    if (found == attribute_hints().end()) continue;
    for (const auto& [name, hint] : found->second) {
      if (name != plain) continue;
      if (hint[0] == ';') return hint;
      if (has(hint)) return fmt::format("; did you mean '{}'?", hint);
    }
  }
  return "";
}

std::string other_name(std::string_view word, const std::vector<std::string>& candidates) {
  const auto [begin, end] = word_synonyms().equal_range(plain_name(word));
  for (auto it = begin; it != end; ++it)
    if (it->second != word &&
        std::find(candidates.begin(), candidates.end(), it->second) != candidates.end())
      return it->second;
  return "";
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string other = other_name(word, candidates);
  return other.empty() ? ir::did_you_mean(word, candidates)
                       : fmt::format("; did you mean '{}'?", other);
}

}  // namespace maco::ops
