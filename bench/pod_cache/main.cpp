// SPDX-License-Identifier: Apache-2.0
// Memory per cached pod. 50,000 synthetic pods, all members of a gang (the larger kind), are kept
// in the operator's own store and projection, and as nlohmann documents for comparison. Counts heap
// bytes with the allocator's overhead. Exit 1 above 1 KiB per pod.
#include <malloc.h>
#include <sys/resource.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/kube/watch/store.hpp"
#include "operator/observe/views.hpp"

namespace {

using Document = nlohmann::json;

constexpr std::size_t kLimitBytes = 1024;
constexpr std::size_t kDocuments = 2000;  // enough for a mean; 50,000 would take 3 GiB

std::size_t heap_bytes() { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; }

/// The container as the operator renders it and the API server defaults it.
Document trainer_container() {
  Document env = Document::array();
  for (int i = 0; i < 28; ++i)
    env.push_back({{"name", "PACELINE_VARIABLE_" + std::to_string(i)},
                   {"value", "value-of-the-variable-" + std::to_string(i)}});
  const Document resources = {
      {"requests", {{"cpu", "8"}, {"memory", "64Gi"}, {"nvidia.com/gpu", "8"}}},
      {"limits", {{"memory", "64Gi"}, {"nvidia.com/gpu", "8"}}}};
  return {{"name", "trainer"},
          {"image", "registry.example/team/train:1.2.3"},
          {"command", {"/opt/paceline/bin/paceline-launcher", "run", "--", "python3", "train.py"}},
          {"env", env},
          {"resources", resources},
          {"terminationMessagePath", "/dev/termination-log"},
          {"terminationMessagePolicy", "File"},
          {"imagePullPolicy", "IfNotPresent"},
          {"volumeMounts",
           Document::array({{{"name", "paceline-runtime"}, {"mountPath", "/opt/paceline"}},
                            {{"name", "paceline-state"}, {"mountPath", "/run/paceline"}},
                            {{"name", "token"},
                             {"mountPath", "/var/run/secrets/kubernetes.io/serviceaccount"},
                             {"readOnly", true}}})}};
}

/// The managed fields that the API server adds.
Document managed_fields() {
  Document owned = {{"f:metadata",
                     {{"f:labels",
                       {{"f:paceline.dev/job", Document::object()},
                        {"f:paceline.dev/role", Document::object()}}}}},
                    {"f:spec", Document::object()}};
  for (int i = 0; i < 28; ++i)
    owned["f:spec"]["k:{\"name\":\"PACELINE_VARIABLE_" + std::to_string(i) + "\"}"] = {
        {".", Document::object()}, {"f:name", Document::object()}, {"f:value", Document::object()}};
  return owned;
}

/// A pod as an API server returns it: the spec as rendered and defaulted, status, managed fields.
/// About 7 kB.
Document template_pod() {
  const Document trainer = trainer_container();
  const Document owned = managed_fields();
  Document init = trainer;
  init["name"] = "paceline-runtime";
  init.erase("env");
  const Document term = {
      {"matchFields",
       Document::array({{{"key", "metadata.name"}, {"operator", "In"}, {"values", {"node"}}}})}};
  Document conditions = Document::array();
  for (const char* type :
       {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}) {
    conditions.push_back({{"type", type},
                          {"status", "True"},
                          {"lastProbeTime", nullptr},
                          {"lastTransitionTime", "2026-01-01T00:00:00Z"}});
  }
  const Document running = {
      {"name", "trainer"},
      {"ready", true},
      {"restartCount", 0},
      {"started", true},
      {"image", "registry.example/team/train:1.2.3"},
      {"imageID", "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
      {"containerID",
       "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
      {"state", {{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}}},
      {"lastState", Document::object()}};
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"namespace", "team-a"},
            {"generation", 2},
            {"creationTimestamp", "2026-01-01T00:00:00Z"},
            {"labels", Document::object()},
            {"managedFields", Document::array({{{"manager", "paceline-operator"},
                                                {"operation", "Update"},
                                                {"apiVersion", "v1"},
                                                {"time", "2026-01-01T00:00:00Z"},
                                                {"fieldsType", "FieldsV1"},
                                                {"fieldsV1", owned}}})}}},
          {"spec",
           {{"containers", Document::array({trainer})},
            {"initContainers", Document::array({init})},
            {"restartPolicy", "Never"},
            {"schedulerName", "default-scheduler"},
            {"terminationGracePeriodSeconds", 30},
            {"affinity",
             {{"nodeAffinity",
               {{"requiredDuringSchedulingIgnoredDuringExecution",
                 {{"nodeSelectorTerms", Document::array({term})}}}}}}}}},
          {"status",
           {{"phase", "Running"},
            {"conditions", conditions},
            {"containerStatuses", Document::array({running})},
            {"qosClass", "Burstable"},
            {"startTime", "2026-01-01T00:00:00Z"}}}};
}

