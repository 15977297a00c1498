// Proves that no op touches the heap: every one runs between two readings of a counting operator new.
#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/op_testing.h"

namespace {
std::atomic<int64_t> num_allocations = 0;
}  // namespace

// Replaces the program's; malloc under it stays the sanitizers' own. Not inlined: gcc would see free() of what it takes
// for another operator new's memory.
__attribute__((noinline)) void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tandem::kernels {
namespace {

template <typename Op>
void ExpectNoAllocation(const char* name, const Op& op) {
  const int64_t before = num_allocations;
  const absl::Status status = op();
  const int64_t after = num_allocations;
  EXPECT_TRUE(status.ok()) << name << ": " << status;
  EXPECT_EQ(after, before) << name;
}

TEST(NoAllocationTest, TheCounterCounts) {
  const int64_t before = num_allocations;
  ::operator delete(::operator new(1));  // a new-expression may be optimised away, a call may not
  EXPECT_GT(num_allocations, before);
}

TEST(NoAllocationTest, NoOpTouchesTheHeap) {
  constexpr int64_t kRows = 3, kHidden = 256, kHeads = 2, kExperts = 8, kTopK = 2;
  Source source(1);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({kRows, kHidden}), y({kRows, kHidden}), z({kRows, kHidden});
  Tensor<Bf16, 1> norm = source.NormalBf16<1>({kHidden});
  Tensor<float, 1> wide_norm = source.NormalF32<1>({kHidden});
  Tensor<int32_t, 1> ids({kRows}), nan_count({kRows});
  Tensor<float, 2> logits = source.NormalF32<2>({kRows, 128});
  ExpectNoAllocation("GatherRows", [&] { return GatherRows({.table = x, .rows = ids, .out = y}); });
  ExpectNoAllocation("Argmax", [&] { return Argmax({.logits = logits, .tokens = ids}); });
  ExpectNoAllocation("RmsNorm", [&] { return RmsNorm({.x = x, .weight = norm, .y = y}); });
  ExpectNoAllocation("AddRmsNorm",
                     [&] { return AddRmsNorm({.x = x, .residual = y, .weight = norm, .y = z, .residual_out = y}); });
  ExpectNoAllocation("LayerNorm", [&] { return LayerNorm({.x = x, .weight = wide_norm, .bias = wide_norm, .y = y}); });

  Tensor<float, 2> table({200, 64});
  Tensor<Bf16, 3> index_q = source.NormalBf16<3>({kRows, kHeads, 128});
  const Cube<Bf16> rope_part = index_q.view().Columns(0, 64);
  ExpectNoAllocation("BuildRopeTable", [&] { return BuildRopeTable({.yarn = {}, .table = table}); });
  ExpectNoAllocation("Rope", [&] {
    return Rope({.layout = RopeLayout::kHalfSplit, .x = rope_part, .positions = ids, .table = table, .y = rope_part});
  });
  ExpectNoAllocation("Hadamard128", [&] { return Hadamard128({.x = index_q, .y = index_q}); });

  Tensor<E4m3, 2> q({kRows, kHidden}), weight = source.NormalE4m3<2>({kHidden, kHidden});
  Tensor<float, 2> q_scale({kRows, 2}), w_scale = source.PowersOfTwo<2>({2, 2}, -9, -7);
  alignas(64) static std::byte linear_workspace[Fp8LinearWorkspaceBytes(kRows, kHidden)];
  Tensor<Bf16, 2> wide_weight({kHidden, kHidden});
  Tensor<float, 2> wide_y({kRows, kHidden});
  ExpectNoAllocation("Quant128", [&] { return Quant128({.x = x, .q = q, .scale = q_scale}); });
  ExpectNoAllocation("DequantizeFp8Weight", [&] {
    return DequantizeFp8Weight({.weight = {weight, w_scale}, .out = wide_weight});
  });
  ExpectNoAllocation("Fp8Linear", [&] {
    return Fp8Linear({.x = q,
                      .x_scale = q_scale,
                      .weight = {weight, w_scale},
                      .k_segments = 2,
                      .y = y,
                      .workspace = absl::MakeSpan(linear_workspace)});
  });
  ExpectNoAllocation("Bf16Linear", [&] { return Bf16Linear({.x = x, .weight = wide_weight, .y = y}); });
  ExpectNoAllocation("Bf16LinearF32", [&] { return Bf16LinearF32({.x = x, .weight = wide_weight, .y = wide_y}); });

  PagedFixture fixture({70, 71, 100}, {0, 0, 1}, {1, 3, 0, 2});
  Tensor<Bf16, 2> latent = source.NormalBf16<2>({kRows, 512}), rope_key = source.NormalBf16<2>({kRows, 64});
  Tensor<uint8_t, 2> latent_pages({4, kvcache::LatentPageBytes(kvcache::KvCacheDtype::kFp8E4m3)}),
      index_pages({4, kvcache::kIndexPageBytes});
  Tensor<E4m3, 2> key = source.NormalE4m3<2>({kRows, 128});
  Tensor<float, 2> key_scale = source.PowersOfTwo<2>({kRows, 1}, -8, -6);
  ExpectNoAllocation("WriteLatent", [&] {
    return WriteLatent({.latent = latent, .rope_key = rope_key, .rows = fixture.rows(), .latent_pages = latent_pages});
  });
  ExpectNoAllocation("WriteIndexKey", [&] {
    return WriteIndexKey({.key = key, .scale = key_scale, .rows = fixture.rows(), .index_pages = index_pages});
  });

  Tensor<E4m3, 3> q8 = source.NormalE4m3<3>({kRows, kHeads, 128});
  Tensor<float, 2> head_weights = source.NormalF32<2>({kRows, kHeads});
  Tensor<int32_t, 2> indices({kRows, 16});
  ExpectNoAllocation("IndexWeights", [&] {
    return IndexWeights({.projected = head_weights, .q_scale = head_weights, .weights = head_weights});
  });
  ExpectNoAllocation("IndexLogits", [&] {
    return IndexLogits({.q = q8,
                        .weights = head_weights,
                        .rows = fixture.rows(),
                        .index_pages = index_pages,
                        .index_topk = 16,
                        .logits = logits});
  });
  ExpectNoAllocation("TopK", [&] {
    return TopK(
        {.logits = logits, .context_length = fixture.context_length, .indices = indices, .nan_count = nan_count});
  });

  Tensor<Bf16, 3> q_nope = source.NormalBf16<3>({kRows, kHeads, 128}),
                  q_rope = source.NormalBf16<3>({kRows, kHeads, 64});
  Tensor<Bf16, 3> w_kv = source.NormalBf16<3>({kHeads, 128, 512}), q_latent({kRows, kHeads, 512}),
                  head_out({kRows, kHeads, 128});
  ExpectNoAllocation("MlaAbsorbQuery",
                     [&] { return MlaAbsorbQuery({.q_nope = q_nope, .w_uk = w_kv, .q_latent = q_latent}); });
  ExpectNoAllocation("SparseMla", [&] {
    return SparseMla({.q_latent = q_latent,
                      .q_rope = q_rope,
                      .softmax_scale = 0.1f,
                      .indices = indices,
                      .rows = fixture.rows(),
                      .latent_pages = latent_pages,
                      .out = q_latent});
  });
  ExpectNoAllocation("MlaUnabsorbOutput",
                     [&] { return MlaUnabsorbOutput({.latent_out = q_latent, .w_uv = w_kv, .out = head_out}); });

  ExpectNoAllocation("SwiGlu", [&] { return SwiGlu({.gate = x, .up = y, .y = y}); });
  Tensor<float, 2> router_logits = source.NormalF32<2>({kRows, kExperts}), expert_weights({kRows, kTopK});
  Tensor<float, 1> bias = source.NormalF32<1>({kExperts});
  Tensor<int32_t, 2> expert_ids({kRows, kTopK}), row_pairs({kRows, kTopK});
  Tensor<int32_t, 1> offsets({kExperts + 1}), pair_rows({kRows * kTopK});
  Tensor<Bf16, 2> expert_out({kRows * kTopK, kHidden});
  const std::vector<Fp8Weight> experts(kExperts, Fp8Weight{weight, w_scale});
  ExpectNoAllocation("MoeRouter", [&] {
    return MoeRouter({.logits = router_logits,
                      .bias = bias,
                      .n_group = 4,
                      .topk_group = 2,
                      .expert_ids = expert_ids,
                      .weights = expert_weights});
  });
  ExpectNoAllocation("MoeGroupRows", [&] {
    return MoeGroupRows(
        {.expert_ids = expert_ids, .group_offsets = offsets, .pair_rows = pair_rows, .row_pairs = row_pairs});
  });
  ExpectNoAllocation("Fp8GroupedLinear", [&] {
    return Fp8GroupedLinear({.x = q,
                             .x_scale = q_scale,
                             .x_rows = pair_rows,
                             .group_offsets = offsets,
                             .weights = experts,
                             .y = expert_out,
                             .workspace = absl::MakeSpan(linear_workspace)});
  });
  ExpectNoAllocation("MoeCombine", [&] {
    return MoeCombine(
        {.expert_out = expert_out, .row_pairs = row_pairs, .weights = expert_weights, .shared_out = x, .y = y});
  });
}

}  // namespace
}  // namespace tandem::kernels
