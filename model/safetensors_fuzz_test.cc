// Any bytes are refused or parsed; of what is parsed, every tensor lies within the bytes and fills its shape.
#include <cstdint>
#include <cstdlib>

#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using tandem::model::Tensor;
  const auto content = tandem::model::ParseSafetensors({bytes, size}, "input");
  if (!content.ok()) return 0;
  uint64_t sum = 0;
  size_t total = 0;
  for (const Tensor& tensor : content->tensors) {
    if (!tensor.bytes.empty() &&
        (tensor.bytes.data() < bytes || tensor.bytes.data() + tensor.bytes.size() > bytes + size)) {
      std::abort();
    }
    for (uint8_t byte : tensor.bytes) sum += byte;
    total += tensor.bytes.size();
    uint64_t num_bits = tandem::model::DTypeBits(tensor.dtype);
    for (int64_t dim : tensor.shape) num_bits *= static_cast<uint64_t>(dim);
    if (num_bits != tensor.bytes.size() * 8) std::abort();
  }
  if (total > size || sum > 255 * total) std::abort();
  return 0;
}
