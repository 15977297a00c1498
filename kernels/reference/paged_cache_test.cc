// Proves where every byte of a record lands, by the addresses of the specification (sections 6.2 and 6.3), written here
// as numbers, and that nothing else in the pool changes.
#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kPages = 6;
constexpr uint8_t kFiller = 0xa5;

// Three rows: the first slot of a page, the last slot of one, and a slot of another sequence.
PagedFixture Rows() { return PagedFixture({65, 128, 7}, {0, 0, 1}, {4, 2, 5, 0}); }

TEST(WriteLatentTest, PutsCodesScalesAndRopeAtTheirBytes) {
  Source source(1);
  Tensor<Bf16, 2> latent = source.NormalBf16<2>({3, 512}, 3);
  Tensor<Bf16, 2> rope_key = source.NormalBf16<2>({3, 64});
  PagedFixture fixture = Rows();
  Tensor<uint8_t, 2> pages({kPages, 64 * 656});
  std::fill(pages.values().begin(), pages.values().end(), kFiller);
  ASSERT_TRUE(
      WriteLatent({.latent = latent, .rope_key = rope_key, .rows = fixture.rows(), .latent_pages = pages}).ok());

  Tensor<E4m3, 2> q({3, 512});
  Tensor<float, 2> scale({3, 4});
  ASSERT_TRUE(Quant128({.x = latent, .q = q, .scale = scale}).ok());
  const int64_t record_of[] = {2 * 41984 + 0 * 656, 2 * 41984 + 63 * 656, 5 * 41984 + 6 * 656};
  Tensor<uint8_t, 2> expected({kPages, 64 * 656});
  std::fill(expected.values().begin(), expected.values().end(), kFiller);
  for (int64_t row = 0; row < 3; ++row) {
    uint8_t* record = &expected[record_of[row]];
    std::memcpy(record, &q.at(row, 0), 512);
    std::memcpy(record + 512, &scale.at(row, 0), 16);
    std::memcpy(record + 528, &rope_key.at(row, 0), 128);
  }
  EXPECT_TRUE(pages == expected);
}

TEST(WriteLatentTest, KeepsPlainScalesWhereTheFormatAsks) {
  Source source(2);
  Tensor<Bf16, 2> latent = source.NormalBf16<2>({1, 512});
  Tensor<Bf16, 2> rope_key({1, 64});
  PagedFixture fixture({1}, {0}, {0});
  Tensor<uint8_t, 2> pages({1, 41984});
  ASSERT_TRUE(WriteLatent({.latent = latent,
                           .rope_key = rope_key,
                           .scale_format = ScaleFormat::kFloat32,
                           .rows = fixture.rows(),
                           .latent_pages = pages})
                  .ok());
  float scale;
  std::memcpy(&scale, &pages[512], sizeof(scale));
  EXPECT_FALSE(IsPowerOfTwo(scale));
}

TEST(WriteLatentTest, CopiesLatentAndRopeIntoBf16Records) {
  Source source(4);
  Tensor<Bf16, 2> latent = source.NormalBf16<2>({3, 512}, 3);
  Tensor<Bf16, 2> rope_key = source.NormalBf16<2>({3, 64});
  PagedFixture fixture = Rows();
  Tensor<uint8_t, 2> pages({kPages, 64 * 1152});
  std::fill(pages.values().begin(), pages.values().end(), kFiller);
  ASSERT_TRUE(WriteLatent({.latent = latent,
                           .rope_key = rope_key,
                           .rows = fixture.rows(),
                           .kv_cache_dtype = kvcache::KvCacheDtype::kBfloat16,
                           .latent_pages = pages})
                  .ok());

  const int64_t record_of[] = {2 * 73728 + 0 * 1152, 2 * 73728 + 63 * 1152, 5 * 73728 + 6 * 1152};
  Tensor<uint8_t, 2> expected({kPages, 64 * 1152});
  std::fill(expected.values().begin(), expected.values().end(), kFiller);
  for (int64_t row = 0; row < 3; ++row) {
    std::memcpy(&expected[record_of[row]], &latent.at(row, 0), 1024);
    std::memcpy(&expected[record_of[row] + 1024], &rope_key.at(row, 0), 128);
  }
  EXPECT_TRUE(pages == expected);
}

TEST(WriteLatentTest, RefusesPagesOfTheOtherFormat) {
  Tensor<Bf16, 2> latent({3, 512}), rope_key({3, 64});
  PagedFixture fixture = Rows();
  Tensor<uint8_t, 2> pages({kPages, 41984});
  EXPECT_EQ(WriteLatent({.latent = latent,
                         .rope_key = rope_key,
                         .rows = fixture.rows(),
                         .kv_cache_dtype = kvcache::KvCacheDtype::kBfloat16,
                         .latent_pages = pages})
                .message(),
            "WriteLatent: latent_pages is [6, 41984], must be [6, 73728]");
}

TEST(WriteIndexKeyTest, GroupsKeysThenScalesWithinAPage) {
  Source source(3);
  Tensor<E4m3, 2> key = source.NormalE4m3<2>({3, 128});
  Tensor<float, 2> scale = source.PowersOfTwo<2>({3, 1}, -9, 3);
  PagedFixture fixture = Rows();
  Tensor<uint8_t, 2> pages({kPages, 64 * 132});
  std::fill(pages.values().begin(), pages.values().end(), kFiller);
  ASSERT_TRUE(WriteIndexKey({.key = key, .scale = scale, .rows = fixture.rows(), .index_pages = pages}).ok());

  const std::pair<int64_t, int64_t> page_and_slot[] = {{2, 0}, {2, 63}, {5, 6}};
  Tensor<uint8_t, 2> expected({kPages, 64 * 132});
  std::fill(expected.values().begin(), expected.values().end(), kFiller);
  for (int64_t row = 0; row < 3; ++row) {
    const auto [page, slot] = page_and_slot[row];
    std::memcpy(&expected[page * 8448 + slot * 128], &key.at(row, 0), 128);
    std::memcpy(&expected[page * 8448 + 64 * 128 + slot * 4], &scale[row], 4);
  }
  EXPECT_TRUE(pages == expected);
}

TEST(PagedRowsTest, RefusesWhatWouldLeaveThePool) {
  Tensor<Bf16, 2> latent({3, 512}), rope_key({3, 64});
  Tensor<uint8_t, 2> pages({kPages, 41984});
  const auto write = [&](PagedFixture& fixture) {
    return std::string(
        WriteLatent({.latent = latent, .rope_key = rope_key, .rows = fixture.rows(), .latent_pages = pages}).message());
  };
  PagedFixture page = Rows();
  page.page_tables.at(0, 1) = kPages;
  EXPECT_EQ(write(page), "WriteLatent: page_tables[1] is 6, must be in [0, 6)");
  PagedFixture unread = Rows();
  unread.page_tables.at(1, 1) = -1;  // beyond the context of sequence 1
  EXPECT_EQ(write(unread), "");
  PagedFixture context = Rows();
  context.context_length[1] = 129;
  EXPECT_EQ(write(context), "WriteLatent: context_length[1] is 129, must be in [1, 129)");
  PagedFixture sequence = Rows();
  sequence.sequence[2] = 2;
  EXPECT_EQ(write(sequence), "WriteLatent: sequence[2] is 2, must be in [0, 2)");
}

}  // namespace
}  // namespace tandem::kernels
