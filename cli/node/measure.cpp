// SPDX-License-Identifier: Apache-2.0
#include "cli/node/measure.hpp"

#include <nlohmann/json.hpp>

#include "common/contract/labels.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

std::string word_of(const json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : std::string();
}

}  // namespace

Result<std::string> published_agent(kube::Api& api, const std::string& node) {
  const auto status = node_status(api, node);
  if (!status) return std::unexpected(status.error());
  const std::string address = word_of(*status, "agentAddress");
  if (!address.empty()) return "https://" + address;
  return fail(Code::kUnavailable, Origin::kKube,
              "the NodeFabric " + node +
                  " says no address of its agent: the chart's agent.api.tlsSecret and "
                  "agent.links.enabled must be set; "
                  "or name it with --agent");
}

Result<std::vector<std::string>> exec_in_agent(kube::Api& api, const MeasureOptions& options) {
  const NodeOptions& node = options.node;
  const std::string ns =
      node.agent_namespace.empty() ? std::string(contract::kAgentNamespace) : node.agent_namespace;
  const std::string name = std::string(contract::kAgentLeasePrefix) + node.name;
  const auto text = api.get(kube::kLeases, ns, name);
  if (!text && text.error().code != Code::kNotFound) return std::unexpected(text.error());
  const json lease = text ? json::parse(*text, nullptr, false) : json();
  const std::string pod =
      word_of(lease.is_object() ? lease.value("spec", json()) : json(), "holderIdentity");
  if (pod.empty()) {
    return fail(Code::kNotFound, Origin::kKube,
                "there is no Lease " + name + " in the namespace " + ns +
                    " with the name of a pod: see `kubectl -n " + ns +
                    " get pods --field-selector spec.nodeName=" + node.name +
                    "`, or give --agent-namespace");
  }
  std::vector<std::string> words{"kubectl"};
  if (!node.kubeconfig.empty()) words.push_back("--kubeconfig=" + node.kubeconfig);
  for (const std::string& word :
       {"--namespace=" + ns, std::string("exec"), pod, std::string("--container=agent"),
        std::string("--"), std::string("/usr/bin/paceline-agent"), std::string("measure"),
        "--peer=" + options.peer})
    words.push_back(word);
  if (options.json) words.emplace_back("--json");
  return words;
}

}  // namespace paceline::cli
