// SPDX-License-Identifier: Apache-2.0
#include "common/subprocess/spawn.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace paceline::process {
namespace {

#ifndef SYS_close_range
#define SYS_close_range 436  // the same on all architectures
#endif
constexpr unsigned kCloseOnExec = 1U << 2;  // CLOSE_RANGE_CLOEXEC, which glibc 2.31 has not

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("pipe", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(char* const* argv, char* const* environment, int out, int err, int report,
                         const cpu_set_t* cpus, const SpawnRequest& request, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before PR_SET_PDEATHSIG took effect
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (cpus != nullptr) ::sched_setaffinity(0, sizeof *cpus, cpus);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  // Sockets that a library has opened must end with this process. Kernels before 5.11 refuse.
  ::syscall(SYS_close_range, 3U, ~0U, kCloseOnExec);
  if (request.kept_fd >= 0) ::fcntl(request.kept_fd, F_SETFD, 0);
  int error = 0;
  if (request.open_files) ::setrlimit(RLIMIT_NOFILE, &*request.open_files);
  if (!request.working_dir.empty() && ::chdir(request.working_dir.c_str()) != 0) {
    error = errno;
  } else {
    ::execvpe(argv[0], argv, environment);
    error = errno;
  }
  [[maybe_unused]] const ssize_t ignored = ::write(report, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

Result<Spawned> spawn(const SpawnRequest& request) {
  auto out = make_pipe();
  if (!out) return std::unexpected(out.error());
  auto err = make_pipe();
  if (!err) return std::unexpected(err.error());
  auto report = make_pipe();
  if (!report) return std::unexpected(report.error());

  const auto argv = pointers(request.argv);
  const auto environment = pointers(request.environment);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : request.cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(cpu), &cpus);
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork", errno);
  if (pid == 0) {
    become(argv.data(), environment.data(), out->write.get(), err->write.get(), report->write.get(),
           request.cpus.empty() ? nullptr : &cpus, request, parent);
  }
  ::setpgid(pid, pid);  // set in parent and child: either may run first
  report->write.reset();
  int error = 0;
  ssize_t size = 0;
  do {
    size = ::read(report->read.get(), &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  if (size == static_cast<ssize_t>(sizeof error)) {
    ::waitpid(pid, nullptr, 0);
    auto failure = fail_errno("cannot start \"" + request.argv.front() + "\"", error);
    failure.error().message += error == ENOENT   ? "; check `command` and the image's PATH"
                               : error == EACCES ? "; is it executable?"
                                                 : "";
    return failure;
  }
  return Spawned{pid, std::move(out->read), std::move(err->read)};
}

}  // namespace paceline::process
