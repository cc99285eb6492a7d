// SPDX-License-Identifier: Apache-2.0
#include "plan.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

namespace paceline::comm {
namespace {

bool parse_number(const std::string& text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::expected<void, std::string> parse_order(const std::string& value, std::uint32_t ranks, Plan& plan) {
  const std::string what = "plan: order=" + value + ": ";
  std::vector<bool> seen(ranks);
  plan.order.clear();
  std::istringstream numbers(value);
  for (std::string one; std::getline(numbers, one, ',');) {
    std::uint64_t rank = 0;
    if (!parse_number(one, rank) || rank >= ranks || seen[rank])
      return std::unexpected(what + "'" + one + "' is no rank, or there twice; name 0 to " + std::to_string(ranks - 1) +
                             " once each");
    seen[rank] = true;
    plan.order.push_back(static_cast<std::uint32_t>(rank));
  }
  if (plan.order.size() != ranks)
    return std::unexpected(what + "names " + std::to_string(plan.order.size()) + " of " + std::to_string(ranks) +
                           " ranks; name each once");
  return {};
}

}  // namespace

std::expected<Plan, std::string> parse_plan(const std::string& text, std::uint32_t ranks) {
  Plan plan;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "algorithm") {
      if (value == "auto") {
        plan.algorithm = Algorithm::kAuto;
      } else if (value == "flat") {
        plan.algorithm = Algorithm::kFlat;
      } else if (value == "hierarchical") {
        plan.algorithm = Algorithm::kHierarchical;
      } else {
        return std::unexpected("plan: algorithm=" + value + ": use auto, flat or hierarchical");
      }
    } else if (key == "chunk") {
      if (!parse_number(value, plan.chunk) || plan.chunk < kLeastChunk || plan.chunk > kMostChunk ||
          plan.chunk % 64 != 0)
        return std::unexpected("plan: chunk=" + value + ": use bytes, a multiple of 64 from " +
                               std::to_string(kLeastChunk) + " to " + std::to_string(kMostChunk));
    } else if (key == "order") {
      if (auto done = parse_order(value, ranks, plan); !done) return std::unexpected(done.error());
    } else {
      return std::unexpected("plan: " + word + ": use algorithm=, chunk= and order=");
    }
  }
  return plan;
}

std::string print_plan(const Plan& plan) {
  std::string text = "algorithm=";
  text += plan.algorithm == Algorithm::kAuto ? "auto" : plan.algorithm == Algorithm::kFlat ? "flat" : "hierarchical";
  text += " chunk=" + std::to_string(plan.chunk);
  if (!plan.order.empty()) text += " order=";
  for (std::size_t i = 0; i < plan.order.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(plan.order[i]);
  return text;
}

std::uint32_t Topology::group_of(std::uint32_t rank) const {
  for (std::uint32_t g = 0; g < hosts(); ++g)
    if (std::find(groups[g].begin(), groups[g].end(), rank) != groups[g].end()) return g;
  return 0;
}

Topology arrange(Plan& plan, const std::vector<std::string>& hosts, std::uint32_t rank) {
  Topology all;
  all.rank = rank;
  const auto ranks = static_cast<std::uint32_t>(hosts.size());
  std::vector<std::uint32_t> sequence = plan.order;
  if (sequence.empty())
    for (std::uint32_t r = 0; r < ranks; ++r) sequence.push_back(r);
  std::map<std::string, std::size_t> numbers;
  for (const std::uint32_t r : sequence) {
    const auto [found, fresh] = numbers.emplace(hosts[r], all.groups.size());
    if (fresh) all.groups.emplace_back();
    all.groups[found->second].push_back(r);
  }
  if (plan.order.empty())
    for (const auto& group : all.groups) plan.order.insert(plan.order.end(), group.begin(), group.end());
  all.order = plan.order;
  all.position = static_cast<std::uint32_t>(std::find(all.order.begin(), all.order.end(), rank) - all.order.begin());
  all.group = all.group_of(rank);
  all.local = static_cast<std::uint32_t>(std::find(all.mates().begin(), all.mates().end(), rank) - all.mates().begin());
  std::size_t least = all.groups.front().size();
  std::size_t most = least;
  for (const auto& group : all.groups) {
    least = std::min(least, group.size());
    most = std::max(most, group.size());
  }
  all.lanes = static_cast<std::uint32_t>(least);
  if (all.hosts() == 1) all.lanes = static_cast<std::uint32_t>(most);
  // With one rank in every host there is nothing to add inside.
  if (plan.algorithm == Algorithm::kAuto) plan.algorithm = most > 1 ? Algorithm::kHierarchical : Algorithm::kFlat;
  return all;
}

}  // namespace paceline::comm
