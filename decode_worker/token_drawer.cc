#include "decode_worker/token_drawer.h"

#include <optional>

namespace tandem::decode {

absl::Status TokenDrawer::TakeIn(const DrawPlace& place, int32_t token) const {
  if (place.matcher != nullptr) {
    // Only what was allowed has been drawn: a token that is not was brought by somebody else.
    if (const absl::Status status = place.matcher->Accept(token); !status.ok()) {
      return absl::InternalError(status.message());
    }
  }
  if (place.draws->params.HasPenalties()) place.counts->Add(token);
  return absl::OkStatus();
}

void TokenDrawer::TakeBack(const DrawPlace& place, absl::Span<const int32_t> tokens) const {
  if (place.matcher != nullptr) place.matcher->Rollback(static_cast<int>(tokens.size()));
  if (!place.draws->params.HasPenalties()) return;
  for (const int32_t token : tokens) place.counts->Remove(token);
}

absl::StatusOr<model::SampledToken> TokenDrawer::Draw(const DrawPlace& place, int64_t position,
                                                      absl::Span<const float> logits, bool is_draft) {
  const model::SamplingParams* params = &place.draws->params;
  std::optional<model::SamplingParams> of_draft;
  if (is_draft && params->wants_logprobs) {
    of_draft = *params;
    of_draft->wants_logprobs = false;
    params = &*of_draft;
  }
  model::SampleInput input = {.logits = logits,
                              .params = *params,
                              .counts = *place.counts,
                              .masked_tokens = place.draws->MaskedAt(position),
                              .choice = place.choice,
                              .position = position};
  if (place.matcher != nullptr) {
    input.allowed = &constraints_.MaskAfter(*place.matcher);
    if (place.matcher->must_end()) input.masked_tokens = {};  // a shorter answer than asked for, rather than none
  }
  return sampler_.Sample(input);
}

}  // namespace tandem::decode
