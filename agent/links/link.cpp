// SPDX-License-Identifier: Apache-2.0
#include "agent/links/link.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/timestamp.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

constexpr std::size_t kFewestSizes = 3;
constexpr double kMicro = 1e6;
constexpr std::int64_t kMost = 1'000'000'000;  // microseconds or Mbit/s; larger than any real value

std::int64_t two_digits(double value) {
  if (!(value >= 1)) return 1;
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(value)) - 1));
  return static_cast<std::int64_t>(
      std::min(std::round(value / unit) * unit, static_cast<double>(kMost)));
}

std::int64_t number_of(const json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

}  // namespace

std::optional<LinkFit> fit_link(const std::vector<RoundTrip>& trips) {
  if (trips.size() < kFewestSizes) return std::nullopt;
  double sum_w = 0;
  double sum_x = 0;
  double sum_y = 0;
  double sum_xx = 0;
  double sum_xy = 0;
  for (const RoundTrip& trip : trips) {
    const auto x = static_cast<double>(trip.bytes);
    const double y = std::max(trip.seconds / 2, 1e-9);
    const double weight = 1 / (y * y);
    sum_w += weight;
    sum_x += weight * x;
    sum_y += weight * y;
    sum_xx += weight * x * x;
    sum_xy += weight * x * y;
  }
  const double spread = sum_w * sum_xx - sum_x * sum_x;
  LinkFit fit;
  if (spread > 0) {
    fit.seconds_per_byte = (sum_w * sum_xy - sum_x * sum_y) / spread;
    fit.latency_seconds = (sum_y - fit.seconds_per_byte * sum_x) / sum_w;
  }
  // With noise the fitted line may fall below zero at either end: then use the measured value of
  // that end.
  const auto [small, large] = std::ranges::minmax_element(trips, {}, &RoundTrip::bytes);
  if (!(fit.latency_seconds > 0)) fit.latency_seconds = std::max(small->seconds / 2, 1e-9);
  if (!(fit.seconds_per_byte > 0)) {
    fit.seconds_per_byte = std::max(large->seconds / 2, 1e-9) /
                           static_cast<double>(std::max<std::uint64_t>(large->bytes, 1));
  }
  return fit;
}

json link_json(const Link& link) {
  json trips = json::array();
  for (const RoundTrip& trip : link.trips)
    trips.push_back({{"bytes", trip.bytes}, {"microseconds", trip.seconds * kMicro}});
  json view{{"peer", link.peer},
            {"latencySeconds", link.fit.latency_seconds},
            {"secondsPerByte", link.fit.seconds_per_byte},
            {"bandwidthMbps", link.bits_per_second() / kMicro},
            {"measuredTime", format_time(link.measured)}};
  if (link.flows.count > 0) {
    view["flows"] = {{"count", link.flows.count},
                     {"bandwidthMbps", link.flows.bits_per_second / kMicro}};
  }
  // A link restored from the NodeFabric has no round trips.
  if (!link.trips.empty()) {
    view["roundTrips"] = std::move(trips);
    view["bytes"] = link.bytes;
  }
  return view;
}

json link_status(const Link& link) {
  return {{"peer", link.peer},
          {"latencyMicroseconds", two_digits(link.fit.latency_seconds * kMicro)},
          {"bandwidthMbps", two_digits(link.bits_per_second() / kMicro)},
          {"measuredTime", format_time(link.measured)}};
}

std::optional<Link> read_link_status(const json& entry) {
  if (!entry.is_object()) return std::nullopt;
  const auto text = [&](const char* field) {
    const auto found = entry.find(field);
    return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const std::int64_t latency = number_of(entry, "latencyMicroseconds");
  const std::int64_t bandwidth = number_of(entry, "bandwidthMbps");
  const auto measured = parse_time(text("measuredTime"));
  Link link{.peer = text("peer"), .fit = {}, .flows = {}, .trips = {}};
  const bool sound = latency >= 1 && latency <= kMost && bandwidth >= 1 && bandwidth <= kMost;
  if (!is_node_name(link.peer) || !measured || !sound) return std::nullopt;
  link.fit = {static_cast<double>(latency) / kMicro, 8 / (static_cast<double>(bandwidth) * kMicro)};
  link.measured = *measured;
  return link;
}

bool is_node_name(std::string_view name) {
  constexpr std::size_t kLongest = 253;
  const auto alphanumeric = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= kLongest && alphanumeric(name.front()) &&
         alphanumeric(name.back()) &&
         std::ranges::all_of(name, [&](char c) { return alphanumeric(c) || c == '-' || c == '.'; });
}

}  // namespace paceline::agent
