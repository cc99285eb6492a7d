// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/member.hpp"

#include <algorithm>
#include <utility>

#include "common/base/duration.hpp"
#include "launcher/rendezvous/frame.hpp"

namespace paceline::rendezvous {
namespace {

constexpr std::chrono::milliseconds kFirstRetry{100};
constexpr std::chrono::milliseconds kLongestRetry{2000};

}  // namespace

std::string_view to_string(End end) {
  switch (end) {
    case End::kSucceeded: return "Succeeded";
    case End::kFailed: return "Failed";
    case End::kTerminated: return "Terminated";
    case End::kBadContract: return "BadContract";
    case End::kOtherRelease: return "OtherRelease";
    case End::kRendezvousTimeout: return "RendezvousTimeout";
    case End::kPreflightFailed: return "PreflightFailed";
    case End::kReplaceNode: return "ReplaceNode";
  }
  return "Unknown";
}

Member::Member(MemberConfig config, SteadyTime now)
    : config_(std::move(config)), attempt_(config_.hello.attempt), idle_since_(now) {}

MemberActions Member::begin(SteadyTime now) {
  idle_since_ = now;
  connect();
  return take();
}

void Member::connect() {
  link_ = Link::kConnecting;
  act(ConnectServer{});
}

void Member::stop_ranks() {
  state_ = State::kStopping;
  act(StopRanks{saving_since_});
}

MemberActions Member::on_connected(SteadyTime now) {
  if (ending_) return take();
  link_ = Link::kUp;
  last_received_ = now;
  last_heartbeat_ = now;
  act(SendMessage{config_.hello});
  return take();
}

MemberActions Member::on_disconnected(const std::string& why, SteadyTime now) {
  const bool was_up = std::exchange(link_, Link::kNone) == Link::kUp;
  starting_.reset();
  if (ending_) return take();
  if (leaving_) {
    leave();
    return take();
  }
  if (std::exchange(stands_by_, false)) idle_since_ = now;
  last_trouble_ = why;
  if (was_up)
    act(LogLine{"lost rank 0's launcher (" + why + ")" +
                (state_ == State::kRunning ? ": stopping the ranks here, then joining again"
                                           : ": joining again")});
  retry_ = was_up ? kFirstRetry : std::clamp(retry_ * 2, kFirstRetry, kLongestRetry);
  next_connect_ = now + retry_;
  if (state_ == State::kRunning) {
    idle_since_ = now;
    stop_ranks();
  }
  return take();
}

MemberActions Member::on_message(const Message& message, SteadyTime now) {
  if (ending_) return take();
  last_received_ = now;
  if (const auto* start = std::get_if<Start>(&message)) {
    if (state_ != State::kIdle) {
      act(LogLine{"ignored a start while ranks of another attempt are here"});
      return take();
    }
    if (std::exchange(stands_by_, false)) idle_since_ = now;
    starting_ = Starting{*start, std::nullopt};
    if (!start->table_from.empty()) act(FetchTable{start->attempt, start->table_from});
  } else if (std::holds_alternative<StandBy>(message)) {
    stands_by_ = true;
  } else if (const auto* imports = std::get_if<Imports>(&message)) {
    imports_ = imports->text;
  } else if (const auto* table = std::get_if<Table>(&message)) {
    if (stands_by_) {
      prepare(table->table);
    } else {
      take_table(table->table);
    }
  } else if (const auto* next = std::get_if<StartStage>(&message)) {
    if (starting_ && starting_->start.attempt == next->attempt) {
      starting_->start.stage = std::max(starting_->start.stage, next->stage);
      start_if_due();
    }
  } else if (const auto* stop = std::get_if<Stop>(&message)) {
    if (stop->attempt == attempt_ && !stop->leave.empty()) {
      end(outcome(End::kReplaceNode, stop->leave));
    } else if (leaving_) {
      leave();
    } else if (state_ == State::kRunning && stop->attempt == attempt_) {
      idle_since_ = now;
      // Report failures before the signal: a rank that the signal ends has not failed.
      act(SendFailure{attempt_});
      act(SendMessage{Stopping{attempt_}});
      stop_ranks();
    } else if (state_ == State::kIdle) {
      starting_.reset();
      act(SendMessage{Stopped{stop->attempt}});
    }
  } else if (const auto* capture = std::get_if<CaptureStacks>(&message)) {
    if (state_ == State::kRunning && capture->attempt == attempt_) act(SendStacks{attempt_});
  } else if (const auto* window = std::get_if<OpenWindow>(&message)) {
    if (state_ == State::kRunning && window->attempt == attempt_) act(AskForWindow{});
  } else if (const auto* save = std::get_if<Save>(&message)) {
    on_save(*save, now);
  } else if (const auto* finish = std::get_if<Finish>(&message)) {
    config_.hello.restarts = finish->restarts;
    end({finish->verdict == Verdict::kSucceeded ? End::kSucceeded : End::kFailed, finish->attempt,
         finish->restarts, finish->message, finish->culprit});
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    end(outcome(refused->protocol == kProtocol ? End::kBadContract : End::kOtherRelease,
                "rank 0's launcher refused this replica: " + refused->reason));
  }
  return take();
}

MemberActions Member::on_table(const RankTable& table) {
  take_table(table);
  return take();
}

MemberActions Member::on_no_table(int attempt, const std::string& why) {
  if (!starting_ || starting_->start.attempt != attempt) return take();
  act(LogLine{"could not fetch the rank table from " + starting_->start.table_from + " (" + why +
              "): asking rank 0's launcher for it"});
  act(SendMessage{NeedTable{attempt}});
  return take();
}

void Member::take_table(const RankTable& table) {
  if (ending_ || !starting_ || starting_->start.attempt != table.attempt) return;
  starting_->table = table;
  start_if_due();
}

void Member::prepare(const RankTable& table) {
  // A spare never is node rank 0.
  const bool fits =
      table.nodes.size() > 1 && table.nodes.back().processes == config_.hello.node.processes;
  if (fits && !imports_.empty()) act(PrepareRanks{table, std::exchange(imports_, {})});
}

MemberActions Member::on_imports(std::string text) {
  // One member of a role tells for all.
  if (!config_.has_spares || config_.hello.node.replica_index != 0 || link_ != Link::kUp)
    return take();
  Message message = Imports{std::move(text)};
  if (const std::size_t bytes = to_json(message).size(); bytes > kMemberLimit) {
    act(LogLine{"the list of imports has " + std::to_string(bytes) + " bytes, more than " +
                std::to_string(kMemberLimit) + ": spares import when they have a place"});
  } else {
    act(SendMessage{std::move(message)});
  }
  return take();
}

void Member::start_if_due() {
  const int stage = config_.hello.start_stage;
  if (!starting_->table || starting_->start.stage < stage) return;
  const Start start = std::move(starting_->start);
  const RankTable table = *std::move(starting_->table);
  starting_.reset();
  const Node& own = config_.hello.node;
  const int node_rank = start.node_rank >= 0 ? start.node_rank : own.node_rank;
  const auto place = static_cast<std::size_t>(node_rank);
  if (place >= table.nodes.size() || table.nodes[place].node_rank != node_rank ||
      table.nodes[place].processes != own.processes) {
    act(LogLine{"ignored a start that does not fit this replica"});
    return;
  }
  state_ = State::kRunning;
  attempt_ = table.attempt;
  // Keep the server's counts as start values for another server, so that an attempt number is
  // never used twice.
  config_.hello.attempt = std::max(config_.hello.attempt, attempt_ + 1);
  config_.hello.restarts = std::max(config_.hello.restarts, start.restarts);
  exited_ = 0;
  first_exit_.reset();
  stragglers_logged_ = false;
  reported_ = false;
  saving_since_.reset();
  runs_rank_zero_ = table.world_size > 0 && table.nodes[place].first_rank == 0;
  act(StartRanks{start.restarts, table, node_rank});
  if (stage < start.last_stage) act(SendMessage{Started{attempt_}});
}

void Member::end(Outcome outcome) {
  starting_.reset();
  ending_ = std::move(outcome);
  if (std::exchange(link_, Link::kNone) != Link::kNone) act(DropServer{});
  if (state_ == State::kRunning) {
    stop_ranks();
  } else if (state_ == State::kIdle) {
    state_ = State::kEnded;
    act(Exit{*ending_});
  }
}

MemberActions Member::on_rank_exit(int local_rank, const std::optional<Failure>& failure) {
  if (state_ != State::kRunning || link_ != Link::kUp) return take();
  if (failure && leaving_) {
    leave();
    return take();
  }
  if (failure) {
    // Report all of them: the first may have lost another.
    if (!std::exchange(reported_, true)) act(SendSummary{});
    act(SendMessage{Failed{attempt_, *failure}});
    return take();
  }
  ++exited_;
  const bool decides = config_.rank_zero_decides && runs_rank_zero_;
  if (decides ? local_rank == 0 : exited_ == children()) {
    act(SendSummary{});
    act(SendMessage{Done{attempt_}});
  }
  return take();
}

MemberActions Member::on_all_stopped(SteadyTime now) {
  if (state_ != State::kStopping) return take();
  state_ = State::kIdle;
  if (ending_) {
    state_ = State::kEnded;
    if (std::exchange(link_, Link::kNone) != Link::kNone) act(DropServer{});
    act(Exit{*ending_});
  } else if (link_ == Link::kUp) {
    act(SendMessage{Stopped{attempt_}});
  } else if (link_ == Link::kNone && now >= next_connect_) {
    connect();
  }
  return take();
}

MemberActions Member::on_terminate(const std::string& signal, bool can_save, SteadyTime now) {
  if (ending_) return take();
  const bool again = leaving_.has_value();
  leaving_ = Leaving{"asked to end by " + signal, now + config_.longest_save};
  if (again || !can_save || state_ != State::kRunning || link_ != Link::kUp) {
    leave();
    return take();
  }
  if (!saving_since_) saving_since_ = now;
  act(LogLine{leaving_->why + ": the ranks save first, for at most " +
              format_duration(config_.longest_save) + "; a second signal ends that"});
  act(SendMessage{Save{.word = SaveWord::kAsk, .attempt = attempt_}});
  return take();
}

void Member::leave(const std::string& what, std::optional<SavedStep> saved) {
  Outcome outcome = this->outcome(End::kTerminated, leaving_->why + what);
  outcome.saved = saved;
  if (!config_.has_spares || state_ != State::kRunning || link_ != Link::kUp)
    return end(std::move(outcome));
  starting_.reset();
  ending_ = std::move(outcome);
  act(SendMessage{Leave{attempt_}});
  stop_ranks();
}

void Member::on_save(const Save& save, SteadyTime now) {
  if (state_ != State::kRunning || save.attempt != attempt_) {
    if (save.word == SaveWord::kHold || save.word == SaveWord::kAt)
      act(SendMessage{
          Save{.word = save.word == SaveWord::kHold ? SaveWord::kReached : SaveWord::kSaved,
               .attempt = save.attempt}});
  } else if (save.word == SaveWord::kHold) {
    if (!saving_since_ && !save.go_on) saving_since_ = now;
    act(HoldRanks{attempt_, save.go_on});
  } else if (save.word == SaveWord::kAt) {
    act(SaveRanks{save.step, save.go_on});
  } else if (save.word == SaveWord::kEnded && leaving_) {
    if (save.step < 0) return leave();
    leave("; all ranks saved at step " + std::to_string(save.step), SavedStep{attempt_, save.step});
  } else if (save.word == SaveWord::kEnded) {
    act(ReleaseRanks{});
  }
}

MemberActions Member::on_saved(std::int64_t step, int ranks, int saved, int gone) {
  if (state_ == State::kRunning && link_ == Link::kUp)
    act(SendMessage{Save{.word = SaveWord::kSaved,
                         .attempt = attempt_,
                         .step = step,
                         .ranks = ranks,
                         .saved = saved,
                         .gone = gone}});
  return take();
}

void Member::beat(SteadyTime now) {
  if (link_ != Link::kUp || now - last_heartbeat_ < kHeartbeatInterval) return;
  last_heartbeat_ = now;
  act(SendSummary{});
}

MemberActions Member::on_tick(SteadyTime now) {
  if (ending_) {
    beat(now);
    return take();
  }
  if (leaving_ && now >= leaving_->until) {
    leave("; not all ranks saved within " + format_duration(config_.longest_save));
    return take();
  }
  if (state_ != State::kRunning && !stands_by_ && now - idle_since_ > config_.startup_timeout) {
    end(outcome(End::kRendezvousTimeout,
                "no gang within " + format_duration(config_.startup_timeout) +
                    " (PACELINE_STARTUP_TIMEOUT); last: " + last_trouble_));
    return take();
  }
  if (link_ == Link::kUp && now - last_received_ > heartbeat_timeout()) {
    act(DropServer{});
    auto lost =
        on_disconnected("silent for " + std::to_string(heartbeat_timeout().count()) + " s", now);
    return lost;
  }
  const bool some_exited = exited_ > 0 && exited_ < children();
  if (state_ == State::kRunning && some_exited && !stragglers_logged_ &&
      contract::trains(config_.hello.node.kind)) {
    if (!first_exit_) first_exit_ = now;
    if (now - *first_exit_ >= kStragglerWarning) {
      stragglers_logged_ = true;
      act(LogLine{std::to_string(children() - exited_) + " of " + std::to_string(children()) +
                  " ranks here still run " + std::to_string(kStragglerWarning.count()) +
                  " s after the first of them ended: a program may hang while it ends; a debugger "
                  "(py-spy dump) shows where"});
    }
  }
  // Hello means that no rank is alive in this replica, so wait until the ranks have stopped.
  if (link_ == Link::kNone && state_ == State::kIdle && now >= next_connect_) connect();
  beat(now);
  return take();
}

}  // namespace paceline::rendezvous
