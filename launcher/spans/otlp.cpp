// SPDX-License-Identifier: Apache-2.0
#include "launcher/spans/otlp.hpp"

#include <chrono>

#include <nlohmann/json.hpp>

namespace paceline::spans {
namespace {

using nlohmann::json;

constexpr int kInternal = 1;  // SPAN_KIND_INTERNAL
constexpr int kError = 2;     // STATUS_CODE_ERROR

json attributes_of(const Pairs& pairs) {
  json list = json::array();
  for (const auto& [name, value] : pairs)
    list.push_back({{"key", name}, {"value", {{"stringValue", value}}}});
  return list;
}

/// Whole numbers of 64 bits are texts in the JSON of protobuf.
std::string nanoseconds(WallTime time) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

json form(const Target& target, const Span& span) {
  json object = {{"traceId", target.trace_id},
                 {"spanId", span.id},
                 {"name", span.name},
                 {"kind", kInternal},
                 {"startTimeUnixNano", nanoseconds(span.begin)},
                 {"endTimeUnixNano", nanoseconds(span.end)},
                 {"attributes", attributes_of(span.attributes)}};
  if (!span.parent.empty()) object["parentSpanId"] = span.parent;
  if (!span.error.empty()) object["status"] = {{"code", kError}, {"message", span.error}};
  return object;
}

}  // namespace

std::string to_otlp(const Target& target, const std::vector<Span>& spans) {
  json list = json::array();
  for (const Span& span : spans) list.push_back(form(target, span));
  const json scope = {{"scope", {{"name", "paceline"}, {"version", PACELINE_VERSION}}},
                      {"spans", std::move(list)}};
  const json document = {
      {"resourceSpans",
       json::array({{{"resource", {{"attributes", attributes_of(target.resource)}}},
                     {"scopeSpans", json::array({scope})}}})}};
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace paceline::spans
