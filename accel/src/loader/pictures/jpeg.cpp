// SPDX-License-Identifier: Apache-2.0
#include "loader/pictures/jpeg.hpp"

#include <dlfcn.h>
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <vector>

namespace paceline::loader {

struct JpegLibrary::Functions {
  decltype(&::jpeg_std_error) std_error = nullptr;
  decltype(&::jpeg_CreateDecompress) create = nullptr;
  decltype(&::jpeg_destroy_decompress) destroy = nullptr;
  decltype(&::jpeg_read_header) read_header = nullptr;
  decltype(&::jpeg_start_decompress) start = nullptr;
  decltype(&::jpeg_read_scanlines) read = nullptr;
  decltype(&::jpeg_skip_scanlines) skip = nullptr;
  decltype(&::jpeg_finish_decompress) finish = nullptr;
  decltype(&::jpeg_abort_decompress) abort = nullptr;
  decltype(&::jpeg_resync_to_restart) resync = nullptr;
};

namespace {

constexpr char kName[] = "libjpeg.so.62";
constexpr long kMostMemory = 1L << 30;

std::string beside_us() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&beside_us), &info) == 0 || info.dli_fname == nullptr)
    return kName;
  const std::string own = info.dli_fname;
  const std::size_t slash = own.rfind('/');
  return (slash == std::string::npos ? std::string("./") : own.substr(0, slash + 1)) + kName;
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

std::uint8_t product(unsigned a, unsigned b) {  // the rounded product of two fractions of 255
  const unsigned sum = a * b + 128;
  return static_cast<std::uint8_t>((sum + (sum >> 8)) >> 8);
}

void grey_to_four(const std::uint8_t* from, std::uint8_t* to, std::size_t pixels) {
  for (std::size_t i = 0; i < pixels; ++i, to += 4) to[0] = to[1] = to[2] = to[3] = from[i];
}

// Every CMYK file follows Adobe's convention: it stores 255 minus the ink.
void cmyk_to_four(std::uint8_t* pixels, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i, pixels += 4) {
    const unsigned light = pixels[3];
    for (int channel = 0; channel < 3; ++channel) {
      const unsigned ink = 255U - pixels[channel];
      pixels[channel] = static_cast<std::uint8_t>(light - product(ink, light));
    }
  }
}

}  // namespace

std::expected<std::shared_ptr<const JpegLibrary>, std::string> JpegLibrary::load(
    const std::string& path) {
  const std::string place = path.empty() ? beside_us() : path;
  void* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = ::dlerror();
    return std::unexpected(std::string(error != nullptr ? error : place.c_str()) +
                           ": pictures need it");
  }
  const auto functions = std::make_shared<Functions>();
  Functions& found = *functions;
  if (!find(library, "jpeg_std_error", found.std_error) ||
      !find(library, "jpeg_CreateDecompress", found.create) ||
      !find(library, "jpeg_destroy_decompress", found.destroy) ||
      !find(library, "jpeg_read_header", found.read_header) ||
      !find(library, "jpeg_start_decompress", found.start) ||
      !find(library, "jpeg_read_scanlines", found.read) ||
      !find(library, "jpeg_skip_scanlines", found.skip) ||
      !find(library, "jpeg_finish_decompress", found.finish) ||
      !find(library, "jpeg_abort_decompress", found.abort) ||
      !find(library, "jpeg_resync_to_restart", found.resync))
    return std::unexpected(place + " is not libjpeg-turbo 1.5 or later, which pictures need");
  auto loaded = std::make_shared<JpegLibrary>();
  loaded->functions_ = functions;
  return loaded;
}

// libjpeg keeps pointers into the state, so it never moves. On an error libjpeg leaves by longjmp.
// The jump crosses only libjpeg's frames: every call has its own setjmp, and no object in between
// needs a destructor.
struct JpegReader::State {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf failed{};
  std::shared_ptr<const JpegLibrary::Functions> library;
  bool created = false;
  std::string why;
  char text[JMSG_LENGTH_MAX] = {};
  std::vector<std::uint8_t> grey;
  std::vector<std::uint8_t> last;

  static State& of(j_common_ptr info) { return *static_cast<State*>(info->client_data); }
  static State& of(j_decompress_ptr info) { return *static_cast<State*>(info->client_data); }

  [[noreturn]] void fail(const char* reason) {
    std::snprintf(text, sizeof text, "%s", reason);
    std::longjmp(failed, 1);  // NOLINT(cert-err52-cpp): a C library's way out of an error
  }

