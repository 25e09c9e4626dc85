// repeat.cpp: unrolls `repeat` while building.
//
// Nothing is expanded in the tree. Each op is copied with its replacements only when its turn
// comes, so that memory holds one op at a time. `{...}` holds an expression over `world` and the
// variables of the repeats around it; its value replaces it.

#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/build.h"

namespace maco::frontend {

namespace {

std::optional<int64_t> value_of(const BuildContext& c, const Env& env, std::string_view name) {
  if (name == "world") return c.graph.world;
  for (const Env::LoopVar& v : env.vars)
    if (v.name == name) return v.value;
  return std::nullopt;
}

std::vector<std::string> names_of(const Env& env) {
  std::vector<std::string> names;
  for (const Env::LoopVar& v : env.vars) names.push_back(v.name);
  names.emplace_back("world");
  return names;
}

/// The value of an expression over loop variables; nothing, and the reason in `error`, if it has
/// none.
std::optional<int64_t> evaluate_text(BuildContext& c, const Env& env, std::string_view text,
                                     std::string& error) {
  const ir::ParseExprResult parsed = ir::parse_expr(text);
  if (!parsed.expr) {
    error = fmt::format("in {}: {}", quoted(text), parsed.error);
    return std::nullopt;
  }
  for (const std::string& name : parsed.expr->vars()) {
    if (value_of(c, env, name)) continue;
    if (const auto known = c.check.variables.find(name); known != c.check.variables.end()) {
      const bool dim = known->second.kind == Variable::Kind::Dim;
      if (dim || known->second.kind == Variable::Kind::Scalar) {
        error = fmt::format("{} '{}' is known at launch, but a 'repeat' is unrolled before",
                            dim ? "dim" : "scalar", name);
        return std::nullopt;
      }
    }
    std::string hint = graph::suggest(c.check, name, names_of(env));
    if (hint.empty()) hint = fmt::format("; expected {}", list_words(names_of(env)));
    error = fmt::format("'{}' is not the variable of a 'repeat' around this{}", name, hint);
    return std::nullopt;
  }
  const ir::EvalResult r =
      ir::evaluate(*parsed.expr, [&](std::string_view n) { return value_of(c, env, n); });
  error = r.error;
  return r.value;
}

bool replace(BuildContext& c, const Env& env, std::string& text, ir::Loc loc) {
  const auto brace = [&](size_t from) {
    const auto is_brace = [](char ch) { return ch == '{' || ch == '}'; };
    return static_cast<size_t>(
        std::find_if(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), is_brace) -
        text.begin());
  };
  size_t next = brace(0);
  if (next == text.size()) return true;
  std::string result;
  for (size_t i = 0; i < text.size();) {
    result.append(text, i, next - i);
    i = next;
    if (i == text.size()) break;
    if (text[i] == '}') {
      c.error(loc, fmt::format("'}}' without '{{' in {}", quoted(text)));
      return false;
    }
    const size_t end = text.find('}', i);
    if (end == std::string::npos) {
      c.error(loc, fmt::format("'{{' without '}}' in {}", quoted(text)));
      return false;
    }
    std::string error;
    const auto value =
        evaluate_text(c, env, std::string_view(text).substr(i + 1, end - i - 1), error);
    if (!value) {
      c.error(loc, error);
      return false;
    }
    result += fmt::format("{}", *value);
    i = end + 1;
    next = brace(i);
  }
  text = std::move(result);
  return true;
}

/// Replaces `{...}` in all strings and keys, and marks all places with the iteration.
bool substitute(BuildContext& c, const Env& env, Raw& raw) {
  raw.loc.context = env.context;
  bool good = raw.kind != Raw::Kind::String || replace(c, env, raw.text, raw.loc);
  for (Raw& item : raw.list) good = substitute(c, env, item) && good;
  for (Raw::Entry& e : raw.map) {
    e.key_loc.context = env.context;
    good = replace(c, env, e.key, e.key_loc) && good;
    good = substitute(c, env, e.value) && good;
  }
  return good;
}

std::optional<int64_t> read_bound(BuildContext& c, const Raw& repeat, const Env& env,
                                  const std::string& key) {
  const Raw* found = require(c, repeat, "the repeat", key);
  if (found == nullptr) return std::nullopt;
  if (found->kind == Raw::Kind::Int) return found->integer;
  ir::Loc loc = found->loc;
  loc.context = env.context;
  if (found->kind != Raw::Kind::String) {
    c.error(loc, fmt::format("'{}' must be an integer or an expression, found {}", key,
                             describe(*found)));
    return std::nullopt;
  }
  std::string text = found->text, error;
  if (!replace(c, env, text, loc)) return std::nullopt;
  const auto value = evaluate_text(c, env, text, error);
  if (!value) c.error(loc, error);
  return value;
}

struct Bounds {
  std::string var;
  int64_t from = 0, to = 0;
};

std::optional<Bounds> read_repeat(BuildContext& c, const Raw& raw, const Env& env) {
  check_keys(c, raw, "the repeat", {"repeat", "from", "to", "tensors", "ops"});
  const Raw& var = *raw.find("repeat");
  const auto name = read_name(c, var, "the variable of the repeat");
  const auto from = read_bound(c, raw, env, "from"), to = read_bound(c, raw, env, "to");
  if (!name || !from || !to) return std::nullopt;
  const bool outer = value_of(c, env, *name).has_value() || *name == "rank";
  if (outer || c.check.variables.count(*name) > 0 || name->find('.') != std::string::npos) {
    const auto v = c.check.variables.find(*name);
    const std::string_view taken = name->find('.') != std::string::npos ? "a dotted name"
                                   : *name == "rank" || *name == "world"
                                       ? "a name with a meaning of its own"
                                   : outer ? "the variable of a repeat around this one"
                                   : v->second.kind == Variable::Kind::Dim ? graph::kDimName
                                                                           : "the name of a scalar";
    c.error(var.loc, fmt::format("'{}' can't be the variable of a repeat: it is {}", *name, taken));
    return std::nullopt;
  }
  if (*to < *from) {
    ir::Loc loc = raw.find("to")->loc;
    loc.context = env.context;
    c.error(loc, fmt::format("the repeat ends at {}, before its start at {}", *to, *from));
    return std::nullopt;
  }
  int64_t length = 0;
  if (__builtin_sub_overflow(*to, *from, &length) || length > kMaxOps) {
    ir::Loc loc = raw.find("to")->loc;
    loc.context = env.context;
    c.error(loc, fmt::format("unrolling makes more than {} iterations", kMaxOps));
    return std::nullopt;
  }
  return Bounds{*name, *from, *to};
}

/// Returns false, after an error, if there are too many.
bool allowed_so_far(BuildContext& c, int64_t so_far, int64_t most, const char* what, ir::Loc loc,
                    const Env& env) {
  if (c.unrolled_too_much) return false;
  if (so_far <= most) return true;
  c.unrolled_too_much = c.check.hidden_ops = true;
  c.tensors_sound = false;
  loc.context = env.context;
  c.error(loc, fmt::format("unrolling makes more than {} {}", most, what));
  return false;
}
bool count_op(BuildContext& c, ir::Loc loc, const Env& env) {
  return allowed_so_far(c, ++c.ops, kMaxOps, "ops", loc, env);
}
bool count_iteration(BuildContext& c, ir::Loc loc, const Env& env) {
  return allowed_so_far(c, ++c.iterations, kMaxOps, "iterations", loc, env);
}
bool count_tensors(BuildContext& c, const Raw& tensors, const Env& env) {
  c.tensors += static_cast<int64_t>(tensors.map.size());
  return allowed_so_far(c, c.tensors, kMaxTensors, "tensors", tensors.loc, env);
}

Env iteration(BuildContext& c, const Raw& repeat, const Env& env, const std::string& var,
              int64_t value) {
  Env inner = env;
  inner.vars.push_back({var, value});
  const auto [it, fresh] = c.contexts.try_emplace({env.context, &repeat, value}, -1);
  if (fresh)
    it->second =
        c.diagnostics.add_context(fmt::format("in iteration {} = {}", var, value), env.context);
  inner.context = it->second;
  return inner;
}

bool declares_tensors(const Raw& ops) {
  for (const Raw& op : ops.list) {
    if (!is_repeat(op)) continue;
    if (op.find("tensors") != nullptr) return true;
    if (const Raw* inner = op.find("ops"); inner != nullptr && declares_tensors(*inner))
      return true;
  }
  return false;
}

}  // namespace

