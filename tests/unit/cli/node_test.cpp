// SPDX-License-Identifier: Apache-2.0
// What `paceline doctor --node` and `paceline fabric --node` print, from a fake API server's
// NodeFabric and an agent's document.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <sstream>

#include "agent/client/measure.hpp"
#include "cli/error_text.hpp"
#include "cli/node/command.hpp"
#include "cli/node/measure.hpp"
#include "common/base/timestamp.hpp"
#include "common/kube/fake/cluster.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

struct NodeCommands : testing::Test {
  NodeCommands() : api(kube::make_fake_api(cluster)) {}

  void put(const json& status) {
    const json fabric{{"apiVersion", "paceline.dev/v1alpha1"},
                      {"kind", "NodeFabric"},
                      {"metadata", {{"name", "n1"}}}};
    ASSERT_TRUE(api->create(kube::kNodeFabrics, "", fabric.dump()));
    ASSERT_TRUE(cluster.poke(kube::kNodeFabrics, "", "n1", json{{"status", status}}.dump()));
  }
  static json condition(const char* type, const char* state, const char* reason,
                        const char* message = "") {
    return {{"type", type},
            {"status", state},
            {"reason", reason},
            {"message", message},
            {"lastTransitionTime", "2026-01-02T03:04:05Z"}};
  }
  /// The Lease of its agent, renewed that long ago.
  void renew(std::chrono::seconds ago) {
    const json lease{{"apiVersion", "coordination.k8s.io/v1"},
                     {"kind", "Lease"},
                     {"metadata", {{"name", "paceline-agent-n1"}}},
                     {"spec",
                      {{"holderIdentity", "paceline-agent-7x2kp"},
                       {"leaseDurationSeconds", 40},
                       {"renewTime", format_micro_time(clock.wall() - ago)}}}};
    ASSERT_TRUE(api->create(kube::kLeases, "paceline-agents", lease.dump()));
  }
  int doctor(bool as_json = false) {
    return node_doctor(*api, {.name = "n1"}, clock, as_json, out, err);
  }
  int fabric(bool as_json = false) {
    return node_fabric(*api, {.name = "n1"}, clock, as_json, out, err);
  }

  ManualClock clock;
  kube::FakeCluster cluster{clock};
  std::shared_ptr<kube::Api> api;
  std::ostringstream out;
  std::ostringstream err;
};

TEST_F(NodeCommands, ANodeWithoutAnAgentCouldNotBeLookedAt) {
  EXPECT_EQ(doctor(), 2);
  EXPECT_THAT(err.str(), HasSubstr("there is no NodeFabric n1: see `kubectl get nodes`"));
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(fabric(), 2);
}

TEST_F(NodeCommands, ANodeThatIsNotPublishedYetCouldNotBeLookedAt) {
  ASSERT_TRUE(api->create(
      kube::kNodeFabrics, "",
      R"({"apiVersion":"paceline.dev/v1alpha1","kind":"NodeFabric","metadata":{"name":"n1"}})"));
  EXPECT_EQ(doctor(), 2);
  EXPECT_THAT(err.str(), HasSubstr("has not published"));
}

TEST_F(NodeCommands, AServerThatRefusesIsNamed) {
  cluster.set_faults([](const http::Request&) { return kube::Fault{.status = 403}; });
  EXPECT_EQ(doctor(), 2);
  EXPECT_NE(err.str(), "");
}

TEST_F(NodeCommands, WhatFailsComesFirstWithItsRemedy) {
  put({{"observedTime", "2026-01-02T03:04:06Z"},
       {"conditions",
        {condition("Complete", "True", "AllRead"),
         condition("RuntimeReady", "Unknown", "Starting", "not staged yet"),
         condition("GpuDirectReady", "False", "acs", "requests are redirected at 0000:00:01.0")}}});
  renew(std::chrono::seconds(10));
  EXPECT_EQ(doctor(), 1);
  const std::string text = out.str();
  EXPECT_TRUE(
      text.starts_with("FAIL  GpuDirectReady  acs: requests are redirected at 0000:00:01.0 (since "
                       "2026-01-02T03:04:05Z)\n"))
      << text;
  EXPECT_THAT(text, HasSubstr("remedy: " + std::string(agent::find_check("acs")->remedy)));
  EXPECT_LT(text.find("RuntimeReady"), text.find("Complete"));
  EXPECT_THAT(text, HasSubstr("3 conditions of n1: 1 fail, 1 good, 1 could not be told; last "
                              "change 2026-01-02T03:04:06Z"));
  out.str("");
  EXPECT_EQ(doctor(true), 1);
  EXPECT_EQ(json::parse(out.str())["failed"], 1);
  EXPECT_EQ(json::parse(out.str())["agentAlive"], true);
}

