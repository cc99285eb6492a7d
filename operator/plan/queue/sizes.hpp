// SPDX-License-Identifier: Apache-2.0
// How large an elastic gang can be now: at its start, and when it runs with fewer pods than it
// wants. Pure.
#pragma once

#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "operator/plan/queue/victims.hpp"

namespace paceline::plan {

/// The largest of the sizes from `least` to `most` that fits; nullopt: none does. If a size fits,
/// every smaller one does.
std::optional<int> largest(int least, int most, const std::function<bool(int)>& fits);

/// The same gang with so many pods of its elastic role.
QueuedGang with_size(const QueuedGang& gang, int size);

/// The pods that a running gang wants to add, as a gang of their own.
QueuedGang pods_to_add(const GrowingGang& gang);

/// Room for as many more pods of the gang as possible, which is then taken; else why there is none
/// for a single one. `stage.rooms` are `rooms`.
std::expected<Grown, Waiting> grow(const GrowingGang& gang, std::vector<Room>& rooms, Stage stage,
                                   std::vector<observe::QuotaView>& quotas);

}  // namespace paceline::plan
