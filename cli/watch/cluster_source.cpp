// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "cli/error_text.hpp"
#include "cli/watch/document.hpp"
#include "cli/watch/pod_summary.hpp"
#include "cli/watch/source.hpp"
#include "cli/watch/text.hpp"
#include "common/kube/api/object_version.hpp"
#include "common/kube/watch/reflector.hpp"
#include "common/kube/watch/store.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kRetry{2};
// A dead connection is noticed half a minute after the end of a watch.
constexpr std::chrono::seconds kShortestWatch{20};
constexpr std::chrono::seconds kLongestWatch{40};

Result<JobEntry> project(std::string_view text, bool keep_document) {
  json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return fail(Code::kInvalid, Origin::kProtocol, "no JSON object");
  json document = job_document(object);
  JobEntry entry;
  entry.facts = read_facts(document);
  entry.meta.ns = entry.facts.name_space;
  entry.meta.name = entry.facts.name;
  entry.meta.resource_version = kube::version_of(text);
  if (keep_document) entry.document = std::move(document);
  return entry;
}

class ClusterSource final : public JobSource, private kube::ObjectSink {
 public:
  ClusterSource(std::shared_ptr<kube::Api> api, std::string ns, std::string kubeconfig,
                const Clock& clock, bool keep_documents)
      : api_(std::move(api)),
        ns_(std::move(ns)),
        kubeconfig_(std::move(kubeconfig)),
        clock_(clock),
        store_([keep_documents](std::string_view text) { return project(text, keep_documents); }),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  JobList jobs() const override { return store_.list(); }

  Result<Detail> detail(const std::string& ns, const std::string& name,
                        const std::stop_token& stop) override {
    return cluster_detail(*api_, kubeconfig_, ns, name, stop);
  }

 private:
  void begin_replace() override { store_.begin_replace(); }
  Status add(std::string_view object) override { return store_.add(object); }
  void abort_replace() override { store_.abort_replace(); }
  void end_replace(std::uint64_t version) override {
    store_.end_replace(version);
    well(clock_.wall());
  }
  Status apply(const kube::WatchEvent& event) override {
    well(clock_.wall());
    return store_.apply(event);
  }

  void failed(const Error& error) {
    std::string text = clean(error_text(error));
    if (error.code == Code::kForbidden && ns_.empty())
      text += "; -n NAMESPACE looks at one namespace";
    if (error.code == Code::kNotFound)
      text += "; Paceline is perhaps not installed in this cluster";
    trouble(std::move(text));
  }

  /// Reads all jobs again after each error, so that the end of an outage is known at once.
  void run(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    while (!stop.stop_requested()) {
      std::stop_source round;
      const std::stop_callback chained(stop, [&] { round.request_stop(); });
      kube::ReflectorOptions options;
      options.ns = ns_;
      options.min_watch = kShortestWatch;
      options.max_watch = kLongestWatch;
      options.on_error = [&](const Error& error) {
        failed(error);
        round.request_stop();
      };
      kube::Reflector(*api_, kube::kTrainingJobs, options, *this).run(round.get_token());
      std::unique_lock lock(mutex);
      wake.wait_for(lock, stop, kRetry, [] { return false; });
    }
  }

  const std::shared_ptr<kube::Api> api_;
  const std::string ns_;
  const std::string kubeconfig_;
  const Clock& clock_;
  kube::Store<JobEntry> store_;
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<JobSource> watch_cluster(std::shared_ptr<kube::Api> api, const std::string& ns,
                                         const std::string& kubeconfig, const Clock& clock,
                                         bool keep_documents) {
  return std::make_unique<ClusterSource>(std::move(api), ns, kubeconfig, clock, keep_documents);
}

Result<Detail> cluster_detail(kube::Api& api, const std::string& kubeconfig, const std::string& ns,
                              const std::string& name, const std::stop_token& stop) {
  const auto text = api.get(kube::kTrainingJobs, ns, name, stop);
  if (!text && text.error().code == Code::kNotFound) {
    return fail(Code::kNotFound, Origin::kKube,
                "there is no TrainingJob " + name + " in the namespace " + ns +
                    "; `kubectl get trainingjobs -A` lists all");
  }
  if (!text) return std::unexpected(text.error());
  const json object = json::parse(*text, nullptr, false);
  if (!object.is_object())
    return fail(Code::kInvalid, Origin::kProtocol, "the API server's answer is no object");
  Detail detail{job_document(object), ""};
  const std::string phase = read_facts(detail.document).phase;
  if (phase != "Running" && phase != "Restarting" && phase != "Starting") {
    if (phase == "Succeeded" || phase == "Failed")
      detail.gap = "the job has ended, so only its status is shown";
    return detail;
  }
  const auto summary = pod_summary(api, kubeconfig, ns, name, stop);
  if (summary) {
    add_summary(detail.document, *summary);
  } else {
    detail.gap = clean(summary.error().message);
  }
  return detail;
}

}  // namespace paceline::cli
