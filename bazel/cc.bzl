"""House macros: every C++ target goes through these, so that warnings and flags have one owner."""

_COPTS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]

def tandem_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = _COPTS + copts, **kwargs)

def tandem_binary(name, copts = [], **kwargs):
    native.cc_binary(name = name, copts = _COPTS + copts, **kwargs)

def tandem_test(name, copts = [], deps = [], size = "small", **kwargs):
    """A GoogleTest binary. size = "small" means under a minute; larger sizes state their reason in the BUILD file."""
    native.cc_test(
        name = name,
        copts = _COPTS + copts,
        deps = deps + ["@system//:gtest_main"],
        size = size,
        **kwargs
    )
