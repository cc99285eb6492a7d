// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/operator/job_bench.hpp"

#include <algorithm>
#include <stdexcept>

#include "operator/api/elastic.hpp"
#include "operator/plan/policies/policies.hpp"
#include "operator/render/names.hpp"

namespace paceline::plan {

using nlohmann::json;

JobBench::JobBench(const json& spec)
    : document_(json::parse(R"({
        "apiVersion": "paceline.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": "j", "namespace": "default", "uid": "job", "resourceVersion": "1", "generation": 1,
                     "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"framework": {"type": "Custom", "processesPerReplica": 1},
                 "roles": [{"name": "w", "replicas": 2, "template": {"spec": {"containers": [
                   {"name": "trainer", "image": "i", "command": ["train"]}]}}}]}})")) {
  change_spec(spec);
}

void JobBench::change_spec(const json& patch) {
  const json before = document_["spec"];
  document_["spec"].merge_patch(patch);
  if (document_["spec"] != before)
    document_["metadata"]["generation"] = document_["metadata"]["generation"].get<int>() + 1;
  auto view = observe::project_job(document_.dump());
  if (!view) throw std::runtime_error(view.error().message);
  view->status = job.status;
  api::size_as_placed(view->job.spec, view->status);
  job = std::move(*view);
  if (!job.errors.empty()) throw std::runtime_error(api::to_error(job.errors).message);
}

std::vector<std::shared_ptr<const observe::PodView>> JobBench::views() const {
  std::vector<std::shared_ptr<const observe::PodView>> list;
  for (const auto& [name, pod] : pods) {
    auto view = std::make_shared<observe::PodView>();
    view->meta.name = name;
    view->meta.ns = "default";
    view->meta.uid = pod.uid;
    view->node = pod.gated || pod.unbound ? "" : pod.node;
    view->phase = pod.phase;
    view->deleting = pod.deleting;
    view->created = pod.created;
    view->gang = std::make_unique<observe::GangMember>();
    observe::GangMember& gang = *view->gang;
    gang.job_uid = job.meta.uid;
    gang.job_name = job.meta.name;
    gang.node_rank = pod.rank;
    gang.incarnation = pod.incarnation;
    gang.pinned = pod.node;
    gang.gated = pod.gated;
    gang.trainer = pod.trainer;
    gang.ended = pod.trainer == observe::TrainerState::kTerminated && !pod.sidecar;
    gang.exit_code = pod.exit_code;
    gang.reason = pod.reason;
    gang.message = pod.detail;
    gang.termination_message = pod.message;
    gang.conditions = pod.conditions;
    gang.disrupted = std::ranges::any_of(
        pod.conditions, [](const auto& c) { return c.type == "DisruptionTarget"; });
    list.push_back(std::move(view));
  }
  return list;
}

Plan JobBench::step() {
  static const auto kNode = [] {
    auto node = std::make_shared<observe::NodeView>();
    node->ready = true;
    return node;
  }();
  using Node = std::shared_ptr<const observe::NodeView>;
  const auto node = [this](const std::string& name) -> Node {
    const auto known = nodes.find(name);
    if (known != nodes.end()) return known->second;
    return name.empty() ? nullptr : Node(kNode);
  };
  const auto all = [this] {
    std::vector<Node> list;
    for (const auto& [name, view] : nodes) list.push_back(view);
    return list;
  };
  Plan plan = plan_job({job, views(), node, now, memory, nullptr, all, "runtime:1", gated});
  document_["status"] = api::write_status(plan.status);
  job.status = api::read_status(document_);
  api::size_as_placed(job.job.spec, job.status);
  if (job.status != plan.status)
    throw std::runtime_error("a status that JSON does not keep: " + document_.dump());
  carry_out(plan);
  return plan;
}

