// oneDNN's BF16 matrix product at one shape, weights in the layout that it chooses itself, rotated beyond the last
// cache.
//
//   onednn_peer OUT_DIM IN_DIM ROWS RUNS     prints the best seconds; threads by OMP_NUM_THREADS
//
// A peer of //tools/bench/ops, no part of the build: peers.py compiles and runs it where Debian's libdnnl-dev is
// installed. oneDNN has no FP8 weights on this machine, so it reads twice our bytes; the order of its sums is free.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <vector>

namespace {

constexpr int64_t kRotatedBytes = int64_t{256} << 20;

void Fill(const dnnl::memory& memory, size_t bytes) {
  auto* values = static_cast<uint16_t*>(memory.get_data_handle());
  uint32_t state = 1;
  for (size_t i = 0; i < bytes / 2; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    values[i] = static_cast<uint16_t>(bits >> 16);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: onednn_peer OUT_DIM IN_DIM ROWS RUNS\n");
    return 2;
  }
  const int64_t n = std::atoll(argv[1]), k = std::atoll(argv[2]), m = std::atoll(argv[3]);
  const int runs = std::atoi(argv[4]);
  using Type = dnnl::memory::data_type;
  using Tag = dnnl::memory::format_tag;
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::desc x_desc({m, k}, Type::bf16, Tag::ab), y_desc({m, n}, Type::bf16, Tag::ab),
      any({k, n}, Type::bf16, Tag::any);
  const dnnl::matmul::primitive_desc primitive_desc({x_desc, any, y_desc}, engine);
  const dnnl::matmul matmul(primitive_desc);
  const dnnl::memory x(x_desc, engine), y(y_desc, engine);
  Fill(x, x_desc.get_size());
  const dnnl::memory::desc w_desc = primitive_desc.weights_desc();
  std::vector<dnnl::memory> weights;
  for (int64_t i = 0; i < kRotatedBytes / (2 * n * k) + 1; ++i) {
    weights.emplace_back(w_desc, engine);
    Fill(weights.back(), w_desc.get_size());
  }
  double best = 1e9;
  for (int run = 0; run <= runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    matmul.execute(stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, weights[run % weights.size()]}, {DNNL_ARG_DST, y}});
    stream.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (run > 0) best = std::min(best, took.count());
  }
  std::printf("%.9f\n", best);
  return 0;
}
