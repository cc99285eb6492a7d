// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "agent/report/uplink.hpp"

#include <algorithm>
#include <utility>

namespace paceline::agent {
namespace {

/// Logs an error unless it is the last one logged for the same purpose.
void complain(const char* what, const Error& error, std::string& last) {
  if (error.code == Code::kCancelled || error.message == last) return;
  last = error.message;
  spdlog::warn("{}: {}", what, to_string(error));
}

}  // namespace

Uplink::Uplink(Publisher& publisher, Metrics& metrics, const Clock& clock, UplinkOptions options)
    : publisher_(publisher),
      metrics_(metrics),
      clock_(clock),
      options_(options),
      renew_at_(clock.steady()),
      publish_at_(clock.steady()),
      pause_(options.retry_first) {}

void Uplink::put(Report report) {
  const std::lock_guard lock(mutex_);
  newest_ = std::move(report);
  news_.notify_all();
}

SteadyTime Uplink::tick(const std::stop_token& stop) {
  if (clock_.steady() >= renew_at_) renew(stop);
  if (clock_.steady() >= publish_at_) publish(stop);
  const std::lock_guard lock(mutex_);
  return newest_ ? std::min(renew_at_, publish_at_) : renew_at_;
}

void Uplink::renew(const std::stop_token& stop) {
  renew_at_ = clock_.steady() + options_.renew_interval;
  if (auto renewed = publisher_.renew(stop); renewed) {
    metrics_.lease_renewed();
    renew_complaint_.clear();
  } else {
    metrics_.lease_failed();
    complain("cannot renew the Lease", renewed.error(), renew_complaint_);
  }
}

void Uplink::publish(const std::stop_token& stop) {
  std::optional<Report> report;
  {
    const std::lock_guard lock(mutex_);
    report = std::exchange(newest_, std::nullopt);
  }
  if (!report) return;
  const auto published =
      publisher_.publish(report->hardware, report->findings, report->runtime, stop);
  if (!published) {
    metrics_.publish_failed();
    complain("cannot publish the NodeFabric", published.error(), publish_complaint_);
    publish_at_ = clock_.steady() + pause_;
    pause_ = std::min(pause_ * 2, options_.retry_longest);
    const std::lock_guard lock(mutex_);
    if (!newest_) newest_ = std::move(report);
    return;
  }
  metrics_.published(*published);
  if (*published) {
    spdlog::info("published the NodeFabric: {} GPUs, {} NICs", report->hardware.gpu.gpus.size(),
                 report->hardware.nics.size());
  }
  ready_ = true;
  publish_complaint_.clear();
  pause_ = options_.retry_first;
}

void Uplink::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto next = tick(stop);
    std::unique_lock lock(mutex_);
    news_.wait_until(lock, stop, next,
                     [this] { return newest_ && clock_.steady() >= publish_at_; });
  }
}

}  // namespace paceline::agent
