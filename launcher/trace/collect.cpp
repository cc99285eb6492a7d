// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/collect.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "common/base/base64.hpp"
#include "common/base/printable.hpp"
#include "launcher/trace/peer.hpp"
#include "launcher/trace/service.hpp"
#include "launcher/trace/steps_to_trace.hpp"

namespace paceline::traces {
namespace {

using nlohmann::json;
using Seconds = std::chrono::duration<double>;
using std::chrono::steady_clock;

constexpr std::size_t kThreads = 16;
constexpr std::chrono::milliseconds kLook{250};
constexpr Seconds kLeastTelling{0.3};  // a loaded launcher answers late
constexpr Seconds kLeastWait{60};
constexpr double kPatience = 3;  // times the time that the steps should take
// The record of the last step follows in the next step.
constexpr Seconds kLeastGrace{1};
constexpr double kGraceSteps = 2;
constexpr std::chrono::seconds kRenewal{5};  // so that launchers do not end the request

std::string random_id() {
  std::random_device device;
  return std::to_string(device()) + "-" + std::to_string(::getpid());
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

struct RankNow {
  json told = json::object();  // the launcher's last words about it
  std::optional<steady_clock::time_point> done_since{};
  bool traced = false;  // its file can be fetched
  std::string problem;  // why there is no file
  bool settled() const { return traced || !problem.empty(); }
};

struct Launcher {
  Peer peer;
  ClockOffset clock;
  std::string problem;  // why it cannot be asked any more
  json status = json::object();
  std::map<int, RankNow> ranks;
  int attempt = 0;
};

class Collection {
 public:
  Collection(const Launchers& launchers, const TraceOptions& options, const TraceSink& sink)
      : options_(options), sink_(sink), id_(random_id()) {
    for (const net::Address& address : launchers.addresses)
      launchers_.push_back({Peer(address, launchers.token), {}, "", json::object(), {}, 0});
  }
  ~Collection() {
    if (asked_)
      for_each([&](Launcher& one) { (void)one.peer.post("/v1/trace/end", {{"id", id_}}); });
  }

  Status run();

 private:
  void for_each(const std::function<void(Launcher&)>& act);
  Status look_around();
  Result<TracePlan> plan(steady_clock::duration round);
  Status ask(const TracePlan& plan);
  void wait(const TracePlan& plan);
  void note(Launcher& one, std::uint64_t last_step);
  void give_up(const std::string& why);
  json steps_of(const Launcher& one, const RankNow& now, json steps,
                std::uint64_t start_step) const;
  json line_of(const Launcher& one, int rank, const RankNow& now, json steps) const;
  std::vector<json> lines_of_ranks(std::uint64_t start_step);
  Status pass_on(std::uint64_t start_step);
  void renew();
  Status pass_file(Launcher& one, int rank, RankNow& now);
  Status tell(const std::string& text) { return sink_({{"type", "progress"}, {"text", text}}); }

  const TraceOptions& options_;
  const TraceSink& sink_;
  const std::string id_;
  std::vector<Launcher> launchers_;
  bool asked_ = false;
  steady_clock::time_point renewed_{};
};

// Asks the launchers side by side, so that silent ones cost their time limit once.
void Collection::for_each(const std::function<void(Launcher&)>& act) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < launchers_.size(); i = next++) {
      Launcher& one = launchers_[i];
      try {
        if (one.problem.empty()) act(one);
      } catch (const json::exception& error) {
        one.problem = "the launcher at " + net::to_string(one.peer.address()) +
                      " answered something strange: " + error.what();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(kThreads, launchers_.size()); ++i)
    threads.emplace_back(work);
  work();
}

Status Collection::look_around() {
  const std::string boot = own_boot_id();
  for_each([&](Launcher& one) {
    const auto clock = measure_clock(one.peer, boot);
    if (clock) {
      one.clock = *clock;
    } else {
      one.problem = clock.error().message;
    }
  });
  for_each([&](Launcher& one) {
    auto status = one.peer.get_json("/v1/trace");
    if (!status) {
      one.problem = status.error().message;
      return;
    }
    one.status = *std::move(status);
    one.attempt = one.status.value("attempt", 0);
    for (const json& rank : one.status.value("ranks", json::array()))
      one.ranks[rank.value("rank", -1)].told = rank;
  });
  const Launcher& first = launchers_.front();
  if (!first.problem.empty())
    return fail(Code::kUnavailable, Origin::kHttp,
                first.problem + ": is the job running? `kubectl get trainingjobs` shows it");
  return {};
}

Result<TracePlan> Collection::plan(steady_clock::duration round) {
  std::vector<RankPace> paces;
  for (const Launcher& one : launchers_) {
    for (const auto& [rank, now] : one.ranks)
      paces.push_back(
          {now.told.value("step", std::uint64_t{0}), now.told.value("stepSeconds", 0.0)});
  }
  const Seconds telling = std::max(kLeastTelling, Seconds(4 * round));
  const auto planned = plan_trace(paces, options_.steps, telling);
  if (planned) return *planned;
  return fail(Code::kUnavailable, Origin::kSystem,
              "no rank of the job has begun a training step yet: wait until it trains");
}

Status Collection::ask(const TracePlan& plan) {
  const json request{
      {"id", id_}, {"by", options_.by}, {"startStep", plan.start_step}, {"steps", options_.steps}};
  // The launcher of node rank 0 refuses a second trace of the job.
  if (auto posted = launchers_.front().peer.post("/v1/trace", request); !posted) return posted;
  asked_ = true;
  for_each([&](Launcher& one) {
    if (&one == &launchers_.front()) return;
    if (auto posted = one.peer.post("/v1/trace", request); !posted)
      one.problem = posted.error().message;
  });
  return {};
}

void Collection::note(Launcher& one, std::uint64_t last_step) {
  for (auto& [rank, now] : one.ranks) {
    if (now.settled()) continue;
    const std::string state = now.told.value("state", "");
    if (state == "done") {
      const auto moment = steady_clock::now();
      if (!now.done_since) now.done_since = moment;
      const Seconds step(now.told.value("stepSeconds", 0.0));
      now.traced = now.told.value("recorded", std::uint64_t{0}) >= last_step ||
                   moment - *now.done_since > std::max(kLeastGrace, kGraceSteps * step);
    }
    if (state == "failed") now.problem = now.told.value("reason", "it gave no reason");
    if (!now.told.contains("step") && state.empty())
      now.problem = "no training step was marked there";
  }
}

void Collection::wait(const TracePlan& plan) {
  const Seconds limit = options_.time_limit
                            ? Seconds(*options_.time_limit)
                            : std::max(kLeastWait, Seconds(kPatience * plan.seconds));
  const auto until = steady_clock::now() + limit;
  while (true) {
    for_each([&](Launcher& one) {
      auto status = one.peer.get_json("/v1/trace");
      if (!status) {
        one.problem = status.error().message;
        return;
      }
      const bool restarted = status->value("attempt", 0) != one.attempt;
      for (const json& rank : status->value("ranks", json::array())) {
        RankNow& now = one.ranks[rank.value("rank", -1)];
        if (restarted && !now.settled()) now.problem = "the ranks were started again meanwhile";
        if (!restarted) now.told = rank;
      }
      note(one, plan.start_step + options_.steps - 1);
    });
    bool all = true;
    for (const Launcher& one : launchers_) {
      for (const auto& [rank, now] : one.ranks)
        all = all && (now.settled() || !one.problem.empty());
    }
    if (all) return;
    if (steady_clock::now() >= until) return give_up(seconds_text(limit.count()));
    std::this_thread::sleep_for(kLook);
  }
}

void Collection::give_up(const std::string& limit) {
  for (Launcher& one : launchers_) {
    for (auto& [rank, now] : one.ranks) {
      if (now.settled()) continue;
      const std::string state = now.told.value("state", "");
      now.problem =
          (state.empty() ? "it did not take up the request within " : "not done within ") + limit +
          ": in step " + std::to_string(now.told.value("step", 0)) + ", phase " +
          printable(now.told.value("phase", "unknown")) + " for " +
          seconds_text(now.told.value("phaseSeconds", 0.0));
    }
  }
}

// The steps of the trace. Of a rank that is not in it: what it did last.
json Collection::steps_of(const Launcher& one, const RankNow& now, json steps,
                          std::uint64_t start_step) const {
  json kept = json::array();
  const std::uint64_t end = start_step + options_.steps;
  for (json& step : steps) {
    const auto number = step.value("step", std::uint64_t{0});
    if (now.traced && (number < start_step || number >= end)) continue;
    step["startUnixNs"] = step.value("startUnixNs", std::int64_t{0}) - one.clock.offset.count();
    kept.push_back(std::move(step));
  }
  if (kept.size() > options_.steps)
    kept.erase(kept.begin(), kept.end() - static_cast<json::difference_type>(options_.steps));
  return kept;
}

json Collection::line_of(const Launcher& one, int rank, const RankNow& now, json steps) const {
  return {
      {"type", "rank"},
      {"rank", rank},
      {"nodeRank", one.status.value("nodeRank", 0)},
      {"pod", one.status.value("pod", "")},
      {"node", one.status.value("node", "")},
      {"clock",
       {{"offsetNs", one.clock.offset.count()}, {"uncertaintyNs", one.clock.uncertainty.count()}}},
      {"traced", now.traced},
      {"problem", now.problem.empty() && !now.traced ? one.problem : now.problem},
      {"firstStep", now.told.value("firstStep", 0)},
      {"profilerStepZero", now.told.value("profilerStepZero", 0)},
      {"steps", std::move(steps)}};
}

std::vector<json> Collection::lines_of_ranks(std::uint64_t start_step) {
  std::vector<json> lines;
  std::mutex mutex;
  const std::uint64_t most = options_.records_only ? options_.steps : kMostSteps;
  for_each([&](Launcher& one) {
    const auto records = one.peer.get_json("/v1/records/" + std::to_string(most));
    if (!records) {
      one.problem = records.error().message;
      return;
    }
    for (const json& entry : records->value("ranks", json::array())) {
      const int rank = entry.value("rank", -1);
      const RankNow& now = one.ranks[rank];
      json line = line_of(one, rank, now,
                          steps_of(one, now, entry.value("steps", json::array()), start_step));
      const std::lock_guard lock(mutex);
      lines.push_back(std::move(line));
    }
  });
  for (const Launcher& one : launchers_) {
    if (one.problem.empty()) continue;
    for (const auto& [rank, now] : one.ranks)
      lines.push_back(line_of(one, rank, now, json::array()));
  }
  std::ranges::sort(lines, [](const json& a, const json& b) { return a["rank"] < b["rank"]; });
  return lines;
}

Status Collection::pass_on(std::uint64_t start_step) {
  const std::vector<json> lines = lines_of_ranks(start_step);
  std::int64_t zero = std::numeric_limits<std::int64_t>::max();
  for (const json& line : lines) {
    if (!line["steps"].empty())
      zero = std::min(zero, line["steps"].front()["startUnixNs"].get<std::int64_t>());
  }
  json plan{{"type", "plan"},
            {"job", launchers_.front().status.value("job", "")},
            {"steps", options_.steps},
            {"startStep", start_step},
            {"lostLaunchers", json::array()}};
  plan["zeroUnixNs"] = zero == std::numeric_limits<std::int64_t>::max() ? 0 : zero;
  for (const Launcher& one : launchers_) {
    if (!one.problem.empty()) plan["lostLaunchers"].push_back(one.problem);
  }
  if (auto sent = sink_(plan); !sent) return sent;
  for (const json& line : lines) {
    if (auto sent = sink_(line); !sent) return sent;
  }
  return {};
}

void Collection::renew() {
  if (steady_clock::now() - renewed_ < kRenewal) return;
  for_each([](Launcher& launcher) { (void)launcher.peer.get("/v1/trace"); });
  renewed_ = steady_clock::now();
}

Status Collection::pass_file(Launcher& one, int rank, RankNow& now) {
  for (std::uint64_t offset = 0; now.traced;) {
    renew();
    const auto piece =
        one.peer.get("/v1/trace/files/" + std::to_string(rank) + "/" + std::to_string(offset));
    if (!piece)
      return sink_({{"type", "fileLost"}, {"rank", rank}, {"problem", piece.error().message}});
    if (piece->empty()) break;
    offset += piece->size();
    if (auto sent = sink_({{"type", "piece"}, {"rank", rank}, {"data", encode_base64(*piece)}});
        !sent)
      return sent;
  }
  return sink_({{"type", "fileEnd"}, {"rank", rank}});
}

Status Collection::run() {
  const auto began = steady_clock::now();
  if (auto looked = look_around(); !looked) return looked;
  std::uint64_t start_step = 0;
  if (!options_.records_only) {
    const auto planned = plan(steady_clock::now() - began);
    if (!planned) return std::unexpected(planned.error());
    if (auto posted = ask(*planned); !posted) return posted;
    start_step = planned->start_step;
    const std::string last = std::to_string(start_step + options_.steps - 1);
    if (auto sent = tell("steps " + std::to_string(start_step) + " to " + last +
                         " are recorded, in about " + seconds_text(planned->seconds));
        !sent)
      return sent;
    wait(*planned);
  }
  if (auto passed = pass_on(start_step); !passed) return passed;
  for (Launcher& one : launchers_) {
    for (auto& [rank, now] : one.ranks) {
      if (!now.traced) continue;
      if (auto passed = pass_file(one, rank, now); !passed) return passed;
    }
  }
  return sink_({{"type", "end"}});
}

}  // namespace

Status collect(const Launchers& launchers, const TraceOptions& options, const TraceSink& sink) {
  if (launchers.addresses.empty())
    return fail(Code::kInvalid, Origin::kConfig, "the job has no launcher");
  return Collection(launchers, options, sink).run();
}

}  // namespace paceline::traces
