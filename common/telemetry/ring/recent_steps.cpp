// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/ring/recent_steps.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "common/telemetry/ring/amendment_merger.hpp"
#include "common/telemetry/ring/record_check.hpp"

namespace paceline::telemetry {
namespace {

// Each source of device facts amends a step once: events, NCCL and CUPTI.
constexpr std::size_t kRecordsOfStep = 4;
// An amendment follows its step by a few steps.
constexpr std::size_t kSlack = 64;

}  // namespace

std::vector<paceline_step_record> recent_steps(const RingView& ring, std::size_t most) {
  const std::uint64_t end = ring.write_index();
  const std::uint64_t room =
      std::min<std::uint64_t>(ring.capacity(), (most + kSlack) * kRecordsOfStep);
  std::map<std::uint64_t, paceline_step_record> steps;
  ring.read(end - std::min(end, room), end, [&](const paceline_step_record& record) {
    if (!is_plausible(record)) return;
    if (record.kind == PACELINE_KIND_STEP) {
      if ((record.flags & PACELINE_FLAG_FINAL) == 0) steps.insert_or_assign(record.step, record);
    } else if (record.kind == PACELINE_KIND_AMENDMENT) {
      if (const auto step = steps.find(record.step); step != steps.end())
        apply_amendment(step->second, record);
    }
  });
  std::vector<paceline_step_record> newest;
  for (auto& [number, step] : steps) newest.push_back(std::move(step));
  if (newest.size() > most)
    newest.erase(newest.begin(), newest.end() - static_cast<std::ptrdiff_t>(most));
  return newest;
}

}  // namespace paceline::telemetry
