// The lines `//@maco` of a kernel.cu.
#include "ir/manifest.h"
#include "tests/inputs/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace maco;
  const ir::ManifestResult result = ir::parse_manifest(inputs::text_of(data, size));
  inputs::require(result.manifest.has_value() == result.error.empty(), "no manifest has a reason");
  if (!result.manifest) return 0;
  const std::string text = ir::print_manifest(*result.manifest);
  const ir::ManifestResult again = ir::parse_manifest(text);
  inputs::require(again.manifest && ir::print_manifest(*again.manifest) == text,
                  "a printed manifest reads as the same");
  return 0;
}
