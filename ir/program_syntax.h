// What the printer and the parser of ir::Program agree on. Grammar (white space, line breaks
// included, only separates; `//` starts a comment; entities are defined before they are used):
//
//   program NAME stage=WORD world=N target=NAME [board=NAME] ctas=N [arena=N] [symmetric=N] {
//     entity...
//   }
//   [the DSL text of its graph, to the end]
//   uses [consumers=N] [loaders=N] [signallers=N] [registers=N] [spare=N]
//       [consumer_registers=N] [loader_registers=N] [head=N] [scratch=N] [pages=N] [page_bytes=N]
//   limits [sms=N] [threads=N] [registers=N] [shared=N] [symmetric=N]
//   roles WORD N..N [ [NAME, ...] ], ...
//   dim NAME in [N, N]
//   scalar NAME in [N, N]
//   value %N = EXPR in [N, N]
//   buffer NAME : DTYPE [ EXPR [max N] x N ] KIND [tensor=NAME] [rotation=N] [packets]
//       [use=N] [offset=N]
//   call LABEL = NAME op=NAME kind=NAME [ { NAME=PARAM ... } ] ( BUFFER, ... )
//       [loads LOAD, ...] [moves TRANSFER, ...]
//     LOAD: N ring=N pages=N page_bytes=N [box_rows=N box_cols=N pitch=N [run=N]] WORD; the
//     operand's number; WORD: ahead | behind
//     TRANSFER: copy(N -> N, ...) | reduce WORD(N, ... -> N, ...) | clear(-> N, ...)
//     PARAM: true | false | N | double | DTYPE | const N | value %N | WORD | word STRING
//       | table [ [N, ...] ] | body ( [SPREAD DTYPE, ...] ) STRING
//     SPREAD: full | column | single | acc; STRING: the text of a body (ir/body.h)
//   collective NAME KIND [in=BUFFER] [out=BUFFER] [reduce=WORD] [peer=N] [sender=NAME] [ranks=N]
//   event NAME KIND [count=N] [scope=WORD]
//   task LABEL CALL#TILE ROLE [sm=N] [place=N] [ranks=N] [priority=WORD] [after(CALL, ...)]
//       [: clause; ...]
//     clause: read REGION... | write REGION... | may REGION...
//       | wait [relaxed] EVENT [from RANKS] [lag N], ... | signal [relaxed] EVENT [to RANKS], ...
//     REGION: BUFFER[N:N, N:N [pitch=N] [block=RANKS*ROWS] [on=RANKS]]
//       ROWS: N | %N
//     RANKS: self | others | all | rank(N) | shift(N)
//
// NAME is a plain word that is not reserved, or a string in quotes; BUFFER and EVENT are a NAME, or
// #N, the N-th one.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace maco::ir {

inline constexpr std::string_view kReservedWords[] = {
    "after", "buffer", "call",  "collective", "dim",  "event",   "from",  "lag",    "limits",
    "loads", "may",    "moves", "program",    "read", "relaxed", "roles", "scalar", "signal",
    "task",  "to",     "uses",  "value",      "wait", "with",    "write"};

/// Whether `word` begins an entity or clause. Such a name needs quotes.
inline bool is_reserved(std::string_view word) {
  return std::find(std::begin(kReservedWords), std::end(kReservedWords), word) !=
         std::end(kReservedWords);
}

/// Words that begin a parameter's value or are one. A parameter of type Word that reads like one of
/// these is written `word "..."`.
inline constexpr std::string_view kParamWords[] = {"true",  "false", "inf",  "nan", "const",
                                                   "value", "table", "body", "word"};

/// The bytes with which a plain word may begin, and with which it may go on.
constexpr bool is_word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
constexpr bool is_word_char(char c) {
  return is_word_start(c) || (c >= '0' && c <= '9') || c == '.';
}

/// Whether `text` can stand without quotes.
inline bool is_plain_name(std::string_view text) {
  if (text.empty() || !is_word_start(text[0])) return false;
  for (char c : text)
    if (!is_word_char(c)) return false;
  return !is_reserved(text);
}

/// Appends `text` in quotes, with escapes for quotes, backslashes and what can't be printed.
inline void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      constexpr char digits[] = "0123456789abcdef";
      out += "\\x";
      out += digits[byte >> 4];
      out += digits[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

/// Appends `text` so that the parser reads it as a name: plain if possible, else in quotes.
inline void append_name(std::string& out, std::string_view text) {
  if (is_plain_name(text)) {
    out += text;
  } else {
    append_quoted(out, text);
  }
}

}  // namespace maco::ir
