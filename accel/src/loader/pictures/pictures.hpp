// SPDX-License-Identifier: Apache-2.0
// The room pictures decodes, crops, resizes and normalises JPEG files of tar shards, for
// `paceline.loader.ImageShards`.
//
// Threads that make batches of pictures out of tar shards. A batch begins as a list of samples and
// the memory that its pictures go to; whoever waits for it is told when all are there, or of the
// first sample, in the batch's order, that could not be made.
//
// Ownership: the shards and a batch's memory are the caller's and must stay until the batch has
// been waited for, or this has ended. Threads: any may call. Batches are begun on in the order they
// came in; how many there are is the caller's to bound. Forks: a child has no threads; it must
// neither call nor end this. Failure: text that names shard, sample and reason.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <expected>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "loader/pictures/picture.hpp"
#include "loader/shards/shards.hpp"

namespace paceline::loader {

struct PictureMembers {
  std::vector<std::string> pictures;  // extensions; a sample's picture is the first that it has
  std::string target;                 // of a whole number in decimal; empty: none is read
};

class Pictures {
 public:
  Pictures(const Shards& shards, JpegLibrary library, Style style, PictureMembers members,
           std::uint32_t threads);
  ~Pictures();
  Pictures(const Pictures&) = delete;
  Pictures& operator=(const Pictures&) = delete;

  // Answers the batch's number. `target` has room for all pictures, `numbers` for one for each
  // sample if they are read.
  std::uint64_t begin(std::uint64_t epoch, std::span<const std::uint64_t> samples, void* target,
                      std::int64_t* numbers);
  // Nothing: not yet. A batch is forgotten once it was told; so is one that is not known, as an
  // error.
  std::optional<std::expected<void, std::string>> wait(std::uint64_t batch,
                                                       std::chrono::milliseconds timeout);

  // What the picture of a sample would show.
  std::expected<View, std::string> view(std::uint64_t epoch, std::uint64_t sample) const;
  // nanoseconds of processor time in the decoder, of all threads, of finished pictures
  std::uint64_t decoding() const;

 private:
  struct Batch {
    std::uint64_t number = 0;
    std::uint64_t epoch = 0;
    std::vector<std::uint64_t> samples;
    void* target = nullptr;
    std::int64_t* numbers = nullptr;
    std::size_t next = 0;
    std::size_t done = 0;
    std::size_t bad = 0;  // index of the first that failed, if there is a `why`
    std::string why;
  };
  void work();
  Batch* next_batch();
  std::string make(Painter& painter, std::vector<std::uint8_t>& file, const Batch& batch,
                   std::size_t index) const;
  std::string read(std::uint64_t sample, std::span<const std::string> extensions,
                   std::vector<std::uint8_t>& bytes) const;

  const Shards& shards_;
  const JpegLibrary library_;
  const Style style_;
  const PictureMembers members_;
  mutable std::mutex mutex_;
  std::condition_variable work_there_;
  std::condition_variable batch_done_;
  std::list<Batch> batches_;
  std::uint64_t last_ = 0;
  std::uint64_t decoding_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace paceline::loader
