// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/topology.hpp"

#include <algorithm>
#include <functional>
#include <ranges>
#include <set>
#include <unordered_map>

namespace paceline::plan {
namespace {

constexpr std::size_t kLevels = kClosestFirst.size();

std::string_view name_of(const Room& room, std::size_t level) {
  if (level == 0 && room.fabric != nullptr && !room.fabric->nvlink_domain.empty())
    return room.fabric->nvlink_domain;
  return room.domains != nullptr ? (*room.domains)[level] : room.node->domains[level].get();
}

/// A domain's name within the domain of the next wider level.
struct Key {
  std::uint32_t parent = 0;
  bool named = false;
  std::string_view name;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return std::hash<std::string_view>()(key.name) ^ (std::size_t{key.parent} << 1U) ^
           static_cast<std::size_t>(key.named);
  }
};

/// A room's domains by level, from the widest, and the room. Sorted, they are the tree's order.
struct Path {
  std::array<std::uint32_t, kLevels> ids{};
  std::size_t room = 0;
  auto operator<=>(const Path&) const = default;
};

class Reader {
 public:
  explicit Reader(const std::vector<Room>& rooms) : rooms_(rooms) {
    for (std::size_t i = 0; i < rooms.size(); ++i) {
      for (std::size_t level = 0; level < kLevels; ++level)
        present_[level] = present_[level] || !name_of(rooms[i], level).empty();
      if (const std::string_view nvlink = name_of(rooms[i], 0); !nvlink.empty())
        first_of_nvlink_.emplace(nvlink, i);
    }
  }

  bool present(std::size_t level) const { return present_[level]; }

  /// Of the room's domain.
  std::string_view name(std::size_t room, std::size_t level) const {
    return name_of(home_of(room), level);
  }

  Path path_of(std::size_t room) {
    const std::string_view nvlink = name_of(rooms_[room], 0);
    std::array<Key, kLevels> keys;
    // What no label names is told apart by the closest domain inside it that has a name.
    std::string_view below =
        nvlink.empty() ? std::string_view(rooms_[room].node->meta.name) : nvlink;
    keys[0] = {0, !nvlink.empty(), below};
    for (std::size_t level = 1; level < kLevels; ++level) {
      const std::string_view own = name(room, level);
      if (!own.empty()) below = own;
      if (present_[level]) keys[level] = {0, !own.empty(), below};
    }
    Path path{{}, room};
    for (std::size_t level = kLevels; level-- > 0;) {
      const std::size_t depth = kLevels - 1 - level;
      keys[level].parent = depth == 0 ? 0 : path.ids[depth - 1];
      auto& known = ids_[level];
      path.ids[depth] =
          known.emplace(keys[level], static_cast<std::uint32_t>(known.size())).first->second;
    }
    return path;
  }

 private:
  /// The room that says in which wider domains this one is.
  const Room& home_of(std::size_t room) const {
    const std::string_view nvlink = name_of(rooms_[room], 0);
    return rooms_[nvlink.empty() ? room : first_of_nvlink_.at(nvlink)];
  }

  const std::vector<Room>& rooms_;
  std::array<bool, kLevels> present_{};
  std::unordered_map<std::string_view, std::size_t> first_of_nvlink_;
  std::array<std::unordered_map<Key, std::uint32_t, KeyHash>, kLevels> ids_;
};

}  // namespace

Topology::Topology(const std::vector<Room>& rooms) : position_(rooms.size()) {
  Reader reader(rooms);
  std::vector<Path> paths;
  paths.reserve(rooms.size());
  for (std::size_t i = 0; i < rooms.size(); ++i) paths.push_back(reader.path_of(i));
  std::ranges::sort(paths);
  order_.reserve(rooms.size());
  for (const Path& path : paths) {
    position_[path.room] = order_.size();
    order_.push_back(path.room);
  }
  for (std::size_t level = kLevels; level-- > 0;) {
    if (reader.present(level)) levels_.push_back(kClosestFirst[level]);
    Table& table = tables_[level];
    table.at.reserve(paths.size());
    const std::size_t depth = kLevels - 1 - level;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (i == 0 || paths[i].ids[depth] != paths[i - 1].ids[depth])
        table.domains.push_back({.range = {i, i}, .name = reader.name(paths[i].room, level)});
      Domain& domain = table.domains.back();
      domain.range.end = i + 1;
      domain.known = !domain.name.empty() || kClosestFirst[level] == Level::kNvlink;
      table.at.push_back(static_cast<std::uint32_t>(table.domains.size() - 1));
    }
  }
}

std::string Topology::describe(const std::vector<std::size_t>& rooms) const {
  const std::set<std::size_t> nodes(rooms.begin(), rooms.end());
  std::string text = nodes.size() == 1 ? "1 node" : std::to_string(nodes.size()) + " nodes";
  std::string_view separator = " in ";
  for (const Level level : std::views::reverse(levels_)) {
    std::set<std::size_t> used;
    for (const std::size_t room : nodes) used.insert(domain(level, position_[room]));
    const std::string_view name = domains(level)[*used.begin()].name;
    if (used.size() == 1 && name.empty()) continue;  // a node that tells nothing
    text += separator;
    // The name of an NVLink domain is a UUID, which tells people nothing.
    if (used.size() > 1 || level == Level::kNvlink) {
      text += std::to_string(used.size()) + " " + std::string(noun(level, used.size() > 1));
    } else {
      text += std::string(noun(level, false)) + " " + std::string(name);
    }
    separator = ", ";
  }
  return text;
}

std::string_view noun(Level level, bool plural) {
  constexpr std::array<std::array<std::string_view, 2>, kLevels> kNouns{{
      {"NVLink domain", "NVLink domains"},
      {"leaf", "leaves"},
      {"spine", "spines"},
      {"zone", "zones"},
  }};
  return kNouns[static_cast<std::size_t>(level)][plural ? 1 : 0];
}

}  // namespace paceline::plan
