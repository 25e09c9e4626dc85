// What the compiler knows of a device function: the answers to all questions about it. Each
// function, or family of functions, is one file in this folder; registry.cpp lists them, and a
// process may register its own. Calls of a Program (ir::Call) refer to functions by name.
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
/// Word that names a kernel of the user's, one of the graph's units. Method: a Word that names one
/// of the function's methods.
enum class ParamType : uint8_t { Bool, Int, Number, DType, Value, Word, Table, Body, Unit, Method };

/// A parameter; in device code a member of the config C that has its name.
struct ParamSpec {
  std::string name;
  ParamType type = ParamType::Int;
  std::vector<std::string> words = {};  // Word: the allowed words, which are the enumerators of
  std::string word_type = "";           // Word: this enum of the device code, "ops::PeerMode"
  bool repeated = false;                // none or more, with 0, 1, ... behind the name
};

enum class Access : uint8_t { Read, Write, ReadWrite };
/// How many operands of a call the spec stands for. Many: none or more; where the function has a
/// Body, they are the body's operands that are in memory. At most one operand of a function may be
/// Optional or Many.
enum class Count : uint8_t { One, Optional, Many };
/// Whether a call loads an operand. Sometimes: Function::loads decides.
enum class Loaded : uint8_t { Never, Always, Sometimes };
struct OperandSpec {
  std::string name;
  Access access = Access::Read;
  Count count = Count::One;
  /// The elements' dtype: the name of a parameter, or of a dtype. Empty: any dtype or, for operands
  /// of a body, the one that the body says.
  std::string dtype = "";
  /// Whether the operand comes through pages. If so, the function has a loader,
  /// maco::ops::<name>_load, and a call's `loads` say how. The config has the load's bytes as
  /// `<operand>_page_bytes`, and as `<operand>_ahead` whether the loader runs ahead of the task's
  /// waits. Where it comes in boxes, the config has `<operand>_box_rows` and `<operand>_box_cols`.
  Loaded loaded = Loaded::Never;
  /// The operand may be a temporary with packets, where Function::takes_packets says so. The config
  /// then has `<operand>_packets` or, for operands of a body, the code that finds their elements.
  bool packets = false;
  /// Whether the operand is a wire (ir::Buffer::wire). Others never are.
  bool wire = false;
};

/// How an operand comes through pages, as ir::Load says it.
struct LoadRule {
  int64_t pages = 1;
  bool whole_pages = false;  // the load may fill all of a page
  std::optional<ir::Load::Box> box = std::nullopt;
};

/// Where the code is: a template maco::ops::<name><C>(Context&, const Args&, u32 tile), MACO_OP.
struct Source {
  /// Headers of runtime/device that define the function or that it needs, in an order that
  /// compiles. The core (intrinsics, context, ...) is always there.
  std::vector<std::string> headers;
  /// The code itself, for a function that isn't in those headers. It goes behind them as it is.
  std::string text = "";
  /// Code of stages, behind it.
  std::vector<std::string> more = {};
};

/// A call as its function's rules see it: all parameters are present and have their types.
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
  /// Whether the call has the stage.
  bool has(std::string_view stage) const;
  /// The values that a Value can have at launch.
  ir::Interval range(std::string_view name) const;
  /// The value of a Value in the launch for which costs are computed.
  int64_t typical(std::string_view name) const;

 private:
  const ir::Program& program_;
  const ir::Call& call_;
};

/// What tasks of a call touch and move, where the call's parameters say it. The verifier proves
/// what tasks declare, and knows no device function. Without this a Program with another `peer` or
/// `stride` would be proved right and move something else.
struct Touches {
  /// Why the call isn't one, or "": "doesn't have the parameters and operands that it takes".
  std::string wrong = "";
  /// Whether the call declares what a task moves (ir::Call::transfers). Null: it may move anything.
  std::function<bool(const ir::Task&)> moves = nullptr;
  /// Whether the task declares what it touches; asked of tasks that move what is declared. Null: it
  /// may touch anything.
  std::function<bool(const ir::Task&)> touches = nullptr;
};

/// A part of a function's code that stages may replace. The call's config has a member type `name`,
/// which is the device template `fill` for that config: "using Rows = ops::NormRows<q_config>". The
/// fill is the function's own, or that of the last of the call's stages that fills the slot.
struct Slot {
  std::string name, fill;
};

