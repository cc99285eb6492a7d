// SPDX-License-Identifier: Apache-2.0
// Services and the Secret of a job whose pods know them, after somebody deleted them.
#include <gtest/gtest.h>

#include "tests/unit/operator/controller_bench.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

constexpr auto kMinute = std::chrono::seconds(61);

std::string rendezvous_of(ControllerBench& bench) {
  const std::string pod = bench.pods("j").front().dump();
  for (const std::string& text : bench.cluster().objects(kube::kServices)) {
    const json service = json::parse(text);
    const std::string address = service["spec"].value("clusterIP", "None");
    if (address != "None" && pod.find(address) != std::string::npos) return address;
  }
  return "none";
}

void delete_surroundings(ControllerBench& bench) {
  for (const kube::Resource& resource : {kube::kServices, kube::kSecrets}) {
    for (const std::string& text : bench.cluster().objects(resource)) {
      const std::string name = json::parse(text)["metadata"]["name"];
      ASSERT_TRUE(bench.cluster().erase(resource, "default", name));
    }
  }
}

class SurroundingsTest : public testing::Test {
 protected:
  void place_job() {
    bench.add_node("n0", 2);
    bench.add_job("j");
    bench.settle();
    address = rendezvous_of(bench);
    secret = bench.cluster().objects(kube::kSecrets);
    ASSERT_NE(address, "none");
    ASSERT_EQ(secret.size(), 1U);
  }

  /// Address and token are those that the pods were told.
  void expect_the_same() {
    EXPECT_EQ(bench.cluster().objects(kube::kServices).size(), 2U);
    EXPECT_EQ(rendezvous_of(bench), address);
    const auto now = bench.cluster().objects(kube::kSecrets);
    ASSERT_EQ(now.size(), 1U);
    EXPECT_EQ(json::parse(now[0])["data"], json::parse(secret[0])["data"]);
  }

  ControllerBench bench;
  std::string address;
  std::vector<std::string> secret;
};

TEST_F(SurroundingsTest, AreMadeAgainForAGangThatGathers) {
  bench.pods_wait = true;
  place_job();
  delete_surroundings(bench);
  bench.advance(2 * kMinute);
  bench.settle();
  expect_the_same();
}

TEST_F(SurroundingsTest, AreMadeAgainBeforeAReplacement) {
  place_job();
  delete_surroundings(bench);
  bench.advance(2 * kMinute);
  ASSERT_TRUE(bench.cluster().erase(kube::kPods, "default", "j-w-1-0"));
  bench.settle();
  ASSERT_EQ(bench.pods("j").size(), 2U);
  expect_the_same();
}

TEST_F(SurroundingsTest, OfAJobThatAnotherControllerManagesAreNotMade) {
  bench.pods_wait = true;
  place_job();
  delete_surroundings(bench);
  bench.patch_job("j", {{"spec", {{"managedBy", "example.com/other"}}}});
  bench.advance(kMinute);
  bench.settle();
  EXPECT_TRUE(bench.cluster().objects(kube::kSecrets).empty());
}

TEST_F(SurroundingsTest, OfAGangThatGathersForAnHourCostFewRequests) {
  bench.pods_wait = true;
  place_job();
  int services_made = 0;
  int requests = 0;
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    const bool services = request.target.find("/services") != std::string::npos;
    if (services || request.target.find("/secrets") != std::string::npos) ++requests;
    if (services && request.method == "POST") ++services_made;
    return std::nullopt;
  });
  for (int i = 0; i < 60; ++i) bench.advance(kMinute);
  EXPECT_EQ(services_made, 0) << "a create that is refused is a write all the same";
  EXPECT_GT(requests, 0);
  EXPECT_LE(requests, 8 * 3) << "after 2, 4, 8 and then every 16 minutes";
}

TEST_F(SurroundingsTest, GetAnotherAddressIfTheOldOneIsTaken) {
  bench.pods_wait = true;
  place_job();
  delete_surroundings(bench);
  bench.cluster().set_faults([&](const http::Request& request) -> std::optional<kube::Fault> {
    if (request.body.find("\"clusterIP\":\"" + address) == std::string::npos) return std::nullopt;
    return kube::Fault{.status = 422};
  });
  bench.advance(2 * kMinute);
  bench.settle();
  EXPECT_EQ(bench.cluster().objects(kube::kServices).size(), 2U);
}

}  // namespace
}  // namespace paceline::apply
