// SPDX-License-Identifier: Apache-2.0
#include "launcher/saving/save_duty.hpp"

namespace paceline::saving {

Status SaveDuty::open(const std::filesystem::path& folder) {
  auto made = RankSaves::make(folder);
  if (!made) return std::unexpected(made.error());
  saves_ = *std::move(made);
  return {};
}

void SaveDuty::note(const Status& done) {
  if (!done) log_.line(done.error().message);
}

std::optional<rendezvous::Save> SaveDuty::take(const rendezvous::MemberAction& action) {
  if (!saves_) return std::nullopt;
  if (std::holds_alternative<rendezvous::StartRanks>(action)) {
    saving_ = false;
    note(saves_->begin_attempt());
  } else if (std::holds_alternative<rendezvous::StopRanks>(action) ||
             std::holds_alternative<rendezvous::ReleaseRanks>(action)) {
    saving_ = false;
    note(saves_->release());
  } else if (const auto* at = std::get_if<rendezvous::SaveRanks>(&action)) {
    saving_ = true;
    note(saves_->save_at(at->step, at->go_on));
  } else if (const auto* held = std::get_if<rendezvous::HoldRanks>(&action)) {
    return rendezvous::Save{.word = rendezvous::SaveWord::kReached,
                            .attempt = held->attempt,
                            .step = hold(held->go_on)};
  }
  return std::nullopt;
}

std::int64_t SaveDuty::hold(bool go_on) {
  // Ask first, then read: a rank that does not see the request has told its step.
  const auto asked = saves_->hold(go_on);
  note(asked);
  return asked ? saves_->newest() : -1;
}

std::optional<Progress> SaveDuty::ended() {
  if (!saving_) return std::nullopt;
  const Progress progress = saves_->progress();
  if (!progress.over) return std::nullopt;
  saving_ = false;
  return progress;
}

}  // namespace paceline::saving
