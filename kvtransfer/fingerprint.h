// What two sides must agree on before a KV page may travel between them, as an ordered list of names and values, so
// that a refusal can say what differs.
// Tested by fingerprint_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvcache/kv_layout.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

// Everything that decides whether a KV page of one side means the same on the other, and whether a resumed request
// gets the same tokens there. Each member becomes one field of the fingerprint, in this order. How many ranks a side
// has is not among them: every layout that is served gives one rank's bits.
struct FingerprintFields {
  std::string model_hash;      // of config and weights
  std::string kv_cache_dtype;  // "fp8_e4m3"
  std::string kv_layout;       // record and page bytes: "latent=656,index=132,layer_major"
  int page_size = 0;           // tokens
  int num_layers = 0;          // that have KV pages, the MTP layer included
  bool has_mtp = false;
  std::string index_cache_pattern;  // which layers compute their own index; "all" where each does
  int dense_threshold = 0;          // contexts up to this many tokens attend densely
  std::string numerics_id;          // backend, processor class, kernel sources, library versions, exact flags
};

// What this build makes of a format, from kvcache/kv_layout.h: the value of kv_layout.
std::string KvLayoutName(kvcache::KvCacheDtype dtype);
// The fields above and the protocol version.
proto::Fingerprint BuildFingerprint(const FingerprintFields& fields);
// Stable across processes and machines; equal fingerprints have equal hashes. For logs and /statusz; identity is
// decided by comparing fields.
uint64_t FingerprintHash(const proto::Fingerprint& fingerprint);
// One line per field that differs or that one side lacks: `num_layers: decode has "4", prefill has "5"`. Empty where
// the sides fit.
std::vector<std::string> ListDifferences(const proto::Fingerprint& decode, const proto::Fingerprint& prefill);

}  // namespace tandem::kvtransfer
