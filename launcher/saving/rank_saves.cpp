// SPDX-License-Identifier: Apache-2.0
#include "launcher/saving/rank_saves.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include "common/base/unique_fd.hpp"

namespace paceline::saving {
namespace {

constexpr std::size_t kMostFiles = 1024;
// The second word of a request, as paceline/_core/saving.py reads it.
constexpr std::uint64_t kSave = 1;
constexpr std::uint64_t kSaveAndGoOn = 2;
constexpr std::uint64_t kMostStep = 1ULL << 52U;

std::optional<pid_t> process_of(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  return error == std::errc() && end == name.data() + name.size() && pid > 0 ? std::optional(pid)
                                                                             : std::nullopt;
}

/// Step, step of the save + 1, whether it has saved.
std::optional<std::array<std::uint64_t, 3>> read_words(const std::filesystem::path& path) {
  // Not to wait for a writer if the program has put something else there.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status{};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    return std::nullopt;
  std::array<std::uint64_t, 3> words{};
  if (::pread(file.get(), words.data(), sizeof words, 0) != sizeof words) return std::nullopt;
  return words;
}

std::int64_t bounded(std::uint64_t step) {
  return static_cast<std::int64_t>(std::min(step, kMostStep));
}

}  // namespace

Result<RankSaves> RankSaves::make(const std::filesystem::path& folder) {
  auto request = traces::RequestFile::make(folder);
  if (!request) return std::unexpected(request.error());
  return RankSaves(*std::move(request), folder);
}

Status RankSaves::begin_attempt() {
  for (const auto& file : files()) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
  at_ = 0;
  told_go_on_ = false;
  return release();
}

Status RankSaves::hold(bool go_on) {
  told_go_on_ = go_on;
  return request_.ask(0, go_on ? kSaveAndGoOn : kSave);
}

Status RankSaves::save_at(std::int64_t step, bool go_on) {
  at_ = step;
  go_on_ = go_on;
  // A rank may see a part of what is written here, and all ranks have to hear the same.
  return request_.ask(static_cast<std::uint64_t>(step), told_go_on_ ? kSaveAndGoOn : kSave);
}

std::vector<std::filesystem::path> RankSaves::files() const {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder_, error), end;
       !error && entry != end && found.size() < kMostFiles; entry.increment(error)) {
    if (process_of(entry->path())) found.push_back(entry->path());
  }
  return found;
}

std::vector<RankSaves::Rank> RankSaves::ranks() const {
  std::vector<Rank> found;
  for (const auto& file : files()) {
    const auto words = read_words(file);
    if (!words) continue;
    const bool alive = ::kill(*process_of(file), 0) == 0 || errno == EPERM;
    found.push_back({bounded((*words)[0]), bounded((*words)[1]), (*words)[2] != 0, alive});
  }
  return found;
}

std::int64_t RankSaves::newest() const {
  std::int64_t step = -1;
  for (const Rank& rank : ranks()) {
    if (rank.alive) step = std::max(step, rank.step);
  }
  return step;
}

Progress RankSaves::progress() const {
  Progress progress;
  for (const Rank& rank : ranks()) {
    // What a rank told of an earlier save lies below the step of this one.
    const bool asked = rank.asked > at_;
    // One that has ended before it was asked has trained to its end.
    if (!rank.alive && !asked) continue;
    ++progress.ranks;
    const bool later = rank.step >= rank.asked;
    const bool saved = asked && (!rank.alive || (rank.saved && (later || !go_on_)));
    if (saved) {
      ++progress.saved;
      if (go_on_ && !rank.alive && !later) ++progress.gone;
      progress.step = std::max(progress.step, rank.asked - 1);
    } else {
      progress.over = false;
    }
  }
  return progress;
}

}  // namespace paceline::saving
