// SPDX-License-Identifier: Apache-2.0
#include "agent/client/measure.hpp"

#include <array>
#include <cstdio>

#include <nlohmann/json.hpp>

namespace paceline::agent {
namespace {

using nlohmann::json;

constexpr int kNotMeasured = 2;

double amount_of(const json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return object.is_object() && found != object.end() && found->is_number() ? found->get<double>()
                                                                           : 0;
}

std::string word_of(const json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : std::string();
}

std::string rounded(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::string duration(double seconds) {
  constexpr double kMilli = 1e-3;
  constexpr double kMicro = 1e-6;
  return seconds < kMilli ? rounded(seconds / kMicro) + " us" : rounded(seconds / kMilli) + " ms";
}

std::string bandwidth(double mbps) {
  constexpr double kGiga = 1000;
  return mbps < kGiga ? rounded(mbps) + " Mbit/s" : rounded(mbps / kGiga) + " Gbit/s";
}

void print(const json& link, const std::string& node, std::ostream& out) {
  out << node << " to " << word_of(link, "peer") << ": latency "
      << duration(amount_of(link, "latencySeconds")) << ", bandwidth "
      << bandwidth(amount_of(link, "bandwidthMbps")) << " with one TCP flow";
  const json flows = link.value("flows", json());
  if (const auto count = static_cast<int>(amount_of(flows, "count")); count > 0)
    out << ", " << bandwidth(amount_of(flows, "bandwidthMbps")) << " with " << count;
  out << " (between the agents' pods), measured " << word_of(link, "measuredTime") << "\n";
  const auto trips = link.find("roundTrips");
  if (trips == link.end() || !trips->is_array()) return;
  constexpr double kMicrosPerSecond = 1e6;
  for (const json& trip : *trips) {
    if (!trip.is_object()) continue;
    out << "  " << static_cast<long>(amount_of(trip, "bytes"))
        << " bytes there and back: " << duration(amount_of(trip, "microseconds") / kMicrosPerSecond)
        << "\n";
  }
}

}  // namespace

int ask_to_measure(http::HttpTransport& transport, const std::string& token,
                   const AskOptions& options, std::ostream& out, std::ostream& err) {
  http::Request request;
  request.method = "POST";
  request.target = "/v1/links";
  request.headers = {{"Authorization", "Bearer " + token}, {"Content-Type", "application/json"}};
  request.body = json{{"peer", options.peer}}.dump(-1, ' ', true, json::error_handler_t::replace);
  const auto answer = transport.send(request, {});
  if (!answer) {
    err << "paceline measure: the agent of " << options.node
        << " could not be asked: " << answer.error().message << "\n";
    return kNotMeasured;
  }
  const json link = json::parse(answer->body, nullptr, false);
  if (answer->status != 200 || !link.is_object()) {
    const std::string why = word_of(link, "error");
    err << "paceline measure: " << (why.empty() ? "HTTP " + std::to_string(answer->status) : why)
        << "\n";
    return kNotMeasured;
  }
  if (options.json) {
    out << link.dump(2, ' ', true, json::error_handler_t::replace) << "\n";
  } else {
    print(link, options.node, out);
  }
  return 0;
}

}  // namespace paceline::agent
