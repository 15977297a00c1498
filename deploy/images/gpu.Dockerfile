# NOT RUN. The three services on NVIDIA's CUDA base, for when the CUDA backend is there: the binaries of today compute on
# the CPU and need none of these libraries.
#   docker build -f deploy/images/gpu.Dockerfile -t tandem-gpu:0.1.0 .
# Built on Debian 12 like the CPU image: its C library is the older of the two, so that the bundle runs on either.
# cuBLASLt and NCCL come from the base's packages, never from the bundle.
FROM debian:12 AS build
COPY . /src
WORKDIR /src
RUN tools/install_packages.sh \
 && bazel build //router //prefill_worker //decode_worker \
 && python3 tools/bundle/make_bundle.py --bin_dir "$(bazel info bazel-bin)" --version 0.1.0 --out /tandem.tar.gz \
 && tar -xzf /tandem.tar.gz -C /opt

FROM nvidia/cuda:12.8.1-base-ubuntu24.04
LABEL org.opencontainers.image.title="tandem-gpu" \
      org.opencontainers.image.description="Disaggregated serving of DeepSeek-V3.2: router, prefill worker, decode worker" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install -y --no-install-recommends libcublas-12-8 libnccl2 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/tandem /opt/tandem
USER 65532:65532
EXPOSE 8000 8101 8102 8997 8998 9101 9102
CMD ["/opt/tandem/bin/router", "--help"]
