// Puts the parts of Generate together: one assembler for each Bulk stream.
//
// A stream is ordered, but parts of several requests may alternate on it. A part that cannot be taken ends its request
// (the caller answers with BulkReply) and never the stream: what still comes of that request is ignored.
// Bounds: requests under way at a time, choices of each, tokens of each choice. Tested by generate_assembler_test.cc.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "decode_worker/generate_request.h"
#include "proto/worker.pb.h"

namespace tandem::decode {

struct AssemblerLimits {
  int num_partial_requests_max = 0;
  int64_t num_tokens_max = 0;  // prompt and generated ones of a choice
};

class GenerateAssembler final {
 public:
  explicit GenerateAssembler(const AssemblerLimits& limits) : limits_(limits) {}

  // The whole request with its last part; nothing before, and nothing for parts of a request that is not under way.
  // INVALID_ARGUMENT where the part contradicts the ones before or the head; RESOURCE_EXHAUSTED beyond the bounds.
  absl::StatusOr<std::optional<GenerateRequest>> Add(proto::GeneratePart part);

  int num_partial_requests() const { return static_cast<int>(partial_.size()); }

 private:
  struct Partial {
    GenerateRequest request;
    uint32_t next_part_index = 0;
    size_t num_generated_due = 0;
  };
  absl::Status CheckHead(const proto::GenerateHead& head) const;
  absl::Status Append(const proto::GeneratePart& part, Partial& partial) const;

  const AssemblerLimits limits_;
  absl::flat_hash_map<RequestKey, Partial> partial_;
};

}  // namespace tandem::decode
