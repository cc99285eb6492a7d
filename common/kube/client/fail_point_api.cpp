// SPDX-License-Identifier: Apache-2.0
#include "common/kube/client/fail_point_api.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace paceline::kube {
namespace {

class FailPointApi final : public Api {
 public:
  FailPointApi(std::shared_ptr<Api> api, FailPoint fail_point)
      : api_(std::move(api)), fail_point_(std::move(fail_point)) {}

  Result<std::string> get(const Resource& resource, const std::string& ns, const std::string& name,
                          const std::stop_token& stop) override {
    return api_->get(resource, ns, name, stop);
  }
  Result<std::string> list(const Resource& resource, const std::string& ns,
                           const ListOptions& options, const std::stop_token& stop) override {
    return api_->list(resource, ns, options, stop);
  }
  Result<std::string> create(const Resource& resource, const std::string& ns,
                             const std::string& body, const WriteOptions& options,
                             const std::stop_token& stop) override {
    return write(options.dry_run, [&] { return api_->create(resource, ns, body, options, stop); });
  }
  Result<std::string> update(const Resource& resource, const std::string& ns,
                             const std::string& name, const std::string& body,
                             const WriteOptions& options, const std::stop_token& stop) override {
    return write(options.dry_run,
                 [&] { return api_->update(resource, ns, name, body, options, stop); });
  }
  Result<std::string> patch(const Resource& resource, const std::string& ns,
                            const std::string& name, const std::string& body,
                            const PatchOptions& options, const std::stop_token& stop) override {
    return write(options.dry_run,
                 [&] { return api_->patch(resource, ns, name, body, options, stop); });
  }
  Result<std::string> remove(const Resource& resource, const std::string& ns,
                             const std::string& name, const DeleteOptions& options,
                             const std::stop_token& stop) override {
    return write(options.dry_run, [&] { return api_->remove(resource, ns, name, options, stop); });
  }
  Status watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
               const WatchHandler& handler, const std::stop_token& stop) override {
    return api_->watch(resource, ns, options, handler, stop);
  }
  Result<std::string> get_raw(const std::string& path, const std::stop_token& stop) override {
    return api_->get_raw(path, stop);
  }

 private:
  template <typename Call>
  Result<std::string> write(bool dry_run, Call call) {
    if (dry_run) return call();
    const std::uint64_t number = count();
    if (number == fail_point_.at && !fail_point_.after) _exit(kFailPointExit);
    auto answer = call();
    if (number == fail_point_.at && fail_point_.after) _exit(kFailPointExit);
    return answer;
  }

  std::uint64_t count() {
    const std::lock_guard lock(mutex_);
    ++writes_;
    // After every write, because the process may end at any moment.
    if (!fail_point_.count_file.empty())
      std::ofstream(fail_point_.count_file, std::ios::trunc) << writes_ << '\n';
    return writes_;
  }

  const std::shared_ptr<Api> api_;
  const FailPoint fail_point_;
  std::mutex mutex_;
  std::uint64_t writes_ = 0;
};

}  // namespace

Result<FailPoint> fail_point_from_environment() {
  FailPoint point;
  if (const char* file = std::getenv("PACELINE_FAILPOINT_COUNT_FILE")) point.count_file = file;
  const char* text = std::getenv("PACELINE_FAILPOINT");
  if (text == nullptr || *text == '\0') return point;
  const std::string_view value(text);
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), point.at);
  const std::string_view rest = value.substr(static_cast<std::size_t>(end - value.data()));
  if (error != std::errc() || point.at == 0 || (rest != ":before" && rest != ":after")) {
    return fail(Code::kInvalid, Origin::kConfig,
                "PACELINE_FAILPOINT=\"" + std::string(value) +
                    "\": write the number of a write and a side, for example 3:before or 3:after");
  }
  point.after = rest == ":after";
  return point;
}

std::shared_ptr<Api> with_fail_point(std::shared_ptr<Api> api, FailPoint fail_point) {
  if (fail_point.at == 0 && fail_point.count_file.empty()) return api;
  return std::make_shared<FailPointApi>(std::move(api), std::move(fail_point));
}

}  // namespace paceline::kube
