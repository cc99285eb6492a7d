// SPDX-License-Identifier: Apache-2.0
// Terminal: the whole screen of a terminal, without echo and line editing, from construction to
// destruction. Signals that end the program are taken as events, so that the terminal is restored
// first; a crash restores it too. Ctrl-Z stops the program and continues it with its screen.
//
// One of a process at a time, made before other threads are started, since they inherit its mask of
// signals. Output that cannot be written is dropped.
#pragma once

#include <termios.h>

#include <chrono>
#include <string>
#include <vector>

#include "cli/top/frame.hpp"
#include "cli/top/line.hpp"
#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"

namespace paceline::cli {

class Terminal {
 public:
  /// Whether standard input and output are a terminal that knows ANSI sequences.
  static bool usable();

  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  Size size() const;
  /// Draws the lines over the whole screen. What has not changed is not sent again.
  void draw(const std::vector<Line>& lines);

  struct Event {
    std::vector<KeyPress> keys{};
    bool resized = false;
    int ended_by = 0;  // the signal; SIGHUP also if the terminal is gone
  };
  /// Waits for keys or signals, at most that long.
  Event wait(std::chrono::milliseconds most);

 private:
  void enter();
  void leave();
  void stop_and_continue();

  termios before_{};
  UniqueFd signals_;
  std::string typed_;
  std::vector<std::string> shown_;
  bool colours_;
};

}  // namespace paceline::cli
