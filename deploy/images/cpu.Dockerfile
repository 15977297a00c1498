# The three services on Debian 12, for machines without a GPU, with the tiny checkpoint.
#   docker build -f deploy/images/cpu.Dockerfile -t tandem-cpu:0.1.0 .
# Read-only and without root by itself: nothing is written below /, no port is below 1024. What is inside stands in
# /opt/tandem/sbom.spdx.json. The same bundle, unpacked in a root with nothing else, is what tests/bundle starts.
FROM debian:12 AS build
COPY . /src
WORKDIR /src
RUN tools/install_packages.sh \
 && bazel build //router //prefill_worker //decode_worker \
 && python3 tools/bundle/make_bundle.py --bin_dir "$(bazel info bazel-bin)" --version 0.1.0 \
      --checkpoint checkpoints/tandem-tiny --out /tandem.tar.gz \
 && tar -xzf /tandem.tar.gz -C /opt

FROM debian:12-slim
LABEL org.opencontainers.image.title="tandem-cpu" \
      org.opencontainers.image.description="Disaggregated serving of DeepSeek-V3.2: router, prefill worker, decode worker" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/tandem /opt/tandem
USER 65532:65532
EXPOSE 8000 8101 8102 8997 8998 9101 9102
CMD ["/opt/tandem/bin/router", "--help"]
