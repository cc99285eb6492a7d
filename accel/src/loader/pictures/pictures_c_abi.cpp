// SPDX-License-Identifier: Apache-2.0
// The functions of pictures.h. Each checks its arguments and makes one call; no exception leaves
// it.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "loader/pictures/pictures.hpp"
#include "loader/shards/handle.hpp"
#include "loader/source/reason.hpp"
#include "paceline/pictures.h"

struct paceline_pictures {
  std::unique_ptr<paceline::loader::Pictures> it;
  std::uint64_t bytes = 0;
  bool numbers = false;
  pid_t owner = 0;
};

namespace {

using paceline::loader::Crop;
using paceline::loader::Filter;
using paceline::loader::JpegLibrary;
using paceline::loader::PictureMembers;
using paceline::loader::Pictures;
using paceline::loader::say;
using paceline::loader::Style;

constexpr std::uint32_t kFlags =
    PACELINE_PICTURES_FLOATS | PACELINE_PICTURES_SCALED | PACELINE_PICTURES_TURNED;
constexpr std::uint32_t kMostThreads = 1024;

bool within(double low, double value, double high) { return value >= low && value <= high; }

// Returns what is wrong with a style, or an empty string.
std::string check(const paceline_pictures_style& style) {
  if ((style.flags & ~kFlags) != 0 || style.crop > PACELINE_CROP_CENTER ||
      style.filter > PACELINE_FILTER_LANCZOS)
    return "unknown flag, crop or filter";
  for (const std::uint32_t side : {style.width, style.height})
    if (side == 0 || side > PACELINE_PICTURES_MOST_SIDE)
      return "size is " + std::to_string(side) + ": it must be at least 1 and at most 8192";
  if (style.crop == PACELINE_CROP_CENTER && (style.shorter < std::max(style.width, style.height) ||
                                             style.shorter > PACELINE_PICTURES_MOST_SIDE))
    return "resize is " + std::to_string(style.shorter) +
           ": it must be at least the size of a picture, and at most 8192";
  if (style.threads == 0 || style.threads > kMostThreads)
    return "threads is " + std::to_string(style.threads) +
           ": it must be at least 1 and at most 1024";
  if (!within(0, style.flip, 1))
    return "flip is " + std::to_string(style.flip) + ": it must be between 0 and 1";
  if (!within(1e-6, style.scale[0], style.scale[1]) || style.scale[1] > 1)
    return "scale must be two parts of the area, the smaller one first, above 0 and at most 1";
  if (!within(1e-3, style.ratio[0], style.ratio[1]) || style.ratio[1] > 1e3)
    return "ratio must be two numbers, the smaller one first, from 0.001 to 1000";
  for (int channel = 0; channel < 3; ++channel)
    if (!std::isfinite(style.mean[channel]) || !std::isfinite(style.deviation[channel]) ||
        style.deviation[channel] == 0)
      return "mean and std must be finite, and std not zero";
  return {};
}

Style style_of(const paceline_pictures_style& style) {
  Style result;
  result.framing = {.crop = static_cast<Crop>(style.crop),
                    .width = static_cast<std::int32_t>(style.width),
                    .height = static_cast<std::int32_t>(style.height),
                    .shorter = static_cast<std::int32_t>(style.shorter),
                    .scale = {style.scale[0], style.scale[1]},
                    .ratio = {style.ratio[0], style.ratio[1]},
                    .flip = style.flip,
                    .seed = style.seed};
  result.filter = static_cast<Filter>(style.filter);
  result.floats = (style.flags & PACELINE_PICTURES_FLOATS) != 0;
  result.scaled = (style.flags & PACELINE_PICTURES_SCALED) != 0;
  result.turned = (style.flags & PACELINE_PICTURES_TURNED) != 0;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    result.mean[channel] = style.mean[channel];
    result.deviation[channel] = style.deviation[channel];
  }
  return result;
}

}  // namespace

