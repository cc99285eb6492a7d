// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "agent/collect/slot_collector.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include "common/contract/names.hpp"

namespace paceline::agent {
namespace {

using telemetry::SlotFrame;
using telemetry::SlotKind;

constexpr std::chrono::milliseconds kReadInterval{250};
constexpr std::chrono::seconds kComplainInterval{10};
constexpr int kMostRank = 1 << 24;
constexpr std::array<std::string_view, 7> kRefusals{"",     "frame", "claim", "unknown_pod", "second_client",
                                                    "ring", "flood"};

bool terminated(const std::array<char, 64>& text) { return std::ranges::find(text, '\0') != text.end(); }

/// A begin that somebody could mean; whether it is true is another question.
bool sensible(const SlotFrame& begin) {
  return begin.processes >= 1 && begin.processes <= kMostRank && begin.first_rank >= 0 &&
         begin.first_rank <= kMostRank && terminated(begin.job) && terminated(begin.role) && begin.job[0] != '\0' &&
         begin.role[0] != '\0';
}

bool same_claim(const SlotFrame& a, const SlotFrame& b) {
  return std::string_view(a.job.data()) == b.job.data() && std::string_view(a.role.data()) == b.role.data() &&
         a.replica_index == b.replica_index && a.incarnation == b.incarnation;
}

}  // namespace

SlotCollector::SlotCollector(std::string node, const Clock& clock, CollectLimits limits)
    : node_(std::move(node)),
      clock_(clock),
      limits_(limits),
      book_(node_, clock, limits),
      complain_at_(clock.steady()) {}

SlotCollector::~SlotCollector() = default;

Status SlotCollector::open(const std::string& slot, const std::filesystem::path& folder) {
  const std::lock_guard lock(mutex_);
  return slots_.try_emplace(slot, limits_, clock_.steady()).first->second.open(folder);
}

bool SlotCollector::asks() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(clients_,
                             [](const Client& client) { return client.begin.size != 0 && client.entry == nullptr; });
}

void SlotCollector::tell(const SlotPods& pods, SteadyTime asked) {
  const std::lock_guard lock(mutex_);
  for (Client& client : clients_) {
    if (client.begin.size == 0 || client.entry != nullptr || client.over) continue;
    // The answer may be older than the pod, and the slot may have been another's then.
    if (asked < client.since) continue;
    const auto [first, last] = pods.equal_range(client.slot);
    if (std::distance(first, last) == 1) {
      take(client, first->second);
    } else if (clock_.steady() - client.since >= limits_.unknown_pod) {
      refuse(client, Refusal::kUnknownPod);
    }
  }
  drop_closed();
}

/// The labels come from the kubelet's word: the name of a pod is made of its job's, and what was said must make that name.
void SlotCollector::take(Client& client, const PodName& pod) {
  const SlotFrame& begin = client.begin;
  const std::string job = begin.job.data();
  const std::string role = begin.role.data();
  if (contract::pod_name(job, role, begin.replica_index, begin.incarnation) != pod.name)
    return refuse(client, Refusal::kClaim);
  client.entry = book_.take(pod, job, role);
  if (client.entry == nullptr) return refuse(client, Refusal::kSecondClient);
  book_.begin_attempt(*client.entry, begin);
  SlotFrame taken;
  taken.size = sizeof taken;
  taken.kind = static_cast<std::uint16_t>(SlotKind::kTaken);
  if (!telemetry::send_message(client.fd.get(), &taken, sizeof taken, -1)) client.over = true;
}

void SlotCollector::accept_all(SteadyTime now) {
  for (auto& [id, slot] : slots_) {
    while (slot.ready(now)) {
      telemetry::UniqueFd fd = slot.accept(now);
      if (!fd.valid()) break;
      const auto here = std::ranges::count_if(clients_, [&id = id](const Client& client) { return client.slot == id; });
      if (static_cast<std::size_t>(here) >= limits_.clients_of_slot) {
        count(id, Refusal::kSecondClient);
        continue;
      }
      clients_.push_back({std::move(fd), id, now, {}, nullptr, {}, false});
    }
  }
}

void SlotCollector::receive(Client& client, SteadyTime now) {
  SlotListener& slot = slots_.at(client.slot);
  while (!client.over) {
    SlotFrame frame;
    const auto received = telemetry::receive_message(client.fd.get(), &frame, sizeof frame);
    if (received.again()) break;
    if (received.size <= 0) {
      client.over = true;
      break;
    }
    if (!slot.may_send(now)) return refuse(client, Refusal::kFlood);
    const auto size = static_cast<std::size_t>(received.size);
    if (size < sizeof frame || size > telemetry::kMostSlotFrame || frame.magic != telemetry::kSlotMagic ||
        frame.version != telemetry::kSlotVersion) {
      return refuse(client, Refusal::kFrame);
    }
    const Refusal refusal = hear(client, frame, received.descriptors);
    // A ring that is refused is its rank's loss alone.
    if (refusal == Refusal::kRing) {
      count(client.slot, refusal);
    } else if (refusal != Refusal::kNone) {
      return refuse(client, refusal);
    }
  }
}

