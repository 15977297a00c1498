#include "kvtransfer/target_epoch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::kvtransfer {
namespace {

absl::Status CheckRect(const TargetEpoch& epoch, uint32_t rank, const PageRect& rect) {
  const int num_layers = epoch.grid.num_layers();
  const auto num_pages = static_cast<int>(epoch.target_pages.size());
  if (rank < epoch.source_pages.size() && rect.layer_begin >= 0 && rect.layer_begin < rect.layer_end &&
      rect.layer_end <= num_layers && rect.page_begin >= 0 && rect.page_begin < rect.page_end &&
      rect.page_end <= num_pages) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("prefill rank ", rank, " named layers [", rect.layer_begin, ", ",
                                          rect.layer_end, ") and pages [", rect.page_begin, ", ", rect.page_end,
                                          ") of ", num_layers, " layers and ", num_pages, " pages"));
}

template <typename Message>
PageRect RectOf(const Message& message) {
  return {.layer_begin = static_cast<int>(message.layer_begin()),
          .layer_end = static_cast<int>(message.layer_end()),
          .page_begin = static_cast<int>(message.page_begin()),
          .page_end = static_cast<int>(message.page_end())};
}

}  // namespace

absl::Status TargetEpoch::TakeAccepted(const proto::Accepted& accepted, int64_t num_source_pool_pages) {
  if (accepted.source_rank() >= source_pages.size()) {
    return absl::InternalError(absl::StrCat("source rank ", accepted.source_rank(), " of ", source_pages.size()));
  }
  std::vector<uint32_t> pages(accepted.source_pages().begin(), accepted.source_pages().end());
  if (pages.size() != target_pages.size()) {
    return absl::InternalError(
        absl::StrCat("prefill accepted with ", pages.size(), " pages, the prompt has ", target_pages.size()));
  }
  for (const uint32_t page : pages) {
    if (page >= num_source_pool_pages) {
      return absl::InternalError(
          absl::StrCat("source page ", page, " is not in prefill's pool of ", num_source_pool_pages));
    }
  }
  std::optional<std::vector<uint32_t>>& known = source_pages[accepted.source_rank()];
  if (known.has_value() && *known != pages) return absl::InternalError("prefill accepted twice, with other pages");
  known = std::move(pages);
  return absl::OkStatus();
}

absl::Status TargetEpoch::TakeAnnounce(const proto::Announce& announce) {
  const PageRect rect = RectOf(announce);
  RETURN_IF_ERROR(CheckRect(*this, announce.source_rank(), rect));
  for (const PagePiece& piece : grid.Announce(static_cast<int>(announce.source_rank()), rect)) {
    pending.push_back(piece);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TargetEpoch::TakeFirstToken(const proto::FirstToken& token) {
  if (token.choice() >= first_tokens.size()) {
    return absl::InternalError(absl::StrCat("prefill sampled choice ", token.choice(), " of ", first_tokens.size()));
  }
  std::optional<uint32_t>& known = first_tokens[token.choice()];
  if (known.has_value() && *known != token.token()) {
    return absl::InternalError(absl::StrCat("prefill sampled two first tokens for choice ", token.choice(), ": ",
                                            *known, " and ", token.token()));
  }
  const bool is_new = !known.has_value();
  known = token.token();
  return is_new;
}

absl::Status TargetEpoch::TakePromptHidden(const proto::PromptHidden& message, int64_t num_bytes) {
  if (static_cast<int64_t>(message.hidden().size()) != num_bytes) {
    return absl::InternalError(absl::StrCat("prefill sent a hidden state of ", message.hidden().size(),
                                            " bytes, decode waits for ", num_bytes));
  }
  if (prompt_hidden.has_value() && *prompt_hidden != message.hidden()) {
    return absl::InternalError("prefill sent two hidden states of one prompt");
  }
  if (num_bytes > 0) prompt_hidden = message.hidden();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JudgedCell>> TargetEpoch::TakeSourceSums(const proto::SourceSums& sums) {
  const PageRect rect = RectOf(sums);
  RETURN_IF_ERROR(CheckRect(*this, sums.source_rank(), rect));
  const int num_pages = rect.page_end - rect.page_begin;
  const int64_t num_cells = int64_t{rect.layer_end - rect.layer_begin} * num_pages;
  if (sums.latent_sums_size() != num_cells || sums.index_sums_size() != num_cells) {
    return absl::InternalError(absl::StrCat("prefill sent ", sums.latent_sums_size(), " and ", sums.index_sums_size(),
                                            " sums for ", num_cells, " pages"));
  }
  std::vector<JudgedCell> judged;
  for (int i = 0; i < num_cells; ++i) {
    const int layer = rect.layer_begin + i / num_pages;
    const int page = rect.page_begin + i % num_pages;
    if (!grid.IsWanted(page)) continue;
    ASSIGN_OR_RETURN(const CellVerdict verdict,
                     grid.Expect(layer, page, {.latent = sums.latent_sums(i), .index = sums.index_sums(i)}));
    if (verdict != CellVerdict::kOpen) judged.push_back({.layer = layer, .page = page, .verdict = verdict});
  }
  return judged;
}

std::deque<PagePiece>::iterator TargetEpoch::FindFetchable() {
  return std::find_if(pending.begin(), pending.end(),
                      [this](const PagePiece& piece) { return source_pages[piece.rank].has_value(); });
}

bool TargetEpoch::HasEveryFirstToken() const {
  return std::all_of(first_tokens.begin(), first_tokens.end(), [](const auto& token) { return token.has_value(); });
}

}  // namespace tandem::kvtransfer
