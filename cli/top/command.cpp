// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "cli/top/command.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/top/terminal.hpp"
#include "cli/watch/document.hpp"
#include "cli/watch/local_runs.hpp"
#include "cli/watch/text.hpp"
#include "cli/watch/way.hpp"

namespace paceline::cli {
namespace {

constexpr int kExitInput = 2;
constexpr std::chrono::seconds kPatience{30};
constexpr std::chrono::seconds kAskEvery{3};
constexpr std::chrono::milliseconds kRedraw{500};
constexpr std::size_t kPipeWidth = 120;

/// Asks for one job again and again, on a thread of its own, since an answer may take seconds.
class Asker {
 public:
  explicit Asker(JobSource& source)
      : source_(source), thread_([this](const std::stop_token& stop) { run(stop); }) {}

  /// "" asks for none.
  void ask(const std::string& ns, const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (ns_ == ns && name_ == name) return;
    ns_ = ns;
    name_ = name;
    answer_.reset();
    wake_.notify_all();
  }
  std::optional<Looked> answer() const {
    const std::lock_guard lock(mutex_);
    return answer_;
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      const std::string ns = ns_;
      const std::string name = name_;
      const auto other = [&] { return ns_ != ns || name_ != name; };
      if (name.empty()) {
        wake_.wait(lock, stop, other);
        continue;
      }
      lock.unlock();
      const auto detail = source_.detail(ns, name, stop);
      Looked looked;
      if (detail) looked = {read_facts(detail->document), clean(detail->gap), true};
      lock.lock();
      if (other()) continue;
      if (detail) {
        answer_ = std::move(looked);
      } else if (answer_) {
        answer_->gap = clean(detail.error().message);  // what it answered last stays
      } else {
        answer_ = Looked{{}, clean(detail.error().message), false};
      }
      wake_.wait_for(lock, stop, kAskEvery, other);
    }
  }

  JobSource& source_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string ns_;
  std::string name_;
  std::optional<Looked> answer_;
  std::jthread thread_;
};

/// What the list knows of the chosen job, until rank 0 has answered.
Looked looked_at(const TopState& state, const JobList& jobs, const Asker& asker) {
  const auto answer = asker.answer();
  if (answer && answer->answered) return *answer;
  Looked looked;
  looked.facts.name = state.name;
  for (const auto& entry : jobs) {
    if (entry->meta.ns == state.ns && entry->meta.name == state.name) looked.facts = entry->facts;
  }
  if (answer) {
    looked.gap = answer->gap;
    looked.answered = true;
  }
  return looked;
}

TopView view_of(const JobSource& source, const std::string& where, const TopState& state) {
  TopView view;
  view.where = where;
  view.jobs = source.jobs();
  view.total = view.jobs.size();
  view.jobs = arrange(std::move(view.jobs), state.sort, state.filter);
  view.health = source.health();
  return view;
}

int follow(Terminal& terminal, JobSource& source, const std::string& where, const Clock& clock) {
  Asker asker(source);
  TopState state;
  for (;;) {
    const Size size = terminal.size();
    TopView view = view_of(source, where, state);
    const bool looks = state.level == Level::kJob || state.level == Level::kRank;
    asker.ask(looks ? state.ns : "", looks ? state.name : "");
    if (looks) view.looked = looked_at(state, source.jobs(), asker);
    const std::size_t ranks = view.looked.facts.rank_rows.size();
    settle(state, view.jobs, ranks, rows_of(state, size));
    terminal.draw(frame(state, view, size, clock.wall()));
    const Terminal::Event event = terminal.wait(kRedraw);
    if (event.ended_by != 0) return 128 + event.ended_by;
    for (const KeyPress& key : event.keys) {
      press(state, key, view.jobs, ranks, rows_of(state, size));
      // A filter or an order that was just typed changes what the next key chooses from.
      view.jobs = arrange(source.jobs(), state.sort, state.filter);
      settle(state, view.jobs, ranks, rows_of(state, size));
    }
    if (state.quit) return 0;
  }
}

std::size_t output_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col
                                                                            : kPipeWidth;
}

int refuse(const std::string& text) {
  std::cerr << "paceline top: " << text << "\n";
  return kExitInput;
}

}  // namespace

int print_top(const JobSource& source, const std::string& where, bool as_json, std::size_t width,
              const Clock& clock, std::ostream& out, std::ostream& err) {
  const SourceHealth health = source.first_answer(kPatience);
  if (!health.filled) {
    err << "paceline top: " << (health.trouble.empty() ? "no answer within 30 s" : health.trouble)
        << "\n";
    return kExitInput;
  }
  const TopView view = view_of(source, where, {});
  if (as_json) {
    nlohmann::json jobs = nlohmann::json::array();
    for (const auto& entry : view.jobs) jobs.push_back(entry->document);
    out << dump({{"version", 1}, {"jobs", std::move(jobs)}});
    return 0;
  }
  if (view.jobs.empty()) {
    err << "no jobs " << (where.starts_with("this") ? "on " : "in ") << where << "\n";
    return 0;
  }
  for (const Line& line : listing(view, width, clock.wall())) out << plain(line, width) << "\n";
  return 0;
}

int top_command(const TopOptions& options) {
  if (options.local && (!options.ns.empty() || options.all_namespaces))
    return refuse("--local shows this machine: remove -n and -A");
  const SystemClock clock;
  spdlog::set_level(spdlog::level::off);  // the screen has no place for a log
  const bool once = options.once || !options.output.empty() || !Terminal::usable();
  std::optional<ClusterWay> way;
  if (!options.local) {
    auto found = find_cluster(options.kubeconfig, options.ns, clock);
    if (!found)
      return refuse(clean(found.error().message) + "; --local shows the runs of this machine");
    way = *std::move(found);
  }
  // It comes before the threads of the source, which inherit its mask of signals.
  std::optional<Terminal> terminal;
  if (!once) terminal.emplace();
  const std::string ns = options.all_namespaces || !way ? "" : way->ns;
  const auto source = way ? watch_cluster(way->api, ns, options.kubeconfig, clock, once)
                          : watch_machine(state_base(), clock);
  const std::string where = !way         ? "this machine"
                            : ns.empty() ? "all namespaces"
                                         : "namespace " + ns;
  return once ? print_top(*source, where, options.output == "json", output_width(), clock,
                          std::cout, std::cerr)
              : follow(*terminal, *source, where, clock);
}

}  // namespace paceline::cli
