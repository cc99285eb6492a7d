// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/trace_file.hpp"

#include <algorithm>
#include <charconv>
#include <istream>
#include <utility>

#include "common/base/base64.hpp"
#include "common/base/printable.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostEvent = 16ULL << 20U;
constexpr std::size_t kMostPacked = 256ULL << 20U;  // as a launcher serves it
// The profiler's base time stands before or behind the events.
constexpr std::size_t kEnds = 16384;
constexpr std::string_view kBaseTime = "\"baseTimeNanoseconds\":";

template <typename T>
T whole(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<T>() : T{0};
}

std::string text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? printable(found->get<std::string>()) : "";
}

std::int64_t base_time_in(std::string_view text) {
  const auto at = text.find(kBaseTime);
  if (at == std::string::npos) return 0;
  const auto digits = text.find_first_not_of(' ', at + kBaseTime.size());
  std::int64_t base = 0;
  if (digits != std::string::npos)
    std::from_chars(text.data() + digits, text.data() + text.size(), base);
  return base;
}

/// 0 for releases whose times are wall time by themselves.
std::int64_t base_time(const std::string& packed) {
  InflatingBuffer buffer(packed);
  std::istream stream(&buffer);
  std::string ends;  // at first the head, then what came last
  std::string block(1U << 16U, '\0');
  while (stream.read(block.data(), static_cast<std::streamsize>(block.size())) ||
         stream.gcount() > 0) {
    const bool head = ends.empty();
    ends.append(block, 0, static_cast<std::size_t>(stream.gcount()));
    if (head) {
      if (const auto base = base_time_in(std::string_view(ends).substr(0, kEnds)); base != 0)
        return base;
    }
    if (ends.size() > kEnds) ends.erase(0, ends.size() - kEnds);
  }
  return base_time_in(ends);
}

/// Calls for each event of the list traceEvents, without keeping anything of that list. Returns
/// what is wrong with the file; "" if nothing is.
Result<std::string> each_event(const std::string& packed, const std::function<Status(json)>& take) {
  InflatingBuffer buffer(packed);
  std::istream stream(&buffer);
  Status taken;
  std::string key;
  buffer.allow(kMostEvent);
  const auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth == 1 && event == json::parse_event_t::key) key = parsed.get<std::string>();
    if (depth != 2 || key != "traceEvents") return true;
    if (event == json::parse_event_t::object_end) {
      buffer.allow(kMostEvent);
      if (taken) taken = take(std::move(parsed));
    }
    return event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
  };
  const json rest = json::parse(stream, callback, false);
  if (!taken) return std::unexpected(taken.error());
  if (buffer.cut()) return "its file is too large to be read whole; trace fewer steps";
  return rest.is_discarded() ? "the end of its file is damaged" : "";
}

}  // namespace

Status TraceFile::write(const json& event) {
  const std::string start = begun_ ? ",\n" : "{\"traceEvents\":[\n";
  begun_ = true;
  return file_.write(start + event.dump(-1, ' ', true, json::error_handler_t::replace));
}

Status TraceFile::take(std::string_view line) {
  const json message = json::parse(line, nullptr, false);
  if (!message.is_object())
    return fail(Code::kInvalid, Origin::kProtocol,
                "the launcher printed a line that is not its own: " +
                    printable(std::string(line.substr(0, 200))));
  const std::string type = text(message, "type");
  if (type == "progress") {
    say_(text(message, "text"));
  } else if (type == "problem") {
    return fail(Code::kUnavailable, Origin::kSystem, text(message, "text"));
  } else if (type == "plan") {
    return take_plan(message);
  } else if (type == "rank") {
    return take_rank(message);
  } else if (type == "end") {
    ended_ = true;
  }
  const auto rank = ranks_.find(whole<int>(message, "rank"));
  if (rank == ranks_.end()) return {};
  if (type == "piece") return take_piece(rank->second, message);
  if (type == "fileEnd") return take_file(rank->second);
  if (type == "fileLost") {
    rank->second.packed = {};
    rank->second.problem = "its file was lost on the way: " + text(message, "problem");
  }
  return {};
}

Status TraceFile::take_plan(const json& line) {
  job_ = text(line, "job");
  summary_.first_step = whole<std::uint64_t>(line, "startStep");
  summary_.steps = whole<std::uint64_t>(line, "steps");
  zero_unix_ns_ = whole<std::int64_t>(line, "zeroUnixNs");
  const auto lost = line.find("lostLaunchers");
  if (lost == line.end() || !lost->is_array()) return {};
  for (const json& problem : *lost) {
    if (problem.is_string()) summary_.problems.push_back(printable(problem.get<std::string>()));
  }
  return {};
}

