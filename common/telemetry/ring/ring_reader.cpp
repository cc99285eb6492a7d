// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring/ring_reader.hpp"

#include <algorithm>
#include <utility>

#include "common/telemetry/ring/record_check.hpp"

namespace paceline::telemetry {

RingReader::RingReader(RingView view, std::uint64_t start, std::uint64_t known)
    : view_(std::move(view)), cursor_(start), known_(known) {}

std::uint64_t RingReader::poll(const std::function<void(const paceline_step_record&)>& take,
                               std::uint64_t most) {
  const std::uint64_t end = view_.write_index();
  if (end < cursor_) {
    // The index of a sound writer only grows. If it went back, the writer is broken or hostile:
    // start again at its index and count the gap.
    ++invalid_;
    cursor_ = end;
    return 0;
  }
  const std::uint64_t room = std::min<std::uint64_t>(view_.capacity(), most);
  if (end - cursor_ > room) {
    gaps_ += end - cursor_ - room;
    cursor_ = end - room;
  }
  const std::uint64_t first = std::exchange(cursor_, end);
  gaps_ += view_.read(first, end, [&](const paceline_step_record& record) {
    if (is_plausible(record)) {
      take(record);
    } else if (record.seq > known_) {
      ++invalid_;
    }
  });
  return end - first;
}

}  // namespace paceline::telemetry
