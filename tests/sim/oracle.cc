#include "tests/sim/oracle.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "kvcache/kv_layout.h"
#include "model/sampler.h"
#include "tests/sim/pool_memory.h"
#include "tests/sim/sim_vocabulary.h"
#include "worker_shell/answer_constraints.h"
#include "worker_shell/sampling.h"

namespace tandem::sim {

std::vector<uint32_t> OracleTokens(const OracleRequest& request, const HashModelOptions& model, int num_layers,
                                   int64_t context_length_max, uint32_t choice) {
  return AskOracle(request, model, num_layers, context_length_max, choice).tokens;
}

OracleAnswer AskOracle(const OracleRequest& request, const HashModelOptions& model, int num_layers,
                       int64_t context_length_max, uint32_t choice) {
  const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_tokens.size());
  const int64_t num_tokens_max =
      std::min<int64_t>(num_prompt_tokens + request.stopping.max_new_tokens(), context_length_max);
  const int num_pages = kvcache::PagesForTokens(num_tokens_max);
  PoolMemory memory({.num_layers = num_layers, .num_pages = num_pages});
  HashModel executor(memory.pool(), model);
  model::Sampler sampler(model.vocab_size);
  std::vector<int32_t> page_table(num_pages);
  std::iota(page_table.begin(), page_table.end(), 0);

  const model::SamplingParams params = worker_shell::SamplingFrom(request.sampling);
  const std::vector<int32_t> stop_ids(request.stopping.stop_token_ids().begin(),
                                      request.stopping.stop_token_ids().end());
  OracleAnswer answer;
  std::vector<float> logits(model.vocab_size);
  std::vector<int32_t> rows(request.prompt_tokens.begin(), request.prompt_tokens.end());
  int64_t position = 0;
  while (true) {
    const model::Segment segment{.row_begin = 0,
                                 .num_rows = static_cast<int>(rows.size()),
                                 .first_position = position,
                                 .page_table = page_table};
    const int32_t last_row = static_cast<int32_t>(rows.size()) - 1;
    const absl::Status status = executor.Forward(
        {.tokens = rows, .segments = {&segment, 1}, .logits_rows = {&last_row, 1}}, [](int) {}, absl::MakeSpan(logits));
    TANDEM_CHECK(status.ok(), "the oracle's model refuses a request");
    position += static_cast<int64_t>(rows.size());
    // Counted anew for every token: nothing to be kept right.
    model::TokenCounts counts(request.prompt_tokens, answer.tokens.size());
    for (const uint32_t token : answer.tokens) counts.Add(static_cast<int32_t>(token));
    const bool may_stop = answer.tokens.size() >= request.stopping.min_new_tokens();
    // So is the place in the answer's constraint.
    std::optional<model::TokenMask> allowed;
    bool must_stop = false;
    if (request.sampling.has_constraint()) {
      worker_shell::AnswerConstraints constraints(SimVocabulary(model.vocab_size));
      const auto constraint = constraints.Prepare(request.sampling.constraint());
      TANDEM_CHECK(constraint.ok(), "the oracle cannot read a constraint");
      model::TokenMatcher matcher(*constraint);
      for (const uint32_t token : answer.tokens) {
        TANDEM_CHECK(matcher.Accept(static_cast<int32_t>(token)).ok(), "the oracle drew what was not allowed");
      }
      allowed = constraints.MaskAfter(matcher);
      must_stop = matcher.must_end();
    }
    const auto sampled =
        sampler.Sample({.logits = logits,
                        .params = params,
                        .counts = counts,
                        .masked_tokens = may_stop || must_stop ? absl::Span<const int32_t>() : stop_ids,
                        .allowed = allowed.has_value() ? &*allowed : nullptr,
                        .choice = choice,
                        .position = position});
    TANDEM_CHECK(sampled.ok(), "the oracle has no token to draw");
    answer.tokens.push_back(static_cast<uint32_t>(sampled->token));
    if (params.wants_logprobs) answer.logprobs.push_back(sampled->logprobs);
    if (std::find(stop_ids.begin(), stop_ids.end(), sampled->token) != stop_ids.end()) return answer;
    if (num_prompt_tokens + static_cast<int64_t>(answer.tokens.size()) >= num_tokens_max) return answer;
    rows = {sampled->token};
  }
}

}  // namespace tandem::sim
