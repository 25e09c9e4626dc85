// A weights.json: all places in it lie within its files, tensors and params.
#include "runtime/weights/map.h"
#include "runtime/weights/slices.h"
#include "tests/inputs/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace maco;
  const auto [map, error] = runtime::parse_weights(inputs::text_of(data, size));
  inputs::require(map.has_value() == error.empty(), "what is refused has a reason");
  if (!map) return 0;
  for (const runtime::WeightFile& file : map->files)
    inputs::require(file.name.find('/') == std::string::npos && file.name != "..",
                    "files are those of one folder");
  for (const runtime::WeightParam& param : map->params)
    for (const std::vector<runtime::WeightPart>& parts : param.parts) {
      int64_t elements = 0;
      for (const runtime::WeightPart& part : parts) {
        const runtime::WeightSource& source = map->sources[part.source];
        inputs::require(part.row >= 0 && part.rows <= source.rows - part.row && part.col >= 0 &&
                            part.cols <= source.cols - part.col,
                        "parts lie within their sources");
        inputs::require(part.to_row >= 0 && part.height() <= param.rows - part.to_row &&
                            part.to_col >= 0 && part.width() <= param.cols - part.to_col,
                        "parts lie within their params");
        elements += part.rows * part.cols;
      }
      inputs::require(elements <= param.rows * param.cols, "parts don't overlap");
    }
  return 0;
}
