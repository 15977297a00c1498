// Tokens of a sequence as routers are told them, with log-probabilities where the request wants them.
// Tested by token_messages_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "decode_worker/request.h"
#include "proto/worker.pb.h"

namespace tandem::decode {

// Generated tokens [begin, end) of a sequence; its finish reason where these are its last. begin: not before what the
// router brought itself.
proto::SequenceTokens TokensOf(const Request& request, const Sequence& sequence, size_t begin, size_t end);

// Everything of one choice, or of every choice in their order, that the router did not bring itself.
proto::SequenceTokens AllTokensOf(const Request& request, const Sequence& sequence);
std::vector<proto::SequenceTokens> AllTokensOf(const Request& request);

// The tokens from a position on, each piece well within the 256 KiB that a message may have, but for that with a
// prompt's logprobs (proto/prompt_logprobs.h).
std::vector<proto::SequenceTokens> CutIntoMessages(const proto::SequenceTokens& all, uint32_t position);

}  // namespace tandem::decode
