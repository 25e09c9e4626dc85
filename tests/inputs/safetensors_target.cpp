// A safetensors file, and each of its tensors that is no large one.
#include "runtime/reference/safetensors.h"
#include "tests/inputs/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace maco;
  const inputs::MemoryFile memory(data, size);
  reference::SafetensorsFile file;
  const runtime::Status opened = file.open(memory.path());
  inputs::require(bool(opened) || !opened.message.empty(), "what can't be opened has a reason");
  if (!opened) return 0;
  for (const reference::SafetensorsEntry& entry : file.entries()) {
    inputs::require(entry.begin <= entry.end && entry.end <= size, "tensors lie within the file");
    reference::Tensor tensor;
    file.read(entry, tensor);
  }
  return 0;
}
