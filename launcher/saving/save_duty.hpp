// SPDX-License-Identifier: Apache-2.0
// SaveDuty: a launcher's part in a save of all ranks. It carries out what the member says about
// that, and tells the member what the ranks have done.
//
// Borrows the log; one thread. If the ranks cannot be asked, it is logged, and they count as ranks
// that cannot save.
#pragma once

#include <filesystem>
#include <optional>

#include "launcher/log.hpp"
#include "launcher/rendezvous/member.hpp"
#include "launcher/saving/rank_saves.hpp"

namespace paceline::saving {

class SaveDuty {
 public:
  explicit SaveDuty(launcher::Log& log) : log_(log) {}

  Status open(const std::filesystem::path& folder);
  bool can_save() const { return saves_ && saves_->any(); }
  /// Of HoldRanks it returns the answer for the server. When ranks start or stop, or a save has
  /// ended, those that wait are released. Other actions are not for it.
  std::optional<rendezvous::Save> take(const rendezvous::MemberAction& action);
  /// Once after SaveRanks, when no rank has still to save.
  std::optional<Progress> ended();

 private:
  std::int64_t hold(bool go_on);
  void note(const Status& done);

  launcher::Log& log_;
  std::optional<RankSaves> saves_;
  bool saving_ = false;
};

}  // namespace paceline::saving
