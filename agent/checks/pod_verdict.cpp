// SPDX-License-Identifier: Apache-2.0
#include "agent/checks/pod_verdict.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "agent/checks/check.hpp"

namespace paceline::agent {
namespace {

using Which = std::function<bool(const Attempt&)>;

const Attempt* first_of(const Registrations& tried, const Which& which) {
  const auto found = std::find_if(tried.attempts.begin(), tried.attempts.end(), which);
  return found == tried.attempts.end() ? nullptr : &*found;
}

bool went_wrong(const Attempt& attempt) {
  return attempt.outcome == Outcome::kRefused || attempt.outcome == Outcome::kHung;
}

std::string told(const Attempt& attempt) { return describe(attempt) + ": " + attempt.why; }

PodVerdict about(std::optional<bool> ready, std::string_view id, std::string evidence) {
  const Check* check = find_check(id);
  return {ready, std::string(id), std::move(evidence),
          check == nullptr ? "" : std::string(check->remedy)};
}

PodVerdict bad(std::string_view id, std::string evidence) {
  return about(false, id, std::move(evidence));
}

/// One way of registration is enough for each pair of GPU and NIC; nullopt if every tried pair has
/// one.
std::optional<PodVerdict> bad_pair(const Registrations& tried, const Which& used) {
  for (const auto& attempt : tried.attempts) {
    if (!used(attempt)) continue;
    if (attempt.step != Step::kDmaBuf && attempt.step != Step::kPeerMemory) continue;
    // A driver that hangs here also hangs the job, whichever way it uses.
    if (attempt.outcome == Outcome::kHung)
      return bad(attempt.step == Step::kDmaBuf ? "dmabuf" : "peermem-effective", told(attempt));
    if (attempt.step != Step::kDmaBuf || attempt.outcome != Outcome::kRefused) continue;
    const Attempt* other = first_of(tried, [&](const Attempt& way) {
      return way.step == Step::kPeerMemory && way.nic == attempt.nic && way.gpu == attempt.gpu;
    });
    if (other != nullptr && other->outcome == Outcome::kDone) continue;
    return bad("dmabuf",
               told(attempt) + (other == nullptr ? "" : "; by its pointer: " + other->why));
  }
  return std::nullopt;
}

/// The NICs of this pod that its training would use: those that NCCL_IB_HCA names, else those that
/// serve GPUs on this machine. A pod may have other NICs, for storage, whose drivers need not
/// support GPU memory.
std::vector<std::string> used_nics(const Registrations& tried,
                                   const std::vector<std::string>& opened) {
  if (const auto chosen = chosen_nics(tried.nccl, opened); chosen && !chosen->empty())
    return *chosen;
  std::vector<std::string> used;
  std::ranges::copy_if(opened, std::back_inserter(used), [&](const std::string& nic) {
    return std::ranges::find(tried.job_nics, nic) != tried.job_nics.end();
  });
  // For example, virtual functions are on no rail of the node.
  return used.empty() ? opened : used;
}

}  // namespace

PodVerdict judge_pod(const Registrations& tried) {
  std::vector<std::string> nics;
  for (const auto& attempt : tried.attempts) {
    if (attempt.step == Step::kOpen && attempt.outcome == Outcome::kDone)
      nics.push_back(attempt.nic);
  }
  // In this order, an earlier failure causes the later ones.
  if (nics.empty()) {
    const Attempt* first = first_of(tried, went_wrong);
    return bad("uverbs-access", !tried.problem.empty() ? tried.problem
                                : first != nullptr     ? told(*first)
                                                       : "no RDMA device was opened");
  }
  if (tried.memlock_bytes)
    return bad("memlock", "locked memory is limited to " +
                              std::to_string(*tried.memlock_bytes / 1024) + " KiB");
  for (const auto& trouble : nccl_troubles(tried.nccl, nics, tried.netdevs, tried.nccl_version)) {
    if (trouble.forbids) return bad("nccl-env", trouble.evidence);
  }
  const auto names = used_nics(tried, nics);
  const Which used = [&](const Attempt& attempt) {
    return attempt.nic.empty() || std::ranges::find(names, attempt.nic) != names.end();
  };
  const Attempt* before = first_of(tried, [&](const Attempt& attempt) {
    const bool way = attempt.step == Step::kDmaBuf || attempt.step == Step::kPeerMemory;
    if (way || attempt.step == Step::kOpen || !used(attempt)) return false;
    return attempt.outcome == Outcome::kHung || (!only_tells(attempt.step) && went_wrong(attempt));
  });
  if (before != nullptr) return bad("dmabuf", told(*before));
  if (auto pair = bad_pair(tried, used)) return std::move(*pair);
  const Attempt* left = first_of(tried, [&](const Attempt& attempt) {
    return attempt.outcome == Outcome::kNotTried && !only_tells(attempt.step) && used(attempt);
  });
  if (left != nullptr) return about(std::nullopt, "dmabuf", told(*left));
  const bool any = first_of(tried, [&](const Attempt& attempt) {
                     return used(attempt) &&
                            (attempt.step == Step::kDmaBuf || attempt.step == Step::kPeerMemory) &&
                            attempt.outcome == Outcome::kDone;
                   }) != nullptr;
  if (!any) return about(std::nullopt, "dmabuf", "no GPU's memory was tried");
  return {true, "", "", ""};
}

std::vector<Finding> pod_findings(const Registrations& tried) {
  std::vector<Finding> found;
  const auto add = [&](std::string_view id, std::string subject, bool good, std::string evidence) {
    const Check* check = find_check(id);
    const bool bad = !good && check != nullptr;
    found.push_back({std::string(id), std::move(subject), bad ? check->severity : Verdict::kPass,
                     std::move(evidence), bad ? std::string(check->remedy) : ""});
  };
  std::vector<std::string> nics;
  for (const auto& attempt : tried.attempts) {
    if (attempt.step != Step::kOpen || attempt.outcome == Outcome::kNotTried) continue;
    const bool opens = attempt.outcome == Outcome::kDone;
    if (opens) nics.push_back(attempt.nic);
    add("uverbs-access", attempt.nic, opens, opens ? "opens" : attempt.why);
  }
  if (nics.empty() && found.empty())
    add("uverbs-access", "", false,
        tried.problem.empty() ? "no RDMA device was opened" : tried.problem);
  add("memlock", "", !tried.memlock_bytes,
      tried.memlock_bytes
          ? "locked memory is limited to " + std::to_string(*tried.memlock_bytes / 1024) + " KiB"
          : "no limit");
  const auto troubles = nccl_troubles(tried.nccl, nics, tried.netdevs, tried.nccl_version);
  for (const auto& trouble : troubles) add("nccl-env", "", false, trouble.evidence);
  if (troubles.empty()) add("nccl-env", "", true, "nothing is in the way");
  for (const auto& attempt : tried.attempts) {
    if (attempt.step != Step::kFabricMemory || attempt.outcome == Outcome::kNotTried) continue;
    const bool reached = attempt.outcome == Outcome::kDone;
    add("imex", attempt.gpu, reached,
        reached ? "its memory can be shared across the NVLink domain" : attempt.why);
  }
  return found;
}

std::string pod_verdict_json(const PodVerdict& verdict, const std::vector<Finding>& findings) {
  nlohmann::json line{{"version", 1}, {"ready", nullptr}};
  if (verdict.ready) line["ready"] = *verdict.ready;
  if (!verdict.check.empty()) line["check"] = verdict.check;
  if (!verdict.evidence.empty()) line["evidence"] = verdict.evidence;
  if (!verdict.remedy.empty()) line["remedy"] = verdict.remedy;
  for (const Finding& finding : findings) {
    line["findings"].push_back({{"check", finding.id},
                                {"subject", finding.subject},
                                {"status", to_string(finding.verdict)},
                                {"evidence", finding.evidence}});
  }
  return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace paceline::agent