std::string pod_json(Document& pod, std::size_t number) {
  char uid[48];
  std::snprintf(uid, sizeof uid, "6f1d3c5a-0000-4000-8000-%012zx", number);
  char job_uid[48];  // a hundred pods per job
  std::snprintf(job_uid, sizeof job_uid, "7a1d3c5a-0000-4000-8000-%012zx", number / 100);
  const std::string job = "training-" + std::to_string(number / 100);
  const std::string node = "node-" + std::to_string(number / 8);
  Document& meta = pod["metadata"];
  meta["name"] = job + "-worker-" + std::to_string(number % 100) + "-0";
  meta["uid"] = uid;
  meta["resourceVersion"] = std::to_string(1000000 + number);
  meta["labels"] = {{"paceline.dev/job", job},
                    {"paceline.dev/job-uid", job_uid},
                    {"paceline.dev/role", "worker"},
                    {"paceline.dev/replica-index", std::to_string(number % 100)},
                    {"paceline.dev/node-rank", std::to_string(number % 100)},
                    {"paceline.dev/incarnation", "0"}};
  meta["ownerReferences"] = Document::array({{{"apiVersion", "paceline.dev/v1alpha1"},
                                              {"kind", "TrainingJob"},
                                              {"name", job},
                                              {"uid", job_uid},
                                              {"controller", true},
                                              {"blockOwnerDeletion", true}}});
  pod["spec"]["nodeName"] = node;
  pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
     ["nodeSelectorTerms"][0]["matchFields"][0]["values"][0] = node;
  pod["status"]["podIP"] = "10." + std::to_string(number >> 16) + "." +
                           std::to_string(number >> 8 & 255) + "." + std::to_string(number & 255);
  return pod.dump();
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t pods = 50000;
  if (argc > 1) {
    const std::string_view text(argv[1]);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pods);
    if (error != std::errc() || end != text.data() + text.size() || pods == 0 || argc > 2) {
      std::fprintf(stderr, "usage: bench_pod_cache [PODS], PODS a positive number\n");
      return 2;
    }
  }
  Document pod = template_pod();
  paceline::kube::Store<paceline::observe::PodView> store(
      paceline::observe::project_pod, [](const paceline::observe::PodView& view) {
        return view.gang ? view.gang->job_uid : std::string();
      });
  // the parser's buffers do not belong to the cache
  if (const auto warm = store.add(pod_json(pod, 0)); !warm) {
    std::fprintf(stderr, "%s\n", paceline::to_string(warm.error()).c_str());
    return 1;
  }
  store.abort_replace();

  const std::size_t before = heap_bytes();
  std::size_t json_bytes = 0;
  std::chrono::nanoseconds spent{0};
  store.begin_replace();
  for (std::size_t i = 0; i < pods; ++i) {
    const std::string json = pod_json(pod, i);
    json_bytes += json.size();
    const auto began = std::chrono::steady_clock::now();
    if (!store.add(json)) return 1;
    spent += std::chrono::steady_clock::now() - began;
  }
  store.end_replace(1);
  const std::size_t ours = (heap_bytes() - before) / pods;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const long peak_kib = usage.ru_maxrss;

  const std::size_t before_documents = heap_bytes();
  std::vector<Document> documents;
  documents.reserve(kDocuments);
  for (std::size_t i = 0; i < kDocuments; ++i)
    documents.push_back(Document::parse(pod_json(pod, i)));
  const std::size_t document = (heap_bytes() - before_documents) / kDocuments;

  const Document line = {
      {"bench", "pod_cache"},
      {"ratio", static_cast<double>(document) / static_cast<double>(ours)},
      {"pods", store.size()},
      {"bytes_per_pod", ours},
      {"limit_bytes_per_pod", kLimitBytes},
      {"document_bytes_per_pod", document},
      {"json_bytes_per_pod", json_bytes / pods},
      {"project_us_per_pod", static_cast<double>(spent.count()) / 1e3 / static_cast<double>(pods)},
      {"peak_rss_mib", peak_kib / 1024}};
  std::printf("%s\n", line.dump().c_str());
  return ours <= kLimitBytes ? 0 : 1;
}
