// What the compiler knows of a device function: everything that anyone asks of it. Each function,
// or family of functions, is one file in this folder; registry.cpp lists them, and a process may
// register its own. Calls of a Program (ir::Call) refer to functions by name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/cost/model.h"
#include "ir/diagnostics.h"
#include "ir/program.h"

namespace maco::functions {

/// What a parameter holds. Value: a constant, or a number known at launch. Word: one of a list.
/// Table: numbers that device code looks up. Body: what becomes of an element (ir/body.h). Unit: a
/// Word that names a kernel of the user's, one of the graph's units.
enum class ParamType : uint8_t { Bool, Int, Number, DType, Value, Word, Table, Body, Unit };

/// A parameter; in device code a member of the config C that has its name.
struct ParamSpec {
  std::string name;
  ParamType type = ParamType::Int;
  std::vector<std::string> words = {};  // Word: those it may be, which are the enumerators of
  std::string word_type = "";           // Word: this enum of the device code, "ops::PeerMode"
  bool repeated = false;                // none or more, with 0, 1, ... behind the name
};

enum class Access : uint8_t { Read, Write, ReadWrite };
/// How many operands of a call it is. At most one of a function's isn't One. Many: none or more;
/// where the function has a Body, they are those of the body that are in memory.
enum class Count : uint8_t { One, Optional, Many };
/// Whether a call loads an operand. Sometimes: where Function::loads says so.
enum class Loaded : uint8_t { Never, Always, Sometimes };
struct OperandSpec {
  std::string name;
  Access access = Access::Read;
  Count count = Count::One;
  /// Of its elements: the parameter that says it, or a dtype's name. Empty: any, or of operands of
  /// a body what the body says.
  std::string dtype = "";
  /// It comes through pages: the function has a loader, maco::ops::<name>_load, and a call says in
  /// its `loads` how. Its config has the load's bytes as `<operand>_page_bytes`, as
  /// `<operand>_ahead` whether it comes ahead of the task's waits, and where it comes in boxes
  /// `<operand>_box_rows` and `<operand>_box_cols`.
  Loaded loaded = Loaded::Never;
  /// It may be a temporary with packets, where Function::takes_packets says so: the config has
  /// `<operand>_packets`, or of the operands of a body the code that finds their elements.
  bool packets = false;
};

/// How an operand comes through pages, as ir::Load says it.
struct LoadRule {
  int64_t pages = 1;
  bool whole_pages = false;  // the load may fill all of a page
  std::optional<ir::Load::Box> box = std::nullopt;
};

/// Where the code is: a template maco::ops::<name><C>(Context&, const Args&, u32 tile), MACO_OP.
struct Source {
  /// Headers of runtime/device that have it or that it needs, in an order that compiles. The core
  /// (intrinsics, context, ...) is there always.
  std::vector<std::string> headers;
  /// The code itself, put behind the headers as it is: of a function that isn't among them.
  std::string text = "";
};

/// A call as the rules of its function see it: its parameters are known to be there, of their
/// types.
class CallView {
 public:
  CallView(const ir::Program& program, const ir::Call& call) : program_(program), call_(call) {}
  const ir::Program& program() const { return program_; }
  const ir::Call& call() const { return call_; }
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  ir::DType dtype(std::string_view name) const;
  const std::string& word(std::string_view name) const;
  /// What a Value can be at launch.
  ir::Interval range(std::string_view name) const;
  /// What a Value is in a launch that costs are reckoned for.
  int64_t typical(std::string_view name) const;

