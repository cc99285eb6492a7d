// SPDX-License-Identifier: Apache-2.0
// For the tests of the report: a recorded machine as the probes read it, its findings, and a
// publisher with a fake API server. Not thread-safe; a broken fixture fails the test that uses it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/checks/check.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "agent/report/publisher.hpp"
#include "common/base/clock.hpp"
#include "common/kube/fake/cluster.hpp"

namespace paceline::agent {

Hardware recorded_machine(std::string_view fixture);
std::vector<Finding> checked(std::string_view fixture);

/// A condition of the status; an empty object if it has none of this type.
nlohmann::json condition(const nlohmann::json& status, std::string_view type);

/// A fake API server with one Node, and a publisher for it.
class PublisherTest : public testing::Test {
 protected:
  PublisherTest() : api_(kube::make_fake_api(cluster_)) {
    options_.node_name = "n1";
    options_.ns = "paceline-system";
    options_.holder = "agent-x";
    options_.version = "0.1.0";
    create_node();
    publisher_.emplace(*api_, clock_, options_);
  }

  void create_node() {
    auto created = api_->create(kube::kNodes, "",
                                R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}})");
    ASSERT_TRUE(created) << to_string(created.error());
    node_uid_ = nlohmann::json::parse(*created)["metadata"]["uid"];
  }

  nlohmann::json stored() const {
    auto object = api_->get(kube::kNodeFabrics, "", "n1");
    return object ? nlohmann::json::parse(*object) : nlohmann::json();
  }
  std::uint64_t writes() const { return cluster_.counts().writes(); }

  ManualClock clock_;
  kube::FakeCluster cluster_{clock_};
  std::shared_ptr<kube::Api> api_;
  PublisherOptions options_;
  std::string node_uid_;
  std::optional<Publisher> publisher_;
};

}  // namespace paceline::agent
