// SPDX-License-Identifier: Apache-2.0
// The room pictures decodes, crops, resizes and normalises JPEG files of tar shards, for
// `paceline.loader.ImageShards`.
//
// A Pictures object owns threads that make batches of pictures. A batch begins as a list of samples
// and the memory for its pictures. wait() reports that all pictures are done, or the first sample
// in the order of the batch that failed.
//
// Ownership: the shards and the memory of a batch belong to the caller. They must stay until the
// batch has been waited for, or until this object is destroyed. Threads: any thread may call.
// Batches are started in the order in which they were begun; the caller limits their number. Forks:
// a child has no threads, so it must neither call nor destroy this object. Failure: text that names
// the shard, the sample and the reason.
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
  std::vector<std::string> pictures;  // extensions; the first that a sample has is its picture
  std::string target;  // extension of a whole number in decimal; empty: no targets are read
};

class Pictures {
 public:
  Pictures(const Shards& shards, JpegLibrary library, Style style, PictureMembers members,
           std::uint32_t threads);
  ~Pictures();
  Pictures(const Pictures&) = delete;
  Pictures& operator=(const Pictures&) = delete;

  // Returns the number of the batch. `target` has room for all pictures. `numbers` has room for one
  // number for each sample, if targets are read.
  std::uint64_t begin(std::uint64_t epoch, std::span<const std::uint64_t> samples, void* target,
                      std::int64_t* numbers);
  // Returns nullopt if the batch is not done after the timeout. A batch is forgotten once its
  // result was returned. An unknown batch is an error.
  std::optional<std::expected<void, std::string>> wait(std::uint64_t batch,
                                                       std::chrono::milliseconds timeout);

  // Returns what the picture of a sample would show.
  std::expected<View, std::string> view(std::uint64_t epoch, std::uint64_t sample) const;
  // Processor time of all threads in the decoder for finished pictures, in nanoseconds.
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
    std::size_t bad = 0;  // index of the first that failed, if `why` is set
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
