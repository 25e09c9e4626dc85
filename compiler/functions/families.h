// The families of device functions, one a file. registry.cpp puts them into the table that the rest
// of the compiler uses.
#pragma once

#include <vector>

#include "compiler/functions/function.h"

namespace maco::functions {

std::vector<Function> elementwise_functions();
std::vector<Function> matmul_functions();
std::vector<Stage> matmul_stages();
std::vector<Method> matmul_methods();
std::vector<Function> attention_functions();
std::vector<Function> embedding_functions();
std::vector<Function> norm_functions();
std::vector<Function> rope_functions();
std::vector<Function> softmax_functions();
std::vector<Function> reduction_functions();
std::vector<Function> strided_copy_functions();
std::vector<Function> collective_functions();
std::vector<Function> hand_over_functions();
std::vector<Function> chunk_functions();
std::vector<Function> cuda_functions();

/// The cost of rows that the function loads itself, without a loader (cost::unaided).
cost::Work unaided_work(const CallView& call, const ir::Task& task, const cost::Machine& machine);

// Shorthands with which the families spell their parameters.
inline ParamSpec flag(std::string name) { return {std::move(name), ParamType::Bool}; }
inline ParamSpec integer(std::string name) { return {std::move(name), ParamType::Int}; }
inline ParamSpec number(std::string name) { return {std::move(name), ParamType::Number}; }
inline ParamSpec dtype(std::string name) { return {std::move(name), ParamType::DType}; }
inline ParamSpec value(std::string name) { return {std::move(name), ParamType::Value}; }
inline ParamSpec table(std::string name) { return {std::move(name), ParamType::Table}; }
inline ParamSpec values(std::string name) {
  return {.name = std::move(name), .type = ParamType::Value, .repeated = true};
}
inline ParamSpec unit(std::string name) { return {std::move(name), ParamType::Unit}; }
inline ParamSpec body(std::string name) { return {std::move(name), ParamType::Body}; }
inline ParamSpec word(std::string name, std::string type, std::vector<std::string> words) {
  return {std::move(name), ParamType::Word, std::move(words), std::move(type)};
}
inline ParamSpec method(std::string name) { return {std::move(name), ParamType::Method}; }
inline OperandSpec reads(std::string name, std::string dtype, Count count = Count::One) {
  return {std::move(name), Access::Read, count, std::move(dtype)};
}
inline OperandSpec loads(std::string name, std::string dtype, Loaded loaded = Loaded::Always) {
  return {std::move(name), Access::Read, Count::One, std::move(dtype), loaded};
}
inline OperandSpec writes(std::string name, std::string dtype, Count count = Count::One) {
  return {std::move(name), Access::Write, count, std::move(dtype)};
}

inline OperandSpec wire(OperandSpec operand) {
  operand.wire = true;
  return operand;
}
inline OperandSpec in_packets(OperandSpec operand) {
  operand.packets = true;
  return operand;
}

}  // namespace maco::functions
