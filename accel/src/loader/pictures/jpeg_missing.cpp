// SPDX-License-Identifier: Apache-2.0
// Replaces jpeg.cpp if the build found no libjpeg-turbo. Everything else works, and opening
// pictures returns the reason.
#include "loader/pictures/jpeg.hpp"

namespace paceline::loader {

struct JpegLibrary::Functions {};
struct JpegReader::State {
  std::string why;
};

std::expected<std::shared_ptr<const JpegLibrary>, std::string> JpegLibrary::load(
    const std::string&) {
  return std::unexpected(
      std::string("built without libjpeg-turbo: install its development files and build again"));
}

JpegReader::JpegReader(const JpegLibrary&) : state_(std::make_unique<State>()) {}
JpegReader::~JpegReader() = default;
bool JpegReader::open(std::span<const std::uint8_t>) { return false; }
int JpegReader::width() const { return 0; }
int JpegReader::height() const { return 0; }
bool JpegReader::start(int) { return false; }
bool JpegReader::read(std::uint8_t*, std::size_t, int) { return false; }
bool JpegReader::skip(int) { return false; }
bool JpegReader::finish() { return false; }
const std::string& JpegReader::why() const { return state_->why; }

}  // namespace paceline::loader
