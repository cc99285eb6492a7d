// SPDX-License-Identifier: Apache-2.0
#include "comm/plan/plan.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <sstream>

namespace paceline::comm {
namespace {

bool parse_number(const std::string& text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::expected<void, std::string> parse_order(const std::string& value, std::uint32_t ranks,
                                             Plan& plan) {
  const std::string what = "plan: order=" + value + ": ";
  std::vector<bool> seen(ranks);
  plan.order.clear();
  std::istringstream numbers(value);
  for (std::string one; std::getline(numbers, one, ',');) {
    std::uint64_t rank = 0;
    if (!parse_number(one, rank) || rank >= ranks || seen[rank])
      return std::unexpected(what + "'" + one + "' is no rank, or there twice; name 0 to " +
                             std::to_string(ranks - 1) + " once each");
    seen[rank] = true;
    plan.order.push_back(static_cast<std::uint32_t>(rank));
  }
  if (plan.order.size() != ranks)
    return std::unexpected(what + "names " + std::to_string(plan.order.size()) + " of " +
                           std::to_string(ranks) + " ranks; name each once");
  return {};
}

const char* name_of(Algorithm algorithm) {
  constexpr std::array<const char*, 5> kNames{"auto", "flat", "hierarchical", "doubling", "tree"};
  return kNames[static_cast<std::size_t>(algorithm)];
}

bool parse_algorithm(const std::string& text, Algorithm& algorithm) {
  for (const Algorithm one :
       {Algorithm::kFlat, Algorithm::kHierarchical, Algorithm::kDoubling, Algorithm::kTree}) {
    if (text != name_of(one)) continue;
    algorithm = one;
    return true;
  }
  return false;
}

bool is_chunk(std::uint64_t bytes) {
  return bytes >= kLeastChunk && bytes <= kMostChunk && bytes % 64 == 0;
}

bool parse_flows(const std::string& text, std::uint32_t& flows) {
  std::uint64_t number = 0;
  if (!parse_number(text, number) || number < 1 || number > kMostFlows) return false;
  flows = static_cast<std::uint32_t>(number);
  return true;
}

// Examples: "flat", "hierarchical/262144", "flat@2".
bool parse_way(std::string text, std::uint64_t most_chunk, Way& way) {
  const std::size_t at = text.find('@');
  if (at != std::string::npos && !parse_flows(text.substr(at + 1), way.flows)) return false;
  text.resize(std::min(at, text.size()));
  const std::size_t slash = text.find('/');
  if (!parse_algorithm(text.substr(0, slash), way.algorithm)) return false;
  // Two ranks have only one connection, so these algorithms take no number of flows.
  if (at != std::string::npos && is_latency_bound(way.algorithm)) return false;
  if (way.algorithm != Algorithm::kHierarchical) return slash == std::string::npos;
  return slash != std::string::npos && parse_number(text.substr(slash + 1), way.chunk) &&
         is_chunk(way.chunk) && way.chunk <= most_chunk;
}

}  // namespace

std::expected<std::vector<Choice>, std::string> parse_choices(const std::string& text,
                                                              std::uint64_t most_chunk) {
  std::vector<Choice> choices;
  std::istringstream list(text);
  for (std::string one; std::getline(list, one, ',');) {
    Choice choice;
    const std::size_t colon = one.find(':');
    const std::string way = colon == std::string::npos ? "" : one.substr(colon + 1);
    if (!parse_number(one.substr(0, colon), choice.from) ||
        !parse_way(way, most_chunk, choice.way) ||
        (choices.empty() ? choice.from != 0 : choice.from <= choices.back().from))
      return std::unexpected(
          "plan: choice=" + text + ": '" + one +
          "': write 0:flat, 0:doubling, 0:tree or 0:hierarchical/CHUNK first, then larger sizes; "
          "chunks are multiples of 64 from " +
          std::to_string(kLeastChunk) + " to chunk=" + std::to_string(most_chunk) +
          "; flat and hierarchical may end with @FLOWS, 1 to " + std::to_string(kMostFlows));
    choices.push_back(choice);
  }
  if (choices.empty())
    return std::unexpected(
        "plan: choice=: write 0:flat, 0:doubling, 0:tree or 0:hierarchical/CHUNK");
  return choices;
}

std::string print_choices(const std::vector<Choice>& choices) {
  std::string text;
  for (const Choice& choice : choices) {
    text += (text.empty() ? "" : ",") + std::to_string(choice.from);
    text += std::string(":") + name_of(choice.way.algorithm);
    if (choice.way.algorithm == Algorithm::kHierarchical)
      text += "/" + std::to_string(choice.way.chunk);
    if (choice.way.flows != 0) text += "@" + std::to_string(choice.way.flows);
  }
  return text;
}

bool can_go(const Plan& plan, const std::vector<Choice>& choices) {
  return std::ranges::all_of(choices, [&](const Choice& choice) {
    return choice.way.flows <= plan.flows && (plan.algorithm == Algorithm::kHierarchical ||
                                              choice.way.algorithm != Algorithm::kHierarchical);
  });
}

Way way_of(const Plan& plan, std::uint64_t bytes) {
  Way way{plan.algorithm, plan.chunk, 0};
  for (const Choice& choice : plan.choices)
    if (choice.from <= bytes) way = choice.way;
  return way;
}

std::expected<Plan, std::string> parse_plan(const std::string& text, std::uint32_t ranks) {
  Plan plan;
  std::string choices;
  const std::string told = text.substr(0, text.find('#'));
  std::istringstream words(told);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "algorithm") {
      if (value == "auto") {
        plan.algorithm = Algorithm::kAuto;
      } else if (!parse_algorithm(value, plan.algorithm)) {
        return std::unexpected("plan: algorithm=" + value +
                               ": use auto, flat, hierarchical, doubling or tree");
      }
    } else if (key == "chunk") {
      if (!parse_number(value, plan.chunk) || !is_chunk(plan.chunk))
        return std::unexpected("plan: chunk=" + value + ": use bytes, a multiple of 64 from " +
                               std::to_string(kLeastChunk) + " to " + std::to_string(kMostChunk));
    } else if (key == "order") {
      if (auto done = parse_order(value, ranks, plan); !done) return std::unexpected(done.error());
    } else if (key == "flows") {
      if (!parse_flows(value, plan.flows))
        return std::unexpected("plan: flows=" + value + ": use 1 to " + std::to_string(kMostFlows));
    } else if (key == "memory") {
      if (value != "auto" && value != "tcp")
        return std::unexpected("plan: memory=" + value + ": use auto or tcp");
      plan.memory = value == "tcp" ? Memory::kTcp : Memory::kAuto;
    } else if (key == "transport") {
      if (value != "auto" && value != "tcp" && value != "rdma")
        return std::unexpected("plan: transport=" + value + ": use auto, tcp or rdma");
      plan.transport = value == "tcp"    ? Transport::kTcp
                       : value == "rdma" ? Transport::kRdma
                                         : Transport::kAuto;
    } else if (key == "choice") {
      choices = value;
    } else {
      return std::unexpected(
          "plan: " + word +
          ": use algorithm=, chunk=, choice=, flows=, memory=, transport= and order=");
    }
  }
  // Parse the choices last, when the largest chunk is known.
  if (told.find("choice=") != std::string::npos) {
    auto parsed = parse_choices(choices, plan.chunk);
    if (!parsed) return std::unexpected(parsed.error());
    plan.choices = std::move(*parsed);
  }
  return plan;
}

