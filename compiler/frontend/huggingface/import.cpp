#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cmake/embedded.h"
#include "compiler/frontend/frontend.h"
#include "compiler/frontend/huggingface/architecture.h"
#include "compiler/frontend/huggingface/checkpoint.h"
#include "compiler/frontend/huggingface/cuts.h"
#include "compiler/frontend/huggingface/rope.h"
#include "compiler/frontend/huggingface/weights.h"
#include "ir/ranks.h"

extern const maco::EmbeddedFile maco_architectures[];
extern const size_t maco_architectures_count;

namespace maco::frontend::huggingface {

namespace {

constexpr int64_t kUsualRows = 4096, kUsualChunk = 512, kUsualVerifyRows = 8;
constexpr int kMostDepth = 64;  // of config.json

// The file's name without its folders.
std::string base_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

// Converts integers that fit to int64_t. Returns false if the value is nested too deeply.
bool normalise(Value& v, int depth) {
  if (depth > kMostDepth) return false;
  if (v.is_number_unsigned()) {
    const auto n = v.get<uint64_t>();
    if (n > INT64_MAX)
      v = static_cast<double>(n);
    else
      v = static_cast<int64_t>(n);
  }
  if (v.is_structured())
    for (Value& member : v)
      if (!normalise(member, depth + 1)) return false;
  return true;
}

class Importer {
 public:
  Importer(const Checkpoint& checkpoint, const ImportOptions& options, ir::Diagnostics& diagnostics)
      : checkpoint_(checkpoint),
        options_(options),
        diagnostics_(diagnostics),
        base_(nullptr),
        table_(checkpoint, options.world, diagnostics) {}

  std::optional<ImportedModel> run() {
    if (!read_config() || !find_architecture() || !choose_sizes()) return std::nullopt;
    set_names();
    ImportedModel model;
    std::vector<std::string> ignored;
    for (const std::string& kind : kinds_) {
      Scope scope(&base_);
      const std::string rows = rows_of(kind);
      scope.set("kind", Value(kind));
      scope.set("rows", Value(rows));
      scope.set("logits", Value(options_.world == 1 ? "logits" : "own_logits"));
      auto expanded = expand(file_, scope, diagnostics_);
      if (!expanded) return std::nullopt;
      ignored = expanded->ignored;
      bool ok = true;
      for (const ParamOrigin& p : expanded->params) ok = table_.add(p) && ok;
      if (!ok) return std::nullopt;
      auto text = graph_text(kind, *expanded);
      if (!text) return std::nullopt;
      model.graphs[kind] = std::move(*text);
    }
    if (!table_.account(ignored, architecture_file_)) return std::nullopt;
    model.weights = weights_text();
    return model;
  }

 private:
  bool fail(const std::string& message) {
    diagnostics_.error({}, message);
    return false;
  }
  const Value* find(const Value& object, const char* key) const {
    const auto at = object.find(key);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  }

  bool read_object(const std::string& text, const std::string& name, Value& object) {
    object = Value::parse(text, nullptr, false);
    if (object.is_discarded() || !object.is_object()) return fail(name + ": is no JSON object");
    return normalise(object, 0) || fail(name + ": is nested too deeply");
  }
  bool read_config() {
    Value all;
    if (!read_object(checkpoint_.config, "config.json", all)) return false;
    if (!checkpoint_.generation.empty() &&
        !read_object(checkpoint_.generation, "generation_config.json", generation_))
      return false;
    const Value* names = find(all, "architectures");
    if (names == nullptr || !names->is_array() || names->size() != 1 || !(*names)[0].is_string())
      return fail("config.json: 'architectures' must name one architecture");
    architecture_ = (*names)[0].get<std::string>();
    if (const Value* how = find(all, "quantization_config")) {
      const Value* method = how->is_object() ? find(*how, "quant_method") : nullptr;
      return fail(fmt::format(
          "config.json: quantised weights (quantization_config{}) can't be imported; f32, f16 and "
          "bf16 can",
          method != nullptr && method->is_string() ? ", quant_method " + method->get<std::string>()
                                                   : ""));
    }
    // In models that also see or hear, take the part for texts.
    config_ = all;
    if (const Value* text = find(all, "text_config")) {
      if (!text->is_object()) return fail("config.json: 'text_config' is no object");
      for (const auto& [key, value] : text->items()) config_[key] = value;
    }
    return true;
  }

