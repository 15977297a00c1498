// What a run of so many rows takes: a line through the runs of late, seconds = fixed + each * rows.
//
// Least squares over sums that fade. Where all runs had equally many rows, rows are taken to be free: the next step
// then has other ones, and tells. Neither part is ever below 0. Tested by draft_length_test.cc.
#pragma once

namespace tandem::decode {

class RowTimes final {
 public:
  void Note(double rows, double seconds) {
    for (double* sum : {&weight_, &rows_, &seconds_, &rows_rows_, &rows_seconds_}) *sum *= kFade;
    weight_ += 1;
    rows_ += rows;
    seconds_ += seconds;
    rows_rows_ += rows * rows;
    rows_seconds_ += rows * seconds;
  }
  double each() const {
    if (weight_ == 0) return 0;
    const double spread = rows_rows_ / weight_ - mean_rows() * mean_rows();
    if (spread < 1e-3) return 0;
    const double slope = (rows_seconds_ / weight_ - mean_rows() * mean_seconds()) / spread;
    if (slope < 0) return 0;
    // A line that would be below 0 at no rows goes through the origin.
    return slope * mean_rows() > mean_seconds() ? mean_seconds() / mean_rows() : slope;
  }
  double fixed() const { return weight_ == 0 ? 0 : mean_seconds() - each() * mean_rows(); }

 private:
  static constexpr double kFade = 0.99;
  double mean_rows() const { return rows_ / weight_; }
  double mean_seconds() const { return seconds_ / weight_; }
  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_rows_ = 0, rows_seconds_ = 0;
};

}  // namespace tandem::decode
