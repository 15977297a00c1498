// Proves that tensors are found through the index, that a lying or absent index is replaced by the headers, that errors
// name file and tensor, and what the model hash sees.
#include "model/checkpoint.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tools/make_checkpoint/checkpoint_writer.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  // A fresh copy of v32-micro in two shards.
  void SetUp() override {
    folder_ = absl::StrCat(::testing::TempDir(), "/checkpoint_test/",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    MakeFolder(folder_, 2);
  }
  static void MakeFolder(const std::string& folder, int num_shards) {
    fs::remove_all(folder);
    fs::create_directories(fs::path(folder).parent_path());
    absl::Status status = make_checkpoint::WriteCheckpoint(
        {.config_name = "v32-micro", .seed = 1, .folder = folder, .num_shards = num_shards});
    ASSERT_TRUE(status.ok()) << status;
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary | std::ios::trunc) << text;
  }
  // Rewrites a shard, letting `edit` change its list of tensors.
  template <typename Edit>
  void EditShard(const std::string& name, Edit edit) const {
    const std::string path = folder_ + "/" + name;
    auto file = SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    std::vector<Tensor> tensors = (*file)->tensors();
    edit(tensors);
    ASSERT_TRUE(WriteSafetensors(path + ".new", tensors, {}).ok());
    fs::rename(path + ".new", path);
  }
  std::string folder_;
  const std::string index_ = "model.safetensors.index.json";
  const std::string shard1_ = "model-00001-of-000002.safetensors";
  const std::string shard2_ = "model-00002-of-000002.safetensors";
};

TEST_F(CheckpointTest, FindsEveryTensorThroughTheIndex) {
  auto checkpoint = Checkpoint::Open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->num_tensors(), 190u);
  EXPECT_TRUE((*checkpoint)->notes().empty());
  const Tensor* embed = (*checkpoint)->Find("model.embed_tokens.weight");
  ASSERT_NE(embed, nullptr);
  EXPECT_EQ((*checkpoint)->FileOf(*embed), folder_ + "/" + shard1_);
  EXPECT_EQ((*checkpoint)->Find("model.embed_tokens"), nullptr);
}

TEST_F(CheckpointTest, ReadsHeadersWhereThereIsNoIndex) {
  fs::remove(folder_ + "/" + index_);
  auto checkpoint = Checkpoint::Open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->num_tensors(), 190u);
}

TEST_F(CheckpointTest, ReadsHeadersWhereTheIndexLies) {
  const std::string text = Read(index_);
  const std::pair<std::string, std::string> lies[] = {
      {absl::StrReplaceAll(text, {{shard2_, "model-00003-of-000003.safetensors"}}), "which is absent"},
      {absl::StrReplaceAll(text, {{shard1_, shard2_}}), "which it does not"},
      {absl::StrReplaceAll(text, {{"model.norm.weight", "model.old_norm.weight"}}), "which it does not"},
  };
  for (const auto& [lie, note] : lies) {
    ASSERT_NE(lie, text);
    Write(index_, lie);
    auto checkpoint = Checkpoint::Open(folder_);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ((*checkpoint)->num_tensors(), 190u);
    ASSERT_EQ((*checkpoint)->notes().size(), 1u);
    EXPECT_TRUE(absl::StrContains((*checkpoint)->notes()[0], note)) << (*checkpoint)->notes()[0];
  }
}

TEST_F(CheckpointTest, FindsTensorsThatTheIndexLeavesOut) {
  const std::string text = Read(index_);
  const std::string shorter = absl::StrReplaceAll(text, {{absl::StrCat("\"lm_head.weight\":\"", shard1_, "\","), ""},
                                                         {absl::StrCat("\"lm_head.weight\":\"", shard2_, "\","), ""}});
  ASSERT_LT(shorter.size(), text.size());
  Write(index_, shorter);
  auto checkpoint = Checkpoint::Open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_NE((*checkpoint)->Find("lm_head.weight"), nullptr);
}

TEST_F(CheckpointTest, IgnoresFilesThatATruthfulIndexDoesNotName) {
  fs::copy_file(folder_ + "/" + shard1_, folder_ + "/consolidated.safetensors");
  auto checkpoint = Checkpoint::Open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_EQ((*checkpoint)->notes().size(), 1u);
  EXPECT_TRUE(absl::StrContains((*checkpoint)->notes()[0], "consolidated.safetensors is not named by"));
  fs::remove(folder_ + "/" + index_);
  absl::Status status = Checkpoint::Open(folder_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "consolidated.safetensors and in ")) << status;
}