extern "C" {

int paceline_pictures_open(const struct paceline_shards* shards,
                           const struct paceline_pictures_style* style,
                           const char* const* extensions, const char* target,
                           struct paceline_pictures** pictures, char* why, uint64_t why_size) {
  if (shards == nullptr || style == nullptr || style->size != sizeof *style ||
      extensions == nullptr || *extensions == nullptr || pictures == nullptr)
    return PACELINE_EINVAL;
  try {
    if (const std::string wrong = check(*style); !wrong.empty()) {
      say(wrong, why, why_size);
      return PACELINE_EINVAL;
    }
    const auto library = JpegLibrary::load({});
    if (!library) {
      say(library.error(), why, why_size);
      return PACELINE_ESYSTEM;
    }
    PictureMembers members;
    for (; *extensions != nullptr; ++extensions) members.pictures.emplace_back(*extensions);
    if (target != nullptr) members.target = target;
    const Style own = style_of(*style);
    const bool numbers = !members.target.empty();
    auto made =
        std::make_unique<Pictures>(*shards->it, **library, own, std::move(members), style->threads);
    *pictures = new paceline_pictures{
        .it = std::move(made), .bytes = own.bytes(), .numbers = numbers, .owner = ::getpid()};
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    say("no memory or no thread for making pictures", why, why_size);
    return PACELINE_ESYSTEM;
  }
}

void paceline_pictures_close(struct paceline_pictures* pictures) {
  if (pictures == nullptr) return;
  // A forked child has no threads to join, and its copies of their locks may be held for ever. So
  // the child leaks the object.
  if (pictures->owner != ::getpid()) static_cast<void>(pictures->it.release());
  delete pictures;
}

uint64_t paceline_pictures_bytes(const struct paceline_pictures* pictures) {
  return pictures == nullptr ? 0 : pictures->bytes;
}

int paceline_pictures_begin(struct paceline_pictures* pictures, uint64_t epoch,
                            const uint64_t* samples, uint32_t count, void* memory,
                            uint64_t memory_size, int64_t* numbers, uint64_t* batch) {
  if (pictures == nullptr || samples == nullptr || memory == nullptr || batch == nullptr ||
      memory_size / pictures->bytes < count || (pictures->numbers && numbers == nullptr) ||
      pictures->owner != ::getpid())
    return PACELINE_EINVAL;
  try {
    *batch = pictures->it->begin(epoch, {samples, count}, memory, numbers);
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    return PACELINE_ESYSTEM;
  }
}

int paceline_pictures_wait(struct paceline_pictures* pictures, uint64_t batch, uint32_t timeout_ms,
                           char* why, uint64_t why_size) {
  if (pictures == nullptr || pictures->owner != ::getpid()) return PACELINE_EINVAL;
  try {
    const auto told = pictures->it->wait(batch, std::chrono::milliseconds(timeout_ms));
    if (!told) return 1;
    if (told->has_value()) return PACELINE_OK;
    say(told->error(), why, why_size);
  } catch (const std::bad_alloc&) {
    say("no memory for a message", why, why_size);
  }
  return PACELINE_ESYSTEM;
}

int paceline_pictures_view(const struct paceline_pictures* pictures, uint64_t epoch,
                           uint64_t sample, struct paceline_picture_view* view, char* why,
                           uint64_t why_size) {
  if (pictures == nullptr || view == nullptr) return PACELINE_EINVAL;
  try {
    const auto seen = pictures->it->view(epoch, sample);
    if (seen) {
      *view = {.x = seen->x,
               .y = seen->y,
               .width = seen->width,
               .height = seen->height,
               .full_width = seen->full_width,
               .full_height = seen->full_height,
               .left = seen->left,
               .top = seen->top,
               .flip = seen->flip ? 1 : 0};
      return PACELINE_OK;
    }
    say(seen.error(), why, why_size);
  } catch (const std::bad_alloc&) {
    say("no memory for a picture's header", why, why_size);
  }
  return PACELINE_ESYSTEM;
}

uint64_t paceline_pictures_decoding(const struct paceline_pictures* pictures) {
  return pictures == nullptr || pictures->owner != ::getpid() ? 0 : pictures->it->decoding();
}

}  // extern "C"
