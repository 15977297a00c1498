"""House macros: every C++ target goes through these, so that warnings and flags have one owner."""

# Designated initialisers leave out what has a default.
_COPTS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]

# The services find the libraries that tools/bundle lays beside them; the old kind of tag also holds for what these need.
# Functions that came out alike are kept once, where nobody asks for their addresses.
BUNDLE_LINKOPTS = ["-Wl,-rpath,$$ORIGIN/../lib,--disable-new-dtags", "-Wl,--icf=safe"]

def tandem_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = _COPTS + copts, **kwargs)

def tandem_binary(name, copts = [], **kwargs):
    native.cc_binary(name = name, copts = _COPTS + copts, **kwargs)

def tandem_test(name, copts = [], deps = [], size = "small", **kwargs):
    """A GoogleTest binary. size = "small" means under a minute; larger sizes state their reason in the BUILD file."""
    # Static: gold's --as-needed drops an Abseil library that only our own shared objects would need.
    kwargs.setdefault("linkstatic", True)
    native.cc_test(
        name = name,
        copts = _COPTS + copts,
        deps = deps + ["@system//:gtest_main"],
        size = size,
        **kwargs
    )
