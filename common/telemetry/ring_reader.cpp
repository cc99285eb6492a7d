// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring_reader.hpp"

#include <utility>

#include "common/telemetry/record_check.hpp"

namespace paceline::telemetry {

RingReader::RingReader(RingView view) : view_(std::move(view)) {}

void RingReader::poll(const std::function<void(const paceline_step_record&)>& take) {
  const std::uint64_t end = view_.write_index();
  if (end < cursor_) {
    // A writer only counts up; one that goes back is broken or hostile. Start over at its word, and say so.
    ++invalid_;
    cursor_ = end;
    return;
  }
  const std::uint64_t capacity = view_.capacity();
  if (end - cursor_ > capacity) {
    gaps_ += end - cursor_ - capacity;
    cursor_ = end - capacity;
  }
  paceline_step_record record{};
  for (; cursor_ < end; ++cursor_) {
    if (!view_.copy(cursor_, record)) {
      ++gaps_;
    } else if (!is_plausible(record)) {
      ++invalid_;
    } else {
      take(record);
    }
  }
}

}  // namespace paceline::telemetry
