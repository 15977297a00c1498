// A LaneEnd as one word of text, between the processes of lane_process_test.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "kvtransfer/lane_end.h"

namespace tandem::kvtransfer {

inline std::string PrintLaneEnd(const LaneEnd& end) {
  return absl::StrCat(end.kind, ";", absl::BytesToHexString(end.worker_address), ";", end.pool_address, ";",
                      end.pool_bytes, ";", absl::BytesToHexString(end.remote_key));
}

inline LaneEnd ParseLaneEnd(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ';');
  LaneEnd end;
  TANDEM_CHECK(
      parts.size() == 5 && absl::SimpleAtoi(parts[2], &end.pool_address) && absl::SimpleAtoi(parts[3], &end.pool_bytes),
      text);
  end.kind = parts[0];
  end.worker_address = absl::HexStringToBytes(parts[1]);
  end.remote_key = absl::HexStringToBytes(parts[4]);
  return end;
}

}  // namespace tandem::kvtransfer
