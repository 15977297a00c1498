"""Finds the CUDA toolkit and NCCL; where there is none, @cuda says so and everything else still builds."""

def _linkopts(root, libs):
    return ["-L%s/lib" % root, "-L%s/lib64" % root] + libs + ["-Wl,-rpath,%s/lib:%s/lib64" % (root, root)]

def _impl(ctx):
    root = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = ctx.path(root + "/bin/nvcc")
    found = nvcc.exists
    nccl_found = found and ctx.path(root + "/include/nccl.h").exists
    ctx.file("defs.bzl", "CUDA_FOUND = %s\nNCCL_FOUND = %s\nNVCC = %r\nCUDA_ROOT = %r\n" % (
        found,
        nccl_found,
        str(nvcc),
        root,
    ))
    ctx.file("BUILD", """package(default_visibility = ["//visibility:public"])
cc_library(name = "cudart", linkopts = %r)
cc_library(name = "nccl", linkopts = %r, deps = [":cudart"])
""" % (_linkopts(root, ["-lcudart_static", "-ldl", "-lrt", "-lpthread"]) if found else [], _linkopts(root, ["-lnccl"]) if nccl_found else []))

cuda_repository = repository_rule(implementation = _impl, environ = ["CUDA_HOME"], local = True)
