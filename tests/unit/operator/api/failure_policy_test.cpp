// SPDX-License-Identifier: Apache-2.0
#include "operator/api/failure_policy.hpp"

#include <gtest/gtest.h>

#include "operator/api/fingerprint.hpp"
#include "operator/api/template/containers.hpp"
#include "operator/api/validate.hpp"
#include "tests/unit/operator/api/job_document.hpp"

namespace paceline::api {
namespace {

using nlohmann::json;

json with_policy(json policy) {
  json job = minimal();
  job["spec"]["failurePolicy"] = std::move(policy);
  return job;
}

TEST(FailurePolicy, ReadsItsRules) {
  const auto job = parse_training_job(with_policy(json::parse(R"({
    "maxDisruptions": 50,
    "rules": [
      {"name": "config", "action": "FailJob", "roles": ["worker"], "exitCodes": [2, "64-113", "7"]},
      {"action": "ReplaceNode", "signals": ["SIGBUS", 11], "reasons": ["OOMKilled"],
       "podConditions": [{"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}],
       "nodeConditions": [{"type": "Ready", "status": "Unknown"}]}]})")));
  ASSERT_TRUE(job);
  const FailurePolicy& policy = job->spec.failure_policy;
  EXPECT_EQ(policy.max_disruptions, 50);
  const std::vector<failure::Rule> expected{
      {.action = failure::Action::kFailJob,
       .name = "config",
       .roles = {"worker"},
       .exit_codes = {{2, 2}, {64, 113}, {7, 7}}},
      {.action = failure::Action::kReplaceNode,
       .signals = {7, 11},
       .reasons = {"OOMKilled"},
       .pod_conditions = {{"DisruptionTarget", "True", "PreemptionByScheduler"}},
       .node_conditions = {{"Ready", "Unknown", ""}}}};
  EXPECT_EQ(policy.rules, expected);
  EXPECT_EQ(parse_training_job(minimal())->spec.failure_policy.max_disruptions, std::nullopt);
}

TEST(FailurePolicy, EveryErrorNamesFieldValueAndRemedy) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([{}])",
       "spec.failurePolicy.rules[0].action: is required; write FailJob, RestartRank, RestartGang, "
       "ReplaceNode or Ignore"},
      {R"([{"action": "Retry"}])",
       "spec.failurePolicy.rules[0].action: \"Retry\" is not known; write one of FailJob, "
       "RestartRank, RestartGang, ReplaceNode, Ignore"},
      {R"([{"action": "FailJob", "exitCodes": [0]}])",
       "spec.failurePolicy.rules[0].exitCodes[0]: 0 is no exit code or range; write a number from "
       "1 "
       "to 255, or a range such as \"64-113\""},
      {R"([{"action": "FailJob", "exitCodes": ["9-7"]}])",
       "spec.failurePolicy.rules[0].exitCodes[0]: \"9-7\" is no exit code or range; write a number "
       "from 1 to 255, or a range such as \"64-113\""},
      {R"([{"action": "FailJob", "signals": ["SIGFOO"]}])",
       "spec.failurePolicy.rules[0].signals[0]: \"SIGFOO\" is no signal; write a name such as "
       "SIGSEGV, or a number from 1 to 64"},
      {R"([{"action": "FailJob", "reasons": []}])",
       "spec.failurePolicy.rules[0].reasons: [] is not a list of 1 to 32 entries; write a reason "
       "such as OOMKilled"},
      {R"([{"action": "FailJob", "podConditions": [{"status": "True"}]}])",
       "spec.failurePolicy.rules[0].podConditions[0].type: is required; write the type of the "
       "condition, such as DisruptionTarget"},
      {R"([{"action": "FailJob", "exitCode": 2}])",
       "spec.failurePolicy.rules[0].exitCode: is an unknown field; remove it, or write one of "
       "action, name, roles, exitCodes, signals, reasons, podConditions, nodeConditions"},
  };
  for (const auto& [rules, message] : cases)
    EXPECT_EQ(error_of(with_policy({{"rules", json::parse(rules)}})), message);
}

TEST(FailurePolicy, SparesAreFurtherReplicasOfTheLastRole) {
  const auto job = parse_training_job(with_policy({{"spares", 3}}));
  ASSERT_TRUE(job);
  EXPECT_EQ(job->spec.roles[0].replicas, 2 + 3);
  EXPECT_EQ(replica_count(job->spec), 5);
  EXPECT_EQ(place_count(job->spec), 2);
  EXPECT_EQ(world_size(job->spec), 4);
  EXPECT_NE(fingerprint(job->spec), fingerprint(parse_training_job(minimal())->spec));
  Spec alone = job->spec;
  remove_spares(alone);
  EXPECT_EQ(fingerprint(alone), fingerprint(parse_training_job(minimal())->spec));
}

TEST(FailurePolicy, SparesThatCouldNotHelpAreRefused) {
  const auto with_roles = [](const json& second) {
    json job = with_policy({{"spares", 1}});
    json role = job["spec"]["roles"][0];
    role.update(second);
    job["spec"]["roles"].push_back(role);
    return job;
  };
  EXPECT_EQ(error_of(with_roles({{"name", "eval"}, {"kind", "Evaluator"}})),
            "spec.failurePolicy.spares: 1 are pods of the last role, and role eval is of kind "
            "Evaluator; write the role of kind Worker last, or remove spares");
  json servers = with_roles({{"name", "w"}});
  servers["spec"]["roles"][0]["kind"] = "ParameterServer";
  servers["spec"]["framework"]["type"] = "PaddlePaddle";
  EXPECT_EQ(error_of(servers),
            "spec.failurePolicy.spares: 1 take places at a restart of all ranks, which this job's "
            "workers do not need: each is replaced alone; remove spares");
  json elastic = with_policy({{"spares", 1}});
  elastic["spec"]["roles"][0].erase("replicas");
  elastic["spec"]["elastic"] = {
      {"role", "worker"}, {"replicas", 2}, {"minReplicas", 1}, {"maxReplicas", 3}};
  EXPECT_EQ(error_of(elastic),
            "spec.failurePolicy.spares: 1 cannot be combined with spec.elastic; remove one of "
            "them: an elastic job goes on with fewer replicas");
  json one = with_policy({{"spares", 2}});
  one["spec"]["roles"][0]["replicas"] = 1;
  EXPECT_EQ(error_of(one),
            "spec.failurePolicy.spares: 2 cannot take the place of node rank 0, the job's only "
            "replica; remove spares, or give the role more replicas");
  EXPECT_EQ(error_of(with_policy({{"spares", 17}})),
            "spec.failurePolicy.spares: 17 is out of range; write a whole number from 0 to 16");
}

TEST(FailurePolicy, ARuleMayNotAskForWhatItsRoleCannotDo) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([{"action": "FailJob", "roles": ["wroker"]}])",
       "spec.failurePolicy.rules[0].roles[0]: wroker is no role of this job; write the name of a "
       "role"},
      {R"([{"action": "RestartRank", "roles": ["worker"]}])",
       "spec.failurePolicy.rules[0].action: RestartRank cannot restart role worker alone: its "
       "peers wait for it; write RestartGang"},
      {R"([{"action": "RestartRank"}])", ""},
  };
  for (const auto& [rules, message] : cases) {
    const auto job = parse_training_job(with_policy({{"rules", json::parse(rules)}}));
    ASSERT_TRUE(job) << rules;
    const FieldErrors errors = validate_program(*job);
    EXPECT_EQ(errors.empty() ? "" : to_error(errors).message, message);
  }
}

}  // namespace
}  // namespace paceline::api
