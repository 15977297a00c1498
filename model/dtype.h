// Element types of tensors as safetensors names them. Tested by safetensors_test.cc.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace tandem::model {

enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
  kF8E4m3,
  kF8E5m2,
  kF8E8m0,
  kF4
};

absl::string_view DTypeName(DType dtype);                    // "BF16", "F8_E4M3", ...
std::optional<DType> DTypeFromName(absl::string_view name);  // nullopt for a name nobody gave us
int DTypeBits(DType dtype);                                  // 4 for F4, else 8 to 64

}  // namespace tandem::model
