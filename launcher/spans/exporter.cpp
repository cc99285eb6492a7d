// SPDX-License-Identifier: Apache-2.0
#include "launcher/spans/exporter.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/base/queue.hpp"
#include "launcher/spans/otlp.hpp"
#include "launcher/spans/resolve.hpp"
#include "launcher/summary/http_client.hpp"

namespace paceline::spans {
namespace {

constexpr std::chrono::seconds kGather{1};  // after a span, for others to send with it

Status post(const Target& target, const std::string& body, std::chrono::milliseconds patience) {
  const auto addresses = resolve(target.host);
  if (!addresses) return std::unexpected(addresses.error());
  summary::ClientRequest request{.post = true, .path = target.path, .body = body};
  request.headers = target.headers;
  request.headers.emplace_back("Content-Type", "application/json");
  request.headers.emplace_back("Host", target.host);
  std::vector<net::Address> servers;
  for (const std::string& address : *addresses) servers.push_back({address, target.port});
  const auto answer = summary::exchange(servers, request, patience);
  if (!answer) return std::unexpected(answer.error());
  if (answer->status / 100 != 2)
    return fail(Code::kUnavailable, Origin::kHttp, "status " + std::to_string(answer->status));
  return {};
}

}  // namespace

struct Exporter::Shared {
  Shared(Target to, launcher::Log& log) : target(std::move(to)), log_(&log) {}

  void run();
  void send(std::vector<Span>& waiting);
  void finish();

  const Target target;
  BoundedQueue<Span> queue{kMostSpans, Overflow::kDropOldest};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  launcher::Log* log_;  // nullptr: the exporter is gone
  bool done_ = false;
  bool told_ = false;
};

void Exporter::Shared::run() {
  std::vector<Span> waiting;
  while (auto span = queue.pop()) {
    waiting.push_back(*std::move(span));
    const auto until = std::chrono::steady_clock::now() + kGather;
    for (auto now = until - kGather; now < until; now = std::chrono::steady_clock::now()) {
      auto more = queue.pop_for(std::chrono::duration_cast<std::chrono::milliseconds>(until - now));
      if (!more) break;  // none for a while, or the last one
      waiting.push_back(*std::move(more));
    }
    send(waiting);
  }
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

void Exporter::Shared::send(std::vector<Span>& waiting) {
  if (waiting.size() > kMostSpans)
    waiting.erase(waiting.begin(), waiting.end() - static_cast<std::ptrdiff_t>(kMostSpans));
  const auto sent = post(target, to_otlp(target, waiting),
                         std::min<std::chrono::milliseconds>(target.timeout, kLastWords));
  if (sent) return waiting.clear();
  const std::lock_guard lock(mutex_);
  if (log_ == nullptr || std::exchange(told_, true)) return;
  log_->line("spans do not reach the collector at " + target.host + ":" +
             std::to_string(target.port) +
             " (OTEL_EXPORTER_OTLP_ENDPOINT): " + sent.error().message);
}

void Exporter::Shared::finish() {
  queue.close();
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kLastWords, [this] { return done_; });
  log_ = nullptr;
}

Exporter::Exporter(Target target, launcher::Log& log)
    : shared_(std::make_shared<Shared>(std::move(target), log)) {
  std::thread([shared = shared_] { shared->run(); }).detach();
}

Exporter::~Exporter() { shared_->finish(); }

void Exporter::push(std::vector<Span> spans) {
  for (Span& span : spans) shared_->queue.push(std::move(span));
}

}  // namespace paceline::spans
