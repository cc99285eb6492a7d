// SPDX-License-Identifier: Apache-2.0
#include "cli/top/terminal.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace paceline::cli {
namespace {

// The other screen, without cursor and without line wrap; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::array kEnding{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kCrashes{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr std::chrono::milliseconds kRestOfSequence{50};

// For the handler of crashes, which may call little.
termios g_before{};

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void on_crash(int signal) {
  put(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
  // The handler is reset: the signal now ends the process as it would have.
  ::raise(signal);
}

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kEnding) sigaddset(&set, signal);
  for (const int signal : {SIGWINCH, SIGTSTP, SIGCONT}) sigaddset(&set, signal);
  return set;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool Terminal::usable() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 &&
         variable("TERM") != "dumb" && !variable("TERM").empty();
}

Terminal::Terminal() : colours_(variable("NO_COLOR").empty()) {
  ::tcgetattr(STDIN_FILENO, &before_);
  g_before = before_;
  const sigset_t set = handled_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  for (const int signal : kCrashes) {
    struct sigaction action{};
    action.sa_handler = on_crash;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
  enter();
}

Terminal::~Terminal() {
  leave();
  for (const int signal : kCrashes) ::signal(signal, SIG_DFL);
}

void Terminal::enter() {
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C stays a signal
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
  put(kEnter);
  shown_.clear();
}

void Terminal::leave() {
  put(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

void Terminal::stop_and_continue() {
  leave();
  ::kill(0, SIGSTOP);
  ::tcgetattr(STDIN_FILENO, &before_);
  enter();
}

Size Terminal::size() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {size.ws_col, size.ws_row};
}

void Terminal::draw(const std::vector<Line>& lines) {
  const Size now = size();
  std::vector<std::string> fresh;
  for (std::size_t i = 0; i < now.height; ++i) {
    if (i >= lines.size()) {
      fresh.emplace_back();
    } else {
      fresh.push_back(colours_ ? coloured(lines[i], now.width) : uncoloured(lines[i], now.width));
    }
  }
  std::string text;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (i < shown_.size() && shown_.size() == fresh.size() && shown_[i] == fresh[i]) continue;
    text += "\x1b[" + std::to_string(i + 1) + ";1H\x1b[0m" + fresh[i] + "\x1b[K";
  }
  put(text);
  shown_ = std::move(fresh);
}

Terminal::Event Terminal::wait(std::chrono::milliseconds most) {
  Event event;
  std::array<pollfd, 2> waiting{{{STDIN_FILENO, POLLIN, 0}, {signals_.get(), POLLIN, 0}}};
  // A lone Escape is told from the begin of a sequence by what follows at once.
  const auto limit = typed_.empty() ? most : kRestOfSequence;
  const int ready = ::poll(waiting.data(), waiting.size(), static_cast<int>(limit.count()));
  if (ready > 0 && waiting[0].revents != 0) {
    std::array<char, 256> buffer{};
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got > 0) {
      typed_.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      event.ended_by = SIGHUP;
    }
  }
  event.keys = take_keys(typed_, ready == 0);
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGWINCH) {
      event.resized = true;
      shown_.clear();
    } else if (signal == SIGTSTP) {
      stop_and_continue();
      event.resized = true;
    } else if (signal != SIGCONT) {
      event.ended_by = signal;
    }
  }
  return event;
}

}  // namespace paceline::cli
