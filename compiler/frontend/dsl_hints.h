// For messages: what to write in the DSL in place of other languages' constructs. Private to the
// frontend.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace maco::frontend {

/// A hint for a statement that begins with the unknown word `word`; `rest`: the rest of its line.
/// "; write ...", or "".
std::string hint_for_statement(std::string_view word, std::string_view rest,
                               const std::vector<std::string>& statements);
/// What to write for `text` where a call of an op is expected ("x + 2.0": "write 'add(x, value =
/// 2.0)'"), or "".
std::string hint_for_expression(std::string_view text);
/// A hint for an operand of `kind` at the start of `text` that isn't a name: a number, a list, a
/// quoted name. "; ...", or "".
std::string hint_for_operand(std::string_view kind, std::string_view text);
/// Whether another language has this word before '(', as in "for (...) {".
bool is_control(std::string_view word);
/// A hint for `text` where something else is expected: "; ...", or "".
std::string hint_for_symbol(std::string_view text);

}  // namespace maco::frontend
