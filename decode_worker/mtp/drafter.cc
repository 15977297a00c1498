#include "decode_worker/mtp/drafter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace tandem::decode {

using kernels::Bf16;

// Rows of one sequence follow each other: they are one segment where they touch.
void Drafter::AddRow(const DraftOrder& order, int64_t position, int32_t next_token, const Bf16* hidden) {
  const auto row = static_cast<int>(tokens_.size());
  const bool goes_on = !segments_.empty() && segments_.back().page_table.data() == order.page_table.data() &&
                       segments_.back().first_position + segments_.back().num_rows == position;
  if (goes_on) {
    ++segments_.back().num_rows;
  } else {
    segments_.push_back({.row_begin = row, .num_rows = 1, .first_position = position, .page_table = order.page_table});
  }
  tokens_.push_back(next_token);
  hidden_.insert(hidden_.end(), hidden, hidden + executor_.hidden_size());
}

absl::Status Drafter::Run() {
  logits_.resize(logits_rows_.size() * static_cast<size_t>(executor_.vocab_size()));
  out_hidden_.resize(logits_rows_.size() * static_cast<size_t>(executor_.hidden_size()));
  const absl::Status status = executor_.RunMtp(
      {.tokens = tokens_, .segments = segments_, .logits_rows = logits_rows_}, hidden_, [](int) {},
      absl::MakeSpan(logits_), absl::MakeSpan(out_hidden_));
  ++num_runs_;
  num_rows_ += static_cast<int>(tokens_.size());
  tokens_.clear();
  segments_.clear();
  hidden_.clear();
  logits_rows_.clear();
  return status;
}

bool Drafter::DrawNext(Chain& chain) {
  const DraftOrder& order = *chain.order;
  DraftState& state = *order.state;
  const int32_t newest = state.drafts.empty() ? static_cast<int32_t>(order.generated.back()) : state.drafts.back();
  if (!drawer_.TakeIn(order.place, newest).ok()) return false;  // the step itself says so
  chain.taken_in.push_back(newest);
  const auto vocab_size = static_cast<size_t>(executor_.vocab_size());
  const int64_t position = order.num_prompt_tokens + static_cast<int64_t>(order.generated.size() + state.drafts.size());
  const auto drawn =
      drawer_.Draw(order.place, position, absl::MakeConstSpan(logits_).subspan(chain.output * vocab_size, vocab_size),
                   /*is_draft=*/true);
  if (!drawn.ok()) return false;
  const auto& stop_tokens = order.place.draws->stop_tokens;
  if (std::find(stop_tokens.begin(), stop_tokens.end(), drawn->token) != stop_tokens.end()) return false;
  state.drafts.push_back(drawn->token);
  return static_cast<int>(state.drafts.size()) < order.num_drafts;
}

void Drafter::DrawAll(std::vector<Chain>& of_run, std::vector<Chain>& left) {
  const auto width = static_cast<ptrdiff_t>(executor_.hidden_size());
  for (Chain& chain : of_run) {
    if (!DrawNext(chain)) {
      drawer_.TakeBack(chain.order->place, chain.taken_in);
      continue;
    }
    const auto hidden = out_hidden_.begin() + static_cast<ptrdiff_t>(chain.output) * width;
    chain_hidden_.insert(chain_hidden_.end(), hidden, hidden + width);
    left.push_back(std::move(chain));
  }
  of_run.clear();
}

// The rows of several sequences share a run as far as they fit; a sequence's own may be cut.
absl::Status Drafter::WritePending(absl::Span<DraftOrder> orders, std::vector<Chain>& chains) {
  const auto width = static_cast<size_t>(executor_.hidden_size());
  std::vector<Chain> of_run;
  const auto run = [&]() -> absl::Status {
    RETURN_IF_ERROR(Run());
    DrawAll(of_run, chains);
    return absl::OkStatus();
  };
  for (DraftOrder& order : orders) {
    DraftState& state = *order.state;
    const size_t num_pending = state.pending.size() / width;
    for (size_t i = 0; i < num_pending; ++i) {
      if (static_cast<int>(tokens_.size()) == num_rows_max_) RETURN_IF_ERROR(run());
      const int64_t position = state.num_final++;
      const auto next = static_cast<size_t>(position + 1 - order.num_prompt_tokens);
      AddRow(order, position, static_cast<int32_t>(order.generated[next]), &state.pending[i * width]);
      if (i + 1 == num_pending && order.num_drafts > 0) {
        of_run.push_back({.order = &order, .output = logits_rows_.size(), .taken_in = {}});
        logits_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
      }
    }
    state.pending.clear();
  }
  return tokens_.empty() ? absl::OkStatus() : run();
}

absl::Status Drafter::Draft(absl::Span<DraftOrder> orders) {
  num_runs_ = num_rows_ = 0;
  const auto width = static_cast<size_t>(executor_.hidden_size());
  for (const DraftOrder& order : orders) order.state->drafts.clear();
  std::vector<Chain> chains;
  chain_hidden_.clear();
  RETURN_IF_ERROR(WritePending(orders, chains));
  TANDEM_CHECK(static_cast<int>(chains.size()) <= num_rows_max_, "a step has no more sequences than rows");
  while (!chains.empty()) {
    for (size_t i = 0; i < chains.size(); ++i) {
      const DraftOrder& order = *chains[i].order;
      const auto num_drafts = static_cast<int64_t>(order.state->drafts.size());
      const int64_t newest = order.num_prompt_tokens + static_cast<int64_t>(order.generated.size()) - 1;
      AddRow(order, newest - 1 + num_drafts, order.state->drafts.back(), &chain_hidden_[i * width]);
      chains[i].output = i;
      logits_rows_.push_back(static_cast<int32_t>(i));
    }
    RETURN_IF_ERROR(Run());
    chain_hidden_.clear();
    std::vector<Chain> left;
    DrawAll(chains, left);
    chains = std::move(left);
  }
  return absl::OkStatus();
}

}  // namespace tandem::decode
