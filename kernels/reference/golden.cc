#include "kernels/reference/golden.h"

#include <fstream>
#include <sstream>

#include "boost/json.hpp"

namespace tandem::kernels {
namespace {

constexpr char kFolder[] = "tests/golden/ops/";  // below the runfiles root, where tests start

std::unique_ptr<model::SafetensorsFile> OpenFile(const std::string& op) {
  auto file = model::SafetensorsFile::Open(kFolder + op + ".safetensors");
  TANDEM_CHECK(file.ok(), file.status().ToString());
  return *std::move(file);
}

}  // namespace

class GoldenOp::Manifest {
 public:
  explicit Manifest(const std::string& op) {
    std::ifstream file(std::string(kFolder) + "manifest.json");
    std::stringstream text;
    text << file.rdbuf();
    boost::json::error_code error;
    root_ = boost::json::parse(text.str(), error);
    TANDEM_CHECK(!error, "manifest.json: " + error.message());
    op_ = &root_.as_object().at("ops").as_object().at(op).as_object();
  }
  const boost::json::object& cases() const { return op_->at("cases").as_object(); }
  const boost::json::object& outputs() const { return op_->at("outputs").as_object(); }

 private:
  boost::json::value root_;
  const boost::json::object* op_ = nullptr;
};

GoldenOp::GoldenOp(const std::string& op) : file_(OpenFile(op)), manifest_(std::make_unique<Manifest>(op)) {
  for (const auto& entry : manifest_->cases()) cases_.emplace_back(entry.key());
}

GoldenOp::~GoldenOp() = default;

bool GoldenOp::Has(const std::string& case_name, const std::string& tensor) const {
  return file_->Find(case_name + "." + tensor) != nullptr;
}

double GoldenOp::Number(const std::string& case_name, const std::string& parameter) const {
  const boost::json::value& value = manifest_->cases().at(case_name).as_object().at(parameter);
  return value.is_bool() ? value.as_bool() : value.to_number<double>();
}

std::string GoldenOp::Text(const std::string& case_name, const std::string& parameter) const {
  return std::string(manifest_->cases().at(case_name).as_object().at(parameter).as_string());
}

const model::Tensor& GoldenOp::Find(const std::string& case_name, const std::string& tensor) const {
  const model::Tensor* stored = file_->Find(case_name + "." + tensor);
  TANDEM_CHECK(stored != nullptr, case_name + "." + tensor + " is not in " + file_->path());
  return *stored;
}

GoldenTolerance GoldenOp::Tolerance(const std::string& output) const {
  const boost::json::object& entry = manifest_->outputs().at(output).as_object();
  const std::string metric(entry.at("metric").as_string());
  const auto number = [&](const char* key) { return entry.contains(key) ? entry.at(key).to_number<double>() : 0.0; };
  const std::pair<const char*, GoldenMetric> names[] = {{"exact", GoldenMetric::kExact},
                                                        {"bf16_ulp", GoldenMetric::kBf16Ulp},
                                                        {"rel", GoldenMetric::kRelative},
                                                        {"max_abs", GoldenMetric::kMaxAbs},
                                                        {"d", GoldenMetric::kDistance}};
  for (const auto& [name, value] : names) {
    if (metric == name) return {value, number("bound"), number("atol")};
  }
  base::CheckFailed(__FILE__, __LINE__, "a known metric", metric);
}

void GoldenOp::Compare(const std::string& what, const GoldenTolerance& tolerance, const std::vector<double>& actual,
                       const std::vector<double>& expected) {
  if (tolerance.metric == GoldenMetric::kDistance) {
    EXPECT_LE(Difference(actual, expected), tolerance.bound) << what;
    return;
  }
  double largest = 0;
  for (double value : expected) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    bool is_close = actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]));
    switch (tolerance.metric) {
      case GoldenMetric::kBf16Ulp:
        is_close = is_close || error <= tolerance.atol ||
                   UlpDistance(ToBf16(static_cast<float>(actual[i])), ToBf16(static_cast<float>(expected[i]))) <=
                       tolerance.bound;
        break;
      case GoldenMetric::kRelative:
        is_close = is_close || error <= tolerance.bound * std::abs(expected[i]) + tolerance.atol;
        break;
      case GoldenMetric::kMaxAbs:
        is_close = is_close || error <= tolerance.bound * largest;
        break;
      default:
        break;
    }
    EXPECT_TRUE(is_close) << what << " element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

}  // namespace tandem::kernels
