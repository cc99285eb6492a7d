// SPDX-License-Identifier: Apache-2.0
// Jobs that the tests of `paceline top`, `explain` and `report` look at.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "cli/watch/document.hpp"
#include "common/base/timestamp.hpp"

namespace paceline::cli::test {

/// A TrainingJob of two replicas of two ranks, as an API server has it.
inline nlohmann::json training_job(const std::string& ns, const std::string& name,
                                   const nlohmann::json& status) {
  nlohmann::json job = nlohmann::json::parse(R"({
    "apiVersion": "paceline.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"uid": "7f1c2d9a-0000-4000-8000-000000000001", "resourceVersion": "7"},
    "spec": {"framework": {"type": "PyTorch", "processesPerReplica": 2},
             "roles": [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": [
               {"name": "trainer", "image": "x", "command": ["python3", "train.py"]}]}}}]}})");
  job["metadata"]["namespace"] = ns;
  job["metadata"]["name"] = name;
  job["status"] = status;
  return job;
}

inline nlohmann::json running_status() {
  return nlohmann::json::parse(R"({
    "phase": "Running", "ready": "2/2", "readyPods": 2, "totalPods": 2, "queue": "research",
    "reason": "AllRanksStarted", "message": "training",
    "attempt": 1, "restarts": 1, "startTime": "2026-01-01T00:00:00Z",
    "placement": {"nodes": [{"name": "n1", "pods": 1}, {"name": "n2", "pods": 1}]},
    "acceleration": {"numerics": "Reordered", "loader": "Disabled", "optimizer": "Auto",
      "compile": "Auto",
      "effects": [{"feature": "compile", "kept": true, "gain": 214},
                  {"feature": "loader", "kept": false, "reason": "the dataset is a stream"}]},
    "training": {"step": 1200, "samplesPerSecond": 5120, "stepTime": {"p50": "12.3ms", "p95": "15ms"},
      "breakdown": {"data_wait": 230, "forward": 310, "backward": 300, "comm_exposed": 100,
                    "optimizer": 60},
      "bottleneck": "data", "slowestRank": 3}})");
}

inline nlohmann::json queued_status() {
  return nlohmann::json::parse(R"({
    "phase": "Queued", "reason": "NoRoom", "message": "waits for 8 GPUs; 2 are free",
    "conditions": [{"type": "Placed", "status": "False", "reason": "NoRoom",
                    "message": "waits for 8 GPUs; 2 are free",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]})");
}

/// What rank 0's launcher says of the running job.
inline nlohmann::json summary() {
  return nlohmann::json::parse(R"({
    "version": 1, "phase": "Running", "attempt": 1, "restarts": 1, "missing": [],
    "training": {"step": 1210, "samplesPerSecond": 5111.5, "tokensPerSecond": 88000.5, "mfu": 0.41,
      "stepSeconds": {"p50": 0.0123, "p95": 0.015},
      "breakdown": {"data_wait": 0.23, "forward": 0.31, "backward": 0.3, "comm_exposed": 0.1,
                    "optimizer": 0.06},
      "bottleneck": "data", "slowestRank": 1,
      "history": [{"at": 0, "stepSeconds": 0.02}, {"at": 60, "stepSeconds": 0.0123},
                  {"at": 120, "stepSeconds": 0.0125}],
      "ranks": [
        {"rank": 0, "nodeRank": 0, "step": 1210, "stepSeconds": {"p50": 0.0123, "p95": 0.015},
         "samplesPerSecond": 1280, "breakdown": {"data_wait": 0.2, "forward": 0.3, "backward": 0.3,
         "comm_exposed": 0.15, "optimizer": 0.05}},
        {"rank": 1, "nodeRank": 0, "step": 1210, "stepSeconds": {"p50": 0.0123, "p95": 0.015},
         "samplesPerSecond": 1280, "breakdown": {"data_wait": 0.3, "forward": 0.32,
         "backward": 0.3, "comm_exposed": 0.01, "optimizer": 0.07}},
        {"rank": 2, "nodeRank": 1, "step": 1209, "stepSeconds": {"p50": 0.0124, "p95": 0.015},
         "samplesPerSecond": 1280, "breakdown": {"forward": 0.4, "backward": 0.3,
         "comm_exposed": 0.3}}]},
    "effects": [{"feature": "compile", "kept": true, "gain": 0.214},
                {"feature": "loader", "kept": false, "reason": "the dataset is a stream"}],
    "goodput": {"ratio": 0.84, "seconds": 3600,
                "losses": {"waiting": 300, "starting": 96, "lostSteps": 180}},
    "findings": [{"kind": "straggler", "rank": 1, "node": "n1", "since": "2026-01-01T01:00:00Z",
                  "text": "Rank 1 on n1 waits for batches three times as long as the others.",
                  "advice": "Look at the disk of n1.", "gain": [0.1, 0.2]}]})");
}

/// When the tests look at the jobs.
inline WallTime now() { return *parse_time("2026-01-01T03:12:00Z"); }

/// The document of the running job, ranks and all.
inline nlohmann::json running_document() {
  nlohmann::json document = job_document(training_job("ml", "gpt", running_status()));
  add_summary(document, summary());
  return document;
}

}  // namespace paceline::cli::test
