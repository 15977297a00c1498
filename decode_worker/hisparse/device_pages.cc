#include "decode_worker/hisparse/device_pages.h"

namespace tandem::decode {

bool DevicePagePlan::Take(int sequence, int num_pages, int end) {
  int64_t num_within_reach = num_free_;
  int first = end;  // from here on they leave their buffers
  while (num_within_reach < num_pages && first > sequence + 1) num_within_reach += held_[--first];
  if (num_within_reach < num_pages) return false;
  for (int younger = end - 1; younger >= first; --younger) {
    if (held_[younger] == 0) continue;
    Return(younger);
    swapped_out_.push_back(younger);
  }
  num_free_ -= num_pages;
  held_[sequence] += num_pages;
  return true;
}

}  // namespace tandem::decode