Status TraceFile::take_rank(const json& line) {
  Rank rank;
  rank.place.rank = whole<int>(line, "rank");
  if (rank.place.rank < 0 || rank.place.rank > 1'000'000) return {};
  rank.place.node = text(line, "node").empty() ? text(line, "pod") : text(line, "node");
  rank.place.zero_unix_ns = zero_unix_ns_;
  rank.place.profiler_step_zero = whole<std::int64_t>(line, "profilerStepZero");
  rank.first_step = whole<std::int64_t>(line, "firstStep");
  const auto clock = line.find("clock");
  if (clock != line.end() && clock->is_object()) {
    rank.place.clock_offset_ns = whole<std::int64_t>(*clock, "offsetNs");
    rank.uncertainty_ns = whole<std::int64_t>(*clock, "uncertaintyNs");
  }
  rank.problem = text(line, "problem");
  const auto steps = line.find("steps");
  const bool any = steps != line.end() && steps->is_array() && !steps->empty();
  if (any) ++summary_.with_steps;
  for (const json& event : step_events(rank.place, any ? *steps : json::array(), rank.problem)) {
    if (auto written = write(event); !written) return written;
  }
  ranks_.insert_or_assign(rank.place.rank, std::move(rank));
  return {};
}

Status TraceFile::take_piece(Rank& rank, const json& line) {
  const auto data = line.find("data");
  const auto bytes = data != line.end() && data->is_string()
                         ? decode_base64(data->get_ref<const std::string&>())
                         : Result<std::string>("");
  if (!bytes || rank.packed.size() + bytes->size() > kMostPacked) {
    return fail(Code::kInvalid, Origin::kProtocol,
                "the trace of rank " + std::to_string(rank.place.rank) +
                    " is damaged or too large; trace fewer steps");
  }
  rank.packed += *bytes;
  return {};
}

Status TraceFile::take_file(Rank& rank) {
  const std::string packed = std::exchange(rank.packed, {});
  ProfilerEvents events(rank.place, base_time(packed));
  const EventSink sink = [this](const json& event) { return write(event); };
  const auto problem =
      each_event(packed, [&](json event) { return events.add(std::move(event), sink); });
  if (!problem) return std::unexpected(problem.error());
  rank.recorded = true;
  if (!problem->empty()) rank.problem = *problem;
  say_(name_of(rank.place) + ": " + std::to_string(packed.size() >> 10U) + " KiB");
  return {};
}

json TraceFile::description() const {
  json ranks = json::array();
  for (const auto& [number, rank] : ranks_) {
    json entry{{"rank", number},
               {"node", rank.place.node},
               {"recorded", rank.recorded},
               {"clockOffsetNs", rank.place.clock_offset_ns},
               {"clockUncertaintyNs", rank.uncertainty_ns}};
    if (rank.recorded) entry["firstStep"] = rank.first_step;
    if (!rank.problem.empty()) entry["problem"] = rank.problem;
    ranks.push_back(std::move(entry));
  }
  return {{"job", job_},
          {"startStep", summary_.first_step},
          {"steps", summary_.steps},
          {"ranks", std::move(ranks)}};
}

Status TraceFile::finish() {
  if (!ended_)
    return fail(Code::kUnavailable, Origin::kSystem,
                "the launcher ended before the trace was complete: has the job ended?");
  for (const auto& [number, rank] : ranks_) {
    ++summary_.ranks;
    if (rank.recorded) ++summary_.recorded;
    summary_.uncertainty_ms =
        std::max(summary_.uncertainty_ms, static_cast<double>(rank.uncertainty_ns) / 1e6);
    if (!rank.problem.empty())
      summary_.problems.push_back(name_of(rank.place) + ": " + rank.problem);
    else if (summary_.first_step > 0 && rank.first_step > 0 &&
             rank.first_step != static_cast<std::int64_t>(summary_.first_step))
      summary_.problems.push_back(name_of(rank.place) + ": it heard late, and began with step " +
                                  std::to_string(rank.first_step));
  }
  if (summary_.recorded == 0 && summary_.with_steps == 0)
    return fail(Code::kUnavailable, Origin::kSystem,
                "no rank has a step to show" +
                    (summary_.problems.empty() ? "" : ": " + summary_.problems.front()));
  const std::string end =
      "\n],\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":" + std::to_string(zero_unix_ns_) +
      ",\"paceline\":" + description().dump(-1, ' ', true, json::error_handler_t::replace) + "}\n";
  if (auto written = file_.write(end); !written) return written;
  return file_.finish();
}

}  // namespace paceline::cli
