// SPDX-License-Identifier: Apache-2.0
// What the operator keeps of objects.
#include "operator/observe/views.hpp"

#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

namespace paceline::observe {
namespace {

using nlohmann::json;

std::string node(const std::string& name) {
  json labels = {{"kubernetes.io/hostname", name}};
  for (int i = 0; i < 100; ++i)
    labels["feature.node.kubernetes.io/cpu-cpuid.FEATURE" + std::to_string(i)] = "true";
  return json{{"metadata", {{"name", name}, {"labels", labels}}}}.dump();
}

TEST(Views, ALabelThatNodesShareIsKeptOnce) {
  const auto first = project_node(node("n1"));
  const auto second = project_node(node("n2"));
  ASSERT_TRUE(first && second);
  const std::string key = "feature.node.kubernetes.io/cpu-cpuid.FEATURE7";
  ASSERT_NE(first->label(key), nullptr);
  EXPECT_EQ(*first->label(key), "true");
  EXPECT_EQ(first->label(key), second->label(key)) << "the same text, not one that is equal";
  EXPECT_EQ(*first->label("kubernetes.io/hostname"), "n1");
  EXPECT_EQ(*second->label("kubernetes.io/hostname"), "n2");
  EXPECT_EQ(first->label("absent"), nullptr);
}

}  // namespace
}  // namespace paceline::observe
