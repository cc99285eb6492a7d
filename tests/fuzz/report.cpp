// SPDX-License-Identifier: Apache-2.0
// A termination message or a summary, as any container may write it: what the operator copies from
// it into the status.
#include <nlohmann/json.hpp>

#include "operator/status/training.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  const auto report = status::read_report(fuzz::text(data, size));
  if (!report) return 0;
  fuzz::require(report->attempt >= 0 && report->restarts >= 0, "counts are not negative");
  (void)status::notable(report->training, {});
  constexpr std::size_t kMostBytes = 64 * 1024;
  const auto bytes =
      report->training.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).size() +
      report->culprit.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).size();
  fuzz::require(bytes <= kMostBytes, "what goes into a status is bounded");
  return 0;
}
