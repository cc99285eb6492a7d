// SPDX-License-Identifier: Apache-2.0
#include "launcher/spans/target.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/http/transport.hpp"
#include "launcher/spans/span.hpp"

namespace paceline::spans {
namespace {

constexpr std::string_view kEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
constexpr std::string_view kTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

std::string value_of(const frameworks::Environment& environment, std::string_view name) {
  const auto found = environment.find(std::string(name));
  return found == environment.end() ? "" : found->second;
}

/// The variable for traces if it is set, else the one for all signals.
std::string either(const frameworks::Environment& environment, std::string_view setting) {
  const std::string text(setting);
  const std::string traces = value_of(environment, "OTEL_EXPORTER_OTLP_TRACES_" + text);
  return traces.empty() ? value_of(environment, "OTEL_EXPORTER_OTLP_" + text) : traces;
}

std::string decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr ==
            text.data() + i + 3) {
      plain += static_cast<char>(value);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// "name=value,name=value", values percent-encoded. What has no "=" is left out, as in the SDKs.
Pairs pairs_of(std::string_view text) {
  Pairs pairs;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = trimmed(part.substr(0, equals));
    if (!name.empty()) pairs.emplace_back(name, decoded(trimmed(part.substr(equals + 1))));
  }
  return pairs;
}

bool is_off(const frameworks::Environment& environment) {
  return value_of(environment, "OTEL_SDK_DISABLED") == "true" ||
         value_of(environment, "OTEL_TRACES_EXPORTER") == "none";
}

std::unexpected<Error> refuse(std::string_view variable, const std::string& value,
                              const std::string& remedy) {
  return fail(Code::kInvalid, Origin::kConfig,
              std::string(variable) + " is \"" + value + "\": " + remedy);
}

/// "00-TRACE-SPAN-FLAGS" of W3C. False: it is none, or its trace is not sampled.
bool adopt(std::string_view context, Target& target, bool& sampled) {
  constexpr std::size_t kLength = 55;
  const auto digits = [](std::string_view text) {
    return text.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
           text.find_first_not_of('0') != std::string_view::npos;
  };
  if (context.size() < kLength || context[2] != '-' || context[35] != '-' || context[52] != '-')
    return false;
  const std::string_view trace = context.substr(3, 32);
  const std::string_view parent = context.substr(36, 16);
  if (!digits(trace) || !digits(parent)) return false;
  target.trace_id = trace;
  target.parent = parent;
  sampled = (context[54] - '0') % 2 != 0 || context[54] == 'b' || context[54] == 'd' ||
            context[54] == 'f';
  return true;
}

Pairs resource_of(const frameworks::Environment& environment, const launcher::Config& config) {
  Pairs resource = pairs_of(value_of(environment, "OTEL_RESOURCE_ATTRIBUTES"));
  const auto set = [&resource](std::string_view name, const std::string& value) {
    if (value.empty()) return;
    std::erase_if(resource, [&](const auto& pair) { return pair.first == name; });
    resource.emplace_back(name, value);
  };
  const std::string service = value_of(environment, "OTEL_SERVICE_NAME");
  const bool named =
      std::ranges::any_of(resource, [](const auto& pair) { return pair.first == "service.name"; });
  if (!service.empty() || !named) set("service.name", service.empty() ? config.job_name : service);
  set("k8s.namespace.name", config.job_namespace);
  set("k8s.pod.name", config.pod_name);
  set("k8s.node.name", config.node_name);
  set("paceline.job.name", config.job_name);
  set("paceline.job.uid", config.job_uid);
  return resource;
}

}  // namespace

Result<std::optional<Target>> read_target(const frameworks::Environment& environment,
                                          const launcher::Config& config) {
  const std::string traces = value_of(environment, kTracesEndpoint);
  const std::string url = traces.empty() ? value_of(environment, kEndpoint) : traces;
  if (url.empty() || is_off(environment)) return std::optional<Target>();
  const std::string_view variable = traces.empty() ? kEndpoint : kTracesEndpoint;
  if (const std::string protocol = either(environment, "PROTOCOL"); protocol == "grpc")
    return refuse("OTEL_EXPORTER_OTLP_PROTOCOL", protocol,
                  "the launcher speaks HTTP; set it to http/json, and the endpoint to the "
                  "collector's port for HTTP (4318)");
  const auto parsed = http::parse_server_url(url);
  if (!parsed || parsed->endpoint.tls)
    return refuse(variable, url,
                  "the launcher takes http://HOST:PORT; for TLS send to a collector in the "
                  "cluster, which passes spans on");
  Target target;
  target.host = parsed->endpoint.host;
  const std::string& port = parsed->endpoint.port;
  if (std::from_chars(port.data(), port.data() + port.size(), target.port).ec != std::errc())
    return refuse(variable, url, "its port is no number from 1 to 65535");
  target.path = traces.empty() ? parsed->prefix + "/v1/traces" : parsed->prefix;
  if (target.path.empty()) target.path = "/";
  target.headers = pairs_of(either(environment, "HEADERS"));
  const std::string timeout = either(environment, "TIMEOUT");
  int milliseconds = 0;
  if (std::from_chars(timeout.data(), timeout.data() + timeout.size(), milliseconds).ec ==
          std::errc() &&
      milliseconds > 0)
    target.timeout = std::chrono::milliseconds(milliseconds);
  target.resource = resource_of(environment, config);
  bool sampled = true;
  if (!adopt(value_of(environment, "TRACEPARENT"), target, sampled))
    target.trace_id = trace_id(config.job_uid);
  if (!sampled) return std::optional<Target>();
  return target;
}

void tell(const Target& target, const std::string& job_uid, int attempt,
          std::vector<std::string>& variables) {
  constexpr std::string_view kVariable = "TRACEPARENT=";
  std::erase_if(variables,
                [&](const std::string& variable) { return variable.starts_with(kVariable); });
  variables.push_back(std::string(kVariable) + "00-" + target.trace_id + "-" +
                      attempt_span(job_uid, attempt) + "-01");
}

}  // namespace paceline::spans
