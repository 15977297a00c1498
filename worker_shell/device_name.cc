#include "worker_shell/device_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem::worker_shell {
namespace {

constexpr int kCudaDevicesMax = 64;

}  // namespace

absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view device) {
  if (device == "cpu") return DeviceName{};
  int index = 0;
  absl::string_view digits = device;
  // SimpleAtoi takes signs and blanks as well.
  if (absl::ConsumePrefix(&digits, "cuda:") && !digits.empty() && absl::ascii_isdigit(digits.front()) &&
      absl::ascii_isdigit(digits.back()) && absl::SimpleAtoi(digits, &index) && index < kCudaDevicesMax) {
    return DeviceName{.cuda_index = index};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("process.device is \"", device, "\", allowed cpu and cuda:0 to cuda:", kCudaDevicesMax - 1));
}

}  // namespace tandem::worker_shell
