// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/service.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/printable.hpp"
#include "common/json/fields.hpp"
#include "common/telemetry/stats/phases.hpp"
#include "launcher/trace/rank_files.hpp"
#include "launcher/trace/step_form.hpp"

namespace paceline::traces {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;
using summary::HttpAnswer;

constexpr std::string_view kFiles = "/v1/trace/files/";
constexpr std::string_view kRecords = "/v1/records/";
constexpr std::int64_t kLargestStep = 1LL << 53;
constexpr std::size_t kPaceSteps = 32;  // from which the time of a step is taken

HttpAnswer document(const json& value, int status = 200) {
  return {status, "application/json",
          value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"};
}

HttpAnswer refusal(int status, const std::string& why) {
  return document({{"error", why}}, status);
}

std::optional<std::uint64_t> whole(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

double median_seconds(const std::vector<paceline_step_record>& steps) {
  if (steps.empty()) return 0;
  std::vector<std::uint64_t> walls;
  for (const auto& step : steps) walls.push_back(step.wall_ns);
  const auto middle = walls.begin() + static_cast<std::ptrdiff_t>(walls.size() / 2);
  std::ranges::nth_element(walls, middle);
  return static_cast<double>(*middle) / 1e9;
}

}  // namespace

std::string own_boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return printable(line);
}

Result<std::unique_ptr<TraceService>> TraceService::open(const std::filesystem::path& folder,
                                                         Place place,
                                                         const telemetry::Collector& collector,
                                                         const Clock& clock) {
  auto request = RequestFile::make(folder);
  if (!request) return std::unexpected(request.error());
  return std::unique_ptr<TraceService>(
      new TraceService(*std::move(request), folder, std::move(place), collector, clock));
}

bool TraceService::serves(std::string_view path) {
  return path == "/v1/clock" || path == "/v1/trace" || path == "/v1/trace/end" ||
         path.starts_with(kFiles) || path.starts_with(kRecords);
}

HttpAnswer TraceService::answer(const summary::HttpRequest& request) {
  if (active_ && clock_.steady() >= active_->until) {
    if (auto stopped = stop(); !stopped) return refusal(500, stopped.error().message);
  }
  const std::string_view path = request.path;
  if (request.method == "POST" && path == "/v1/trace") return begin(request.body);
  if (request.method == "POST" && path == "/v1/trace/end") return end(request.body);
  if (request.method != "GET") return refusal(405, "only GET is served here");
  if (active_ && path.starts_with("/v1/trace")) active_->until = clock_.steady() + kLease;
  if (path == "/v1/trace") return status();
  if (path == "/v1/clock")
    return document({{"unixNs", nanoseconds(clock_.wall().time_since_epoch()).count()},
                     {"bootId", place_.boot_id}});
  if (path.starts_with(kFiles)) return piece(path.substr(kFiles.size()));
  if (path.starts_with(kRecords)) return records(path.substr(kRecords.size()));
  return {};
}

HttpAnswer TraceService::begin(const std::string& body) {
  if (active_) {
    return refusal(409, "a trace of " + active_->by + " is under way (" +
                            std::to_string(active_->steps) + " steps from step " +
                            std::to_string(active_->start_step) + "); wait for its end");
  }
  const json object = json::parse(body, nullptr, false);
  std::string problem;
  JsonFields fields(object, problem);
  Active active{printable(fields.text("id", 64)), printable(fields.text("by", 128))};
  active.start_step = static_cast<std::uint64_t>(fields.integer("startStep", 1, kLargestStep));
  active.steps = static_cast<std::uint64_t>(fields.integer("steps", 1, kMostSteps));
  active.until = clock_.steady() + kLease;
  if (!problem.empty()) return refusal(400, problem);
  remove_files_of_ranks();
  if (auto asked = request_.ask(active.start_step, active.steps); !asked)
    return refusal(500, asked.error().message);
  active_ = std::move(active);
  return document({{"sequence", request_.sequence()}});
}

HttpAnswer TraceService::end(const std::string& body) {
  const json object = json::parse(body, nullptr, false);
  std::string problem;
  const std::string id = JsonFields(object, problem).text("id", 64);
  if (!problem.empty()) return refusal(400, problem);
  if (!active_ || active_->id != id) return refusal(404, "there is no such trace");
  if (auto stopped = stop(); !stopped) return refusal(500, stopped.error().message);
  return document(json::object());
}

Status TraceService::stop() {
  active_.reset();
  auto asked = request_.ask(0, 0);
  remove_files_of_ranks();
  return asked;
}

void TraceService::remove_files_of_ranks() const {
  for (const telemetry::RecentSteps& rank : collector_.recent(0)) remove_files(folder_, rank.rank);
}

HttpAnswer TraceService::status() const {
  json ranks = json::array();
  const SteadyTime now = clock_.steady();
  int attempt = 0;
  for (const telemetry::RecentSteps& rank : collector_.recent(kPaceSteps)) {
    attempt = static_cast<int>(rank.attempt);
    json& entry = ranks.emplace_back(json{{"rank", rank.rank}});
    if (!rank.steps.empty()) entry["recorded"] = rank.steps.back().step;
    if (rank.live) {
      const auto since = now.time_since_epoch() - nanoseconds(rank.live->since_ns);
      entry["step"] = rank.live->step;
      entry["phase"] = std::string(telemetry::phase_name(rank.live->phase));
      entry["phaseSeconds"] = std::max(0.0, std::chrono::duration<double>(since).count());
      entry["stepSeconds"] = median_seconds(rank.steps);
    }
    const auto state = active_ ? read_state(folder_, rank.rank, request_.sequence()) : std::nullopt;
    if (!state) continue;
    entry.update({{"state", state->state},
                  {"reason", state->reason},
                  {"firstStep", state->first_step},
                  {"profilerStepZero", state->profiler_step_zero},
                  {"bytes", state->bytes}});
  }
  json answer{{"version", 1},
              {"job", place_.job},
              {"nodeRank", place_.node_rank},
              {"pod", place_.pod},
              {"node", place_.node},
              {"attempt", attempt},
              {"ranks", std::move(ranks)}};
  answer["request"] = active_ ? json(active_->id) : json();
  return document(answer);
}

HttpAnswer TraceService::records(std::string_view most) const {
  const auto count = whole(most);
  if (!count || *count < 1 || *count > kMostSteps)
    return refusal(400, "the number of records must be 1 to " + std::to_string(kMostSteps));
  // Both clocks now: the wall clock may have been set since the ring was opened.
  const nanoseconds to_wall =
      nanoseconds(clock_.wall().time_since_epoch()) - clock_.steady().time_since_epoch();
  json ranks = json::array();
  for (const telemetry::RecentSteps& rank : collector_.recent(*count)) {
    json steps = json::array();
    for (const auto& step : rank.steps) steps.push_back(step_form(step, to_wall));
    ranks.push_back({{"rank", rank.rank}, {"steps", std::move(steps)}});
  }
  return document({{"version", 1}, {"ranks", std::move(ranks)}});
}

HttpAnswer TraceService::piece(std::string_view which) const {
  const auto slash = std::min(which.find('/'), which.size());
  const auto rank = whole(which.substr(0, slash));
  const auto offset = whole(which.substr(std::min(slash + 1, which.size())));
  if (!rank || !offset || *rank > (1U << 24U) || *offset > kMostTraceBytes)
    return refusal(400, "the path must be " + std::string(kFiles) + "RANK/OFFSET");
  auto text = read_piece(folder_, static_cast<int>(*rank), *offset);
  if (!text) return refusal(404, text.error().message);
  return {200, "application/octet-stream", *std::move(text)};
}

}  // namespace paceline::traces
