// SPDX-License-Identifier: Apache-2.0
#include "agent/checks/summary.hpp"

#include <algorithm>

namespace paceline::agent {
namespace {

constexpr std::size_t kMaxNamed = 8;

/// "acs fails on 0000:16:00.0, 0000:17:00.0 and 20 more".
std::string who_fails(const std::vector<Finding>& findings, const Check& check) {
  std::string text = std::string(check.id) + " fails";
  std::size_t count = 0;
  for (const auto& finding : findings) {
    if (finding.id != check.id || finding.verdict != Verdict::kFail || finding.subject.empty())
      continue;
    if (++count <= kMaxNamed) text += (count == 1 ? " on " : ", ") + finding.subject;
  }
  if (count > kMaxNamed) text += " and " + std::to_string(count - kMaxNamed) + " more";
  return text;
}

std::string list(const std::vector<std::string_view>& ids) {
  std::string text;
  for (const auto& id : ids) text += (text.empty() ? "" : ", ") + std::string(id);
  return text;
}

/// The first failure of the checks with this concern, and the names of the others; nullopt if none
/// fails.
std::optional<Summary> first_failure(const std::vector<Finding>& findings, Concern concern) {
  const Check* first = nullptr;
  std::vector<std::string_view> others;
  for (const auto& check : checks()) {
    if (check.concern != concern || worst(findings, check.id) != Verdict::kFail) continue;
    if (first == nullptr) {
      first = &check;
    } else {
      others.push_back(check.id);
    }
  }
  if (first == nullptr) return std::nullopt;
  std::string message = who_fails(findings, *first) + "; " + std::string(first->remedy);
  if (!others.empty()) message += "; also failing: " + list(others);
  return Summary{false, std::string(first->id),
                 message + " (run `paceline doctor` on the node for details)"};
}

/// True if every pair is registered by this way. If it warns, the other way works; a pair without
/// either way is a failure.
bool every_pair_registered(const std::vector<Finding>& findings, std::string_view way) {
  const auto says = [&](Verdict verdict) {
    return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.id == way && finding.verdict == verdict;
    });
  };
  return says(Verdict::kPass) && !says(Verdict::kUnknown) && !says(Verdict::kFail);
}

}  // namespace

Summary gpu_direct_ready(const std::vector<Finding>& findings) {
  // Without a driver there is no RDMA device, and its check says more.
  if (worst(findings, "port-state") == Verdict::kSkip &&
      worst(findings, "rdma-driver") != Verdict::kFail)
    return {false, "NoRdmaDevice", "no RDMA device that a GPU's memory could be registered with"};
  if (auto failure = first_failure(findings, Concern::kGpuDirect)) return std::move(*failure);
  // One way of registration is enough. What a pod adds is checked in the pod.
  const bool registered = every_pair_registered(findings, "dmabuf") ||
                          every_pair_registered(findings, "peermem-effective");
  std::vector<std::string_view> open;
  for (const auto& check : checks()) {
    const bool way = check.id == "dmabuf" || check.id.starts_with("peermem-");
    if (check.id == "pcie-link")
      continue;  // only a failure counts: an idle GPU lowers its link, and load raises it again
    if (check.concern != Concern::kGpuDirect || check.place == Place::kPod || (way && registered))
      continue;
    if (worst(findings, check.id) == Verdict::kUnknown) open.push_back(check.id);
  }
  if (registered && open.empty())
    return {true, "Registered", "GPU memory was registered with the NICs"};
  if (open.empty())
    return {std::nullopt, "NotProved", "nothing fails, but no registration was tried"};
  return {std::nullopt, "NotProved", "nothing fails, but these checks are unknown: " + list(open)};
}

std::optional<Summary> gpu_trouble(const std::vector<Finding>& findings) {
  return first_failure(findings, Concern::kGpu);
}

std::optional<Summary> fabric_trouble(const std::vector<Finding>& findings) {
  return first_failure(findings, Concern::kFabric);
}

}  // namespace paceline::agent
