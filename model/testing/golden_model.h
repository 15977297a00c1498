// For tests of the numbers: runs of the model beside those of tests/golden/model, and how far apart they are.
//
// tools/reference/README.md, Chaos, says why a layer alone is held to tight bounds and a whole model to coarse ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kvcache/kv_layout.h"
#include "model/checkpoint.h"
#include "model/tensor_tap.h"
#include "model/testing/golden.h"
#include "model/testing/micro_model.h"
#include "model/weights.h"

namespace tandem::model {

// What one file of tests/golden/model holds; the fields are those of GOLDENS in tools/reference/model_goldens.py.
struct GoldenCase {
  std::string name;
  std::string checkpoint;
  std::vector<int> contexts;
  kvcache::KvCacheDtype kv_cache_dtype = kvcache::KvCacheDtype::kFp8E4m3;
  // Where the bounds of a file without its own are: another file, and its context.
  std::string bounds_of = {};
  int bounds_context = 0;
  Noise noise = Noise::kFp32;
  std::string index_topk_pattern = {};  // Index Cache
  int64_t dense_context_max = 0;
};
inline void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.name; }

// embedding -> one layer -> final norm -> head over a whole prompt, built from the layer's own functions.
class LayerAlone final {
 public:
  // The backend outlives this.
  LayerAlone(kernels::Backend& backend, std::shared_ptr<const Checkpoint> checkpoint, int layer,
             kvcache::KvCacheDtype kv_cache_dtype);

  // A mistake made on purpose, to see that a comparison notices it.
  struct Mistake {
    std::string name;
    float softmax_scale_factor = 1;
    int num_keys_dropped = 0;    // of the index_topk that a row chooses, the least
    int rope_is_late_from = -1;  // rows from this one on are rotated as the position after theirs
    int lost_page = -1;          // its latent records are zero
  };

  // Logits of every row; stages arrive at `tap`.
  std::vector<float> Run(absl::Span<const int32_t> tokens, const TensorTap& tap) const {
    return Run(tokens, tap, Mistake());
  }
  std::vector<float> Run(absl::Span<const int32_t> tokens, const TensorTap& tap, const Mistake& mistake) const;

 private:
  kernels::Backend& backend_;
  const int layer_;
  const kvcache::KvCacheDtype kv_cache_dtype_;
  std::unique_ptr<const ModelWeights> weights_;
};

// checkpoints/tandem-tiny, the trained one, by that name; else the one of tools/make_checkpoint with seed 1.
std::shared_ptr<const Checkpoint> OpenGoldenCheckpoint(const std::string& name);

class GoldenModel final {
 public:
  // backend: outlives this; null: the host, one thread.
  explicit GoldenModel(const GoldenCase& golden_case, kernels::Backend* backend = nullptr);

  const GoldenCase& golden_case() const { return case_; }
  const Golden& golden() const { return golden_; }
  kernels::Backend& backend() const { return backend_; }
  const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }
  int vocab_size() const { return vocab_; }
  std::vector<int32_t> TokensOf(int n) const { return golden_.Ints(absl::StrCat("c", n, ".tokens")); }

  struct Comparison {
    double d = 0;              // over all stored rows
    double median_row_d = 0;   // of single rows: does not feel the few where noise makes another choice
    double kl = 0;             // mean over the stored rows
    int num_other_argmax = 0;  // of all n rows
    // Largest gap between the reference's two largest logits in a steady row with another argmax. Steady: the
    // reference's choices of experts and positions in it are beyond noise.
    double other_gap_max = 0;
  };
  // Where a comparison of n rows is beyond what a right implementation may differ by; empty where it is not.
  static std::vector<std::string> Violations(const Comparison& comparison, const RunBound& bound, int n);
  // Logits [n, vocab] against `run`'s golden rows and argmaxes. Prints a line.
  Comparison Compare(int n, const std::string& run, const std::vector<float>& logits) const;
  // The whole model over the context, compared.
  Comparison RunWhole(int n) const;

  // What noise does to the run at this context.
  RunBound BoundOf(int n, const std::string& run) const;
  // The same of a layer alone, where almost every row agrees to the last bit, so that d may be less.
  RunBound BoundOfALayerAlone(int n, const std::string& run) const;
  // Every layer alone, every context: bounds that a mistake of 2 % breaks.
  void ExpectEachLayerAloneMatches() const;
  // All layers and the MTP layer on top, every context, in chunks of 100 rows: the noise's bounds, which are within
  // the specification's. For checkpoints whose layers add little to the residual stream.
  void ExpectTheWholeOfACalmModelMatches() const;
  // The same of any checkpoint, without MTP: only what noise does to the median row and to the share of argmaxes.
  void ExpectTheWholeModelMatchesWithinNoise() const;

 private:
  TestModel BuildModel(int n) const;
  std::vector<bool> SteadyRows(int n, const std::string& run) const;

  const GoldenCase case_;
  const std::unique_ptr<kernels::Backend> own_backend_;
  kernels::Backend& backend_;
  const Golden golden_;
  const std::shared_ptr<const Checkpoint> checkpoint_;
  const int vocab_;
};

}  // namespace tandem::model
