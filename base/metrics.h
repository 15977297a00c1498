// Prometheus metrics of one service. Every series carries role="...". Names start with tandem_; each service lists all
// of its metrics, with help texts, in one metrics.h of its own. Reference-stable: the returned objects live as long
// as the Metrics. Tested by metrics_test.cc.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"

namespace prometheus {
class Registry;
}

namespace tandem::base {

using MetricLabels = std::map<std::string, std::string>;

class Metrics final {
 public:
  explicit Metrics(std::string role);
  ~Metrics();
  prometheus::Counter& AddCounter(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  prometheus::Gauge& AddGauge(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const std::vector<double>& bucket_bounds, const MetricLabels& labels = {});
  // The exposition text that /metrics answers.
  std::string Expose() const;

 private:
  const std::string role_;
  std::unique_ptr<prometheus::Registry> registry_;
};

// 0.5 ms to 131 s, each bound twice the one before: latencies in seconds.
const std::vector<double>& LatencyBuckets();

}  // namespace tandem::base
