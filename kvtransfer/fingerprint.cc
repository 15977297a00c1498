#include "kvtransfer/fingerprint.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "proto/protocol_version.h"

namespace tandem::kvtransfer {
namespace {

constexpr uint64_t kFnvOffset = 0xcbf29ce484222325;
constexpr uint64_t kFnvPrime = 0x100000001b3;

void HashText(std::string_view text, uint64_t& hash) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * kFnvPrime;
  hash = (hash ^ 0xff) * kFnvPrime;  // a byte that UTF-8 never has: "ab", "c" is not "a", "bc"
}

std::string Quoted(const std::string* value) { return value == nullptr ? "nothing" : absl::StrCat("\"", *value, "\""); }

}  // namespace

std::string KvLayoutName(kvcache::KvCacheDtype dtype) {
  return absl::StrCat("latent=", kvcache::LatentRecordBytes(dtype), ",index=", kvcache::kIndexRecordBytes,
                      ",latent_page=", kvcache::LatentPageBytes(dtype), ",index_page=", kvcache::kIndexPageBytes,
                      ",layer_major");
}

proto::Fingerprint BuildFingerprint(const FingerprintFields& fields) {
  proto::Fingerprint fingerprint;
  const auto add = [&](std::string_view name, std::string value) {
    proto::Fingerprint::Field& field = *fingerprint.add_fields();
    field.set_name(std::string(name));
    field.set_value(std::move(value));
  };
  add("protocol_version", absl::StrCat(proto::kProtocolVersion));
  add("model_hash", fields.model_hash);
  add("kv_cache_dtype", fields.kv_cache_dtype);
  add("kv_layout", fields.kv_layout);
  add("page_size", absl::StrCat(fields.page_size));
  add("num_layers", absl::StrCat(fields.num_layers));
  add("has_mtp", fields.has_mtp ? "true" : "false");
  add("index_cache_pattern", fields.index_cache_pattern);
  add("dense_threshold", absl::StrCat(fields.dense_threshold));
  add("numerics_id", fields.numerics_id);
  return fingerprint;
}

uint64_t FingerprintHash(const proto::Fingerprint& fingerprint) {
  uint64_t hash = kFnvOffset;
  for (const proto::Fingerprint::Field& field : fingerprint.fields()) {
    HashText(field.name(), hash);
    HashText(field.value(), hash);
  }
  return hash;
}

std::vector<std::string> ListDifferences(const proto::Fingerprint& decode, const proto::Fingerprint& prefill) {
  std::map<std::string, const std::string*> of_prefill;
  for (const proto::Fingerprint::Field& field : prefill.fields()) of_prefill[field.name()] = &field.value();
  std::vector<std::string> differences;
  const auto add = [&](const std::string& name, const std::string* in_decode, const std::string* in_prefill) {
    differences.push_back(absl::StrCat(name, ": decode has ", Quoted(in_decode), ", prefill has ", Quoted(in_prefill)));
  };
  std::map<std::string, bool> is_in_decode;
  for (const proto::Fingerprint::Field& field : decode.fields()) {
    is_in_decode[field.name()] = true;
    const auto other = of_prefill.find(field.name());
    if (other == of_prefill.end()) {
      add(field.name(), &field.value(), nullptr);
    } else if (*other->second != field.value()) {
      add(field.name(), &field.value(), other->second);
    }
  }
  for (const proto::Fingerprint::Field& field : prefill.fields()) {
    if (!is_in_decode[field.name()]) add(field.name(), nullptr, &field.value());
  }
  return differences;
}

}  // namespace tandem::kvtransfer