  static void on_error(j_common_ptr info) {
    State& state = of(info);
    state.errors.format_message(info, state.text);
    std::longjmp(state.failed, 1);  // NOLINT(cert-err52-cpp)
  }
  static void on_message(j_common_ptr) {}
  static void on_begin(j_decompress_ptr) {}
  static void on_end(j_decompress_ptr) {}
  static boolean on_empty(j_decompress_ptr info) {
    of(info).fail("the file ends early: it was cut off");
  }
  static void on_skip(j_decompress_ptr info, long count) {
    if (count <= 0) return;
    jpeg_source_mgr& source = *info->src;
    const std::size_t most = std::min(static_cast<std::size_t>(count), source.bytes_in_buffer);
    source.next_input_byte += most;
    source.bytes_in_buffer -= most;
  }
  static void on_progress(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans)
      of(info).fail("the file has more than 500 scans");
  }

  // Runs one call of libjpeg. An error jumps over `call`, so its captures must need no destructor.
  template <typename Call>
  bool guarded(Call call) {
    if (setjmp(failed) != 0) {  // NOLINT(cert-err52-cpp)
      why = text;
      if (created) library->abort(&info);
      return false;
    }
    return call();
  }
};

JpegReader::JpegReader(const JpegLibrary& library) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.library = library.functions_;
  state.info.err = state.library->std_error(&state.errors);
  state.errors.error_exit = State::on_error;
  state.errors.output_message = State::on_message;
  state.info.client_data = &state;
  state.created = state.guarded([&state] {
    state.library->create(&state.info, JPEG_LIB_VERSION, sizeof state.info);
    return true;
  });
  if (!state.created) return;
  state.info.client_data = &state;
  state.info.mem->max_memory_to_use = kMostMemory;
  state.progress.progress_monitor = State::on_progress;
  state.info.progress = &state.progress;
  state.source.init_source = State::on_begin;
  state.source.fill_input_buffer = State::on_empty;
  state.source.skip_input_data = State::on_skip;
  state.source.resync_to_restart = state.library->resync;
  state.source.term_source = State::on_end;
  state.info.src = &state.source;
}

JpegReader::~JpegReader() {
  if (state_->created) state_->library->destroy(&state_->info);
}

bool JpegReader::open(std::span<const std::uint8_t> file) {
  State& state = *state_;
  if (!state.created) return false;
  state.library->abort(&state.info);
  state.info.output_width = 0;  // forget the width of the last file
  state.source.next_input_byte = file.data();
  state.source.bytes_in_buffer = file.size();
  if (file.size() < 2 || file[0] != 0xFF || file[1] != 0xD8) {
    state.why = file.empty() ? "the file is empty" : "the file is no JPEG";
    return false;
  }
  return state.guarded([&state] {
    state.library->read_header(&state.info, TRUE);
    const int components = state.info.num_components;
    if (components != 1 && components != 3 && components != 4)
      state.fail("the file has neither one, three nor four channels");
    if (std::uint64_t{state.info.image_width} * state.info.image_height > kMostPixels)
      state.fail("the picture has more than 178956970 pixels");
    return true;
  });
}

int JpegReader::width() const {
  const auto& info = state_->info;
  return static_cast<int>(info.output_width != 0 ? info.output_width : info.image_width);
}

int JpegReader::height() const {
  const auto& info = state_->info;
  return static_cast<int>(info.output_width != 0 ? info.output_height : info.image_height);
}

bool JpegReader::start(int denominator) {
  State& state = *state_;
  return state.guarded([&state, denominator] {
    jpeg_decompress_struct& info = state.info;
    info.scale_num = 1;
    info.scale_denom = static_cast<unsigned>(denominator);
    info.dct_method = JDCT_ISLOW;
    info.out_color_space = info.num_components == 1   ? JCS_GRAYSCALE
                           : info.num_components == 3 ? JCS_EXT_RGBX
                                                      : JCS_CMYK;
    return state.library->start(&info) != 0;
  });
}

bool JpegReader::read(std::uint8_t* rows, std::size_t stride, int count) {
  State& state = *state_;
  const std::size_t width = state.info.output_width;
  const bool grey = state.info.num_components == 1;
  if (grey) state.grey.resize(width);
  for (int row = 0; row < count; ++row, rows += stride) {
    std::uint8_t* target = grey ? state.grey.data() : rows;
    const bool got = state.guarded([&state, target] {
      JSAMPROW line = target;
      return state.library->read(&state.info, &line, 1) == 1;
    });
    if (!got) return false;
    if (grey) grey_to_four(target, rows, width);
    if (state.info.num_components == 4) cmyk_to_four(rows, width);
  }
  return true;
}

bool JpegReader::skip(int rows) {
  State& state = *state_;
  if (rows <= 0) return true;
  return state.guarded([&state, rows] {
    return state.library->skip(&state.info, static_cast<JDIMENSION>(rows)) ==
           static_cast<JDIMENSION>(rows);
  });
}

bool JpegReader::finish() {
  State& state = *state_;
  const auto left = static_cast<int>(state.info.output_height - state.info.output_scanline);
  if (left > 0) {
    // Skipping to the end would leave the last bytes unread. So the last row is decoded and
    // dropped.
    state.last.resize(std::size_t{state.info.output_width} * 4);
    if (!skip(left - 1) || !read(state.last.data(), 0, 1)) return false;
  }
  return state.guarded([&state] { return state.library->finish(&state.info) != 0; });
}

const std::string& JpegReader::why() const { return state_->why; }

}  // namespace paceline::loader