  bool find_architecture() {
    std::vector<std::string> known;
    const auto take = [&](const std::string& name, const std::string& text) {
      const auto names = architectures_of(text);
      known.insert(known.end(), names.begin(), names.end());
      if (file_ >= 0 || std::find(names.begin(), names.end(), architecture_) == names.end()) return;
      file_ = diagnostics_.add_file(name, text);
      architecture_file_ = base_name(name);
    };
    for (const ArchitectureFile& own : options_.own) take(own.name, own.text);
    if (file_ >= 0) return true;
    if (options_.only_own)
      return fail(fmt::format(
          "{} is for {}, and the checkpoint's architecture is '{}'", options_.own[0].name,
          known.empty() ? "no architecture" : fmt::format("{}", fmt::join(known, ", ")),
          architecture_));
    for (size_t i = 0; i < maco_architectures_count; ++i)
      take(base_name(maco_architectures[i].name), maco_architectures[i].text);
    if (file_ >= 0) return true;
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    return fail(
        fmt::format("config.json: architecture '{}' isn't known{}; those that are: {}; an .arch "
                    "file beside the checkpoint adds one",
                    architecture_, ir::did_you_mean(architecture_, known), fmt::join(known, ", ")));
  }

  bool choose_sizes() {
    if (options_.world < 1 || options_.world > ir::kMaxWorld)
      return fail(fmt::format("a model can be shared by 1 to {} ranks, not {}", ir::kMaxWorld,
                              options_.world));
    if (!choose_dtype()) return false;
    const Value* positions = find(config_, "max_position_embeddings");
    const int64_t made_for = positions != nullptr && positions->is_number_integer()
                                 ? positions->get<int64_t>()
                                 : kUsualRows;
    max_seq_ = options_.max_seq > 0 ? options_.max_seq : std::min(made_for, kUsualRows);
    if (max_seq_ < 1 || max_seq_ > INT32_MAX)
      return fail(fmt::format("caches can't have {} rows", max_seq_));
    if (positions != nullptr && max_seq_ > made_for)
      diagnostics_.warning(
          {},
          fmt::format("caches of {} rows are more than the {} positions that the model is made for",
                      max_seq_, made_for));
    chunk_ = std::min(options_.chunk > 0 ? options_.chunk : kUsualChunk, max_seq_);
    verify_rows_ =
        std::min(options_.verify_rows > 0 ? options_.verify_rows : kUsualVerifyRows, max_seq_);
    const std::vector<std::string> all(std::begin(kKinds), std::end(kKinds));
    for (const std::string& kind : options_.kinds)
      if (std::find(all.begin(), all.end(), kind) == all.end())
        return fail(fmt::format("there is no kind of graph '{}'{}; decode, prefill and verify are",
                                kind, ir::did_you_mean(kind, all)));
    for (const std::string& kind : all)
      if (options_.kinds.empty() ||
          std::find(options_.kinds.begin(), options_.kinds.end(), kind) != options_.kinds.end())
        kinds_.push_back(kind);
    return true;
  }

  bool choose_dtype() {
    if (options_.dtype) {
      dtype_ = *options_.dtype;
    } else {
      const Value* named =
          find(config_, "dtype") != nullptr ? find(config_, "dtype") : find(config_, "torch_dtype");
      std::string name = named != nullptr && named->is_string() ? named->get<std::string>() : "";
      if (name.starts_with("torch.")) name = name.substr(6);
      // If the config doesn't name a dtype, take that of the largest tensor.
      if (name.empty()) {
        int64_t most = -1;
        for (const auto& [key, s] : checkpoint_.sources) {
          int64_t n = 1;
          for (const int64_t extent : s.shape) n *= extent;
          if (n > most) {
            most = n;
            name = s.dtype;
          }
        }
      }
      const std::pair<const char*, ir::DType> names[] = {
          {"float32", ir::DType::F32}, {"F32", ir::DType::F32},       {"float16", ir::DType::F16},
          {"F16", ir::DType::F16},     {"bfloat16", ir::DType::BF16}, {"BF16", ir::DType::BF16}};
      const auto* at = std::find_if(std::begin(names), std::end(names),
                                    [&](const auto& n) { return name == n.first; });
      if (at == std::end(names))
        return fail(fmt::format(
            "config.json: the dtype '{}' isn't one of float32, float16 and bfloat16", name));
      dtype_ = at->second;
    }
    if (dtype_ != ir::DType::F32 && dtype_ != ir::DType::F16 && dtype_ != ir::DType::BF16)
      return fail(
          fmt::format("a model is imported as f32, f16 or bf16, not as {}", ir::name(dtype_)));
    return true;
  }

  std::string rows_of(const std::string& kind) const {
    if (kind == "prefill") return "rows";
    return kind == "decode" ? "1" : fmt::format("{}", verify_rows_);
  }