bool is_repeat(const Raw& op) { return op.kind == Raw::Kind::Map && op.find("repeat") != nullptr; }

void unroll_ops(BuildContext& c, const Raw& ops, const Env& env, OpBody body) {
  for (const Raw& op : ops.list) {
    if (!is_repeat(op)) {
      if (!count_op(c, op.loc, env)) return;
      if (env.vars.empty()) {
        body(c, op, true);
      } else {
        Raw copy = op;
        const bool sound = substitute(c, env, copy);
        c.env = &env;
        body(c, copy, sound);
        c.env = nullptr;
      }
      continue;
    }
    const auto bounds = read_repeat(c, op, env);
    const Raw* inner = require(c, op, "the repeat", "ops");
    const bool good = inner != nullptr &&
                      expect(c, *inner, Raw::Kind::List, "'ops' of the repeat", "a list of ops");
    if (!bounds || !good) {
      c.check.hidden_ops = true;
      continue;
    }
    for (int64_t i = bounds->from; i < bounds->to; ++i) {
      if (!count_iteration(c, op.loc, env)) return;
      unroll_ops(c, *inner, iteration(c, op, env, bounds->var, i), body);
    }
  }
}

void unroll_tensors(BuildContext& c, const Raw& ops, const Env& env, TensorsBody body) {
  if (ops.kind != Raw::Kind::List || !declares_tensors(ops)) return;
  for (const Raw& op : ops.list) {
    if (!is_repeat(op)) continue;
    const auto bounds = read_repeat(c, op, env);
    const Raw* inner = op.find("ops");
    const Raw* tensors = op.find("tensors");
    if (!bounds) {
      c.tensors_sound = false;
      continue;
    }
    for (int64_t i = bounds->from; i < bounds->to; ++i) {
      if (!count_iteration(c, op.loc, env)) return;
      const Env each = iteration(c, op, env, bounds->var, i);
      if (tensors != nullptr) {
        if (!count_tensors(c, *tensors, each)) return;
        Raw copy = *tensors;
        c.env = &each;
        if (substitute(c, each, copy))
          body(c, copy);
        else
          c.tensors_sound = false;
        c.env = nullptr;
      }
      if (inner != nullptr) unroll_tensors(c, *inner, each, body);
    }
  }
}

}  // namespace maco::frontend