/// One of the ways in which a function does the main part of its work. A call names it in the
/// function's parameter of type Method; the config's member type of that name is `code`.
struct Method {
  std::string function;  // "matmul"
  std::string name;      // "wgmma"
  std::string code;      // a struct of the device code, "ops::ByWgmma"
  /// Where that struct is; headers and text go behind those of the function and its stages. Empty:
  /// in the function's headers.
  Source source = {};
  /// The slots of the function, and the stages that it asks for, that the code uses. A call with a
  /// stage that needs another one can't have the method.
  std::vector<std::string> takes = {};
};

struct Function {
  std::string name;  // of the template in maco::ops
  std::vector<ParamSpec> params = {};
  std::vector<OperandSpec> operands = {};
  Source source = {};
  /// Parts of the code that stages may replace. A function with slots, or with stages that it asks
  /// for, also has the index of each operand that it names in its config: `y_at`.
  std::vector<Slot> slots = {};
  /// Stages that the code itself asks for: the config has `has_<stage>`, true or false.
  std::vector<std::string> asks = {};
  /// How a call loads operand `i`, if it may be loaded. Unset: each loaded operand comes a page at
  /// a time, without boxes.
  std::function<std::optional<LoadRule>(const CallView&, size_t i)> loads = nullptr;
  /// Whether the call's loader itself waits for what isn't loaded ahead (await_passed in
  /// runtime/device/pages.cuh). Unset, or where nothing is loaded ahead: the loader starts behind
  /// the waits.
  std::function<bool(const CallView&)> loads_apart = nullptr;
  /// Parameters in which calls may differ and still share their code: a Value that is constant, or
  /// an integer. The code reads such a parameter as C::NAME_of(ctx); C::NAME is the value of one of
  /// the calls. The parameters after the first follow from the first. maco::ops::<name>_send reads
  /// none of them. Unset, or empty: none.
  std::function<std::vector<std::string>(const CallView&)> shared_over = nullptr;
  /// Whether a task needs so many registers that its threads should get some of the loaders'.
  /// Unset: no.
  std::function<bool(const CallView&)> many_registers = nullptr;
  /// Whether tasks are mates (ir::Task::mated): each two that follow each other in the Program.
  bool mates = false;
  /// Whether a task that depends on one other task comes right behind that one in the order, before
  /// other tasks of its op. This suits tasks that take little time and leave little to the tasks
  /// behind them.
  bool follows = false;
  /// Whether each rank begins with the tiles of its own block of rows, and goes on with the next
  /// rank's.
  bool own_rows_first = false;
  /// The function that takes back what a task of this one hands over to a library outside of the
  /// kernel; its task comes right behind, in the same op and on the same ranks. Empty: none.
  std::string taken_back_by = "";
  /// Whether a task sends what it has stored to other ranks, after its work and before its signals.
  /// The code then has maco::ops::<name>_send(Context&, const SenderArgs&, u32 tile). Unset: no.
  std::function<bool(const CallView&)> sends = nullptr;
  /// Whether the call can read or write operand `i` as packets (runtime/device/packets.cuh), if its
  /// OperandSpec allows packets. Unset: no.
  std::function<bool(const CallView&, size_t i)> takes_packets = nullptr;
  /// Whether the code may call functions that aren't inlined, as a user's kernel or `source.text`
  /// may. Then roles can't divide registers: ptxas refuses (C7600).
  bool calls_functions = false;
  /// Bytes of the CTA's scratch memory (Context::scratch) that a task needs. Unset: none.
  std::function<int64_t(const CallView&)> scratch_bytes = nullptr;
  /// Bytes of scratch memory for each block of a user's kernel, several of which a task may run at
  /// a time. Unset: the code isn't a user's kernel.
  std::function<int64_t(const CallView&)> users_block_bytes = nullptr;
  /// What tasks of a call touch and move. Unset: the parameters don't say. A stage that needs this
  /// has a function of its own, which replaces the function's.
  std::function<Touches(const ir::Program&, const ir::Call&)> touches = nullptr;
  /// Checks all calls of the function together, if there are any; reports what is wrong. Unset:
  /// calls don't depend on each other.
  std::function<bool(const ir::Program&, ir::Diagnostics&)> check_calls = nullptr;
  /// The work of a task. Unset: it streams the bytes of its regions (cost::streaming).
  std::function<cost::Work(const CallView&, const ir::Task&, const cost::Machine&)> work = nullptr;

  const ParamSpec* find_param(std::string_view param) const;
  /// The spec of operand `i` of a call with `count` operands; nullptr if there are too many.
  const OperandSpec* operand(size_t i, size_t count) const;
  /// The index of the operand of that name, which follows no repeated one.
  size_t index_of(std::string_view operand) const;
  /// The index of the first operand of a call that belongs to this function's Count::Many; the
  /// body's operands follow from there.
  size_t first_of_many() const;
};

