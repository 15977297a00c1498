"""Tests and benchmarks of ops on a CUDA device. They build and run everywhere; without a device they say so."""

load("//bazel:cc.bzl", "tandem_binary", "tandem_test")

def device_test(name, srcs, deps = []):
    """A GoogleTest binary that compares ops of kernels/cuda with those of kernels on the host.

    It builds and runs everywhere; where there is no device each test skips and says why. One that had a device to run
    on is not the same run as one without: the tag keeps a remembered result from standing in for it.

    Args:
      name: ends with _device_test.
      srcs: .cc files.
      deps: what they need besides the ops, device_testing and the host's ops.
    """
    tandem_test(
        name = name,
        srcs = srcs,
        tags = ["device", "external"],
        deps = deps + [
            "//kernels/cuda:device_testing",
            "//kernels/cuda:ops",
            "//kernels:op_testing",
            "//kernels:ops",
            "@system//:absl",
        ],
    )

def device_benchmark(name, srcs, deps = []):
    """A program of kernels/cuda/device_benchmark.h.

    Args:
      name: ends with _benchmark.
      srcs: .cc files.
      deps: what they need besides the ops and device_benchmark.
    """
    tandem_binary(
        name = name,
        testonly = True,
        srcs = srcs,
        deps = deps + [
            "//kernels/cuda:device_benchmark",
            "//kernels/cuda:ops",
            "//kernels:ops_h",
            "@system//:absl",
        ],
    )
