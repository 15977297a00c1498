// What the two ends of a tcp lane say to each other. Fixed structs in the byte order of both machines (the handshake's
// fingerprint includes it through the processor class).
//
//   D -> P  TcpGreeting                    P -> D  TcpWelcome          once, first
//   D -> P  TcpRequest, num_runs x TcpRun  P -> D  TcpReply, payload   in order: the runs' bytes, one after the other,
//   or
//                                                                      the error's text
// The key is drawn anew at every start of a source and told in the handshake alone: whoever greets without it (a port
// scanner, a health probe, a decode worker that means an earlier process at this address) is closed before anything
// that it says is acted on. A connection belongs to one incarnation of decode; its requests need not say so again. One
// request is one piece.
#pragma once

#include <cstdint>

namespace tandem::kvtransfer {

inline constexpr uint64_t kTcpMagic = 0x31'76'6b'6d'65'64'6e'74;  // "tndemkv1"
inline constexpr uint32_t kTcpReplyMagic = 0x79'6c'70'72;         // "rply"

inline constexpr uint64_t kTcpPieceBytesMax = 256 * 1024;
inline constexpr uint32_t kTcpPieceRunsMax = 256;
// Requests that one D may have unanswered; P drops a D that sends more.
inline constexpr int kTcpWindowPieces = 16;
inline constexpr uint64_t kTcpErrorBytesMax = 512;

struct TcpGreeting {
  uint64_t magic = kTcpMagic;
  uint64_t key[2] = {};
  uint64_t target_incarnation = 0;
};

struct TcpWelcome {
  uint64_t magic = kTcpMagic;
  uint64_t target_incarnation = 0;
  uint64_t pool_bytes = 0;
};

struct TcpRequest {
  uint64_t request = 0;  // counts from 1
  uint64_t epoch = 0;
  uint64_t num_runs = 0;
};

struct TcpRun {
  uint64_t source_offset = 0;
  uint64_t num_bytes = 0;
};

struct TcpReply {
  uint32_t magic = kTcpReplyMagic;
  uint32_t code = 0;  // absl::StatusCode
  uint64_t request = 0;
  uint64_t epoch = 0;
  uint64_t num_bytes = 0;  // of the payload
};
static_assert(sizeof(TcpGreeting) == 32 && sizeof(TcpWelcome) == 24 && sizeof(TcpRequest) == 24 &&
              sizeof(TcpRun) == 16 && sizeof(TcpReply) == 32);

}  // namespace tandem::kvtransfer