/// Something that a function does besides in those calls that have the stage (ir::Call::stages).
/// Stages of a function have an order: MACO's own first, then those that the process registers.
struct Stage {
  std::string function;  // "matmul"
  std::string name;      // "norm"
  /// Further parameters of the call.
  std::vector<ParamSpec> params = {};
  /// Further operands: `inputs` behind what the function reads in front of its first result,
  /// `results` behind its results, whatever their access is. Those of several stages follow each
  /// other in the order of stages.
  std::vector<OperandSpec> inputs = {}, results = {};
  /// Headers in front of the function's own, headers behind them, and code behind those.
  std::vector<std::string> headers_before = {};
  Source source = {};
  /// Slots of the function, each with the device template that fills it.
  std::vector<std::pair<std::string, std::string>> fills = {};
  /// The stages in front of it in their order that a call may have as well; and the one that it
  /// must have.
  std::vector<std::string> beside = {};
  std::string needs = "";
  /// What else changes in the function. Null: nothing.
  void (*change)(Function&) = nullptr;
};

/// The function of that name without any stage, or nullptr.
const Function* find_function(std::string_view name);
/// The call's function with the call's stages, or nullptr if refuse_stages() has a reason. Lives as
/// long as the process.
const Function* find_function(const ir::Call& call);
/// Why there is no such function with such stages, or "": "calls 'q', which is no device function".
std::string refuse_stages(const ir::Call& call);
/// The functions of MACO, then the registered ones, all without stages.
std::vector<Function> all_functions();
/// The stages of a function, in their order. They live as long as the process.
std::vector<const Stage*> stages_of(std::string_view function);

/// Makes a function known to the whole process, from any thread, before the first graph with an op
/// that calls it is compiled. `source.text` holds its code. Returns "", or why the function can't
/// be registered: its name is taken, it has no code, or its parameters contradict each other.
[[nodiscard]] std::string register_function(Function function);

/// Makes a stage known to the whole process, behind the stages that its function has, from any
/// thread, before the first call with it is made. Returns "", or why it can't be registered: there
/// is no such function, slot or stage, its name is taken, or a parameter or operand of that name is
/// there already, in the function or in a stage beside it.
[[nodiscard]] std::string register_stage(Stage stage);

/// The methods of a function: MACO's own, then those that the process registers. They live as long
/// as the process.
std::vector<const Method*> methods_of(std::string_view function);
/// The method of that name, or nullptr.
const Method* find_method(std::string_view function, std::string_view name);
/// The method that the call names, or nullptr.
const Method* method_of(const ir::Call& call);
/// Whether the method's code does what the function's stage of that name, which is known, needs.
bool takes_stage(const Method& method, std::string_view stage);

/// Makes a method known to the whole process, from any thread, before the first call with it is
/// made. Returns "", or why it can't be registered: its name is taken, it has no code, or there is
/// no such function, slot or stage. A method of matmul is registered by register_matmul_method
/// (matmul_method.h).
[[nodiscard]] std::string register_method(Method method);

/// Everything that is wrong with a call, one sentence each, without its subject: "calls 'q', which
/// is no device function". Covers unknown stages, missing and unknown parameters and parameters of
/// another type, a wrong number of operands, and too much scratch memory. Empty if nothing is
/// wrong.
std::vector<std::string> check(const ir::Program& program, const ir::Call& call);

/// Whether the tasks of a scheduled Program have mates where their functions need them
/// (Function::mates), and nowhere else; reports the first task that is wrong. True for a Program
/// that isn't scheduled.
bool check_mates(const ir::Program& program, ir::Diagnostics& diagnostics);

/// Whether tasks do what they declare, as far as their functions say it (Function::touches,
/// Function::check_calls); reports the first task or call that doesn't. Calls of unknown functions
/// may do anything.
bool check_touches(const ir::Program& program, ir::Diagnostics& diagnostics);

/// Whether consumers should get some of the loaders' registers: if a call has many_registers, and
/// no call's code may call functions. Each call is one with which check() finds nothing wrong, or
/// is of an unknown function.
bool divides_registers(const ir::Program& program);

/// Whether the call has the stage.
bool has_stage(const ir::Call& call, std::string_view stage);

/// Function::sends for a call, which may be of an unknown function.
bool sends(const ir::Program& program, const ir::Call& call);

/// Microseconds that a task takes on one of the machine's SMs while all SMs are busy. The call is
/// one with which check() finds nothing wrong, or is of an unknown function, whose tasks are taken
/// to stream their regions.
double microseconds(const ir::Program& program, const ir::Task& task, const cost::Machine& machine);

}  // namespace maco::functions
