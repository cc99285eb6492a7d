// SPDX-License-Identifier: Apache-2.0
#include "ledger.hpp"

#include <algorithm>
#include <limits>

namespace paceline::nccl {
namespace {

std::uint32_t as_u32(std::uint64_t value) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

// How long at least one of the intervals lasts. Leaves them sorted and without overlaps, so that
// they are few the next time.
std::uint64_t united(std::vector<std::pair<std::uint64_t, std::uint64_t>>& intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::size_t kept = 0;
  for (const auto& interval : intervals) {
    if (kept > 0 && interval.first <= intervals[kept - 1].second) {
      intervals[kept - 1].second = std::max(intervals[kept - 1].second, interval.second);
    } else {
      intervals[kept++] = interval;
    }
  }
  intervals.resize(kept);
  std::uint64_t sum = 0;
  for (const auto& [start, stop] : intervals) sum += stop - start;
  return sum;
}

}  // namespace

void Ledger::Sums::add(const Operation& operation) {
  ++operations;
  bytes += operation.bytes;
  bytes_known = bytes_known && operation.bytes_known;
  groups.insert(operation.group);
  if (operation.collective() && operation.serial >= last_serial) {
    last_serial = operation.serial;
    last_sequence = operation.sequence;
  }
}

void Ledger::Sums::add(const Sums& other) {
  operations += other.operations;
  bytes += other.bytes;
  bytes_known = bytes_known && other.bytes_known;
  groups.insert(other.groups.begin(), other.groups.end());
  if (other.last_sequence != 0 && other.last_serial >= last_serial) {
    last_serial = other.last_serial;
    last_sequence = other.last_sequence;
  }
}

Ledger::Account* Ledger::account(const paceline_position& position) {
  if (position.step == 0) return nullptr;
  const Key key{position.ring_epoch, position.step};
  const auto found = accounts_.find(key);
  if (found != accounts_.end()) return &found->second;
  if (accounts_.size() >= kMostSteps) {
    if (key < accounts_.begin()->first) return nullptr;
    accounts_.erase(accounts_.begin());
  }
  return &accounts_[key];
}

void Ledger::add(const Operation& operation) {
  Account* const account = this->account(operation.position);
  if (account == nullptr) return;
  account->ended.add(operation);
  account->due = true;
  if (operation.timed()) {
    account->times.emplace_back(operation.start_ns, operation.stop_ns);
  } else {
    ++account->untimed;
  }
  if (!operation.collective()) return;
  ++account->collectives;
  if (!operation.wait_known) return;
  ++account->waits;
  account->wait_ns += operation.wait_ns;
}

void Ledger::begin() {
  for (auto& [key, account] : accounts_) account.open = Sums{};
}

void Ledger::open(const Operation& operation) {
  if (Account* const account = this->account(operation.position); account != nullptr)
    account->open.add(operation);
}

void Ledger::lost(const paceline_position& position) {
  Account* const account = this->account(position);
  if (account == nullptr) return;
  account->truncated = true;
  account->due = true;
}

paceline_step_record Ledger::amendment(const Key& key, Account& account) {
  Sums sums = account.ended;
  sums.add(account.open);
  paceline_step_record facts{};
  facts.ring_epoch = key.first;
  facts.step = key.second;
  facts.comm_ops = as_u32(sums.operations);
  facts.group_count = as_u32(sums.groups.size());
  facts.valid = PACELINE_VALID_COMM_OPS | PACELINE_VALID_GROUP_COUNT;
  if (sums.last_sequence != 0) {
    facts.collective_seq_last = sums.last_sequence;
    facts.valid |= PACELINE_VALID_COLLECTIVE_SEQ_LAST;
  }
  if (account.truncated) facts.flags |= PACELINE_FLAG_TRUNCATED_POOL;
  if (sums.bytes_known && !account.truncated) {
    facts.comm_payload_bytes = sums.bytes;
    facts.valid |= PACELINE_VALID_COMM_PAYLOAD_BYTES;
  }
  // A part of the time would be taken for the whole.
  if (account.open.operations != 0 || account.truncated) return facts;
  if (account.untimed == 0) {
    facts.comm_total_ns = united(account.times);
    facts.valid |= PACELINE_VALID_COMM_TOTAL_NS;
  }
  if (account.collectives != 0 && account.waits == account.collectives) {
    facts.comm_peer_wait_ns = account.wait_ns;
    facts.valid |= PACELINE_VALID_COMM_PEER_WAIT_NS;
  }
  return facts;
}

std::vector<paceline_step_record> Ledger::settle(const paceline_position& current,
                                                 std::uint64_t now_ns) {
  std::vector<paceline_step_record> amendments;
  if (current.step != 0) {
    std::erase_if(accounts_,
                  [&](const auto& entry) { return entry.first.first != current.ring_epoch; });
  }
  for (auto& [key, account] : accounts_) {
    if (current.step == 0 || key.second >= current.step) break;
    if (account.over_ns == 0) account.over_ns = now_ns;
    const bool waits = account.open.operations != 0 && now_ns < account.over_ns + kPatienceNs;
    if (!account.due || waits) continue;
    amendments.push_back(amendment(key, account));
    account.due = false;
  }
  return amendments;
}

}  // namespace paceline::nccl
