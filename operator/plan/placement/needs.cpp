// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/needs.hpp"

#include <algorithm>
#include <map>

namespace paceline::plan {
namespace {

std::string why_not(const Constraints& constraints, const Room& room) {
  // The last report of a dead agent no longer counts.
  return refusal(constraints, *room.node, room.agent_alive ? room.fabric : nullptr);
}

/// What the room lacks for the first of `most` pods. Nodes have the same number of ports whatever
/// their size. So ports are named also where they are all that keeps out one of the later pods.
std::string lacking(const Need& need, const observe::Resources& free, int most) {
  std::string lacks = free.lacking(need.each);
  if (!lacks.empty() || need.each.port_blocks == 0) return lacks;
  observe::Resources without_ports = need.each;
  without_ports.port_blocks = 0;
  return free.times(need.each, most) < free.times(without_ports, most) ? observe::kHostPorts : "";
}

}  // namespace

Result<Admitted> read_admitted(const std::string& pod) {
  auto view = observe::project_pod(pod);
  if (!view) return std::unexpected(view.error());
  const nlohmann::json document = nlohmann::json::parse(pod, nullptr, false);
  return Admitted{std::move(view->requests),
                  read_constraints(document.value("spec", nlohmann::json())),
                  view->gang && !view->gang->other_gates.empty()};
}

bool is_close(const Need& need, const std::vector<Need>& all) {
  return need.accelerators || std::ranges::none_of(all, &Need::accelerators);
}

const std::vector<bool>& Allowances::of(const Constraints& constraints,
                                        const std::vector<Room>& rooms) {
  for (const auto& [known, allowed] : known_) {
    if (known == constraints) return allowed;
  }
  std::vector<bool> allowed;
  allowed.reserve(rooms.size());
  for (const Room& room : rooms) allowed.push_back(why_not(constraints, room).empty());
  return known_.emplace_back(constraints, std::move(allowed)).second;
}

std::string explain(const Need& need, int fitting, const std::vector<Room>& rooms,
                    const std::vector<int>& left) {
  std::map<std::string, int> reasons;
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    std::string reason = why_not(need.constraints, rooms[i]);
    if (reason.empty() && left[i] <= 0) reason = "full of pods of this job";
    if (reason.empty()) {
      const std::string lacks = lacking(need, rooms[i].free, std::min(need.count, left[i]));
      reason = lacks.empty() ? "" : "not enough " + lacks;
    }
    if (!reason.empty()) ++reasons[reason];
  }
  std::string text = need.role + ": " + std::to_string(fitting) + " of " +
                     std::to_string(need.count) + " pods fit on " + std::to_string(rooms.size()) +
                     " nodes";
  char separator = ';';
  for (const auto& [reason, count] : reasons) {
    text += separator;
    text += " " + std::to_string(count) + " " + reason;
    separator = ',';
  }
  return text;
}

}  // namespace paceline::plan
