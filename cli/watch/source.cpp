// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/source.hpp"

#include <utility>

namespace paceline::cli {

SourceHealth JobSource::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

SourceHealth JobSource::first_answer(std::chrono::milliseconds most) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return health_.filled || !health_.trouble.empty(); });
  return health_;
}

void JobSource::well(WallTime now) {
  const std::lock_guard lock(mutex_);
  health_ = {true, "", now};
  changed_.notify_all();
}

void JobSource::trouble(std::string text) {
  const std::lock_guard lock(mutex_);
  health_.trouble = std::move(text);
  changed_.notify_all();
}

}  // namespace paceline::cli