std::string print_plan(const Plan& plan) {
  std::string text = std::string("algorithm=") + name_of(plan.algorithm);
  text += " chunk=" + std::to_string(plan.chunk);
  if (!plan.choices.empty()) text += " choice=" + print_choices(plan.choices);
  if (plan.flows != 0) text += " flows=" + std::to_string(plan.flows);
  if (plan.memory == Memory::kTcp) text += " memory=tcp";
  if (plan.transport != Transport::kAuto)
    text += plan.transport == Transport::kTcp ? " transport=tcp" : " transport=rdma";
  if (!plan.order.empty()) text += " order=";
  for (std::size_t i = 0; i < plan.order.size(); ++i)
    text += (i > 0 ? "," : "") + std::to_string(plan.order[i]);
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
    for (const auto& group : all.groups)
      plan.order.insert(plan.order.end(), group.begin(), group.end());
  all.order = plan.order;
  all.position = static_cast<std::uint32_t>(std::find(all.order.begin(), all.order.end(), rank) -
                                            all.order.begin());
  all.group = all.group_of(rank);
  all.local = static_cast<std::uint32_t>(std::find(all.mates().begin(), all.mates().end(), rank) -
                                         all.mates().begin());
  std::size_t least = all.groups.front().size();
  std::size_t most = least;
  for (const auto& group : all.groups) {
    least = std::min(least, group.size());
    most = std::max(most, group.size());
  }
  all.channels = static_cast<std::uint32_t>(least);
  if (all.hosts() == 1) all.channels = static_cast<std::uint32_t>(most);
  // With one rank on every host there is nothing to add up within a host.
  if (plan.algorithm == Algorithm::kAuto)
    plan.algorithm = most > 1 ? Algorithm::kHierarchical : Algorithm::kFlat;
  // Within one host no data goes by TCP.
  if (all.hosts() == 1) plan.flows = 0;
  // Drop the choices if this plan does not support all of them.
  if (!can_go(plan, plan.choices)) plan.choices.clear();
  return all;
}

}  // namespace paceline::comm
