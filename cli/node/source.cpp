// SPDX-License-Identifier: Apache-2.0
#include "cli/node/source.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/base/duration.hpp"
#include "common/base/timestamp.hpp"
#include "common/contract/labels.hpp"
#include "common/kube/connect/connect.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

std::string string_of(const json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<agent::Verdict> verdict_of(const std::string& word) {
  using agent::Verdict;
  constexpr std::array kAll{Verdict::kSkip, Verdict::kPass, Verdict::kUnknown, Verdict::kWarn,
                            Verdict::kFail};
  const auto* const found =
      std::ranges::find_if(kAll, [&](Verdict verdict) { return to_string(verdict) == word; });
  return found == kAll.end() ? std::nullopt : std::optional(*found);
}

std::unexpected<Error> strange(const std::string& what) {
  return fail(Code::kInvalid, Origin::kProtocol,
              "the agent's answer is not what `paceline doctor --json` writes: " + what);
}

/// Adds the findings of one check. Returns what is wrong with its JSON.
std::string add_check(const json& check, std::vector<agent::Finding>& all) {
  const std::string id = check.is_object() ? string_of(check, "id") : "";
  if (id.empty()) return "a check without id";
  const auto findings = check.find("findings");
  if (findings == check.end() || !findings->is_array()) return "check " + id + " without findings";
  for (const json& finding : *findings) {
    const auto verdict =
        finding.is_object() ? verdict_of(string_of(finding, "status")) : std::nullopt;
    if (!verdict) return "a finding of " + id + " without a known status";
    const bool trouble = *verdict == agent::Verdict::kFail || *verdict == agent::Verdict::kWarn;
    all.push_back({id, string_of(finding, "subject"), *verdict, string_of(finding, "evidence"),
                   trouble ? string_of(check, "remedy") : ""});
  }
  return {};
}

}  // namespace

Result<json> node_status(kube::Api& api, const std::string& node) {
  const auto text = api.get(kube::kNodeFabrics, "", node);
  if (!text && text.error().code == Code::kNotFound) {
    return fail(Code::kNotFound, Origin::kKube,
                "there is no NodeFabric " + node +
                    ": see `kubectl get nodes` for the name, and whether a pod of the DaemonSet "
                    "paceline-agent runs there");
  }
  if (!text) return std::unexpected(text.error());
  const json object = json::parse(*text, nullptr, false);
  const auto status = object.is_object() ? object.find("status") : object.end();
  if (!object.is_object() || status == object.end() || !status->is_object()) {
    return fail(
        Code::kUnavailable, Origin::kKube,
        "the agent of " + node + " has not published what it found yet; see the log of its pod");
  }
  return *status;
}

AgentLife agent_life(kube::Api& api, const NodeOptions& options, WallTime now) {
  const std::string ns = options.agent_namespace.empty() ? std::string(contract::kAgentNamespace)
                                                         : options.agent_namespace;
  const std::string name = std::string(contract::kAgentLeasePrefix) + options.name;
  const std::string remedy =
      "; see `kubectl -n " + ns + " get pods --field-selector spec.nodeName=" + options.name + "`";
  const auto text = api.get(kube::kLeases, ns, name);
  if (!text && text.error().code == Code::kNotFound) {
    return {false, "there is no Lease " + name + " in the namespace " + ns + ": no agent of " +
                       options.name + " lives there, and what it published may be of any age" +
                       remedy + ", or give --agent-namespace"};
  }
  if (!text)
    return {
        {},
        "whether the agent of " + options.name + " lives is not known: " + to_string(text.error())};
  const json lease = json::parse(*text, nullptr, false);
  const auto spec = lease.is_object() ? lease.find("spec") : lease.end();
  const auto renewed = lease.is_object() && spec != lease.end() && spec->is_object()
                           ? parse_time(string_of(*spec, "renewTime"))
                           : fail(Code::kInvalid, Origin::kKube, "no spec");
  if (!renewed)
    return {{},
            "whether the agent of " + options.name + " lives is not known: Lease " + name +
                " has no time of its last renewal"};
  const auto duration = spec->find("leaseDurationSeconds");
  constexpr std::int64_t kUsual = 40;
  const auto valid = std::chrono::seconds(duration != spec->end() && duration->is_number_integer()
                                              ? duration->get<std::int64_t>()
                                              : kUsual);
  const auto age = std::chrono::floor<std::chrono::seconds>(now - *renewed);
  if (age <= valid) return {true, {}};
  return {false, "the agent of " + options.name + " has not renewed its Lease for " +
                     format_duration(age) + ": what it published is as old" + remedy};
}

Result<std::vector<agent::Finding>> read_findings(const std::string& text) {
  const json view = json::parse(text, nullptr, false);
  const auto checks = view.is_object() ? view.find("checks") : view.end();
  if (!view.is_object() || checks == view.end() || !checks->is_array())
    return strange("no list of checks");
  std::vector<agent::Finding> all;
  for (const json& check : *checks) {
    if (const std::string wrong = add_check(check, all); !wrong.empty()) return strange(wrong);
  }
  return all;
}

Result<http::ServerUrl> agent_url(const NodeOptions& options) {
  auto url = http::parse_server_url(options.agent);
  if (!url) return std::unexpected(url.error());
  if (!url->endpoint.tls || options.agent_token.empty()) {
    return fail(Code::kInvalid, Origin::kConfig,
                "--agent " + options.agent +
                    ": write https://ADDRESS:9465, and give --agent-token FILE with a token of "
                    "`kubectl create token ACCOUNT --audience paceline-agent`");
  }
  url->endpoint.ca_file = options.agent_ca;
  url->endpoint.server_name = options.agent_name;
  return url;
}

Result<std::shared_ptr<kube::Api>> connect_agent(const NodeOptions& options, const Clock& clock) {
  auto url = agent_url(options);
  if (!url) return std::unexpected(url.error());
  kube::Config config;
  config.endpoint = std::move(url->endpoint);
  config.prefix = url->prefix;
  config.token_file = options.agent_token;
  kube::ConnectOptions connect;
  connect.max_connections = 1;
  connect.prefer_cpprest = false;
  connect.client.user_agent = "paceline/" PACELINE_VERSION;
  return kube::make_client(config, clock, connect);
}

}  // namespace paceline::cli
