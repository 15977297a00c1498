// Proves cached records, the indexer, top-k and latent attention against the float64 reference, in its tolerances.
#include <limits>

#include "kernels/reference/golden.h"

namespace tandem::kernels {
namespace {

// Rows of one sequence with the given page table and contexts.
struct OneSequence {
  OneSequence(Tensor<int32_t, 1> page_table, std::vector<int32_t> contexts)
      : table(std::move(page_table)), sequence({static_cast<int64_t>(contexts.size())}), context(sequence) {
    context.values() = std::move(contexts);
  }
  PagedRows rows() {
    return {.page_tables = Matrix<const int32_t>(&table[0], {1, table.size()}),
            .sequence = sequence,
            .context_length = context};
  }
  Tensor<int32_t, 1> table;
  Tensor<int32_t, 1> sequence;
  Tensor<int32_t, 1> context;
};

// The ops whose goldens exist for each format of the latent record.
const std::pair<std::string, kvcache::KvCacheDtype> kFormats[] = {{"", kvcache::KvCacheDtype::kFp8E4m3},
                                                                  {"_bf16", kvcache::KvCacheDtype::kBfloat16}};

// Positions 0, 1, 2, ... of a sequence in page 0.
OneSequence FirstRows(int64_t count) {
  std::vector<int32_t> contexts(static_cast<size_t>(count));
  std::iota(contexts.begin(), contexts.end(), 1);
  return OneSequence(Tensor<int32_t, 1>({1}), contexts);
}

TEST(GoldenTest, LatentRecord) {
  for (const auto& [suffix, dtype] : kFormats) {
    GoldenOp golden("latent_record" + suffix);
    for (const std::string& c : golden.cases()) {
      Tensor<Bf16, 2> latent = golden.Input<Bf16, 2>(c, "c"), rope_key = golden.Input<Bf16, 2>(c, "k_rope");
      OneSequence sequence = FirstRows(latent.dim(0));
      Tensor<uint8_t, 2> pages({1, kvcache::LatentPageBytes(dtype)});
      ASSERT_TRUE(WriteLatent({.latent = latent,
                               .rope_key = rope_key,
                               .rows = sequence.rows(),
                               .kv_cache_dtype = dtype,
                               .latent_pages = pages})
                      .ok());
      Tensor<uint8_t, 2> records({latent.dim(0), kvcache::LatentRecordBytes(dtype)});
      std::copy_n(pages.values().begin(), records.size(), records.values().begin());
      golden.Expect(c, "record", records);
    }
  }
}

TEST(GoldenTest, IndexPage) {
  GoldenOp golden("index_page");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> key = golden.Input<Bf16, 2>(c, "k");
    Tensor<E4m3, 2> q({key.dim(0), 128});
    Tensor<float, 2> scale({key.dim(0), 1});
    ASSERT_TRUE(Quant128({.x = key, .q = q, .scale = scale}).ok());
    OneSequence sequence = FirstRows(key.dim(0));
    Tensor<uint8_t, 2> pages({1, kvcache::kIndexPageBytes});
    ASSERT_TRUE(WriteIndexKey({.key = q, .scale = scale, .rows = sequence.rows(), .index_pages = pages}).ok());
    Tensor<uint8_t, 1> page({kvcache::kIndexPageBytes});
    page.values() = pages.values();
    golden.Expect(c, "page", page);
  }
}

TEST(GoldenTest, IndexWeights) {
  GoldenOp golden("index_weights");
  for (const std::string& c : golden.cases()) {
    Tensor<Bf16, 2> a = golden.Input<Bf16, 2>(c, "a"), projection = golden.Input<Bf16, 2>(c, "weights_proj");
    Tensor<float, 2> q_scale = golden.Input<float, 2>(c, "q_scale");
    Tensor<float, 2> weights({a.dim(0), projection.dim(0)});
    ASSERT_TRUE(Bf16LinearF32({.x = a, .weight = projection, .y = weights}).ok());
    ASSERT_TRUE(IndexWeights({.projected = weights, .q_scale = q_scale, .weights = weights}).ok());
    golden.Expect(c, "w", weights);
  }
}

TEST(GoldenTest, IndexLogits) {
  GoldenOp golden("index_logits");
  for (const std::string& c : golden.cases()) {
    Tensor<E4m3, 3> q = golden.Input<E4m3, 3>(c, "q");
    Tensor<float, 2> weights = golden.Input<float, 2>(c, "w");
    Tensor<uint8_t, 2> pages = golden.Input<uint8_t, 2>(c, "pages");
    OneSequence sequence(golden.Input<int32_t, 1>(c, "page_table"), golden.Input<int32_t, 1>(c, "num_keys").values());
    Tensor<float, 2> logits({q.dim(0), 64 * sequence.table.size()});
    std::fill(logits.values().begin(), logits.values().end(), -std::numeric_limits<float>::infinity());
    ASSERT_TRUE(IndexLogits({.q = q,
                             .weights = weights,
                             .rows = sequence.rows(),
                             .index_pages = pages,
                             .index_topk = 0,
                             .logits = logits})
                    .ok());
    golden.Expect(c, "logits", logits);
  }
}

TEST(GoldenTest, TopK) {
  GoldenOp golden("topk");
  for (const std::string& c : golden.cases()) {
    Tensor<float, 2> logits = golden.Input<float, 2>(c, "logits");
    Tensor<int32_t, 1> num_keys = golden.Input<int32_t, 1>(c, "num_keys"), nan_count({logits.dim(0)});
    Tensor<int32_t, 2> indices({logits.dim(0), static_cast<int64_t>(golden.Number(c, "k"))});
    ASSERT_TRUE(TopK({.logits = logits, .context_length = num_keys, .indices = indices, .nan_count = nan_count}).ok());
    golden.Expect(c, "indices", indices);
  }
}

TEST(GoldenTest, MlaAbsorbAndUnabsorb) {
  GoldenOp golden("mla_absorb");
  for (const std::string& c : golden.cases()) {
    Tensor<E4m3, 2> weight = golden.Input<E4m3, 2>(c, "kv_b");
    Tensor<float, 2> scale = golden.Input<float, 2>(c, "kv_b_scale");
    Tensor<Bf16, 2> kv_b({weight.dim(0), weight.dim(1)});
    ASSERT_TRUE(DequantizeFp8Weight({.weight = {weight, scale}, .out = kv_b}).ok());
    const int64_t num_heads = weight.dim(0) / 256;
    const auto part = [&](int64_t first_row) {
      return Cube<const Bf16>(&kv_b.at(first_row, 0), {num_heads, 128, 512}, {256 * 512, 512, 1});
    };
    Tensor<Bf16, 3> q_nope = golden.Input<Bf16, 3>(c, "q_nope"), latent_out = golden.Input<Bf16, 3>(c, "o_latent");
    Tensor<Bf16, 3> q_latent({q_nope.dim(0), num_heads, 512}), out({q_nope.dim(0), num_heads, 128});
    ASSERT_TRUE(MlaAbsorbQuery({.q_nope = q_nope, .w_uk = part(0), .q_latent = q_latent}).ok());
    ASSERT_TRUE(MlaUnabsorbOutput({.latent_out = latent_out, .w_uv = part(128), .out = out}).ok());
    golden.Expect(c, "q_absorbed", q_latent);
    golden.Expect(c, "o", out);
  }
}

TEST(GoldenTest, SparseAttention) {
  for (const auto& [suffix, dtype] : kFormats) {
    GoldenOp golden("sparse_attention" + suffix);
    for (const std::string& c : golden.cases()) {
      Tensor<Bf16, 3> q_latent = golden.Input<Bf16, 3>(c, "q_absorbed"), q_rope = golden.Input<Bf16, 3>(c, "q_rope");
      Tensor<uint8_t, 3> pool = golden.Input<uint8_t, 3>(c, "pages");
      Tensor<int32_t, 2> indices = golden.Input<int32_t, 2>(c, "indices");
      OneSequence sequence(golden.Input<int32_t, 1>(c, "page_table"),
                           std::vector<int32_t>(static_cast<size_t>(q_latent.dim(0)), 128));
      Tensor<Bf16, 3> out({q_latent.dim(0), q_latent.dim(1), 512});
      ASSERT_TRUE(
          SparseMla({.q_latent = q_latent,
                     .q_rope = q_rope,
                     .softmax_scale = golden.Input<float, 1>(c, "softmax_scale")[0],
                     .indices = indices,
                     .rows = sequence.rows(),
                     .kv_cache_dtype = dtype,
                     .latent_pages = Matrix<const uint8_t>(&pool[0], {pool.dim(0), kvcache::LatentPageBytes(dtype)}),
                     .out = out})
              .ok());
      golden.Expect(c, "o_latent", out);
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
