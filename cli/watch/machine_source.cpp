// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "cli/watch/local_runs.hpp"
#include "cli/watch/source.hpp"

namespace paceline::cli {
namespace {

constexpr std::chrono::seconds kEvery{1};

class MachineSource final : public JobSource {
 public:
  MachineSource(std::string base, const Clock& clock)
      : base_(std::move(base)),
        clock_(clock),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  JobList jobs() const override {
    const std::lock_guard lock(mutex_);
    return jobs_;
  }
  Result<Detail> detail(const std::string& ns, const std::string& name,
                        const std::stop_token&) override {
    for (const auto& entry : jobs()) {
      if (entry->meta.ns == ns && entry->meta.name == name) return Detail{entry->document, ""};
    }
    return fail(Code::kNotFound, Origin::kConfig, "the run " + name + " has ended");
  }

 private:
  void run(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    while (!stop.stop_requested()) {
      JobList fresh;
      for (const LocalNote& note : live_runs(base_)) {
        JobEntry entry;
        entry.document = ask_run(note, stop);
        entry.facts = read_facts(entry.document);
        // Two runs may have one name.
        entry.meta.ns = std::to_string(note.pid);
        entry.meta.name = entry.facts.name;
        fresh.push_back(std::make_shared<const JobEntry>(std::move(entry)));
      }
      {
        const std::lock_guard lock(mutex_);
        jobs_ = std::move(fresh);
      }
      well(clock_.wall());
      std::unique_lock lock(mutex);
      wake.wait_for(lock, stop, kEvery, [] { return false; });
    }
  }

  const std::string base_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  JobList jobs_;
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<JobSource> watch_machine(const std::string& base, const Clock& clock) {
  return std::make_unique<MachineSource>(base, clock);
}

}  // namespace paceline::cli
