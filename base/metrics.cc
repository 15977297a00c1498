#include "base/metrics.h"

#include <utility>

#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace tandem::base {

Metrics::Metrics(std::string role) : role_(std::move(role)), registry_(std::make_unique<prometheus::Registry>()) {}
Metrics::~Metrics() = default;

prometheus::Counter& Metrics::AddCounter(const std::string& name, const std::string& help, const MetricLabels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Labels({{"role", role_}}).Register(*registry_).Add(labels);
}

prometheus::Gauge& Metrics::AddGauge(const std::string& name, const std::string& help, const MetricLabels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Labels({{"role", role_}}).Register(*registry_).Add(labels);
}

prometheus::Histogram& Metrics::AddHistogram(const std::string& name, const std::string& help,
                                             const std::vector<double>& bucket_bounds, const MetricLabels& labels) {
  return prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Labels({{"role", role_}})
      .Register(*registry_)
      .Add(labels, bucket_bounds);
}

std::string Metrics::Expose() const { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

const std::vector<double>& LatencyBuckets() {
  static const std::vector<double>* buckets = [] {
    auto* bounds = new std::vector<double>;
    for (double bound = 0.0005; bound < 140; bound *= 2) bounds->push_back(bound);
    return bounds;
  }();
  return *buckets;
}

}  // namespace tandem::base
