#include "compiler/frontend/huggingface/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "ir/diagnostics.h"

namespace maco::frontend::huggingface {

namespace {

// A member, or null.
Value member(const Value& object, const char* key) {
  return object.is_object() && object.contains(key) ? Value(object[key]) : Value();
}

constexpr int64_t kMostDim = int64_t{1} << 16;

class Rope {
 public:
  Rope(const Value& config, int64_t head_dim, const Value& theta, const Value& given,
       int64_t max_seq)
      : config_(config), max_seq_(max_seq), own_(given.is_null()) {
    if (head_dim < 2 || head_dim > kMostDim)
      throw Wrong{fmt::format("the size of a head is {}, but must be 2 to {}", head_dim, kMostDim)};
    find_parameters(given);
    find_theta(theta);
    const Value part = first_of(
        {member(parameters_, "partial_rotary_factor"), member(config_, "partial_rotary_factor")});
    rotary_ = part.is_null() ? head_dim
                             : static_cast<int64_t>(static_cast<double>(head_dim) *
                                                    number(part, "partial_rotary_factor"));
    if (rotary_ < 2 || rotary_ > head_dim || rotary_ % 2 != 0)
      throw Wrong{fmt::format(
          "{} of {} elements of a head are to turn, which must be an even number of at least 2",
          rotary_, head_dim)};
    if (rotary_ != head_dim) attributes_ += fmt::format(", rotary_dim = {}", rotary_);
  }

  Value result() {
    if (kind_ == "default") {
      attributes_ = theta_text() + attributes_;
    } else if (kind_ == "llama3") {
      attributes_ = theta_text() +
                    fmt::format(
                        ", scaling = {{factor: {}, low_freq_factor: {}, high_freq_factor: {}, "
                        "original_max_position: {}}}",
                        as_text(need("factor")), as_text(need("low_freq_factor")),
                        as_text(need("high_freq_factor")), as_text(original_positions())) +
                    attributes_;
    } else if (kind_ == "linear") {
      linear();
    } else if (kind_ == "dynamic") {
      dynamic();
    } else if (kind_ == "yarn") {
      yarn();
    } else if (kind_ == "longrope") {
      longrope();
    } else {
      throw Wrong{fmt::format(
          "rotary embeddings of type '{}' aren't known, only those of default, linear, dynamic, "
          "yarn, longrope and llama3{}",
          kind_,
          ir::did_you_mean(kind_, {"default", "linear", "dynamic", "yarn", "longrope", "llama3"}))};
    }
    return {{"values", values_}, {"attributes", attributes_}};
  }

 private:
  static Value first_of(const std::vector<Value>& values) {
    for (const Value& v : values)
      if (!v.is_null()) return v;
    return nullptr;
  }
  Value need(const char* key) const {
    const Value v = member(parameters_, key);
    if (!v.is_number())
      throw Wrong{fmt::format(
          "rotary embeddings of type '{}' need '{}', which config.json doesn't have as a number",
          kind_, key)};
    return v;
  }
  double optional_number(const char* key, double otherwise) const {
    const Value v = member(parameters_, key);
    return v.is_null() ? otherwise : number(v, key);
  }

  void find_parameters(const Value& given) {
    parameters_ =
        given.is_object() ? given
        : given.is_null()
            ? first_of({member(config_, "rope_scaling"), member(config_, "rope_parameters")})
            : Value();
    if (!parameters_.is_object()) parameters_ = Value::object();
    for (const auto& [key, value] : parameters_.items())
      if (value.is_object())
        throw Wrong{
            fmt::format("rotary embeddings differ between kinds of layers ('{}'), which this "
                        "architecture doesn't know",
                        key)};
    const Value type =
        first_of({member(parameters_, "rope_type"), member(parameters_, "type"), Value("default")});
    if (!type.is_string()) throw Wrong{"the type of rotary embeddings is no text"};
    kind_ = type.get<std::string>();
    // The name in Phi-3's first checkpoints.
    if (kind_ == "su" || (kind_ == "yarn" && parameters_.contains("short_factor")))
      kind_ = "longrope";
  }
  void find_theta(const Value& otherwise) {
    Value theta = member(parameters_, "rope_theta");
    if (theta.is_null() && own_) {
      const Value other_spelling = member(config_, "rope_parameters");
      theta = first_of({member(config_, "rope_theta"), member(other_spelling, "rope_theta")});
      // In a config of transformers 5 rope_theta is always present.
      if (theta.is_null() && !other_spelling.is_null())
        throw Wrong{"config.json has no rope_theta, neither of its own nor in rope_parameters"};
    }
    if (theta.is_null()) theta = otherwise;
    theta_ = number(theta, "rope_theta");
    if (!(theta_ > 0)) throw Wrong{fmt::format("rope_theta is {}, but must be above 0", theta_)};
  }
  std::string theta_text() const { return fmt::format(", theta = {}", as_text(theta_)); }

