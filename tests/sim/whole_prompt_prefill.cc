#include "tests/sim/whole_prompt_prefill.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kvcache/kv_layout.h"
#include "tests/sim/sim_vocabulary.h"
#include "worker_shell/sampling.h"

namespace tandem::sim {

WholePromptPrefill::WholePromptPrefill(const kvcache::KvLayout& layout, const HashModelOptions& model,
                                       uint64_t incarnation, const base::Clock& clock)
    : memory_(layout),
      executor_(memory_.pool(), model),
      constraints_(SimVocabulary(model.vocab_size)),
      sampler_(model.vocab_size),
      pages_(layout.num_pages),
      page_memory_(memory_.pool()),
      transfer_({.incarnation = incarnation, .layout = layout}, {&page_memory_}, &clock, nullptr) {}

std::vector<kvtransfer::SendToTarget> WholePromptPrefill::Run() {
  std::vector<kvtransfer::SendToTarget> messages;
  transfer_.Tick();
  if (!holds_announcements_) {
    for (auto& [id, request] : requests_) Announce(id, request);
  }
  for (auto outputs = transfer_.TakeOutputs(); !outputs.empty(); outputs = transfer_.TakeOutputs()) {
    for (kvtransfer::SourceOutput& output : outputs) {
      if (auto* message = std::get_if<kvtransfer::SendToTarget>(&output)) messages.push_back(std::move(*message));
      if (auto* admit = std::get_if<kvtransfer::AdmitRequest>(&output)) Compute(*admit);
      if (auto* end = std::get_if<kvtransfer::EndRequest>(&output)) {
        pages_.Release(requests_[end->id].pages, absl::StrCat(end->id.epoch));
        requests_.erase(end->id);
      }
    }
  }
  return messages;
}

void WholePromptPrefill::Compute(const kvtransfer::AdmitRequest& admit) {
  generated_of_starts_.push_back(admit.start.generated_tokens);
  Request& request = requests_[admit.id];
  if (!refusals_.empty()) {
    transfer_.Fail(admit.id, refusals_.front());
    refusals_.pop_front();
    return;
  }
  const std::vector<int32_t> prompt(admit.start.prompt_tokens.begin(), admit.start.prompt_tokens.end());
  request.num_prompt_pages = kvcache::PagesForTokens(static_cast<int64_t>(prompt.size()));
  auto pages = pages_.Allocate(request.num_prompt_pages, absl::StrCat(admit.id.epoch));
  TANDEM_CHECK(pages.ok(), "the test's prefill pool is too small for the test");
  request.pages = *std::move(pages);
  memory_.pool().ZeroPage(request.pages.back());
  transfer_.Accept(admit.id, {request.pages});

  std::vector<float> logits(executor_.vocab_size());
  const model::Segment segment{
      .row_begin = 0, .num_rows = static_cast<int>(prompt.size()), .first_position = 0, .page_table = request.pages};
  const int32_t last_row = static_cast<int32_t>(prompt.size()) - 1;
  std::vector<kernels::Bf16> hidden(prompt.size() * executor_.hidden_size());
  const absl::Status status = executor_.ForwardWithHidden(
      {.tokens = prompt, .segments = {&segment, 1}, .logits_rows = {&last_row, 1}}, [](int) {}, absl::MakeSpan(logits),
      absl::MakeSpan(hidden));
  TANDEM_CHECK(status.ok(), "the hash model refuses a prompt");
  if (executor_.has_mtp()) RunMtp(admit.id, request, prompt, hidden);
  if (admit.start.generated_tokens.empty()) {
    const auto position = static_cast<int64_t>(prompt.size());
    const worker_shell::DrawRules draws =
        worker_shell::DrawRulesFrom(admit.start.sampling, admit.start.stopping, position);
    const model::TokenCounts counts(admit.start.prompt_tokens, 0);
    const model::TokenMask* allowed = nullptr;
    if (admit.start.sampling.has_constraint()) {
      const auto constraint = constraints_.Prepare(admit.start.sampling.constraint());
      TANDEM_CHECK(constraint.ok(), "decode refuses a constraint first");
      allowed = &constraints_.MaskAfter(model::TokenMatcher(*constraint));
    }
    for (int choice = 0; choice < std::min(admit.start.num_choices, num_choices_to_sample_); ++choice) {
      const auto drawn = sampler_.Sample({.logits = logits,
                                          .params = draws.params,
                                          .counts = counts,
                                          .masked_tokens = draws.MaskedAt(position),
                                          .allowed = allowed,
                                          .choice = static_cast<uint32_t>(choice),
                                          .position = position});
      TANDEM_CHECK(drawn.ok(), "the hash model gives no logits");
      transfer_.FirstToken(admit.id, worker_shell::FirstTokenOf(choice, *drawn, draws.params.wants_logprobs));
    }
  }
  if (!holds_announcements_) Announce(admit.id, request);
}

void WholePromptPrefill::RunMtp(const kvtransfer::EpochId& id, const Request& request, absl::Span<const int32_t> prompt,
                                absl::Span<const kernels::Bf16> hidden) {
  const size_t before_last = hidden.size() - executor_.hidden_size();
  transfer_.PromptHidden(id, std::string(reinterpret_cast<const char*>(hidden.data() + before_last),
                                         executor_.hidden_size() * sizeof(kernels::Bf16)));
  if (prompt.size() == 1) return;
  const model::Segment segment{.row_begin = 0,
                               .num_rows = static_cast<int>(prompt.size()) - 1,
                               .first_position = 0,
                               .page_table = request.pages};
  const absl::Status status = executor_.RunMtp({.tokens = prompt.subspan(1), .segments = {&segment, 1}},
                                               hidden.first(before_last), [](int) {}, {}, {});
  TANDEM_CHECK(status.ok(), "the hash model refuses a prompt");
}

void WholePromptPrefill::Announce(const kvtransfer::EpochId& id, Request& request) {
  if (request.is_announced || request.pages.empty()) return;
  request.is_announced = true;
  for (int layer = 0; layer < executor_.num_layers(); ++layer) {
    transfer_.Complete(id, 0, layer, layer + 1, 0, request.num_prompt_pages);
  }
  if (num_to_corrupt_ == 0) return;
  --num_to_corrupt_;
  memory_.pool().Page(kvcache::RecordKind::kLatent, 0, request.pages.front())[5] ^= std::byte{1};
}

}  // namespace tandem::sim
