"""cuda_library: .cu files that nvcc compiles for Hopper; where CUDA is absent, the `otherwise` sources instead."""

load("@cuda//:defs.bzl", "CUDA_FOUND", "NVCC")
load("//bazel:cc.bzl", "tandem_library")

# One real architecture: sm_90a (H100, H200), its code compressed to a third of what nvcc makes by itself. -fmad=false has
# no place here: CUDA's bits are its own.
_NVCC_FLAGS = "-std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a --compress-mode=size -Xcompiler -fPIC,-Wall -Werror all-warnings"

def cuda_library(name, srcs, otherwise, hdrs = [], textual_hdrs = [], deps = [], visibility = None):
    """A library with one interface and two bodies.

    Args:
      name: of the target.
      srcs: .cu files, used where the machine has CUDA.
      otherwise: .cc files that define the same functions without CUDA.
      hdrs: the interface.
      textual_hdrs: further headers of ours that the .cu files include; a change of them compiles again.
      deps: C++ targets.
      visibility: as everywhere.
    """
    objects = []
    if CUDA_FOUND:
        for src in srcs:
            out = src[:-len(".cu")] + ".cu.o"
            native.genrule(
                name = name + "_" + out.replace("/", "_"),
                srcs = [src] + hdrs + textual_hdrs,
                outs = [out],
                cmd = "%s %s -I. -c $(location %s) -o $@" % (NVCC, _NVCC_FLAGS, src),
            )
            objects.append(out)
    tandem_library(
        name = name,
        srcs = objects if CUDA_FOUND else otherwise,
        hdrs = hdrs,
        visibility = visibility,
        deps = deps + ["@cuda//:cudart"],
    )