  // The longest text for which the model was first trained.
  Value original_positions() const {
    return first_of({member(config_, "original_max_position_embeddings"),
                     member(parameters_, "original_max_position_embeddings"),
                     member(config_, "max_position_embeddings")});
  }
  double positions(const Value& v) const { return number(v, "max_position_embeddings"); }

  // theta^(2 i / rotary), in f32 as the models were trained.
  float power(int64_t i) const {
    return std::pow(static_cast<float>(theta_),
                    static_cast<float>(2 * i) / static_cast<float>(rotary_));
  }
  template <typename F>
  void fill(F frequency) {
    values_ = Value::array();
    for (int64_t i = 0; i < rotary_ / 2; ++i) values_.push_back(static_cast<float>(frequency(i)));
  }
  void times(double attention_factor) {
    if (attention_factor != 1)
      attributes_ += fmt::format(", attention_factor = {}", as_text(attention_factor));
  }

  void linear() {
    const auto factor = static_cast<float>(number(need("factor"), "factor"));
    fill([&](int64_t i) { return 1 / power(i) / factor; });
  }

  // This kind stretches by the length of the current text, which fixed frequencies can't.
  void dynamic() {
    const double most = positions(member(config_, "max_position_embeddings"));
    if (static_cast<double>(max_seq_) > most)
      throw Wrong{
          fmt::format("rotary embeddings of type 'dynamic' change with the length of a text beyond "
                      "{} tokens: take a max_seq of at most that",
                      most)};
    attributes_ = theta_text() + attributes_;
  }

  void yarn() {
    const double original = positions(original_positions());
    const Value given = member(parameters_, "factor");
    const double factor = given.is_null()
                              ? positions(member(config_, "max_position_embeddings")) / original
                              : number(given, "factor");
    const auto scale = [&](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1; };
    const double m = optional_number("mscale", 0), all = optional_number("mscale_all_dim", 0);
    const double attention = m != 0 && all != 0 ? scale(m) / scale(all) : scale(1);
    const auto dim = static_cast<double>(rotary_);
    const auto place = [&](double rotations) {
      return dim * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta_));
    };
    const auto or_else = [&](const char* key, double otherwise) {
      const double v = optional_number(key, otherwise);
      return v == 0 ? otherwise : v;
    };
    double low = place(or_else("beta_fast", 32)), high = place(or_else("beta_slow", 1));
    const Value truncate = member(parameters_, "truncate");
    if (truncate.is_null() || holds(truncate)) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;
    fill([&](int64_t i) {
      const float ramp = std::clamp(
          (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
          1.0f);
      const float kept = 1 - ramp;
      return 1 / (static_cast<float>(factor) * power(i)) * (1 - kept) + 1 / power(i) * kept;
    });
    times(optional_number("attention_factor", attention));
  }

  void longrope() {
    const double original = positions(original_positions());
    const Value given = member(parameters_, "factor");
    const double factor = given.is_null()
                              ? positions(member(config_, "max_position_embeddings")) / original
                              : number(given, "factor");
    const double attention = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
    const char* key = static_cast<double>(max_seq_) > original ? "long_factor" : "short_factor";
    const Value factors = member(parameters_, key);
    if (!factors.is_array() || static_cast<int64_t>(factors.size()) != rotary_ / 2)
      throw Wrong{fmt::format("rotary embeddings of type 'longrope' need a list '{}' of {} numbers",
                              key, rotary_ / 2)};
    fill([&](int64_t i) {
      return 1 / (static_cast<float>(number(factors[static_cast<size_t>(i)], key)) * power(i));
    });
    times(optional_number("attention_factor", attention));
  }

  const Value& config_;
  int64_t max_seq_;
  bool own_;  // whether config names the kind itself
  Value parameters_;
  std::string kind_;
  double theta_ = 0;
  int64_t rotary_ = 0;
  Value values_;
  std::string attributes_;
};

}  // namespace

Value rope_of(const Value& config, int64_t head_dim, const Value& theta, const Value& parameters,
              int64_t max_seq) {
  return Rope(config, head_dim, theta, parameters, max_seq).result();
}

}  // namespace maco::frontend::huggingface
