// SPDX-License-Identifier: Apache-2.0
#include "launcher/spans/target.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/spans/otlp.hpp"

namespace paceline::spans {
namespace {

using frameworks::Environment;

launcher::Config job() {
  launcher::Config config;
  config.job_name = "train";
  config.job_namespace = "ml";
  config.job_uid = "0f8fad5b-d9cb-469f-a165-70867728950e";
  return config;
}

std::string where(const Environment& environment) {
  const auto target = read_target(environment, job());
  if (!target) return "error: " + target.error().message;
  if (!*target) return "off";
  return (*target)->host + " " + std::to_string((*target)->port) + " " + (*target)->path;
}

TEST(SpanTarget, FollowsTheStandardVariables) {
  const std::string end = "OTEL_EXPORTER_OTLP_ENDPOINT";
  const std::string traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
  const std::string node = "http://10.0.0.7:4318";
  const struct {
    Environment environment;
    std::string expected;
  } table[] = {
      {{}, "off"},
      {{{end, node}}, "10.0.0.7 4318 /v1/traces"},
      {{{end, node + "/otlp/"}}, "10.0.0.7 4318 /otlp/v1/traces"},
      {{{end, node}, {traces, "http://tempo.monitoring:80/push"}}, "tempo.monitoring 80 /push"},
      {{{traces, "http://[fd00::7]:4318"}}, "fd00::7 4318 /"},
      {{{end, "http://collector"}}, "collector 80 /v1/traces"},
      {{{end, node}, {"OTEL_SDK_DISABLED", "true"}}, "off"},
      {{{end, node}, {"OTEL_TRACES_EXPORTER", "none"}}, "off"},
      {{{end, node}, {"TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}},
       "off"},
  };
  for (const auto& [environment, expected] : table) EXPECT_EQ(where(environment), expected);
}

TEST(SpanTarget, SaysWhatToWriteInstead) {
  const std::string end = "OTEL_EXPORTER_OTLP_ENDPOINT";
  for (const char* url : {"https://collector:4318", "collector:4318", "http://collector:port"})
    EXPECT_NE(where({{end, url}}).find("error: " + end + " is \"" + url), std::string::npos) << url;
  EXPECT_NE(where({{end, "http://c:4317"}, {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}})
                .find("set it to http/json"),
            std::string::npos);
}

TEST(SpanTarget, TakesHeadersResourceAndTheTraceThatTheJobBelongsTo) {
  const auto target =
      read_target({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"},
                   {"OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=1,broken"},
                   {"OTEL_RESOURCE_ATTRIBUTES", "team=vision,k8s.namespace.name=wrong"},
                   {"OTEL_EXPORTER_OTLP_TIMEOUT", "500"},
                   {"TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
                  job());
  ASSERT_TRUE(target && *target);
  EXPECT_EQ((*target)->headers, (Pairs{{"api-key", "a b"}, {"x", "1"}}));
  EXPECT_EQ((*target)->timeout, std::chrono::milliseconds(500));
  EXPECT_EQ((*target)->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ((*target)->parent, "b7ad6b7169203331");
  EXPECT_EQ((*target)->resource[0], (Pairs::value_type{"team", "vision"}));
  EXPECT_EQ((*target)->resource[1], (Pairs::value_type{"service.name", "train"}));
  EXPECT_EQ((*target)->resource[2], (Pairs::value_type{"k8s.namespace.name", "ml"}));
  std::vector<std::string> variables = {"TRACEPARENT=00-old", "A=1"};
  tell(**target, "uid", 2, variables);
  EXPECT_EQ(variables, (std::vector<std::string>{"A=1", "TRACEPARENT=00-" + (*target)->trace_id +
                                                            "-" + attempt_span("uid", 2) + "-01"}));
}

TEST(Otlp, WritesTextsThatAreNotUtf8) {
  const Span span{.name = "attempt 0", .id = span_id("u", "a"), .error = "died: \xff"};
  const auto document = nlohmann::json::parse(to_otlp({.trace_id = trace_id("u")}, {span}));
  const auto& written = document["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(written["status"]["code"], 2);
  EXPECT_FALSE(written.contains("parentSpanId"));
  EXPECT_EQ(written["startTimeUnixNano"], "0");
}

}  // namespace
}  // namespace paceline::spans
