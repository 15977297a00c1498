// The active messages between the two ends of a ucx_am lane. Headers are fixed structs in the byte order of both
// machines (the handshake's fingerprint includes it through the processor class).
//
//   D -> P  kRequest  {incarnation, epoch, request, num_runs}   payload: num_runs x AmRun
//   P -> D  kReply    {incarnation, epoch, request, code}   payload: the runs' bytes, one after the other,
//                                                  or the error's text
// One request is one piece: at most kAmPieceBytesMax bytes, one reply. Messages may overtake each other (UCX keeps no
// order between short and long ones), so each says everything about itself.
#pragma once

#include <cstdint>

namespace tandem::kvtransfer {

inline constexpr unsigned kAmRequest = 1;
inline constexpr unsigned kAmReply = 2;

inline constexpr uint64_t kAmPieceBytesMax = 256 * 1024;
inline constexpr uint32_t kAmPieceRunsMax = 256;
// Requests that one D may have unanswered; P drops a D that sends more.
inline constexpr int kAmWindowPieces = 16;

struct AmRequest {
  uint64_t target_incarnation = 0;
  uint64_t epoch = 0;
  uint64_t request = 0;  // never reused on a connection
  uint64_t num_runs = 0;
};

struct AmRun {
  uint64_t source_offset = 0;
  uint64_t num_bytes = 0;
};

struct AmReply {
  uint64_t target_incarnation = 0;
  uint64_t epoch = 0;
  uint64_t request = 0;
  uint64_t code = 0;  // absl::StatusCode
};
static_assert(sizeof(AmRequest) == 32 && sizeof(AmRun) == 16 && sizeof(AmReply) == 32);

}  // namespace tandem::kvtransfer
