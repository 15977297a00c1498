// Proves that the reader gives back what the writer wrote, that every malformed header is refused with the file and
// the tensor in the message, and that no damaged file is read outside its bytes (each truncation and many random
// mutations; run with --config=asan to make the latter strict).
#include "model/safetensors.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem::model {
namespace {

std::string TempPath(const std::string& name) { return absl::StrCat(::testing::TempDir(), "/", name); }

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A container with this header text and this many zero bytes of data.
std::string Container(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(data_bytes, '\0');
}

absl::Status OpenStatus(const std::string& bytes) {
  const std::string path = TempPath("case.safetensors");
  WriteBytes(path, bytes);
  return SafetensorsFile::Open(path).status();
}

TEST(SafetensorsTest, ReadsBackWhatWasWritten) {
  const std::vector<uint8_t> a = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<uint8_t> b = {9};
  const std::vector<Tensor> tensors = {
      {"layer.weight", DType::kBf16, {2, 2}, a}, {"scalar", DType::kF8E4m3, {}, b}, {"empty", DType::kF32, {0, 7}, {}}};
  const std::string path = TempPath("roundtrip.safetensors");
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}};
  ASSERT_TRUE(WriteSafetensors(path, tensors, metadata).ok());
  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().size(), 3u);
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  for (const Tensor& written : tensors) {
    const Tensor* read = (*file)->Find(written.name);
    ASSERT_NE(read, nullptr) << written.name;
    EXPECT_EQ(read->dtype, written.dtype);
    EXPECT_EQ(read->shape, written.shape);
    EXPECT_EQ(read->bytes, written.bytes);
  }
  EXPECT_EQ((*file)->Find("absent"), nullptr);
  const std::string bytes = ReadBytes(path);
  EXPECT_EQ((8 + static_cast<uint8_t>(bytes[0])) % 8, 0) << "data starts at a multiple of 8";
}

TEST(SafetensorsTest, AcceptsSpacesAfterTheHeaderAndEntriesInAnyOrder) {
  EXPECT_TRUE(OpenStatus(Container(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]},)"
                                   R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )",
                                   6))
                  .ok());
  EXPECT_TRUE(OpenStatus(Container("{}", 0)).ok());
}

TEST(SafetensorsTest, AcceptsTwoFourBitElementsInAByteButNotHalfAByte) {
  EXPECT_TRUE(OpenStatus(Container(R"({"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", 3)).ok());
  EXPECT_FALSE(OpenStatus(Container(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1)).ok());
}

TEST(SafetensorsTest, RefusesMalformedHeadersNamingFileAndTensor) {
  struct Case {
    const char* header;
    size_t data_bytes;
    const char* message;
  };
  const Case cases[] = {
      {R"([])", 0, "does not start with '{'"},
      {R"({)", 0, "not JSON"},
      {R"({"a":1})", 0, "tensor 'a': its entry is not an object"},
      {R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "tensor 'a': dtype is missing"},
      {R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}})", 1, "tensor 'a': dtype 'F7' is not known"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "tensor 'a': shape is missing"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "something that is not a size"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "something that is not a size"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "not a pair"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "not a range"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1, "not a range"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "ends at byte 2 of the data, which has 1"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "F32 [2] does not fill its 4 bytes"},
      {R"({"a":{"dtype":"U8","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "does not fill"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807,9223372036854775807],"data_offsets":[0,1]}})", 1,
       "not a size"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, "9 dimensions, limit 8"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensor 'b': begins at byte 1 of the data, inside the tensor before it"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
       5, "tensor 'b': begins at byte 3 of the data, leaving a hole from 2"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3, "tensors end at byte 2 of 3"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2, "key 'a' appears twice"},
      {R"({"__metadata__":{"format":1}})", 0, "__metadata__"},
      {R"({"a\nb":1})", 0, "tensor 'a\\nb': its entry"},
  };
  for (const Case& c : cases) {
    absl::Status status = OpenStatus(Container(c.header, c.data_bytes));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.header;
    EXPECT_NE(status.message().find(c.message), std::string::npos) << c.header << " gave " << status;
    EXPECT_NE(status.message().find("case.safetensors"), std::string::npos) << status;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  }
}

TEST(SafetensorsTest, RefusesAbsentShortAndHugeHeaderFiles) {
  EXPECT_EQ(SafetensorsFile::Open("/nonexistent/x.safetensors").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(::testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(OpenStatus("1234567").message().find("too short"), std::string::npos);
  std::string huge = Container("{}", 0);
  huge[4] = 1;  // 4 GiB
  EXPECT_NE(OpenStatus(huge).message().find("limit 100000000"), std::string::npos);
  std::string longer = Container("{}", 0);
  longer[0] = 3;
  EXPECT_NE(OpenStatus(longer).message().find("cut short"), std::string::npos);
}

class DamagedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<uint8_t> data(24);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i);
    const absl::Span<const uint8_t> span(data);
    const std::vector<Tensor> tensors = {{"x.weight", DType::kBf16, {2, 4}, span.subspan(0, 16)},
                                         {"x.weight_scale_inv", DType::kF32, {2, 1}, span.subspan(16, 8)}};
    const std::string path = TempPath("whole.safetensors");
    ASSERT_TRUE(WriteSafetensors(path, tensors, {}).ok());
    bytes_ = ReadBytes(path);
  }
  std::string bytes_;
};

TEST_F(DamagedFileTest, EveryTruncationIsRefused) {
  for (size_t length = 0; length < bytes_.size(); ++length) {
    EXPECT_FALSE(OpenStatus(bytes_.substr(0, length)).ok()) << length;
  }
  EXPECT_TRUE(OpenStatus(bytes_).ok());
}

TEST_F(DamagedFileTest, AMutatedFileIsRefusedOrItsTensorsLieInTheFile) {
  std::mt19937 random(7);
  const std::string path = TempPath("mutated.safetensors");
  int num_accepted = 0;
  for (int round = 0; round < 800; ++round) {
    std::string mutated = bytes_;
    for (int i = 0, n = 1 + static_cast<int>(random() % 3); i < n; ++i) {
      mutated[random() % mutated.size()] = static_cast<char>(random() % 3 == 0 ? random() : '0' + random() % 10);
    }
    WriteBytes(path, mutated);
    auto file = SafetensorsFile::Open(path);
    if (!file.ok()) continue;
    ++num_accepted;
    size_t total = 0;
    uint64_t sum = 0;
    for (const Tensor& tensor : (*file)->tensors()) {
      total += tensor.bytes.size();
      for (uint8_t byte : tensor.bytes) sum += byte;
    }
    EXPECT_LE(total, mutated.size()) << sum;
  }
  EXPECT_GT(num_accepted, 25) << "mutations of data bytes and of names leave a valid file";
}

TEST(WriteSafetensorsTest, RefusesWhatItCouldNotReadBack) {
  const std::vector<uint8_t> bytes(4);
  const std::string path = TempPath("refused.safetensors");
  const std::vector<Tensor> wrong_size = {{"a", DType::kF32, {2}, bytes}};
  EXPECT_EQ(WriteSafetensors(path, wrong_size, {}).code(), absl::StatusCode::kInvalidArgument);
  const std::vector<Tensor> twice = {{"a", DType::kF32, {1}, bytes}, {"a", DType::kF32, {1}, bytes}};
  EXPECT_EQ(WriteSafetensors(path, twice, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteSafetensors("/nonexistent/dir/a.safetensors", {}, {}).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem::model