  // The names that .arch files may use.
  void set_names() {
    base_.set("config", config_);
    base_.set("world", Value(options_.world));
    base_.set("max_seq", Value(max_seq_));
    base_.set("T", Value(std::string(ir::name(dtype_))));
    const auto count = [](const std::vector<Value>& a, size_t least, size_t most) {
      if (a.size() < least || a.size() > most)
        throw Wrong{fmt::format(
            "{} arguments were given, and {} are wanted", a.size(),
            least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most))};
    };
    const auto function = [&](const char* name, size_t least, size_t most, auto f) {
      base_.set(name, Function([=](const std::vector<Value>& a) -> Value {
                  count(a, least, most);
                  return f(a);
                }));
    };
    function("has", 1, 1, [this](const auto& a) {
      return Value(a[0].is_string() &&
                   checkpoint_.sources.contains(a[0].template get<std::string>()));
    });
    function("stated", 1, 1, [this](const auto& a) {
      return Value(a[0].is_string() && config_.contains(a[0].template get<std::string>()));
    });
    function("even", 1, 1, [this](const auto& a) {
      return even_cut(integer(a[0], "the extent"), options_.world);
    });
    function("key_heads", 2, 2, [this](const auto& a) {
      return key_cut(integer(a[0], "the number of heads"), integer(a[1], "the size of a head"),
                     options_.world);
    });
    function("query_heads", 3, 3, [this](const auto& a) {
      return query_cut(integer(a[0], "the number of heads"),
                       integer(a[1], "the number of heads of keys"),
                       integer(a[2], "the size of a head"), options_.world);
    });
    function("rope", 2, 3, [this](const auto& a) {
      return rope_of(config_, integer(a[0], "the size of a head"), a[1],
                     a.size() > 2 ? a[2] : Value(), max_seq_);
    });
    function("sqrt", 1, 1,
             [](const auto& a) { return Value(std::sqrt(number(a[0], "the argument"))); });
    function("len", 1, 1, [](const auto& a) {
      if (!a[0].is_array()) throw Wrong{"the argument is no list"};
      return Value(static_cast<int64_t>(a[0].size()));
    });
    function("rounded", 1, 1,
             [this](const auto& a) { return Value(rounded(number(a[0], "the argument"))); });
  }
  // The number rounded to the model's dtype.
  double rounded(double x) const {
    if (dtype_ == ir::DType::F32) return static_cast<double>(static_cast<float>(x));
    if (x == 0 || !std::isfinite(x)) return x;
    const int bits = dtype_ == ir::DType::BF16 ? 8 : 11;  // of the significand
    int exponent = 0;
    const double m = std::frexp(static_cast<double>(static_cast<float>(x)), &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(m, bits)), exponent - bits);
  }

