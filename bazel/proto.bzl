"""tandem_proto: C++ messages and gRPC stubs of one .proto file, made by Debian's protoc."""

def tandem_proto(name, src, deps = [], visibility = ["//visibility:public"]):
    base = src[:-len(".proto")]
    native.genrule(
        name = name + "_gen",
        srcs = [src] + [d + "_src" for d in deps],
        outs = [base + x for x in [".pb.h", ".pb.cc", ".grpc.pb.h", ".grpc.pb.cc"]],
        cmd = "protoc -I. --cpp_out=$(GENDIR) --grpc_out=$(GENDIR) " +
              "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin $(location %s)" % src,
    )
    native.filegroup(name = name + "_src", srcs = [src], visibility = ["//proto:__pkg__"])
    native.cc_library(
        name = name,
        srcs = [base + ".pb.cc", base + ".grpc.pb.cc"],
        hdrs = [base + ".pb.h", base + ".grpc.pb.h"],
        deps = deps + ["@system//:grpc"],
        visibility = visibility,
    )
