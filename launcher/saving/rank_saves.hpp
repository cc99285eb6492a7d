// SPDX-License-Identifier: Apache-2.0
// RankSaves: how a launcher asks its ranks to save at one step, and hears that they have. A rank
// that can save tells its step in a file of its own, named by its process, before it looks at the
// request (paceline/_core/saving.py). So a rank either sees the request at a step, or has told that
// step before the launcher reads it.
//
// Owns the request file; one thread. The files come from the user's processes: what they hold is
// bounded here. Failure: an Error that names the path.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "launcher/trace/request_file.hpp"

namespace paceline::saving {

/// How far the ranks are that can save, and live or were asked to save.
struct Progress {
  int ranks = 0;
  int saved = 0;
  int gone = 0;            // have saved, and exited before a later step
  std::int64_t step = -1;  // at which they saved; -1: none has
  bool over = true;        // none of them has still to save
};

class RankSaves {
 public:
  /// Makes the folder. What an earlier launcher left there is removed.
  static Result<RankSaves> make(const std::filesystem::path& folder);

  /// Forgets ranks and requests of before.
  Status begin_attempt();
  /// Ranks wait at their next step until `save_at` or `release`. `go_on`: they hear that they are
  /// to train on after the save.
  Status hold(bool go_on);
  /// `go_on`: a rank is awaited until it has gone on to a later step, or has exited.
  Status save_at(std::int64_t step, bool go_on);
  Status release() { return request_.ask(0, 0); }

  /// A rank that lives has said that it can save.
  bool any() const { return newest() >= 0; }
  /// The newest step of the ranks that live; -1: none can save.
  std::int64_t newest() const;
  Progress progress() const;

 private:
  struct Rank {
    std::int64_t step = 0;   // that it has reached
    std::int64_t asked = 0;  // at which it was told to save, + 1; 0: it was not
    bool saved = false;
    bool alive = false;
  };

  RankSaves(traces::RequestFile request, std::filesystem::path folder)
      : request_(std::move(request)), folder_(std::move(folder)) {}
  std::vector<std::filesystem::path> files() const;
  std::vector<Rank> ranks() const;

  traces::RequestFile request_;
  std::filesystem::path folder_;
  std::int64_t at_ = 0;  // the step of the last save_at
  bool go_on_ = false;
  bool told_go_on_ = false;  // by the last hold; the save after it tells the same
};

}  // namespace paceline::saving
