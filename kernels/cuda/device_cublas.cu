// cuBLASLt is column-major: its A is our w (transposed), its B our x, its D our y.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/device_cublas.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = 64 << 20;

// The functions of the library that are called here.
struct Library {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) create_desc;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithm;
  decltype(&cublasLtMatmul) matmul;
};

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

absl::StatusOr<Library> Load() {
  void* library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("/usr/local/cuda/lib64/libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::UnavailableError(absl::StrCat("no cuBLASLt: ", dlerror()));
  Library found;
  const bool is_complete = Find(library, "cublasLtCreate", found.create) &&
                           Find(library, "cublasLtMatmulDescCreate", found.create_desc) &&
                           Find(library, "cublasLtMatmulDescSetAttribute", found.set_desc) &&
                           Find(library, "cublasLtMatrixLayoutCreate", found.create_layout) &&
                           Find(library, "cublasLtMatmulPreferenceCreate", found.create_preference) &&
                           Find(library, "cublasLtMatmulPreferenceSetAttribute", found.set_preference) &&
                           Find(library, "cublasLtMatmulAlgoGetHeuristic", found.find_algorithm) &&
                           Find(library, "cublasLtMatmul", found.matmul);
  if (!is_complete) return absl::UnavailableError("cuBLASLt lacks a function");
  return found;
}

absl::Status Checked(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": cuBLAS status ", static_cast<int>(status)));
}

}  // namespace

struct CublasProduct::State {
  Library library;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulHeuristicResult_t algorithm = {};
  DeviceMemory workspace;
  bool has_scales = false;
};

CublasProduct::CublasProduct(std::unique_ptr<State> state) : state_(std::move(state)) {}
CublasProduct::CublasProduct(CublasProduct&&) noexcept = default;
// What the library made lives as long as the program, which times a few shapes and ends.
CublasProduct::~CublasProduct() = default;

absl::StatusOr<CublasProduct> CublasProduct::Plan(Format format, int64_t num_rows, int64_t out_dim, int64_t in_dim) {
  auto state = std::make_unique<State>();
  ASSIGN_OR_RETURN(state->library, Load());
  ASSIGN_OR_RETURN(state->workspace, DeviceMemory::Allocate(kWorkspaceBytes));
  const Library& library = state->library;
  const cudaDataType_t in = format == Format::kE4m3 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  const cudaDataType_t out = format == Format::kBf16ToF32 ? CUDA_R_32F : CUDA_R_16BF;
  RETURN_IF_ERROR(Checked(library.create(&state->handle), "cublasLtCreate"));
  RETURN_IF_ERROR(Checked(library.create_desc(&state->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description"));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return Checked(library.set_desc(state->desc, attribute, &value, sizeof(value)), "attribute of a description");
  };
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N));
  state->has_scales = format == Format::kE4m3;
  if (state->has_scales) {
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F));
    // The choice of an algorithm wants to see addresses.
    const void* some = state->workspace.data();
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, some));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, some));
  }
  RETURN_IF_ERROR(Checked(library.create_layout(&state->a, in, in_dim, out_dim, in_dim), "layout of w"));
  RETURN_IF_ERROR(Checked(library.create_layout(&state->b, in, in_dim, num_rows, in_dim), "layout of x"));
  RETURN_IF_ERROR(Checked(library.create_layout(&state->d, out, out_dim, num_rows, out_dim), "layout of y"));
  cublasLtMatmulPreference_t preference = nullptr;
  RETURN_IF_ERROR(Checked(library.create_preference(&preference), "preference"));
  const uint64_t bytes = kWorkspaceBytes;
  RETURN_IF_ERROR(
      Checked(library.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
              "preference"));
  int found = 0;
  RETURN_IF_ERROR(Checked(library.find_algorithm(state->handle, state->desc, state->a, state->b, state->d, state->d,
                                                 preference, 1, &state->algorithm, &found),
                          "cublasLtMatmulAlgoGetHeuristic"));
  if (found == 0) return absl::InternalError("cuBLASLt has no algorithm for the shape");
  return CublasProduct(std::move(state));
}

absl::Status CublasProduct::Launch(Stream stream, const void* x, const float* x_scale, const void* w,
                                   const float* w_scale, void* y) {
  const Library& library = state_->library;
  if (state_->has_scales) {
    RETURN_IF_ERROR(
        Checked(library.set_desc(state_->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &w_scale, sizeof(w_scale)),
                "scales of w"));
    RETURN_IF_ERROR(
        Checked(library.set_desc(state_->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x_scale, sizeof(x_scale)),
                "scales of x"));
  }
  const float one = 1, zero = 0;
  return Checked(library.matmul(state_->handle, state_->desc, &one, w, state_->a, x, state_->b, &zero, y, state_->d, y,
                                state_->d, &state_->algorithm.algo, state_->workspace.data(), kWorkspaceBytes, stream),
                 "cublasLtMatmul");
}

}  // namespace tandem::kernels::cuda
