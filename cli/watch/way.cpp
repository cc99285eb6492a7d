// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/way.hpp"

#include <chrono>
#include <utility>

#include "cli/watch/facts.hpp"
#include "cli/watch/local_runs.hpp"
#include "common/kube/connect/connect.hpp"

namespace paceline::cli {
namespace {

constexpr std::chrono::seconds kApiAnswer{10};

Result<Detail> look_at_run(const std::string& name) {
  const std::vector<LocalNote> runs = live_runs(state_base());
  // The newest of several runs of one name.
  for (auto note = runs.rbegin(); note != runs.rend(); ++note) {
    if (read_facts(note->document).name == name) return Detail{ask_run(*note, {}), ""};
  }
  auto kept = kept_run(kept_folder(), name);
  if (!kept) return std::unexpected(kept.error());
  return Detail{*std::move(kept), ""};
}

}  // namespace

Result<ClusterWay> find_cluster(const std::string& kubeconfig, const std::string& ns,
                                const Clock& clock) {
  const auto config = kube::load_default(kubeconfig);
  if (!config) return std::unexpected(config.error());
  kube::ConnectOptions options;
  options.max_connections = 2;  // a list, and the job that is looked at
  options.prefer_cpprest = false;
  options.client.user_agent = "paceline/" PACELINE_VERSION;
  options.client.timeout = kApiAnswer;
  auto api = kube::make_client(*config, clock, options);
  if (!api) return std::unexpected(api.error());
  return ClusterWay{*std::move(api), ns.empty() ? config->ns : ns};
}

Result<Target> parse_target(const std::string& text) {
  const auto slash = text.find('/');
  const std::string kind = text.substr(0, slash);
  const std::string name = slash == std::string::npos ? "" : text.substr(slash + 1);
  const bool plain = !name.empty() && name.find('/') == std::string::npos;
  if (plain && (kind == "job" || kind == "trainingjob" || kind == "trainingjobs"))
    return Target{Target::Kind::kJob, name};
  if (plain && kind == "run") return Target{Target::Kind::kRun, name};
  if (text.ends_with(".json")) return Target{Target::Kind::kFile, text};
  return fail(Code::kInvalid, Origin::kConfig,
              "\"" + text +
                  "\" names no job: write job/NAME for a job of the cluster, run/NAME for one of "
                  "`paceline run`, or a file that ends in .json");
}

Result<Detail> look_at(const LookOptions& options, const Clock& clock) {
  const auto target = parse_target(options.target);
  if (!target) return std::unexpected(target.error());
  if (target->kind == Target::Kind::kRun) return look_at_run(target->name);
  if (target->kind == Target::Kind::kFile) {
    auto document = read_document(target->name);
    if (!document) return std::unexpected(document.error());
    return Detail{*std::move(document), ""};
  }
  const auto way = find_cluster(options.kubeconfig, options.ns, clock);
  if (!way) return std::unexpected(way.error());
  return cluster_detail(*way->api, options.kubeconfig, way->ns, target->name, {});
}

}  // namespace paceline::cli
