// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/pod_summary.hpp"

#include <chrono>

#include "cli/job/exec.hpp"
#include "cli/watch/run_program.hpp"
#include "cli/watch/text.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMostSummary = 64 * 1024 * 1024;  // of 10,000 ranks
constexpr std::chrono::seconds kExecPatience{15};

Error rights(const std::string& ns, const std::string& what, const std::string& server) {
  return {Code::kForbidden, Origin::kKube,
          "only the job's status is shown: ranks need the right to " + what + " in the namespace " +
              ns + " (" + server + ")"};
}

std::string first_line(const std::string& text) {
  return cut(clean(text.substr(0, text.find('\n'))), 200);
}

}  // namespace

Result<json> pod_summary(kube::Api& api, const std::string& kubeconfig, const std::string& ns,
                         const std::string& job, const std::stop_token& stop) {
  const std::string only = "only the job's status is shown: ";
  const auto words = exec_in_rank_zero(api, {kubeconfig, ns, job}, {"summary"}, stop);
  if (!words && words.error().code == Code::kForbidden)
    return std::unexpected(rights(ns, "list pods", first_line(words.error().message)));
  if (!words && words.error().code == Code::kNotFound)
    return fail(Code::kNotFound, Origin::kKube, only + "no pod of rank 0 runs");
  if (!words) return std::unexpected(words.error());
  const auto end = run_program(*words, kMostSummary, kExecPatience, stop);
  if (!end && end.error().code == Code::kNotFound) {
    return fail(Code::kNotFound, Origin::kSystem,
                only + "kubectl could not be started; install it to see ranks");
  }
  if (!end) return fail(end.error().code, Origin::kSystem, only + end.error().message);
  if (end->code != 0) {
    const std::string said = first_line(end->err);
    if (said.contains("forbidden")) return std::unexpected(rights(ns, "create pods/exec", said));
    return fail(Code::kUnavailable, Origin::kKube, only + "kubectl exec: " + said);
  }
  json summary = json::parse(end->out, nullptr, false);
  if (!summary.is_object())
    return fail(Code::kInvalid, Origin::kProtocol, only + "its launcher's answer is no summary");
  return summary;
}

}  // namespace paceline::cli
