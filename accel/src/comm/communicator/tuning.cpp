// SPDX-License-Identifier: Apache-2.0
// Which way of an all-reduce this communicator's ranks find quickest, by measurement.
#include <algorithm>
#include <array>

#include "comm/communicator/communicator.hpp"
#include "comm/plan/tune.hpp"

namespace paceline::comm {

std::optional<std::vector<Choice>> Communicator::measure(std::chrono::milliseconds budget) {
  std::vector<Way> candidates;
  for (const Algorithm one : {Algorithm::kFlat, Algorithm::kDoubling, Algorithm::kTree})
    candidates.push_back({.algorithm = one, .chunk = plan_.chunk});
  for (std::uint64_t chunk = plan_.chunk;
       stage_ != nullptr && chunk >= std::max(plan_.chunk / 16, kLeastChunk) && chunk % 64 == 0;
       chunk /= 4)
    candidates.push_back({.algorithm = Algorithm::kHierarchical, .chunk = chunk});
  std::vector<std::uint32_t> fewer;
  for (std::uint32_t flows = plan_.flows / 2; flows > 0; flows /= 2) fewer.push_back(flows);
  std::vector<float> data(kLargestTrial / sizeof(float));
  return choose(
      candidates, fewer, budget, [&](const Way& way, std::uint64_t bytes) -> std::optional<double> {
        // Repeat small transfers: one alone is too short to measure.
        const int times = static_cast<int>(std::clamp<std::uint64_t>((256UL << 10) / bytes, 1, 6));
        if (barrier() != PACELINE_OK) return std::nullopt;
        const auto begin = Clock::now();
        for (int i = 0; i < times; ++i) {
          const auto once = [&](const Call& call) {
            return sum_as(way, call, reinterpret_cast<std::byte*>(data.data()),
                          bytes / sizeof(float), Type::kF32);
          };
          if (call_all(Kind::kAllReduce, bytes / sizeof(float), Type::kF32, 0, once) != PACELINE_OK)
            return std::nullopt;
        }
        double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / times;
        if (all_reduce(reinterpret_cast<std::byte*>(&seconds), 1, Type::kF64) != PACELINE_OK)
          return std::nullopt;
        return seconds / ranks();
      });
}

std::expected<std::string, int> Communicator::tune(const std::string& known,
                                                   std::chrono::milliseconds budget) {
  if (ranks() == 1) return "0:flat";
  if (pinned_ && stage_ == nullptr) {
    const std::lock_guard lock(mutex_);
    return print_choices(plan_.choices.empty()
                             ? std::vector<Choice>{{0, {plan_.algorithm, plan_.chunk, 0}}}
                             : plan_.choices);
  }
  // If rank 0 has known choices, all ranks use them; otherwise all measure.
  constexpr std::size_t kMost = 1024;
  std::array<char, kMost> told{};
  known.copy(told.data(), kMost - 1);
  if (const int code =
          broadcast(reinterpret_cast<std::byte*>(told.data()), kMost / 8, Type::kI64, 0);
      code != 0)
    return std::unexpected(code);
  std::optional<std::vector<Choice>> choices;
  if (auto parsed = parse_choices(told.data(), plan_.chunk); parsed && can_go(plan_, *parsed))
    choices = std::move(*parsed);
  if (!choices) choices = measure(budget);
  if (!choices) return std::unexpected(PACELINE_COMM_EPEER);
  const std::lock_guard lock(mutex_);
  plan_.choices = std::move(*choices);
  return print_choices(plan_.choices);
}

}  // namespace paceline::comm
