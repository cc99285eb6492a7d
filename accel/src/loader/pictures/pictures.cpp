// SPDX-License-Identifier: Apache-2.0
#include "loader/pictures/pictures.hpp"

#include <algorithm>
#include <charconv>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

namespace paceline::loader {
namespace {

constexpr std::uint64_t kMostOfPicture = 256 << 20;  // most bytes of a file
constexpr std::size_t kMostOfNumber = 64;

// Reads a whole number. White space around it is allowed, because editors add it.
std::optional<std::int64_t> number_of(std::span<const std::uint8_t> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                        std::min(bytes.size(), kMostOfNumber));
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos || bytes.size() > kMostOfNumber) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Pictures::Pictures(const Shards& shards, JpegLibrary library, Style style, PictureMembers members,
                   std::uint32_t threads)
    : shards_(shards), library_(std::move(library)), style_(style), members_(std::move(members)) {
  try {
    for (std::uint32_t i = 0; i < std::max(threads, 1U); ++i)
      threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    if (threads_.empty()) throw std::bad_alloc();  // fewer threads are enough, none is not
  }
}

Pictures::~Pictures() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  work_there_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::uint64_t Pictures::begin(std::uint64_t epoch, std::span<const std::uint64_t> samples,
                              void* target, std::int64_t* numbers) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++last_;
    batches_.push_back({.number = number,
                        .epoch = epoch,
                        .samples = {samples.begin(), samples.end()},
                        .target = target,
                        .numbers = numbers,
                        .next = 0,
                        .done = 0,
                        .bad = 0,
                        .why = {}});
  }
  work_there_.notify_all();
  return number;
}

std::optional<std::expected<void, std::string>> Pictures::wait(std::uint64_t batch,
                                                               std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto found = std::find_if(batches_.begin(), batches_.end(),
                                  [&](const Batch& each) { return each.number == batch; });
  if (found == batches_.end()) return std::unexpected(std::string("there is no such batch"));
  if (!batch_done_.wait_for(lock, timeout, [&] { return found->done == found->samples.size(); }))
    return std::nullopt;
  const std::string why = std::move(found->why);
  batches_.erase(found);
  if (!why.empty()) return std::unexpected(why);
  return std::expected<void, std::string>{};
}

Pictures::Batch* Pictures::next_batch() {
  for (Batch& batch : batches_)
    if (batch.next < batch.samples.size()) return &batch;
  return nullptr;
}

std::string Pictures::read(std::uint64_t sample, std::span<const std::string> extensions,
                           std::vector<std::uint8_t>& bytes) const {
  if (sample >= shards_.samples().size()) return "there is no sample " + std::to_string(sample);
  const Sample& found = shards_.samples()[sample];
  for (const std::string& extension : extensions)
    for (const Member& member : shards_.members(found)) {
      if (shards_.extension(member) != extension) continue;
      if (member.size > kMostOfPicture)
        return shards_.name(found) + "." + extension + " has more than 256 MiB";
      bytes.resize(member.size);
      const auto got = shards_.read(found, member, bytes.data());
      return got ? std::string() : got.error();
    }
  std::string wanted;
  for (const std::string& extension : extensions)
    wanted += (wanted.empty() ? "." : " or .") + extension;
  return shards_.name(found) + " has no " + wanted;
}

std::string Pictures::make(Painter& painter, std::vector<std::uint8_t>& file, const Batch& batch,
                           std::size_t index) const {
  const std::uint64_t sample = batch.samples[index];
  try {
    if (!members_.target.empty()) {
      if (std::string why = read(sample, {&members_.target, 1}, file); !why.empty()) return why;
      const auto number = number_of(file);
      if (!number)
        return shards_.name(shards_.samples()[sample]) + "." + members_.target +
               " is no whole number";
      batch.numbers[index] = *number;
    }
    if (std::string why = read(sample, members_.pictures, file); !why.empty()) return why;
    void* target = static_cast<std::uint8_t*>(batch.target) + index * style_.bytes();
    const auto painted = painter.paint(file, {.epoch = batch.epoch, .sample = sample}, target);
    return painted ? std::string()
                   : shards_.name(shards_.samples()[sample]) + ": its picture: " + painted.error();
  } catch (const std::bad_alloc&) {
    return "no memory for the picture of sample " + std::to_string(sample);
  }
}

void Pictures::work() {
  Painter painter(library_, style_, best_resampler());
  std::vector<std::uint8_t> file;
  std::unique_lock lock(mutex_);
  for (;;) {
    Batch* batch = nullptr;
    work_there_.wait(lock, [&] { return stopped_ || (batch = next_batch()) != nullptr; });
    if (stopped_) return;
    const std::size_t index = batch->next++;
    const std::uint64_t before = painter.decoding();
    lock.unlock();
    // The batch stays valid here: wait() removes only finished batches.
    std::string why = make(painter, file, *batch, index);
    lock.lock();
    decoding_ += painter.decoding() - before;
    if (!why.empty() && (batch->why.empty() || index < batch->bad)) {
      batch->bad = index;
      batch->why = std::move(why);
    }
    if (++batch->done == batch->samples.size()) batch_done_.notify_all();
  }
}

std::expected<View, std::string> Pictures::view(std::uint64_t epoch, std::uint64_t sample) const {
  std::vector<std::uint8_t> file;
  if (std::string why = read(sample, members_.pictures, file); !why.empty())
    return std::unexpected(std::move(why));
  return Painter(library_, style_, kScalarResampler).view(file, {.epoch = epoch, .sample = sample});
}

std::uint64_t Pictures::decoding() const {
  const std::lock_guard lock(mutex_);
  return decoding_;
}

}  // namespace paceline::loader
