// SPDX-License-Identifier: Apache-2.0
// spec.elastic: which ones are refused, and the size that the role has then.
#include "operator/api/elastic.hpp"

#include <gtest/gtest.h>

#include "operator/api/fingerprint.hpp"
#include "tests/unit/operator/api/job_document.hpp"

namespace paceline::api {
namespace {

using nlohmann::json;

json elastic_document(const json& elastic) {
  json document = minimal();
  document["spec"]["elastic"] = elastic;
  document["spec"]["roles"][0].erase("replicas");
  return document;
}

json elastic_of(int replicas, int fewest, int most) {
  return {
      {"role", "worker"}, {"replicas", replicas}, {"minReplicas", fewest}, {"maxReplicas", most}};
}

TEST(Elastic, TheRoleHasTheNumberThatIsWanted) {
  const auto job = parse_training_job(elastic_document(elastic_of(4, 2, 8)));
  ASSERT_TRUE(job) << to_error(job.error()).message;
  ASSERT_TRUE(job->spec.elastic);
  EXPECT_EQ(replica_count(job->spec), 4);
  EXPECT_EQ(job->spec.elastic->min_replicas, 2);
  EXPECT_EQ(job->spec.elastic->max_replicas, 8);
  EXPECT_EQ(elastic_selector(*job), "paceline.dev/job-uid=u-1,paceline.dev/role=worker");
}

TEST(Elastic, WrongFieldsAreNamedWithARemedy) {
  struct Case {
    json elastic;
    const char* expected;
  };
  json no_role = elastic_of(2, 1, 2);
  no_role["role"] = "master";
  json unknown = elastic_of(2, 1, 2);
  unknown["metrics"] = json::array();
  const Case cases[] = {
      {elastic_of(9, 1, 8),
       "spec.elastic.replicas: 9 is outside minReplicas and maxReplicas; write a number from 1 to "
       "8"},
      {elastic_of(1, 2, 8), "spec.elastic.replicas: 1 is outside minReplicas and maxReplicas"},
      {elastic_of(2, 3, 2), "spec.elastic.minReplicas: 3 is above maxReplicas (2)"},
      {elastic_of(0, 1, 2), "spec.elastic.replicas: 0 is out of range"},
      {{{"role", "worker"}}, "spec.elastic.replicas"},
      {unknown, "spec.elastic.metrics: is an unknown field"},
      {no_role, "spec.elastic.role: master is no role of this job"},
      {3, "spec.elastic"},
  };
  for (const Case& test : cases) {
    const std::string error = error_of(elastic_document(test.elastic));
    EXPECT_NE(error.find(test.expected), std::string::npos) << test.elastic << ": " << error;
  }
}

TEST(Elastic, OneNumberAlone) {
  json both = elastic_document(elastic_of(2, 1, 2));
  both["spec"]["roles"][0]["replicas"] = 2;
  EXPECT_EQ(
      error_of(both),
      "spec.roles[0].replicas: 2 contradicts spec.elastic, which sets it; remove it, or remove "
      "spec.elastic");
  json neither = minimal();
  neither["spec"]["roles"][0].erase("replicas");
  EXPECT_NE(error_of(neither).find("spec.roles[0].replicas"), std::string::npos);
}

TEST(Elastic, WorkersAlone) {
  json servers = elastic_document(elastic_of(2, 1, 2));
  servers["spec"]["framework"] = {{"type", "Custom"}};
  servers["spec"]["roles"][0]["kind"] = "ParameterServer";
  EXPECT_NE(error_of(servers).find("spec.elastic.role: worker is of kind ParameterServer"),
            std::string::npos)
      << error_of(servers);
}

TEST(Elastic, AllRolesTogetherHaveABound) {
  json document = elastic_document(elastic_of(2, 1, 10000));
  document["spec"]["roles"].push_back(minimal()["spec"]["roles"][0]);
  document["spec"]["roles"][1]["name"] = "other";
  EXPECT_NE(error_of(document).find("write at most 9998"), std::string::npos) << error_of(document);
}

TEST(Fingerprint, ThatOfAnEarlierOperatorIsKnown) {
  const auto job = parse_training_job(elastic_document(elastic_of(4, 1, 8)));
  ASSERT_TRUE(job);
  const std::string former = "cb8c181c6dbc8f06";  // as it was on record
  EXPECT_TRUE(is_former_fingerprint(former, job->spec));
  EXPECT_TRUE(is_former_sized_fingerprint(former + "-4", job->spec));
  EXPECT_FALSE(is_former_sized_fingerprint(former + "-5", job->spec));
  const std::string present = fingerprint(job->spec);
  EXPECT_EQ(present.size(), former.size());
  EXPECT_FALSE(is_former_fingerprint(present, job->spec));
  EXPECT_FALSE(is_former_sized_fingerprint(sized_fingerprint(present, job->spec), job->spec));
}

TEST(Elastic, APlacedJobHasTheSizeOnRecord) {
  auto job = parse_training_job(elastic_document(elastic_of(4, 1, 8)));
  ASSERT_TRUE(job);
  const std::string before = fingerprint(job->spec);
  JobStatus status;
  status.elastic = ElasticStatus{.replicas = 2};
  size_as_placed(job->spec, status);
  EXPECT_EQ(replica_count(job->spec), 4) << "it is not placed";
  status.set_nodes({"a", "b"});
  size_as_placed(job->spec, status);
  EXPECT_EQ(replica_count(job->spec), 2);
  EXPECT_EQ(fingerprint(job->spec), before) << "a resize is no new spec";
  EXPECT_EQ(sized_fingerprint(before, job->spec), before + "-1-4");
  EXPECT_EQ(elastic_size(job->spec, 3), 3);
  EXPECT_EQ(elastic_size(job->spec, 5), std::nullopt) << "4 are wanted";
}

TEST(Elastic, StatusKeepsItsSize) {
  JobStatus status;
  status.elastic = ElasticStatus{.replicas = 2,
                                 .wanted = 4,
                                 .selector = "a=b",
                                 .since = WallTime(std::chrono::seconds(1'800'000'000)),
                                 .message = "runs with 2 of 4 replicas: no room"};
  EXPECT_EQ(read_status({{"status", write_status(status)}}).elastic, status.elastic);
}

}  // namespace
}  // namespace paceline::api