SlotCollector::Refusal SlotCollector::hear(Client& client, const SlotFrame& frame,
                                           const std::vector<telemetry::UniqueFd>& descriptors) {
  const auto kind = static_cast<SlotKind>(frame.kind);
  if (descriptors.size() != (kind == SlotKind::kRing ? 1U : 0U)) return Refusal::kFrame;
  if (kind == SlotKind::kBegin) {
    if (!sensible(frame)) return Refusal::kFrame;
    if (client.entry != nullptr && !same_claim(client.begin, frame)) return Refusal::kClaim;
    client.begin = frame;
    client.begin.size = sizeof frame;
    client.rings.clear();
    if (client.entry != nullptr) book_.begin_attempt(*client.entry, frame);
    return Refusal::kNone;
  }
  if (client.entry == nullptr) return Refusal::kFrame;
  if (kind == SlotKind::kRing) {
    const auto key = book_.add(*client.entry, frame, descriptors.front().get());
    if (!key) return Refusal::kRing;
    client.rings.insert_or_assign(frame.ring, *key);
    return Refusal::kNone;
  }
  if (kind == SlotKind::kGone) {
    // One that was refused has no number here.
    if (const auto ring = client.rings.find(frame.ring); ring != client.rings.end()) {
      book_.remove(*client.entry, ring->second);
      client.rings.erase(ring);
    }
    return Refusal::kNone;
  }
  return Refusal::kFrame;
}

void SlotCollector::refuse(Client& client, Refusal why) {
  client.over = true;
  count(client.slot, why);
}

void SlotCollector::count(const std::string& slot, Refusal why) {
  ++refusals_.at(static_cast<std::size_t>(why));
  if (clock_.steady() < complain_at_) return;
  complain_at_ = clock_.steady() + kComplainInterval;
  spdlog::warn("telemetry of {}: refused ({})", slot, kRefusals.at(static_cast<std::size_t>(why)));
}

void SlotCollector::drop_closed() {
  std::erase_if(clients_, [&](Client& client) {
    if (client.over && client.entry != nullptr) book_.end(*client.entry);
    return client.over;
  });
}

void SlotCollector::round(bool read_rings) {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_.steady();
  accept_all(now);
  for (Client& client : clients_) {
    receive(client, now);
    const bool waits = client.begin.size == 0;
    if (waits && now - client.since >= limits_.unknown_pod) refuse(client, Refusal::kFrame);
  }
  drop_closed();
  if (read_rings) book_.poll();
}

void SlotCollector::pump() { round(true); }

void SlotCollector::run(const std::stop_token& stop) {
  SteadyTime read_at = clock_.steady();
  std::vector<pollfd> polled;
  while (!stop.stop_requested()) {
    polled.clear();
    {
      const std::lock_guard lock(mutex_);
      for (auto& [id, slot] : slots_) {
        if (slot.ready(clock_.steady())) polled.push_back({slot.fd(), POLLIN, 0});
      }
      for (const Client& client : clients_) polled.push_back({client.fd.get(), POLLIN, 0});
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(read_at - clock_.steady());
    ::poll(polled.data(), polled.size(),
           static_cast<int>(std::clamp<std::int64_t>(wait.count(), 0, kReadInterval.count())));
    const bool due = clock_.steady() >= read_at;
    if (due) read_at = clock_.steady() + kReadInterval;
    round(due);
  }
  round(true);
}

void SlotCollector::export_metrics(telemetry::MetricsSink& sink) const {
  using telemetry::MetricType;
  const std::lock_guard lock(mutex_);
  sink.family("paceline_agent_slot_pods", MetricType::kGauge, "Pods whose ranks' metrics this agent serves.");
  sink.value({{"node", node_}}, static_cast<double>(book_.live()));
  sink.family("paceline_agent_slot_refusals_total", MetricType::kCounter,
              "What pods sent to their slots' sockets and was not taken.");
  for (std::size_t i = 1; i < kRefusals.size(); ++i) {
    sink.value({{"node", node_}, {"reason", std::string(kRefusals.at(i))}}, static_cast<double>(refusals_.at(i)));
  }
  telemetry::export_ranks(book_.views(), sink);
}

}  // namespace paceline::agent
