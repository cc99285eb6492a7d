// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/step_form.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/telemetry/stats/phases.hpp"

namespace paceline::traces {
namespace {

using nlohmann::json;

json partition(const std::uint64_t (&phases)[PACELINE_PHASE_COUNT]) {
  json object = json::object();
  for (std::size_t phase = 0; phase < PACELINE_PHASE_COUNT; ++phase) {
    if (phases[phase] > 0) object[std::string(telemetry::phase_name(phase))] = phases[phase];
  }
  return object;
}

}  // namespace

json step_form(const paceline_step_record& record, std::chrono::nanoseconds to_wall) {
  json form{{"step", record.step},
            {"startUnixNs", static_cast<std::int64_t>(record.start_ns) + to_wall.count()},
            {"wallNs", record.wall_ns}};
  const auto put = [&](std::uint64_t bit, const char* name, auto value) {
    if ((record.valid & bit) != 0) form[name] = value;
  };
  put(PACELINE_VALID_USER_STEP, "userStep", record.user_step);
  put(PACELINE_VALID_SAMPLES, "samples", record.samples);
  put(PACELINE_VALID_TOKENS, "tokens", record.tokens);
  put(PACELINE_VALID_DEVICE_WINDOW_NS, "deviceWindowNs", record.device_window_ns);
  put(PACELINE_VALID_COMM_TOTAL_NS, "commTotalNs", record.comm_total_ns);
  put(PACELINE_VALID_COMM_EXPOSED_NS, "commExposedNs", record.comm_exposed_ns);
  put(PACELINE_VALID_COMM_PAYLOAD_BYTES, "commPayloadBytes", record.comm_payload_bytes);
  if ((record.valid & PACELINE_VALID_HOST_NS) != 0) form["hostNs"] = partition(record.host_ns);
  if ((record.valid & PACELINE_VALID_DEVICE_NS) != 0)
    form["deviceNs"] = partition(record.device_ns);
  return form;
}

}  // namespace paceline::traces
