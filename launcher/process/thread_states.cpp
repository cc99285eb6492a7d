// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/thread_states.hpp"

#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "common/base/printable.hpp"

namespace paceline::process {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestSymbol = 128;

struct SystemCall {
  long number;
  std::string_view name;
};
// Those in which programs wait. aarch64 has only the newer of some pairs.
constexpr std::array kCalls{
    SystemCall{SYS_futex, "futex (a lock or a condition)"},
    SystemCall{SYS_read, "read"},
    SystemCall{SYS_write, "write"},
    SystemCall{SYS_recvfrom, "recvfrom (network)"},
    SystemCall{SYS_recvmsg, "recvmsg (network)"},
    SystemCall{SYS_sendto, "sendto (network)"},
    SystemCall{SYS_sendmsg, "sendmsg (network)"},
    SystemCall{SYS_accept, "accept (network)"},
    SystemCall{SYS_accept4, "accept (network)"},
    SystemCall{SYS_connect, "connect (network)"},
    SystemCall{SYS_ppoll, "poll"},
    SystemCall{SYS_epoll_pwait, "epoll_wait (events)"},
    SystemCall{SYS_pselect6, "select"},
    SystemCall{SYS_nanosleep, "nanosleep"},
    SystemCall{SYS_clock_nanosleep, "nanosleep"},
    SystemCall{SYS_wait4, "wait for a child"},
    SystemCall{SYS_waitid, "wait for a child"},
    SystemCall{SYS_flock, "flock (a file's lock)"},
    SystemCall{SYS_fsync, "fsync (a disk)"},
    SystemCall{SYS_fdatasync, "fdatasync (a disk)"},
    SystemCall{SYS_openat, "open"},
    SystemCall{SYS_ioctl, "ioctl (a driver)"},
    SystemCall{SYS_rt_sigtimedwait, "wait for a signal"},
#ifdef SYS_poll
    SystemCall{SYS_poll, "poll"},
    SystemCall{SYS_epoll_wait, "epoll_wait (events)"},
    SystemCall{SYS_select, "select"},
    SystemCall{SYS_pause, "pause"},
#endif
};

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// A name of at most 15 bytes, which the program chose. So it may hold any bytes but a 0.
std::string name_of(const fs::path& task) {
  return printable(first_line(task / "comm").substr(0, 15));
}

/// 'R', 'S', 'D', 'T', …: field 3 of stat, after a name that may hold any character.
char state_of(const fs::path& task) {
  const std::string stat = first_line(task / "stat");
  const std::size_t name = stat.rfind(')');
  return name == std::string::npos || name + 2 >= stat.size() ? '?' : stat[name + 2];
}

std::string_view meaning(char state) {
  switch (state) {
    case 'R': return "runs";
    case 'S': return "waits";
    case 'D': return "waits in the kernel and cannot be interrupted (a disk, a driver)";
    case 'T':
    case 't': return "is stopped by a signal or a debugger";
    default: return "has ended";
  }
}

std::string call_of(const fs::path& task) {
  const std::string text = first_line(task / "syscall");
  long number = -1;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{} || number < 0) return "";
  const auto* const known = std::ranges::find(kCalls, number, &SystemCall::number);
  return known != kCalls.end() ? std::string(known->name) : "system call " + std::to_string(number);
}

std::string describe(const fs::path& task) {
  std::string text = name_of(task);
  text += ": ";
  const char state = state_of(task);
  text += meaning(state);
  if (state == 'R') return text;
  if (const std::string call = call_of(task); !call.empty()) text += ", in " + call;
  const std::string at = printable(first_line(task / "wchan").substr(0, kLongestSymbol));
  if (!at.empty() && at != "0") text += ", kernel function " + at;
  return text;
}

}  // namespace

std::string thread_states(const fs::path& root, pid_t pid, std::size_t most) {
  std::error_code error;
  std::vector<std::string> lines;
  std::vector<int> counts;
  for (const auto& task :
       fs::directory_iterator(root / "proc" / std::to_string(pid) / "task", error)) {
    std::string line = describe(task.path());
    if (const auto same = std::ranges::find(lines, line); same != lines.end()) {
      ++counts[static_cast<std::size_t>(same - lines.begin())];
    } else if (lines.size() < most) {
      lines.push_back(std::move(line));
      counts.push_back(1);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += "  " + lines[i] +
            (counts[i] > 1 ? " (" + std::to_string(counts[i]) + " threads)" : "") + "\n";
  return text;
}

}  // namespace paceline::process