 private:
  const ir::Program& program_;
  const ir::Call& call_;
};

struct Function {
  std::string name;  // of the template in maco::ops
  std::vector<ParamSpec> params = {};
  std::vector<OperandSpec> operands = {};
  Source source = {};
  /// How a call loads operand `i`, one that may be loaded; unset: each that is comes a page at a
  /// time and in no boxes.
  std::function<std::optional<LoadRule>(const CallView&, size_t i)> loads = nullptr;
  /// Does the call's loader wait itself for what isn't loaded ahead (await_passed in
  /// runtime/device/pages.cuh)? Unset, or where all is loaded behind: it starts behind the waits.
  std::function<bool(const CallView&)> loads_apart = nullptr;
  /// Parameters in which calls may differ and yet share their code: a Value that is constant, or an
  /// integer, which the code reads as C::NAME_of(ctx), where C::NAME is that of one of the calls.
  /// Those behind the first follow from it. maco::ops::<name>_send reads none of them. Unset, or
  /// empty: none.
  std::function<std::vector<std::string>(const CallView&)> shared_over = nullptr;
  /// Has a task so much in registers that its threads had better have some of the loaders'?
  /// Unset: no.
  std::function<bool(const CallView&)> many_registers = nullptr;
  /// Do tasks come as mates (ir::Task::mated), of two that follow each other in the Program?
  bool mates = false;
  /// Does a task that depends on one task alone come right behind that one, before others of that
  /// op? Where it takes little time, and leaves little to those behind it.
  bool follows = false;
  /// Does a task send what it has stored to other ranks, behind its work and before its signals?
  /// The code then has maco::ops::<name>_send(Context&, const SenderArgs&, u32 tile). Unset: no.
  std::function<bool(const CallView&)> sends = nullptr;
  /// Does the call read or write operand `i`, one that may be, as packets if it lies so
  /// (runtime/device/packets.cuh)? Unset: no.
  std::function<bool(const CallView&, size_t i)> takes_packets = nullptr;
  /// May the code call functions that aren't inlined, as a user's kernel or `source.text` may? Then
  /// roles can't divide registers: ptxas gives up (C7600).
  bool calls_functions = false;
  /// Bytes of the CTA's scratch memory (Context::scratch) that a task needs; unset: none.
  std::function<int64_t(const CallView&)> scratch_bytes = nullptr;
  /// What a task does; unset: it streams the bytes of its regions (cost::streaming).
  std::function<cost::Work(const CallView&, const ir::Task&, const cost::Machine&)> work = nullptr;

  const ParamSpec* find_param(std::string_view param) const;
  /// Operand `i` of a call that has `count` of them; nullptr if it has too many.
  const OperandSpec* operand(size_t i, size_t count) const;
  /// The first operand of a call that is the Count::Many of this function; its body's operands are
  /// there and behind.
  size_t first_of_many() const;
};

/// The function of that name, or nullptr.
const Function* find_function(std::string_view name);
/// Those of MACO, then the registered ones.
std::vector<Function> all_functions();

/// Makes a function known to the whole process, from any thread, before the first graph with an op
/// that calls it is compiled. `source.text` has its code. Returns "", or why it can't be had: a
/// name that is taken, no code, parameters that contradict each other.
[[nodiscard]] std::string register_function(Function function);

/// Everything that is wrong with a call, one sentence each, without its subject: "calls 'q', which
/// is no device function"; parameters that are missing, unknown or of another type, a wrong number
/// of operands, too much scratch memory. Empty if nothing is.
std::vector<std::string> check(const ir::Program& program, const ir::Call& call);

/// Whether the tasks of a Program that is scheduled have mates where their functions need them
/// (Function::mates), and nowhere else; reports the first that is wrong. True of others.
bool check_mates(const ir::Program& program, ir::Diagnostics& diagnostics);

/// Had consumers better have some of the loaders' registers? If a call has many_registers, and none
/// is of code that may call functions. The calls are ones that check() finds nothing wrong with, or
/// of unknown functions.
bool divides_registers(const ir::Program& program);

/// Function::sends of a call, which may be of an unknown function.
bool sends(const ir::Program& program, const ir::Call& call);

/// Microseconds that a task takes on one of the machine's SMs, all of them being busy. The call is
/// one that check() finds nothing wrong with, or of an unknown function, which is taken to stream.
double microseconds(const ir::Program& program, const ir::Task& task, const cost::Machine& machine);

}  // namespace maco::functions
