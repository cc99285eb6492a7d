// SPDX-License-Identifier: Apache-2.0
// What the conformance suite runs against. Each test gets a namespace of its own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "common/kube/api/api.hpp"
#include "common/kube/fake/cluster.hpp"
#include "common/kube/fake/server.hpp"

namespace paceline::kube {

using Document = nlohmann::json;

class Conformance : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  void TearDown() override;

  Document config_map(const std::string& name, const std::string& value = "1") const;
  Document pod(const std::string& name) const;
  Document create(const Resource& resource, const Document& object,
                  const WriteOptions& options = {});
  static std::string version_text(const Document& object) {
    return object["metadata"]["resourceVersion"];
  }

  SystemClock clock_;
  std::unique_ptr<FakeCluster> cluster_;
  std::unique_ptr<FakeServer> server_;
  std::shared_ptr<Api> api_;
  std::string ns_;
};

}  // namespace paceline::kube