TEST_F(NodeCommands, WhatADeadAgentPublishedIsSaidToBeOld) {
  put({{"conditions", {condition("GpuDirectReady", "True", "Registered")}}});
  renew(std::chrono::hours(3) + std::chrono::minutes(20));
  EXPECT_EQ(doctor(), 2);
  EXPECT_THAT(
      err.str(),
      HasSubstr(
          "the agent of n1 has not renewed its Lease for 3h20m: what it published is as old"));
  EXPECT_THAT(err.str(),
              HasSubstr("kubectl -n paceline-agents get pods --field-selector spec.nodeName=n1"));
  EXPECT_THAT(out.str(), HasSubstr("ok    GpuDirectReady"));
  out.str("");
  EXPECT_EQ(doctor(true), 2);
  EXPECT_EQ(json::parse(out.str())["agentAlive"], false);
  err.str("");
  EXPECT_EQ(fabric(), 2);
  EXPECT_THAT(err.str(), HasSubstr("for 3h20m"));
}

TEST_F(NodeCommands, AnAgentWithoutALeaseIsNotAlive) {
  put({{"conditions", {condition("GpuDirectReady", "False", "acs")}}});
  EXPECT_EQ(doctor(), 2);
  EXPECT_THAT(err.str(),
              HasSubstr("there is no Lease paceline-agent-n1 in the namespace paceline-agents"));
  EXPECT_EQ(node_doctor(*api, {.name = "n1", .agent_namespace = "other"}, clock, false, out, err),
            2);
  EXPECT_THAT(err.str(), HasSubstr("in the namespace other"));
}

TEST_F(NodeCommands, WhoMayNotReadLeasesIsToldSo) {
  put({{"conditions", {condition("GpuDirectReady", "False", "acs")}}});
  cluster.set_faults([](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.target.find("/leases/") == std::string::npos) return std::nullopt;
    return kube::Fault{.status = 403};
  });
  EXPECT_EQ(doctor(true), 1);
  EXPECT_THAT(err.str(), HasSubstr("whether the agent of n1 lives is not known"));
  EXPECT_TRUE(json::parse(out.str())["agentAlive"].is_null());
}

TEST_F(NodeCommands, WhatCannotBeToldIsNoFailure) {
  put({{"conditions",
        {condition("Complete", "True", "AllRead"),
         condition("GpuDirectReady", "Unknown", "NotProved")}}});
  renew(std::chrono::seconds(40));
  EXPECT_EQ(doctor(), 0);
  EXPECT_THAT(out.str(), Not(HasSubstr("FAIL")));
}

TEST_F(NodeCommands, TheFabricIsShownAsItWasPublished) {
  put({{"gpus",
        {{{"index", 0}, {"model", "H100"}, {"pciAddress", "0000:17:00.0"}, {"numaNode", 0}}}},
       {"rdmaDevices", {{{"name", "mlx5_0"}, {"linkLayer", "InfiniBand"}, {"up", false}}}},
       {"distance",
        {{"nics", {"mlx5_0"}}, {"rows", {{{"gpu", "GPU0"}, {"gpus", "X"}, {"nics", "PIX"}}}}}}});
  renew(std::chrono::seconds(0));
  EXPECT_EQ(fabric(), 0);
  EXPECT_THAT(out.str(), HasSubstr("H100"));
  EXPECT_THAT(out.str(), HasSubstr("InfiniBand, down"));
  EXPECT_THAT(out.str(), HasSubstr("        GPU0    mlx5_0\nGPU0    X       PIX\n"));
  out.str("");
  EXPECT_EQ(fabric(true), 0);
  EXPECT_EQ(json::parse(out.str())["gpus"][0]["model"], "H100");
}

TEST_F(NodeCommands, AnAgentIsFoundByItsNodeFabric) {
  put({{"observedTime", "2026-01-02T03:04:06Z"}});
  EXPECT_THAT(published_agent(*api, "n1").error().message,
              HasSubstr("says no address of its agent"));
  ASSERT_TRUE(cluster.poke(kube::kNodeFabrics, "", "n1",
                           R"({"status":{"agentAddress":"[fd00::1]:9465"}})"));
  EXPECT_EQ(published_agent(*api, "n1").value(), "https://[fd00::1]:9465");
}

/// An agent that gives a prepared answer.
class Telling final : public http::HttpTransport {
 public:
  Result<http::Response> send(const http::Request& request,
                              const std::stop_token& /*stop*/) override {
    asked = request;
    return answer;
  }
  Result<http::Response> stream(const http::Request&, const http::ChunkHandler&,
                                const std::stop_token&) override {
    return fail(Code::kInternal, Origin::kHttp, "not used here");
  }
  http::Request asked;
  Result<http::Response> answer = http::Response{};
};

