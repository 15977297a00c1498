"""tandem_fuzz_test: one fuzz target, replayed over its corpus by plain `bazel test`, explored by libFuzzer on demand."""

load("//bazel:cc.bzl", "tandem_binary", "tandem_test")

def tandem_fuzz_test(name, src, corpus, deps, **kwargs):
    """Makes two targets of a file that defines LLVMFuzzerTestOneInput.

    <name>: a GoogleTest that runs every file of the corpus and fixed mutations of it.
    <name>_explore: a libFuzzer binary. It needs clang and everything below it instrumented:
      bazel run --config=fuzz //pkg:<name>_explore -- folder_for_new_inputs corpus_folder

    Args:
      name: ends with _fuzz_test.
      src: the .cc file.
      corpus: name of the corpus folder beside the file.
      deps: what the file needs.
      **kwargs: for the test.
    """
    tandem_test(
        name = name,
        srcs = [src, "//bazel:fuzz_replay.cc"],
        copts = ['-DTANDEM_FUZZ_CORPUS=\\"%s/%s\\"' % (native.package_name(), corpus)],
        data = native.glob([corpus + "/**"]),
        deps = deps,
        **kwargs
    )
    tandem_binary(
        name = name + "_explore",
        testonly = True,
        srcs = [src],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps,
    )
