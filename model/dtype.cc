#include "model/dtype.h"

namespace tandem::model {
namespace {

struct Entry {
  DType dtype;
  absl::string_view name;
  int bits;
};

constexpr Entry kEntries[] = {
    {DType::kBool, "BOOL", 8},      {DType::kU8, "U8", 8},          {DType::kI8, "I8", 8},
    {DType::kI16, "I16", 16},       {DType::kU16, "U16", 16},       {DType::kF16, "F16", 16},
    {DType::kBf16, "BF16", 16},     {DType::kI32, "I32", 32},       {DType::kU32, "U32", 32},
    {DType::kF32, "F32", 32},       {DType::kI64, "I64", 64},       {DType::kU64, "U64", 64},
    {DType::kF64, "F64", 64},       {DType::kF8E4m3, "F8_E4M3", 8}, {DType::kF8E5m2, "F8_E5M2", 8},
    {DType::kF8E8m0, "F8_E8M0", 8}, {DType::kF4, "F4", 4},
};

constexpr bool EntriesAreInEnumOrder() {
  int index = 0;
  for (const Entry& entry : kEntries) {
    if (static_cast<int>(entry.dtype) != index++) return false;
  }
  return index == static_cast<int>(DType::kF4) + 1;
}
static_assert(EntriesAreInEnumOrder());

}  // namespace

absl::string_view DTypeName(DType dtype) { return kEntries[static_cast<int>(dtype)].name; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

int DTypeBits(DType dtype) { return kEntries[static_cast<int>(dtype)].bits; }

}  // namespace tandem::model
