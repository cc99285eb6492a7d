// SPDX-License-Identifier: Apache-2.0
// Pod templates with wrong types, in every place and of every type.
#include <gtest/gtest.h>

#include "operator/observe/views.hpp"
#include "operator/plan/placement/placement.hpp"
#include "operator/plan/placement/volumes.hpp"
#include "operator/render/pod.hpp"

namespace paceline {
namespace {

using nlohmann::json;

/// A template with all fields that Paceline reads or changes.
json full_template() {
  return json::parse(R"({
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {
      "terminationGracePeriodSeconds": 30, "enableServiceLinks": true, "restartPolicy": "Never",
      "securityContext": {"runAsUser": 1000, "runAsNonRoot": true},
      "nodeSelector": {"pool": "gpu"},
      "tolerations": [{"key": "gpu", "operator": "Exists", "value": "", "effect": "NoSchedule"}],
      "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
                               "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
      "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
      "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
      "overhead": {"cpu": "1"},
      "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}},
      "initContainers": [{"name": "first", "image": "i", "restartPolicy": "Always",
                          "ports": [{"hostPort": 0}], "resources": {"limits": {"cpu": 1}}}],
      "containers": [{"name": "trainer", "image": "i", "command": ["train"], "args": ["x"],
                      "terminationMessagePath": "/dev/termination-log",
                      "env": [{"name": "A", "value": "b"}],
                      "ports": [{"hostPort": 0}],
                      "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                      "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 1, "nvidia.com/gpu": "1"}}}]}})");
}

observe::JobView job_with(const json& pod_template) {
  const json job = {
      {"apiVersion", "paceline.dev/v1alpha1"},
      {"kind", "TrainingJob"},
      {"metadata", {{"name", "j"}, {"uid", "u"}}},
      {"spec",
       {{"framework", {{"type", "Custom"}}},
        {"roles", json::array({{{"name", "w"}, {"replicas", 1}, {"template", pod_template}}})}}}};
  return observe::project_job(job.dump()).value();
}

/// All that the operator does with a template before the API server sees it.
void use(const observe::JobView& view) {
  const auto replicas = api::replicas_of(view.job.spec);
  for (const bool slot : {false, true}) {
    render::PodInputs inputs;
    inputs.node = "n";
    inputs.slot = slot;
    const json pod = render::render_pod(view.job, replicas[0], inputs);
    ASSERT_TRUE(plan::read_admitted(pod.dump()).has_value());
  }
  (void)plan::claims_of(view.job.spec, 0);
}

TEST(TemplateShape, AcceptsAFullTemplate) {
  const observe::JobView view = job_with(full_template());
  ASSERT_TRUE(view.errors.empty()) << api::to_error(view.errors).message;
  use(view);
}

TEST(TemplateShape, AWrongTypeAnywhereIsAnErrorOrHarmless) {
  const json whole = full_template();
  const std::vector<json> wrong = {5,
                                   -1.5,
                                   "text",
                                   true,
                                   nullptr,
                                   json::array(),
                                   json::object(),
                                   json::array({1}),
                                   json::array({nullptr}),
                                   {{"x", 1}}};
  int refused = 0;
  int used = 0;
  const json fields = whole.flatten();
  for (const auto& [path, value] : fields.items()) {
    // the field itself and everything above it
    for (json::json_pointer place(path); !place.empty(); place = place.parent_pointer()) {
      for (const json& other : wrong) {
        json changed = whole;
        changed[place] = other;
        SCOPED_TRACE(place.to_string() + ": " + other.dump());
        const observe::JobView view = job_with(changed);
        if (!view.errors.empty()) {
          ++refused;
          continue;
        }
        ++used;
        EXPECT_NO_THROW(use(view));
      }
    }
  }
  EXPECT_GT(refused, 400);
  EXPECT_GT(used, 100);
}

TEST(TemplateShape, NamesTheFieldAndTheRemedy) {
  const auto message = [](const char* place, const json& value) {
    json changed = full_template();
    changed[json::json_pointer(place)] = value;
    return api::to_error(job_with(changed).errors).message;
  };
  const std::string spec = "spec.roles[0].template.spec.";
  EXPECT_EQ(message("/spec/containers/0/terminationMessagePath", 5),
            spec + "containers[0].terminationMessagePath: 5 is not a string; put it in quotes");
  EXPECT_EQ(message("/spec/securityContext", json::array({1})),
            spec + "securityContext: [1] is not an object; write key: value pairs");
  EXPECT_EQ(message("/spec/volumes", 5),
            spec + "volumes: 5 is not a list of objects; write a list of - key: value");
  EXPECT_EQ(message("/spec/containers/0/resources/limits/memory", "64GB"),
            spec +
                "containers[0].resources.limits[memory]: \"64GB\" is not a quantity; write for "
                "example 500m, 2 or 64Gi");
  EXPECT_EQ(message("/spec/volumes/0/emptyDir/sizeLimit", true),
            spec +
                "volumes[0].emptyDir.sizeLimit: true is not a quantity; write for example "
                "500m, 2 or 64Gi");
  for (const char* good : {" 1Gi ", "1e3", "1E", ".5", "5.", "+2", "-1", "100m"})
    EXPECT_EQ(message("/spec/containers/0/resources/limits/memory", good), "") << good;
}

}  // namespace
}  // namespace paceline
