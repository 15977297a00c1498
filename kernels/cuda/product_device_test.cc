// Proves what lets a product choose its tiles by the number of rows: every shape of tiles gives the same bits.
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/linear_device_testing.h"
#include "kernels/cuda/product.cuh"
#include "kernels/op_testing.h"

namespace tandem::kernels::cuda {
namespace {

class ProductDeviceTest : public DeviceTest {
 protected:
  template <typename T>
  void Check(const std::string& what, ProductKind kind, ProductTask task) {
    std::optional<Tensor<T, 2>> first;
    for (task.shape = 0;; ++task.shape) {
      DeviceTensor<T, 2> y = Output<T, 2>({task.num_rows, task.out_dim});
      task.y = y.view().data;
      task.y_stride = task.out_dim * int64_t{sizeof(T)};
      const absl::Status status = LaunchProduct(stream(), what, kind, task);
      if (absl::IsOutOfRange(status)) break;
      RunOp(status);
      Tensor<T, 2> now = y.Download();
      if (!first.has_value()) {
        first = std::move(now);
      } else {
        ExpectSameBits(absl::StrCat(what, " M=", task.num_rows, " of tile shape ", task.shape, " against shape 0"),
                       std::move(now), *first);
      }
    }
    EXPECT_GE(task.shape, 6) << what;
  }

  void CheckE4m3(int64_t num_rows, int64_t out_dim, int64_t in_dim, int segments) {
    FastSource source(static_cast<uint32_t>(num_rows + in_dim));
    Tensor<E4m3, 2> x = source.NormalE4m3<2>({num_rows, in_dim}), w = source.NormalE4m3<2>({out_dim, in_dim});
    Tensor<float, 2> x_scale = source.Scales({num_rows, in_dim / 128}, ScaleFormat::kFloat32);
    Tensor<float, 2> w_scale = source.Scales({(out_dim + 127) / 128, in_dim / 128}, ScaleFormat::kFloat32);
    DeviceTensor<E4m3, 2> device_x = Upload(x), device_w = Upload(w);
    DeviceTensor<float, 2> device_x_scale = Upload(x_scale), device_w_scale = Upload(w_scale);
    Check<Bf16>(absl::StrCat("E4M3 ", out_dim, "x", in_dim, " S=", segments), ProductKind::kE4m3ToBf16,
                {.x = reinterpret_cast<const uint8_t*>(device_x.view().data),
                 .x_stride = in_dim,
                 .x_scale = device_x_scale.view().data,
                 .x_scale_stride = in_dim / 128,
                 .w = reinterpret_cast<const uint8_t*>(device_w.view().data),
                 .w_stride = in_dim,
                 .w_scale = device_w_scale.view().data,
                 .w_scale_stride = in_dim / 128,
                 .num_rows = num_rows,
                 .out_dim = out_dim,
                 .in_bytes = in_dim,
                 .k_segments = segments});
  }
  template <typename T>
  void CheckBf16(ProductKind kind, int64_t num_rows, int64_t out_dim, int64_t in_dim, int segments) {
    FastSource source(static_cast<uint32_t>(num_rows + in_dim));
    Tensor<Bf16, 2> x = source.NormalBf16<2>({num_rows, in_dim}), w = source.NormalBf16<2>({out_dim, in_dim});
    DeviceTensor<Bf16, 2> device_x = Upload(x), device_w = Upload(w);
    Check<T>(absl::StrCat("BF16 ", out_dim, "x", in_dim, " S=", segments), kind,
             {.x = reinterpret_cast<const uint8_t*>(device_x.view().data),
              .x_stride = in_dim * 2,
              .w = reinterpret_cast<const uint8_t*>(device_w.view().data),
              .w_stride = in_dim * 2,
              .num_rows = num_rows,
              .out_dim = out_dim,
              .in_bytes = in_dim * 2,
              .k_segments = segments});
  }
};

TEST_F(ProductDeviceTest, EveryTileShapeGivesTheSameBits) {
  for (const int64_t num_rows : {1, 8, 17, 130, 300}) {
    CheckE4m3(num_rows, 700, 128, 1);
    CheckE4m3(num_rows, 1001, 1664, 1);
    CheckE4m3(num_rows, 2112, 7168, 1);
    CheckE4m3(num_rows, 1001, 1280, 2);
    CheckE4m3(num_rows, 1001, 1536, 4);
    CheckE4m3(num_rows, 7168, 2048, 8);
    CheckBf16<Bf16>(ProductKind::kBf16ToBf16, num_rows, 1001, 1040, 1);
    CheckBf16<Bf16>(ProductKind::kBf16ToBf16, num_rows, 1001, 1024, 8);
    CheckBf16<float>(ProductKind::kBf16ToF32, num_rows, 1001, 1040, 1);
  }
}

// Every path in little work: for racecheck.
TEST_F(ProductDeviceTest, SmallCasesOfEveryTileShape) {
  for (const int64_t num_rows : {1, 130}) {
    CheckE4m3(num_rows, 700, 1280, 1);
    CheckE4m3(num_rows, 70, 2048, 8);  // two steps a segment
    CheckE4m3(num_rows, 70, 1024, 8);
    CheckBf16<Bf16>(ProductKind::kBf16ToBf16, num_rows, 700, 272, 1);
  }
}

}  // namespace
}  // namespace tandem::kernels::cuda
