// SPDX-License-Identifier: Apache-2.0
#include "agent/checks/device_status.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace paceline::agent {
namespace {

using Devices = std::pair<std::string, std::string>;  // GPU and NIC

/// Which devices a finding's subject stands for.
class Subjects {
 public:
  explicit Subjects(const Node& node) : node_(node) {
    for (std::size_t i = 0; i < node.fabric.gpus.size(); ++i) {
      const FabricDevice& gpu = node.fabric.gpus[i];
      name(gpus_, i < kMostGpus ? gpu.label : std::string(), {gpu.label, gpu.address});
    }
    for (std::size_t i = 0; i < node.fabric.nics.size(); ++i) {
      const FabricDevice& nic = node.fabric.nics[i];
      name(nics_, i < kMostNics ? nic.label : std::string(), {nic.label, nic.address});
    }
    for (const RdmaDevice& device : node.hardware.rdma) {
      const auto known = nics_.find(device.name);
      const std::string label = known == nics_.end() ? std::string() : known->second;
      for (const std::string& netdev : device.netdevs) name(nics_, label, {netdev});
    }
  }

  std::vector<Devices> of(std::string_view subject) const {
    Devices found;
    for (std::string_view left = subject; !left.empty();) {
      const std::string_view word = left.substr(0, left.find(' '));
      left.remove_prefix(std::min(word.size() + 1, left.size()));
      if (const auto gpu = gpus_.find(word); gpu != gpus_.end()) found.first = gpu->second;
      // A port, "mlx5_0/1", counts for its NIC.
      if (const auto nic = nics_.find(word.substr(0, word.find('/'))); nic != nics_.end())
        found.second = nic->second;
    }
    std::vector<Devices> all;
    if (found == Devices()) {
      // A bridge matters only to the pairs whose path it is on.
      for (const Pair& pair : node_.pairs) {
        if (std::ranges::find(pair.way, subject) != pair.way.end())
          all.emplace_back(gpus_.at(pair.gpu->label), nics_.at(pair.nic->label));
      }
    }
    if (all.empty()) all.push_back(std::move(found));
    return all;
  }

 private:
  using Names = std::map<std::string, std::string, std::less<>>;
  static void name(Names& names, const std::string& label,
                   std::initializer_list<std::string> called) {
    for (const std::string& each : called) {
      if (!each.empty()) names.emplace(each, label);
    }
  }

  const Node& node_;
  Names gpus_;
  Names nics_;
};

}  // namespace

std::vector<DeviceStatus> device_statuses(const Node& node, const std::vector<Finding>& findings) {
  const Subjects subjects(node);
  std::map<std::string, std::map<Devices, Verdict>> verdicts;
  const auto add = [](std::map<Devices, Verdict>& of_check, const Devices& devices,
                      Verdict verdict) {
    auto& worst = of_check.try_emplace(devices, verdict).first->second;
    worst = std::max(worst, verdict);
  };
  for (const Finding& finding : findings) {
    for (const Devices& devices : subjects.of(finding.subject))
      add(verdicts[finding.id], devices, finding.verdict);
  }
  std::vector<DeviceStatus> statuses;
  for (auto& [check, of_check] : verdicts) {
    const auto is_pair = [](const auto& entry) {
      return !entry.first.first.empty() && !entry.first.second.empty();
    };
    if (static_cast<std::size_t>(std::ranges::count_if(of_check, is_pair)) > kMostPairs) {
      std::map<Devices, Verdict> fewer;
      for (const auto& entry : of_check)
        add(fewer, is_pair(entry) ? Devices{entry.first.first, ""} : entry.first, entry.second);
      of_check = std::move(fewer);
    }
    for (const auto& [devices, verdict] : of_check) {
      if (verdict == Verdict::kSkip || verdict == Verdict::kUnknown) continue;
      const int value = verdict == Verdict::kPass ? 0 : verdict == Verdict::kWarn ? 1 : 2;
      statuses.push_back({check, devices.first, devices.second, value});
    }
  }
  return statuses;
}

}  // namespace paceline::agent
