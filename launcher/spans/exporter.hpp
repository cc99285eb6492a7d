// SPDX-License-Identifier: Apache-2.0
// Exporter: sends spans to a collector by OTLP over HTTP, from a thread of its own. The job never
// waits for it, except for two seconds at its end.
//
// Ownership: borrows the log. `push` is thread-safe and does not block. Bounded: kMostSpans wait;
// further ones replace the oldest. Failure: the first one is logged, and spans are tried again with
// the next ones. A thread that waits for a name server at the end is left behind.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "launcher/log.hpp"
#include "launcher/spans/span.hpp"
#include "launcher/spans/target.hpp"

namespace paceline::spans {

inline constexpr std::size_t kMostSpans = 512;
inline constexpr std::chrono::seconds kLastWords{2};

class Exporter {
 public:
  Exporter(Target target, launcher::Log& log);
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  void push(std::vector<Span> spans);

 private:
  struct Shared;  // with the thread, which may outlive this
  std::shared_ptr<Shared> shared_;
};

}  // namespace paceline::spans
