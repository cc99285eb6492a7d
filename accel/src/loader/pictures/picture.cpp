// SPDX-License-Identifier: Apache-2.0
#include "loader/pictures/picture.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "loader/pictures/exif.hpp"

namespace paceline::loader {
namespace {

constexpr std::int32_t kStrip = 16;  // rows: decoded rows are resized while they are in the cache

std::size_t size_of(std::int32_t count) { return static_cast<std::size_t>(count); }

// Clears first, because growing a vector copies bytes that are no longer needed.
std::uint8_t* room(std::vector<std::uint8_t>& buffer, std::size_t size) {
  if (buffer.size() < size) {
    buffer.clear();
    buffer.resize(size);
  }
  return buffer.data();
}

// The processor time of this thread. On a busy machine, wall time says little about the decoder.
std::uint64_t processor_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

class Watch {
 public:
  explicit Watch(std::uint64_t& total) : total_(total), began_(processor_time()) {}
  ~Watch() { total_ += processor_time() - began_; }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::uint64_t& total_;
  std::uint64_t began_;
};

// Maps a pixel of the turned picture to the picture in the file, which has this width and height.
struct Turn {
  int orientation;
  std::int32_t width;
  std::int32_t height;

  std::size_t source(std::int32_t x, std::int32_t y) const {
    const bool exchanged = orientation >= 5;
    std::int32_t from_x = exchanged ? y : x;
    std::int32_t from_y = exchanged ? x : y;
    if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
      from_x = width - 1 - from_x;
    if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
      from_y = height - 1 - from_y;
    return size_of(from_y) * size_of(width) + size_of(from_x);
  }
};

template <typename Value, typename Look>
void write_channel(const std::uint8_t* row, std::int32_t width, bool flip, Value* target,
                   const Look& look) {
  if (flip)
    for (std::int32_t x = 0; x < width; ++x) target[width - 1 - x] = look(row[4 * x]);
  else
    for (std::int32_t x = 0; x < width; ++x) target[x] = look(row[4 * x]);
}

}  // namespace

Painter::Painter(const JpegLibrary& library, const Style& style, const Resampler& resampler)
    : style_(style), resampler_(resampler), reader_(library) {
  for (std::size_t channel = 0; channel < 3; ++channel)
    for (std::size_t value = 0; value < 256; ++value) {
      const float part = static_cast<float>(value) / 255.0F;
      const float centred = part - style.mean[channel];
      floats_[channel][value] = centred / style.deviation[channel];
    }
}

void Painter::make_axes(const View& view) {
  const Framing& framing = style_.framing;
  is_across_ = view.width != view.full_width;
  is_down_ = view.height != view.full_height;
  const Side across{
      .source = view.width, .target = view.full_width, .begin = view.left, .count = framing.width};
  const Side down{.source = view.height,
                  .target = view.full_height,
                  .begin = view.top,
                  .count = framing.height};
  if (is_across_) {
    make_axis(across_, across, style_.filter);
    resampler_.prepare(across_);
  }
  first_ = view.top;
  std::int32_t end = view.top + framing.height;
  if (is_down_) {
    make_axis(down_, down, style_.filter);
    first_ = down_.lowest();
    end = down_.end();
    for (Axis::Reach& reach : down_.reach) reach.first -= first_;
  }
  stride_ = (size_of(framing.width) * 4 + kRowStep - 1) / kRowStep * kRowStep;
  room(rows_, size_of(end - first_) * stride_);
  room(row_, stride_);
}

bool Painter::from_file(const View& view) {
  const std::size_t stride = size_of(reader_.width()) * 4 + kOverread;
  std::uint8_t* strip = room(strip_, stride * kStrip + kOverread);
  const std::int32_t count = is_down_ ? down_.end() : style_.framing.height;
  {
    const Watch watch(decoding_);
    if (!reader_.skip(view.y + first_)) return false;
  }
  for (std::int32_t row = 0; row < count; row += kStrip) {
    const std::int32_t rows = std::min(kStrip, count - row);
    {
      const Watch watch(decoding_);
      if (!reader_.read(strip, stride, rows)) return false;
    }
    std::uint8_t* target = rows_.data() + size_of(row) * stride_;
    if (is_across_) {
      resampler_.horizontal(across_, strip + size_of(view.x) * 4, stride, size_of(rows), target,
                            stride_);
      continue;
    }
    const std::uint8_t* source = strip + size_of(view.x + view.left) * 4;
    for (std::int32_t i = 0; i < rows; ++i)
      std::memcpy(target + size_of(i) * stride_, source + size_of(i) * stride,
                  size_of(style_.framing.width) * 4);
  }
  const Watch watch(decoding_);
  return reader_.finish();
}

// A turned picture is decoded as a whole and turned before it is resized. Turning it afterwards
// would round other pixels.
bool Painter::from_memory(const View& view, int orientation) {
  const Turn turn{.orientation = orientation, .width = reader_.width(), .height = reader_.height()};
  const std::int32_t width = orientation >= 5 ? turn.height : turn.width;
  const std::size_t pixels = size_of(turn.width) * size_of(turn.height);
  const std::uint8_t* whole = room(whole_, pixels * 4);
  {
    const Watch watch(decoding_);
    if (!reader_.read(whole_.data(), size_of(turn.width) * 4, turn.height) || !reader_.finish())
      return false;
  }
  std::uint8_t* line = room(strip_, size_of(width) * 4 + kOverread);
  const std::int32_t count = is_down_ ? down_.end() : style_.framing.height;
  for (std::int32_t row = 0; row < count; ++row) {
    for (std::int32_t x = view.x; x < view.x + view.width; ++x)
      std::memcpy(line + size_of(x) * 4, whole + turn.source(x, view.y + first_ + row) * 4, 4);
    std::uint8_t* target = rows_.data() + size_of(row) * stride_;
    if (is_across_)
      resampler_.horizontal(across_, line + size_of(view.x) * 4, 0, 1, target, stride_);
    else
      std::memcpy(target, line + size_of(view.x + view.left) * 4,
                  size_of(style_.framing.width) * 4);
  }
  return true;
}

void Painter::write_row(const View& view, const std::uint8_t* row, std::int32_t y,
                        void* target) const {
  const std::int32_t width = style_.framing.width;
  const std::size_t plane = size_of(width) * size_of(style_.framing.height);
  const std::size_t begin = size_of(y) * size_of(width);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    if (style_.floats) {
      const float* const values = floats_[channel].data();
      write_channel(row + channel, width, view.flip,
                    static_cast<float*>(target) + channel * plane + begin,
                    [values](std::uint8_t value) { return values[value]; });
    } else {
      write_channel(row + channel, width, view.flip,
                    static_cast<std::uint8_t*>(target) + channel * plane + begin,
                    [](std::uint8_t value) { return value; });
    }
  }
}

