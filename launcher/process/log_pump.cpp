// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/log_pump.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace paceline::process {
namespace {

constexpr std::size_t kEndedKept = 256;

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      // Another process made this descriptor non-blocking: wait until it is writable.
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

LogPump::LogPump() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void LogPump::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(wake_.get(), &one, sizeof one);
}

std::uint64_t LogPump::add(UniqueFd read_end, std::string prefix, int out) {
  ::fcntl(read_end.get(), F_SETFL, ::fcntl(read_end.get(), F_GETFL) | O_NONBLOCK);
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = next_++;
    streams_.push_back(std::make_shared<Stream>(
        Stream{id, std::move(read_end), LineSplitter(std::move(prefix)), out}));
    // Last lines are requested soon after a stream ends, so keep only a limited number of ended
    // streams.
    while (streams_.size() > kEndedKept && streams_.front()->ended)
      streams_.erase(streams_.begin());
  }
  wake();
  return id;
}

UniqueFd LogPump::log_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return UniqueFd();
  add(UniqueFd(ends[0]), "", STDERR_FILENO);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  return UniqueFd(ends[1]);
}

std::vector<std::string> LogPump::last_lines(std::uint64_t stream, std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  const auto find = [&] {
    return std::find_if(streams_.begin(), streams_.end(),
                        [&](const auto& candidate) { return candidate->id == stream; });
  };
  ended_.wait_for(lock, wait, [&] {
    const auto found = find();
    return found == streams_.end() || (*found)->ended;
  });
  const auto found = find();
  if (found == streams_.end()) return {};
  auto lines = (*found)->splitter.last_lines();
  if ((*found)->ended) streams_.erase(found);
  return lines;
}

bool LogPump::read_once(Stream& stream) {
  std::array<char, 65536> buffer;
  const ssize_t size = ::read(stream.fd.get(), buffer.data(), buffer.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (size > 0) {
      text = stream.splitter.push({buffer.data(), static_cast<std::size_t>(size)});
    } else {
      text = stream.splitter.finish();
      stream.ended = true;
      stream.fd.reset();
    }
  }
  write_all(stream.out, text);
  if (size <= 0) ended_.notify_all();
  return size > 0;
}

void LogPump::run(const std::stop_token& stop) {
  const std::stop_callback on_stop(stop, [this] { wake(); });
  while (true) {
    const bool stopping = stop.stop_requested();
    std::vector<std::shared_ptr<Stream>> open;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& stream : streams_) {
        if (!stream->ended) open.push_back(stream);
      }
    }
    std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
    for (const auto& stream : open) polled.push_back({stream->fd.get(), POLLIN, 0});
    const int ready = ::poll(polled.data(), polled.size(), stopping ? 0 : -1);
    std::uint64_t drained = 0;
    [[maybe_unused]] const ssize_t ignored = ::read(wake_.get(), &drained, sizeof drained);
    bool any = false;
    for (std::size_t i = 0; ready > 0 && i < open.size(); ++i) {
      if (polled[i + 1].revents != 0) any = read_once(*open[i]) || any;
    }
    if (stopping && !any) break;
  }
  std::vector<std::shared_ptr<Stream>> open;
  {
    const std::lock_guard lock(mutex_);
    open = streams_;
  }
  for (const auto& stream : open) {
    if (!stream->ended) write_all(stream->out, stream->splitter.finish());
  }
}

}  // namespace paceline::process
