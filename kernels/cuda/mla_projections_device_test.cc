// Proves MlaAbsorbQuery and MlaUnabsorbOutput of a device: close to the CPU's on strided heads, and a row's bits are
// its own.
#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/linear_device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int64_t kLatentDim = 512, kRopeDim = 64;

class MlaProjectionsDeviceTest : public DeviceTest {
 protected:
  // q: [rows, heads * (nope + 64)], as q_b_proj leaves it; kv_b: [heads, nope + v, 512].
  void Check(int64_t num_rows, int64_t num_heads, int64_t nope_dim, int64_t v_dim,
             const std::vector<int64_t>& row_counts) {
    const std::string shape = absl::StrCat(num_heads, " heads of ", nope_dim, " and ", v_dim);
    FastSource source(static_cast<uint32_t>(num_rows * num_heads + nope_dim));
    Tensor<Bf16, 2> q = source.NormalBf16<2>({num_rows, num_heads * (nope_dim + kRopeDim)});
    Tensor<Bf16, 3> kv_b = source.NormalBf16<3>({num_heads, nope_dim + v_dim, kLatentDim});
    for (Bf16& value : kv_b.values()) value = ToBf16(ToFloat(value) * 0.02f);
    const auto nope_of = [&](auto view) { return view.SplitLast(nope_dim + kRopeDim).Columns(0, nope_dim); };
    const auto w_uk = [&](Cube<const Bf16> all) {
      all.shape[1] = nope_dim;
      return all;
    };
    const auto w_uv = [&](Cube<const Bf16> all) {
      all.data += nope_dim * kLatentDim;
      all.shape[1] = v_dim;
      return all;
    };
    Tensor<Bf16, 3> latent({num_rows, num_heads, kLatentDim}), out({num_rows, num_heads, v_dim});
    ThreadPool threads(NumUsableProcessors());
    ASSERT_TRUE(
        kernels::MlaAbsorbQuery(
            {.q_nope = nope_of(Matrix<const Bf16>(q)), .w_uk = w_uk(kv_b), .q_latent = latent, .threads = &threads})
            .ok());
    ASSERT_TRUE(
        kernels::MlaUnabsorbOutput({.latent_out = latent, .w_uv = w_uv(kv_b), .out = out, .threads = &threads}).ok());

    DeviceTensor<Bf16, 2> device_q = Upload(q);
    DeviceTensor<Bf16, 3> device_kv_b = Upload(kv_b), device_in = Upload(latent);
    const auto absorb = [&](int64_t begin, int64_t count) {
      DeviceTensor<Bf16, 3> y = Output<Bf16, 3>({count, num_heads, kLatentDim}, {.row_gap = 64});
      RunOp(MlaAbsorbQuery(stream(), {.q_nope = nope_of(Matrix<const Bf16>(device_q.view().Slice(begin, count))),
                                      .w_uk = w_uk(device_kv_b),
                                      .q_latent = y}));
      return y.Download();
    };
    const auto unabsorb = [&](int64_t begin, int64_t count) {
      DeviceTensor<Bf16, 3> y = Output<Bf16, 3>({count, num_heads, v_dim});
      RunOp(MlaUnabsorbOutput(
          stream(), {.latent_out = device_in.view().Slice(begin, count), .w_uv = w_uv(device_kv_b), .out = y}));
      return y.Download();
    };
    // The sums of the CPU before rounding are within 1e-6 of these; sizes are about 0.02 * sqrt(dim).
    Tensor<Bf16, 3> all_latent = absorb(0, num_rows), all_out = unabsorb(0, num_rows);
    ExpectClose(absl::StrCat("MlaAbsorbQuery ", shape), all_latent, latent,
                {.abs = 1e-5, .rel = 0x1p-7, .min_cosine = 1 - 1e-5});
    ExpectClose(absl::StrCat("MlaUnabsorbOutput ", shape), all_out, out,
                {.abs = 1e-5, .rel = 0x1p-7, .min_cosine = 1 - 1e-5});
    for (const int64_t count : row_counts) {
      std::vector<int32_t> rows(static_cast<size_t>(count));
      std::iota(rows.begin(), rows.end(), static_cast<int32_t>(num_rows - count));
      Tensor<Bf16, 3> expected = PickRows(all_latent, rows);
      ExpectSameBits(absl::StrCat("MlaAbsorbQuery ", shape, " the last ", count, " rows alone"),
                     absorb(num_rows - count, count), expected);
      Tensor<Bf16, 3> expected_out = PickRows(all_out, rows);
      ExpectSameBits(absl::StrCat("MlaUnabsorbOutput ", shape, " the last ", count, " rows alone"),
                     unabsorb(num_rows - count, count), expected_out);
    }
  }
};

TEST_F(MlaProjectionsDeviceTest, AreCloseToTheCpuAndARowsBitsAreItsOwn) {
  Check(150, 8, 128, 128, {0, 1, 2, 3, 7, 8, 16, 33, 64, 100, 128});
  Check(70, 3, 48, 40, {1, 2, 65});
  Check(9, 1, 16, 1, {1, 8});
  Check(130, 128, 128, 128, {1, 16, 64});
}

TEST_F(MlaProjectionsDeviceTest, NanStaysInItsRowAndHead) {
  FastSource source(5);
  Tensor<Bf16, 3> latent = source.NormalBf16<3>({5, 2, kLatentDim}), w_uv = source.NormalBf16<3>({2, 16, kLatentDim});
  DeviceTensor<Bf16, 3> device_latent = Upload(latent), device_w = Upload(w_uv);
  const auto run = [&] {
    DeviceTensor<Bf16, 3> y = Output<Bf16, 3>({5, 2, 16});
    RunOp(MlaUnabsorbOutput(stream(), {.latent_out = device_latent, .w_uv = device_w, .out = y}));
    return y.Download();
  };
  Tensor<Bf16, 3> expected = run();
  latent.at(3, 1, 500) = Bf16{0x7fc0};
  device_latent.Upload(latent);
  for (int64_t i = 0; i < 16; ++i) expected.at(3, 1, i) = Bf16{0x7fc0};
  ExpectSameBits("MlaUnabsorbOutput with NaN in row 3, head 1", run(), expected);
}

}  // namespace
}  // namespace tandem::kernels::cuda