void Painter::deliver(const View& view, void* target) {
  for (std::int32_t y = 0; y < style_.framing.height; ++y) {
    const std::uint8_t* row = rows_.data() + size_of(y) * stride_;
    if (is_down_) {
      resampler_.vertical(down_, size_of(y), rows_.data(), stride_, stride_, row_.data());
      row = row_.data();
    }
    write_row(view, row, y, target);
  }
}

std::expected<View, std::string> Painter::view(std::span<const std::uint8_t> file,
                                               const Place& place) {
  if (!reader_.open(file)) return std::unexpected(reader_.why());
  const bool exchanged = style_.turned && orientation_of(file) >= 5;
  const std::int32_t width = exchanged ? reader_.height() : reader_.width();
  const std::int32_t height = exchanged ? reader_.width() : reader_.height();
  return view_of(style_.framing, width, height, place.epoch, place.sample);
}

std::expected<void, std::string> Painter::paint(std::span<const std::uint8_t> file,
                                                const Place& place, void* target) {
  const auto asked = view(file, place);
  if (!asked) return std::unexpected(asked.error());
  const int orientation = style_.turned ? orientation_of(file) : 1;
  const int denominator = style_.scaled ? denominator_of(*asked) : 1;
  const View seen = divided(*asked, denominator);
  {
    const Watch watch(decoding_);
    if (!reader_.start(denominator)) return std::unexpected(reader_.why());
  }
  make_axes(seen);
  if (!(orientation == 1 ? from_file(seen) : from_memory(seen, orientation)))
    return std::unexpected(reader_.why());
  deliver(seen, target);
  return {};
}

}  // namespace paceline::loader