  // The graph's text with what all architectures have in common: tokens and positions, logits and
  // the next token.
  std::optional<std::string> graph_text(const std::string& kind, const Expanded& expanded) {
    const Value* vocabulary = expanded.names.value("vocabulary");
    if (vocabulary == nullptr || !vocabulary->is_object() || !vocabulary->contains("cut")) {
      fail(architecture_file_ + ": has no 'let vocabulary = even(...)'");
      return std::nullopt;
    }
    vocabulary_ = (*vocabulary)["whole"].get<int64_t>();
    const int64_t local = (*vocabulary)["local"].get<int64_t>(), world = options_.world;
    const bool prefill = kind == "prefill";
    const int64_t results = kind == "verify" ? verify_rows_ : 1,
                  most_rows = prefill ? chunk_ : results;
    std::string s = fmt::format(
        "# {} of {}, {} rank{}: made by `macoc import` with {}. `pos`: rows that the caches "
        "have.\n",
        kind, architecture_, world, world == 1 ? "" : "s", architecture_file_);
    s += fmt::format("graph {}_{}{} {{\n", identifier(), kind,
                     world == 1 ? "" : fmt::format("(world = {})", world));
    if (prefill) s += fmt::format("  dim rows <= {}\n", chunk_);
    const int64_t places = max_seq_ - most_rows + 1;
    s += fmt::format("  scalar pos in [0, {}) typical {}\n", places,
                     prefill ? 0 : std::min<int64_t>(512, places / 2));
    s += fmt::format("  input tokens : i32[{}]\n", rows_of(kind));
    if (world == 1)
      s += fmt::format("  output logits : {}[{}, {}]\n", ir::name(dtype_), results, vocabulary_);
    for (const std::string& line : expanded.graph) s += line + "\n";
    if (world > 1) {
      // Each rank has some columns of all rows.
      const int64_t padded = world * local;
      const std::string last =
          fmt::format("output logits : {}[{}, {}] = ", ir::name(dtype_), results, vocabulary_);
      const bool cut = padded != vocabulary_;
      const auto name = [&](bool is_last, const char* own) {
        return is_last ? last : std::string(own) + " = ";
      };
      s += "  all_logits = allgather(own_logits)\n";
      std::string from = "all_logits";
      if (results > 1) {
        s += fmt::format("  by_rank = reshape(all_logits, shape = [{}, {}, {}])\n", world, results,
                         local);
        s += "  by_row = transpose(by_rank, perm = [1, 0, 2])\n";
        from = "by_row";
      }
      s += fmt::format("  {}reshape({}, shape = [{}, {}])\n", name(!cut, "joined"), from, results,
                       padded);
      if (cut)
        s += fmt::format("  {}slice(joined, axis = 1, begin = 0, end = {})\n", last, vocabulary_);
    }
    s += fmt::format("  output next : i32[{}] = argmax(logits)\n}}\n", results);
    return check(kind, s) ? std::optional(s) : std::nullopt;
  }
  // Checks a graph; an error is a fault of its .arch file.
  bool check(const std::string& kind, const std::string& text) {
    const int before = diagnostics_.errors();
    const int32_t file =
        diagnostics_.add_file(fmt::format("{}.maco (of {})", kind, architecture_file_), text);
    return parse_graph(file, diagnostics_).has_value() && diagnostics_.errors() == before;
  }
  std::string identifier() const {
    const Value* type = find(config_, "model_type");
    std::string name = type != nullptr && type->is_string() ? type->get<std::string>() : "model";
    for (char& c : name)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) ? "model_" + name
                                                                             : name;
  }

  // The ids that end a text, from both files.
  nlohmann::ordered_json ends() const {
    std::vector<int64_t> ids;
    const auto take = [&](const Value& v) {
      if (v.is_number_integer() && std::find(ids.begin(), ids.end(), v.get<int64_t>()) == ids.end())
        ids.push_back(v.get<int64_t>());
    };
    for (const Value* from : {&generation_, &config_}) {
      const Value* v = from->is_object() ? find(*from, "eos_token_id") : nullptr;
      if (v == nullptr) continue;
      if (v->is_array())
        for (const Value& one : *v) take(one);
      else
        take(*v);
    }
    return ids;
  }
  std::string weights_text() const {
    nlohmann::ordered_json w = {{"maco_weights", 1},
                                {"architecture", architecture_},
                                {"world", options_.world},
                                {"dtype", std::string(ir::name(dtype_))},
                                {"max_seq", max_seq_},
                                {"chunk", chunk_},
                                {"verify_rows", verify_rows_},
                                {"vocabulary", vocabulary_},
                                {"eos", ends()}};
    table_.write(w);
    // A line for each file, source and param.
    std::string text = "{";
    for (const auto& [key, value] : w.items()) {
      text += fmt::format("{}\n\"{}\": ", text.size() > 1 ? "," : "", key);
      if (!value.is_structured() || value.empty() || key == "eos") {
        text += value.dump();
        continue;
      }
      text += value.is_array() ? "[" : "{";
      bool first = true;
      for (const auto& [name, one] : value.items()) {
        text += std::string(first ? "" : ",") + "\n  " +
                (value.is_array() ? "" : nlohmann::json(name).dump() + ": ") + one.dump();
        first = false;
      }
      text += value.is_array() ? "]" : "}";
    }
    return text + "}\n";
  }

  const Checkpoint& checkpoint_;
  const ImportOptions& options_;
  ir::Diagnostics& diagnostics_;
  Scope base_;
  WeightTable table_;
  Value config_, generation_;
  std::string architecture_, architecture_file_;
  int32_t file_ = -1;
  ir::DType dtype_ = ir::DType::F32;
  int64_t max_seq_ = 0, chunk_ = 0, verify_rows_ = 0, vocabulary_ = 0;
  std::vector<std::string> kinds_;
};

}  // namespace

std::optional<ImportedModel> import_checkpoint(const Checkpoint& checkpoint,
                                               const ImportOptions& options,
                                               ir::Diagnostics& diagnostics) {
  return Importer(checkpoint, options, diagnostics).run();
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> all;
  for (size_t i = 0; i < maco_architectures_count; ++i) {
    const auto names = architectures_of(maco_architectures[i].text);
    all.insert(all.end(), names.begin(), names.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace maco::frontend::huggingface
