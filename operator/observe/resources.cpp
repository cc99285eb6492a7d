// SPDX-License-Identifier: Apache-2.0
#include "operator/observe/resources.hpp"

#include <algorithm>

namespace paceline::observe {
namespace {

auto position(auto& other, std::string_view name) {
  return std::lower_bound(
      other.begin(), other.end(), name,
      [](const auto& entry, std::string_view key) { return entry.first < key; });
}

int fit(std::int64_t free, std::int64_t need, int limit) {
  if (need <= 0) return limit;
  if (free < need) return 0;
  return static_cast<int>(std::min<std::int64_t>(free / need, limit));
}

}  // namespace

std::int64_t Resources::get(std::string_view name) const {
  if (name == "cpu") return cpu;
  if (name == "memory") return memory;
  if (name == "pods") return pods;
  // Of a handful of names, most differ in length: comparing for equality is quicker than for order.
  const auto it = std::ranges::find(other, name, &std::pair<std::string, std::int64_t>::first);
  return it != other.end() ? it->second : 0;
}

void Resources::set(std::string_view name, std::int64_t milli) {
  if (name == "cpu") {
    cpu = milli;
  } else if (name == "memory") {
    memory = milli;
  } else if (name == "pods") {
    pods = milli;
  } else if (const auto it = position(other, name); it != other.end() && it->first == name) {
    it->second = milli;
  } else {
    other.emplace(it, std::string(name), milli);
  }
}

void Resources::add(const Resources& more) {
  cpu += more.cpu;
  memory += more.memory;
  pods += more.pods;
  port_blocks += more.port_blocks;
  for (const auto& [name, amount] : more.other) set(name, get(name) + amount);
}

void Resources::subtract(const Resources& less) {
  cpu -= less.cpu;
  memory -= less.memory;
  pods -= less.pods;
  port_blocks -= less.port_blocks;
  for (const auto& [name, amount] : less.other) set(name, get(name) - amount);
}

void Resources::raise_to(const Resources& floor) {
  cpu = std::max(cpu, floor.cpu);
  memory = std::max(memory, floor.memory);
  pods = std::max(pods, floor.pods);
  port_blocks = std::max(port_blocks, floor.port_blocks);
  for (const auto& [name, amount] : floor.other) set(name, std::max(get(name), amount));
}

std::vector<std::pair<std::string, std::int64_t>> Resources::amounts() const {
  std::vector<std::pair<std::string, std::int64_t>> amounts = other;
  amounts.emplace_back("cpu", cpu);
  amounts.emplace_back("memory", memory);
  return amounts;
}

int Resources::times(const Resources& need, int limit) const {
  int count = fit(pods, need.pods, limit);
  count = fit(cpu, need.cpu, count);
  count = fit(memory, need.memory, count);
  count = fit(port_blocks, need.port_blocks, count);
  for (const auto& [name, amount] : need.other) {
    if (count == 0) break;
    count = fit(get(name), amount, count);
  }
  return count;
}

void Resources::lower_to(const Resources& limit) {
  cpu = std::min(cpu, limit.cpu);
  memory = std::min(memory, limit.memory);
  pods = std::min(pods, limit.pods);
  port_blocks = std::min(port_blocks, limit.port_blocks);
  for (auto& [name, amount] : other) amount = std::min(amount, limit.get(name));
}

std::string Resources::lacking(const Resources& need) const {
  if (need.pods > pods) return "pods";
  if (need.cpu > 0 && need.cpu > cpu) return "cpu";
  if (need.memory > 0 && need.memory > memory) return "memory";
  for (const auto& [name, amount] : need.other) {
    if (amount > 0 && amount > get(name)) return name;
  }
  if (need.port_blocks > 0 && need.port_blocks > port_blocks) return kHostPorts;
  return "";
}

}  // namespace paceline::observe
