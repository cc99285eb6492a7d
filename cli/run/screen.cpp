// SPDX-License-Identifier: Apache-2.0
#include "cli/run/screen.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace paceline::cli {
namespace {

constexpr std::chrono::seconds kLineEvery{5};
constexpr std::size_t kUsualWidth = 100;

void put(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col - 1U
                                                                            : kUsualWidth;
}

}  // namespace

void Screen::erase() {
  if (drawn_ > 0) put(STDOUT_FILENO, "\x1b[" + std::to_string(drawn_) + "A\r\x1b[J");
  drawn_ = 0;
}

void Screen::draw() {
  std::string text;
  for (const std::string& line : table_) text += line + "\n";
  put(STDOUT_FILENO, text);
  drawn_ = table_.size();
}

void Screen::write(const std::string& lines, bool to_stderr) {
  if (lines.empty()) return;
  erase();
  put(to_stderr && !terminal_ ? STDERR_FILENO : STDOUT_FILENO, lines);
  draw();
}

void Screen::show(const JobView& view) {
  if (terminal_) {
    erase();
    table_ = live_table(job_, view, terminal_width());
    draw();
    return;
  }
  const SteadyTime now = clock_.steady();
  const bool changed = view.phase != last_phase_;
  if (!changed && (now < next_line_ || view.step == 0)) return;
  last_phase_ = view.phase;
  next_line_ = now + kLineEvery;
  put(STDOUT_FILENO, "[paceline] " + live_line(view) + "\n");
}

void Screen::clear() {
  erase();
  table_.clear();
}

}  // namespace paceline::cli
