// What to write in the DSL in place of what other languages have: for messages. Private to the
// frontend.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace maco::frontend {

/// What to say of a statement that begins with `word`, which is none; `rest`: what follows in its
/// line. "; write ...", or "".
std::string hint_for_statement(std::string_view word, std::string_view rest,
                               const std::vector<std::string>& statements);
/// What to write for `text` where a call of an op is expected ("x + 2.0": "write 'add(x, value =
/// 2.0)'"), or "".
std::string hint_for_expression(std::string_view text);
/// What to say of an operand of `kind` that `text` begins with and that isn't a name: a number, a
/// list, a quoted name. "; ...", or "".
std::string hint_for_operand(std::string_view kind, std::string_view text);
/// Does another language have this word in front of '('? "for (...) {"
bool is_control(std::string_view word);
/// What to say where `text` stands and something else is expected: "; ...", or "".
std::string hint_for_symbol(std::string_view text);

}  // namespace maco::frontend