void JobBench::carry_out(const Plan& plan) {
  for (const DeletePod& deletion : plan.deletes) {
    BenchPod& pod = pods.at(deletion.name);
    if (pod.uid != deletion.uid)
      throw std::runtime_error("deletes another life of " + deletion.name);
    if (pod.lingers && !deletion.force) {
      pod.deleting = true;
    } else {
      pods.erase(deletion.name);
    }
  }
  if (plan.bind_refusal) memory.bind_refusal = *plan.bind_refusal;
  const std::vector<api::Replica> replicas = api::replicas_of(job.job.spec);
  if (!plan.creates.empty()) memory.refusal.reset();
  for (const CreatePod& create : plan.creates) {
    if (refused.contains(create.node_rank)) {
      memory.refusal = Waiting{"CreateRefused", "exceeded quota"};
      memory.retry_at = now + std::chrono::seconds(10);
      ++refusals;
      continue;
    }
    const std::string name = render::pod_name(
        job.job, replicas[static_cast<std::size_t>(create.node_rank)], create.incarnation);
    BenchPod pod;
    pod.uid = "u" + std::to_string(++created);
    pod.node = create.node;
    pod.rank = create.node_rank;
    pod.incarnation = create.incarnation;
    pod.gated = create.gated;
    pod.created = now;
    if (!pods.emplace(name, std::move(pod)).second)
      throw std::runtime_error("creates " + name + " twice");
  }
  for (const UngatePod& ref : plan.ungates) pods.at(ref.name).gated = false;
  for (const std::string& name : plan.check_gone) {
    if (!pods.contains(name)) memory.gone.insert(name);
  }
  // The scheduler offers every lost replica its old node, else a spare one.
  const std::vector<std::string> excluded = excluded_nodes(job.status, now);
  for (const int rank : plan.find_nodes) {
    if (no_node.contains(rank)) {
      memory.homeless.insert(rank);
      memory.no_replacement_node = "0 nodes are free";
    } else {
      const std::string old = job.status.nodes()[static_cast<std::size_t>(rank)];
      const bool avoided = std::ranges::find(excluded, old) != excluded.end();
      memory.replacement_nodes[rank] = avoided || old.empty() ? "spare" : old;
    }
  }
  if (!plan.creates.empty()) {  // as the controller does
    memory.summary.reset();
    memory.replacement_nodes.clear();
    memory.homeless.clear();
  }
  job_deleted = job_deleted || plan.delete_job;
}

Plan JobBench::settle() {
  for (int i = 0; i < 10; ++i) {
    const api::JobStatus before = job.status;
    Plan plan = step();
    if (!plan.acts() && plan.check_gone.empty() && plan.find_nodes.empty() && job.status == before)
      return plan;
  }
  throw std::runtime_error("does not come to rest: " + document_.dump());
}

void JobBench::run() {
  memory.admission.emplace();
  for (int i = 0; i < api::replica_count(job.job.spec); ++i)
    memory.admission->push_back("n" + std::to_string(i));
  memory.retry_at = {};
  step();  // takes its placement
  memory.admission.reset();
  settle();
  for (auto& [name, pod] : pods) {
    pod.phase = observe::PodPhase::kRunning;
    pod.trainer = observe::TrainerState::kRunning;
  }
  settle();
}

void JobBench::end(int rank, int exit_code, const json& message) {
  BenchPod& ended = pod(rank);
  ended.trainer = observe::TrainerState::kTerminated;
  ended.exit_code = exit_code;
  if (!ended.sidecar)
    ended.phase = exit_code == 0 ? observe::PodPhase::kSucceeded : observe::PodPhase::kFailed;
  ended.message = message.is_null() ? "" : message.dump();
}

void JobBench::end_all(int exit_code, const json& message) {
  for (int rank = 0; rank < api::replica_count(job.job.spec); ++rank) end(rank, exit_code, message);
}

BenchPod& JobBench::pod(int rank) {
  BenchPod* newest = nullptr;
  for (auto& [name, pod] : pods) {
    if (pod.rank == rank && (newest == nullptr || pod.incarnation > newest->incarnation))
      newest = &pod;
  }
  if (newest == nullptr) throw std::runtime_error("rank " + std::to_string(rank) + " has no pod");
  return *newest;
}

std::vector<std::string> JobBench::pod_names() const {
  std::vector<std::string> names;
  for (const auto& [name, pod] : pods) names.push_back(name);
  return names;
}

}  // namespace paceline::plan
