// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "agent/collect/slot_collector.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "common/contract/names.hpp"
#include "common/telemetry/slot/slot_finding.hpp"

namespace paceline::agent {
namespace {

using telemetry::SlotFrame;
using telemetry::SlotKind;

constexpr std::chrono::milliseconds kReadInterval{250};
constexpr std::chrono::seconds kComplainInterval{10};
constexpr int kMostRank = 1 << 24;
constexpr std::size_t kMostAnswers = 256;
constexpr std::array<std::string_view, 7> kRefusals{
    "", "frame", "claim", "unknown_pod", "second_client", "ring", "flood"};

std::string_view text_behind(const std::array<char, telemetry::kMostSlotFrame>& message,
                             std::size_t size) {
  return size > sizeof(SlotFrame) ? std::string_view(message.data(), size).substr(sizeof(SlotFrame))
                                  : std::string_view();
}

std::optional<Verdict> verdict_of(std::string_view status) {
  for (const Verdict verdict :
       {Verdict::kPass, Verdict::kUnknown, Verdict::kWarn, Verdict::kFail}) {
    if (status == to_string(verdict)) return verdict;
  }
  return std::nullopt;
}

bool terminated(const std::array<char, 64>& text) {
  return std::ranges::find(text, '\0') != text.end();
}

/// True if the frame is a plausible begin; whether it is true is checked later.
bool sensible(const SlotFrame& begin) {
  return begin.processes >= 1 && begin.processes <= kMostRank && begin.first_rank >= 0 &&
         begin.first_rank <= kMostRank && terminated(begin.job) && terminated(begin.role) &&
         begin.job[0] != '\0' && begin.role[0] != '\0';
}

bool same_claim(const SlotFrame& a, const SlotFrame& b) {
  return std::string_view(a.job.data()) == b.job.data() &&
         std::string_view(a.role.data()) == b.role.data() && a.replica_index == b.replica_index &&
         a.incarnation == b.incarnation;
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
  return std::ranges::any_of(clients_, [](const Client& client) {
    return client.begin.size != 0 && client.entry == nullptr;
  });
}

void SlotCollector::tell(const SlotPods& pods, SteadyTime asked) {
  const std::lock_guard lock(mutex_);
  for (Client& client : clients_) {
    if (client.begin.size == 0 || client.entry != nullptr || client.over) continue;
    // The answer may be older than the pod, when another pod had the slot.
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

void SlotCollector::know(const std::vector<Gpu>& gpus) {
  const std::lock_guard lock(mutex_);
  book_.know(gpus);
}

/// The labels use the kubelet's answer: a pod's name is derived from its job's, so what the
/// launcher said must give that name.
void SlotCollector::take(Client& client, const SlotOwner& owner) {
  const SlotFrame& begin = client.begin;
  const std::string job = begin.job.data();
  const std::string role = begin.role.data();
  if (contract::pod_name(job, role, begin.replica_index, begin.incarnation) != owner.pod.name)
    return refuse(client, Refusal::kClaim);
  client.entry = book_.take(owner, job, role);
  if (client.entry == nullptr) return refuse(client, Refusal::kSecondClient);
  book_.begin_attempt(*client.entry, begin);
  SlotFrame taken;
  taken.size = sizeof taken;
  taken.kind = static_cast<std::uint16_t>(SlotKind::kTaken);
  taken.features = telemetry::kSlotHandsOver | telemetry::kSlotFindings;
  if (!telemetry::send_message(client.fd.get(), &taken, sizeof taken, -1)) client.over = true;
}

void SlotCollector::accept_all(SteadyTime now) {
  for (auto& [id, slot] : slots_) {
    while (slot.ready(now)) {
      UniqueFd fd = slot.accept(now);
      if (!fd.valid()) break;
      const auto here = std::ranges::count_if(
          clients_, [&id = id](const Client& client) { return client.slot == id; });
      if (static_cast<std::size_t>(here) >= limits_.clients_of_slot) {
        count(id, Refusal::kSecondClient);
        continue;
      }
      clients_.push_back({std::move(fd), id, now, {}, nullptr, {}, {}, false});
    }
  }
}

void SlotCollector::receive(Client& client, SteadyTime now) {
  SlotListener& slot = slots_.at(client.slot);
  while (!client.over) {
    std::array<char, telemetry::kMostSlotFrame> message{};
    const auto received =
        telemetry::receive_message(client.fd.get(), message.data(), message.size());
    if (received.again()) break;
    if (received.size <= 0) {
      client.over = true;
      break;
    }
    if (!slot.may_send(now)) return refuse(client, Refusal::kFlood);
    const auto size = static_cast<std::size_t>(received.size);
    SlotFrame frame;
    std::memcpy(&frame, message.data(), std::min(size, sizeof frame));
    if (size < telemetry::kLeastSlotFrame || size > telemetry::kMostSlotFrame ||
        frame.magic != telemetry::kSlotMagic || frame.version != telemetry::kSlotVersion) {
      return refuse(client, Refusal::kFrame);
    }
    const Refusal refusal = hear(client, frame, text_behind(message, size), received.descriptors);
    // A refused ring affects its rank only.
    if (refusal == Refusal::kRing) {
      count(client.slot, refusal);
    } else if (refusal != Refusal::kNone) {
      return refuse(client, refusal);
    }
  }
}

SlotCollector::Refusal SlotCollector::hear(Client& client, const SlotFrame& frame,
                                           std::string_view text,
                                           const std::vector<UniqueFd>& descriptors) {
  const auto kind = static_cast<SlotKind>(frame.kind);
  const bool brings_ring = kind == SlotKind::kRing || kind == SlotKind::kPast;
  if (descriptors.size() != (brings_ring ? 1U : 0U)) return Refusal::kFrame;
  if (kind == SlotKind::kBegin) {
    if (!sensible(frame)) return Refusal::kFrame;
    if (client.entry != nullptr && !same_claim(client.begin, frame)) return Refusal::kClaim;
    client.begin = frame;
    client.begin.size = sizeof frame;
    if (client.entry != nullptr) book_.begin_attempt(*client.entry, frame);
    for (const auto& [number, ring] : std::exchange(client.rings, {}))
      answer(client, SlotKind::kDone, number);
    return Refusal::kNone;
  }
  if (client.entry == nullptr) return Refusal::kFrame;
  if (brings_ring) return hear_ring(client, frame, descriptors.front().get());
  if (kind == SlotKind::kGone) {
    // A refused ring has no number here.
    if (const auto ring = client.rings.find(frame.ring); ring != client.rings.end()) {
      book_.remove(*client.entry, ring->second.key);
      client.rings.erase(ring);
    }
    answer(client, SlotKind::kDone, frame.ring);
    return Refusal::kNone;
  }
  if (kind == SlotKind::kLost) {
    const bool counted = client.entry->collector.add_lost(frame.offer.world_rank, frame.start);
    answer(client, SlotKind::kDone, frame.ring);
    return counted ? Refusal::kNone : Refusal::kRing;
  }
  return kind == SlotKind::kFinding ? hear_finding(client, text) : Refusal::kFrame;
}

/// Accepts only findings that a pod can make about itself: a check of the place `pod`, with one of
/// the table's verdicts.
SlotCollector::Refusal SlotCollector::hear_finding(Client& client, std::string_view text) {
  const auto told = telemetry::unpack(text);
  if (!told) return Refusal::kFrame;
  const Check* check = find_check(told->check);
  const auto verdict = verdict_of(told->status);
  if (check == nullptr || !verdict) return Refusal::kFrame;
  Finding finding{told->check, told->subject, *verdict, told->evidence, {}};
  if (*verdict == Verdict::kFail || *verdict == Verdict::kWarn) finding.remedy = check->remedy;
  auto& known = client.entry->findings;
  if (known.size() >= telemetry::kMostFindings && !known.contains({finding.id, finding.subject}))
    return Refusal::kFrame;
  known.insert_or_assign({finding.id, finding.subject}, std::move(finding));
  return Refusal::kNone;
}

std::vector<Finding> SlotCollector::findings() const {
  const std::lock_guard lock(mutex_);
  std::vector<Finding> all;
  for (const PodTable::Entry* entry : book_.entries()) {
    const std::string pod = "pod " + entry->pod.name_space + "/" + entry->pod.name;
    for (const auto& [key, finding] : entry->findings) {
      Finding& told = all.emplace_back(finding);
      told.subject = finding.subject.empty() ? pod : pod + " " + finding.subject;
    }
  }
  return all;
}

SlotCollector::Refusal SlotCollector::hear_ring(Client& client, const SlotFrame& frame, int ring) {
  if (static_cast<SlotKind>(frame.kind) == SlotKind::kPast) {
    const bool read = book_.add_past(*client.entry, frame, ring).has_value();
    answer(client, read ? SlotKind::kDone : SlotKind::kRefused, frame.ring);
    return read ? Refusal::kNone : Refusal::kRing;
  }
  const auto key = book_.add(*client.entry, frame, ring);
  if (key) {
    client.rings.insert_or_assign(frame.ring, Handed{*key, frame.start, frame.read});
    return Refusal::kNone;
  }
  // Exactly one side must serve the rank. A launcher that can be told takes it over completely; for
  // one that cannot, the collector keeps what it has.
  if (client.hands_over()) client.entry->collector.leave(frame.offer.world_rank);
  answer(client, SlotKind::kRefused, frame.ring);
  return Refusal::kRing;
}

void SlotCollector::answer(Client& client, SlotKind kind, std::uint64_t ring) {
  if (!client.hands_over()) return;
  SlotFrame frame;
  frame.size = sizeof frame;
  frame.kind = static_cast<std::uint16_t>(kind);
  frame.ring = ring;
  client.answers.push_back(frame);
  send_answers(client);
  if (client.answers.size() > kMostAnswers) refuse(client, Refusal::kFlood);
}

void SlotCollector::send_answers(Client& client) {
  while (!client.answers.empty()) {
    // A closed client is noticed when it is next read.
    if (!telemetry::send_message(client.fd.get(), &client.answers.front(), sizeof(SlotFrame), -1))
      return;
    client.answers.pop_front();
  }
}

/// Under the same lock as the read, so that no reader sees a count before its launcher was told.
void SlotCollector::tell_progress(Client& client,
                                  const std::vector<telemetry::Progress>& progress) {
  if (!client.hands_over()) return;
  send_answers(client);
  for (auto& [number, ring] : client.rings) {
    const auto at = std::ranges::find_if(
        progress, [&ring = ring](const auto& one) { return one.key == ring.key; });
    if (at == progress.end() || (at->counted == ring.counted && at->read == ring.read)) continue;
    SlotFrame frame;
    frame.size = sizeof frame;
    frame.kind = static_cast<std::uint16_t>(SlotKind::kRead);
    frame.ring = number;
    frame.start = at->counted;
    frame.read = at->read;
    // If the socket is full, the next round sends it.
    if (!telemetry::send_message(client.fd.get(), &frame, sizeof frame, -1)) return;
    ring.counted = at->counted;
    ring.read = at->read;
  }
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
    if (client.over && client.entry != nullptr) tell_progress(client, book_.end(*client.entry));
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
  if (!read_rings) return;
  book_.poll();
  for (Client& client : clients_) {
    if (client.entry != nullptr) tell_progress(client, client.entry->collector.progress());
  }
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
  sink.family("paceline_agent_slot_pods", MetricType::kGauge,
              "Pods whose ranks' metrics this agent serves.");
  sink.value({{"node", node_}}, static_cast<double>(book_.live()));
  sink.family("paceline_agent_slot_refusals_total", MetricType::kCounter,
              "What pods sent to their slots' sockets and was not taken.");
  for (std::size_t i = 1; i < kRefusals.size(); ++i) {
    sink.value({{"node", node_}, {"reason", std::string(kRefusals.at(i))}},
               static_cast<double>(refusals_.at(i)));
  }
  telemetry::export_ranks(book_.views(), sink);
}

}  // namespace paceline::agent