TEST_F(NodeCommands, AMeasurementIsPrinted) {
  Telling asked_agent;
  asked_agent.answer = http::Response{
      200,
      {},
      R"({"peer":"n2","latencySeconds":4.2e-5,"bandwidthMbps":9412.7,"measuredTime":"2026-01-02T03:04:05Z",)"
      R"("flows":{"count":7,"bandwidthMbps":38000},)"
      R"("roundTrips":[{"bytes":64,"microseconds":85.1},{"bytes":1048576,"microseconds":1881.0}]})"};
  agent::AskOptions options{.node = "n1", .peer = "n2"};
  EXPECT_EQ(agent::ask_to_measure(asked_agent, "t", options, out, err), 0);
  EXPECT_EQ(out.str(),
            "n1 to n2: latency 42 us, bandwidth 9.41 Gbit/s with one TCP flow, 38 Gbit/s with 7 "
            "(between the agents' pods), measured "
            "2026-01-02T03:04:05Z\n  64 bytes there and back: 85.1 us\n  1048576 bytes there and "
            "back: 1.88 ms\n");
  EXPECT_EQ(asked_agent.asked.method + asked_agent.asked.target, "POST/v1/links");
  EXPECT_EQ(asked_agent.asked.header("Authorization"), "Bearer t");
  EXPECT_EQ(json::parse(asked_agent.asked.body), json({{"peer", "n2"}}));
  out.str("");
  options.json = true;
  EXPECT_EQ(agent::ask_to_measure(asked_agent, "t", options, out, err), 0);
  EXPECT_EQ(json::parse(out.str())["peer"], "n2");
}

TEST(ErrorText, NamesWhatToTypeWhereTheServerDoesNot) {
  EXPECT_THAT(
      error_text({Code::kUnauthorized, Origin::kKube, "GET /x: Unauthorized"}),
      testing::AllOf(HasSubstr("GET /x: Unauthorized; "), HasSubstr("kubectl auth whoami")));
  EXPECT_THAT(error_text({Code::kUnavailable, Origin::kHttp, "cannot connect"}),
              HasSubstr("cannot connect; `kubectl cluster-info`"));
  // A certificate that is not trusted, and what the server says itself.
  EXPECT_EQ(error_text({Code::kUnauthorized, Origin::kHttp, "certificate"}), "certificate");
  EXPECT_EQ(error_text({Code::kForbidden, Origin::kKube, "bob may not"}), "bob may not");
}

TEST_F(NodeCommands, AMeasurementThatIsRefusedSaysWhy) {
  Telling asked_agent;
  for (const auto& [answer, words] : std::vector<std::pair<http::Response, std::string>>{
           {{429, {}, R"({"error":"come again in 70 s"})"}, "come again in 70 s"},
           {{500, {}, "<html>"}, "HTTP 500"},
           {{200, {}, "7"}, "HTTP 200"}}) {
    asked_agent.answer = answer;
    err.str("");
    EXPECT_EQ(agent::ask_to_measure(asked_agent, "t", {.node = "n1", .peer = "n2"}, out, err), 2);
    EXPECT_THAT(err.str(), HasSubstr(words));
  }
  EXPECT_EQ(out.str(), "");
}

TEST_F(NodeCommands, WithoutATokenTheAgentAsksItselfInItsPod) {
  const MeasureOptions options{
      .node = {.name = "n1", .kubeconfig = "my.config"}, .peer = "n2", .json = true};
  const auto nowhere = exec_in_agent(*api, options);
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().message, HasSubstr("get pods --field-selector spec.nodeName=n1"));
  renew(std::chrono::seconds(10));
  const auto words = exec_in_agent(*api, options);
  ASSERT_TRUE(words) << words.error().message;
  EXPECT_EQ(*words, (std::vector<std::string>{
                        "kubectl", "--kubeconfig=my.config", "--namespace=paceline-agents", "exec",
                        "paceline-agent-7x2kp", "--container=agent", "--",
                        "/usr/bin/paceline-agent", "measure", "--peer=n2", "--json"}));
}

TEST(AgentDocument, IsReadAsDoctorWritesItAndNothingElseIs) {
  const auto findings = read_findings(R"({"version":1,"checks":[
    {"id":"acs","remedy":"setpci","findings":[{"status":"fail","subject":"GPU0","evidence":"on"},{"status":"pass","evidence":"off"}]},
    {"id":"iommu","findings":[{"status":"skip","evidence":"none"}]}]})");
  ASSERT_TRUE(findings) << findings.error().message;
  ASSERT_EQ(findings->size(), 3U);
  EXPECT_EQ(findings->at(0).verdict, agent::Verdict::kFail);
  EXPECT_EQ(findings->at(0).remedy, "setpci");
  EXPECT_EQ(findings->at(1).remedy, "");
  for (const char* wrong :
       {"", "[]", "{}", R"({"checks":{}})", R"({"checks":[7]})", R"({"checks":[{"id":"acs"}]})",
        R"({"checks":[{"id":"acs","findings":[{"status":"fine"}]}]})"}) {
    EXPECT_FALSE(read_findings(wrong)) << wrong;
  }
}

TEST(AgentDocument, IsAskedForOverTlsWithATokenOnly) {
  const ManualClock clock;
  for (const NodeOptions& options :
       {NodeOptions{.name = "n1", .agent = "http://10.0.0.1:9465", .agent_token = "t"},
        NodeOptions{.name = "n1", .agent = "https://10.0.0.1:9465"},
        NodeOptions{.name = "n1", .agent = "10.0.0.1", .agent_token = "t"}}) {
    EXPECT_FALSE(connect_agent(options, clock));
  }
}

}  // namespace
}  // namespace paceline::cli