TEST_F(CheckpointTest, RefusesBrokenFoldersInOneLine) {
  EXPECT_EQ(Checkpoint::Open("/nonexistent").status().code(), absl::StatusCode::kNotFound);
  const std::string text = Read(index_);
  Write(index_, "{}");
  EXPECT_TRUE(absl::StrContains(Checkpoint::Open(folder_).status().message(), "weight_map is missing"));
  Write(index_, absl::StrReplaceAll(text, {{shard1_, absl::StrCat("../", shard1_)}}));
  EXPECT_TRUE(absl::StrContains(Checkpoint::Open(folder_).status().message(), "lies outside the folder"));
  Write(index_, text);
  const std::string shard = Read(shard2_);
  Write(shard2_, shard.substr(0, shard.size() - 1));
  absl::Status status = Checkpoint::Open(folder_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), shard2_)) << status;
  fs::remove(folder_ + "/" + index_);
  fs::remove(folder_ + "/" + shard1_);
  fs::remove(folder_ + "/" + shard2_);
  EXPECT_TRUE(absl::StrContains(Checkpoint::Open(folder_).status().message(), "holds no tensors"));
}

TEST_F(CheckpointTest, RequireNamesFileTensorAndWhatWasExpected) {
  auto checkpoint = Checkpoint::Open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE((*checkpoint)->Require("model.norm.weight", {DType::kBf16}, {128}).ok());
  EXPECT_EQ((*checkpoint)->Require("model.norms.weight", {DType::kBf16}, {128}).status().message(),
            absl::StrCat(folder_, ": tensor 'model.norms.weight' is missing"));
  absl::Status status =
      (*checkpoint)->Require("model.embed_tokens.weight", {DType::kF32, DType::kF8E4m3}, {1024, 64}).status();
  EXPECT_EQ(status.message(), absl::StrCat(folder_, "/", shard1_, ": tensor 'model.embed_tokens.weight' is BF16 ",
                                           "[1024, 128], expected F32 or F8_E4M3 [1024, 64]"));
}

TEST_F(CheckpointTest, ATensorOfAnAbsentShardIsMissingWithTheShardsName) {
  const std::string at_norm =
      absl::StrCat(folder_, ": tensor 'model.norm.weight' is missing: ", index_, " puts it into ");
  const auto message_of = [&] {
    auto checkpoint = Checkpoint::Open(folder_);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return std::string((*checkpoint)->Require("model.norm.weight", {DType::kBf16}, {128}).status().message());
  };
  const std::string shard =
      absl::StrContains(Read(index_), absl::StrCat("\"model.norm.weight\":\"", shard1_)) ? shard1_ : shard2_;
  EditShard(shard, [](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [](const Tensor& tensor) { return tensor.name == "model.norm.weight"; });
  });
  EXPECT_EQ(message_of(), absl::StrCat(at_norm, shard, ", which does not hold it"));
  fs::remove(folder_ + "/" + shard);
  EXPECT_EQ(message_of(), absl::StrCat(at_norm, shard, ", which is absent"));
}

TEST_F(CheckpointTest, ModelHashDoesNotSeeShardsNorTheMtpCopies) {
  const std::string hash = (*Checkpoint::Open(folder_))->ModelHash();
  EXPECT_EQ(hash.size(), 64u);
  const std::string five = folder_ + "_five";
  MakeFolder(five, 5);
  EXPECT_EQ((*Checkpoint::Open(five))->ModelHash(), hash);
  EditShard(shard2_, [](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [](const Tensor& t) {
      return t.name == "model.layers.2.embed_tokens.weight" || t.name == "model.layers.2.shared_head.head.weight";
    });
  });
  auto without_copies = Checkpoint::Open(folder_);
  ASSERT_TRUE(without_copies.ok()) << without_copies.status();
  EXPECT_EQ((*without_copies)->num_tensors(), 188u);
  EXPECT_EQ((*without_copies)->ModelHash(), hash);
}

TEST_F(CheckpointTest, ModelHashSeesConfigNamesAndBytes) {
  const std::string hash = (*Checkpoint::Open(folder_))->ModelHash();
  const std::string config = Read("config.json");
  Write("config.json", absl::StrReplaceAll(config, {{"\"index_topk\":16", "\"index_topk\":32"}}));
  EXPECT_NE((*Checkpoint::Open(folder_))->ModelHash(), hash);
  Write("config.json", absl::StrReplaceAll(config, {{"\"use_cache\":true", "\"use_cache\":false"}}));
  EXPECT_EQ((*Checkpoint::Open(folder_))->ModelHash(), hash) << "a key that changes nothing";
  std::string changed(256, 'x');
  EditShard(shard1_, [&](std::vector<Tensor>& tensors) {
    for (Tensor& tensor : tensors) {
      if (tensor.name == "model.layers.0.input_layernorm.weight") {
        tensor.bytes = absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(changed.data()), changed.size());
      }
    }
  });
  EXPECT_NE((*Checkpoint::Open(folder_))->ModelHash(), hash);
}

}  // namespace
}  // namespace tandem::model
