// SPDX-License-Identifier: Apache-2.0
#include "common/kube/client/frame_decoder.hpp"

#include <optional>

#include "common/base/excerpt.hpp"
#include "common/kube/api/json_reader.hpp"
#include "common/kube/api/status_error.hpp"

namespace paceline::kube {
namespace {

std::optional<WatchEventType> type_of(std::string_view text) {
  if (text == "ADDED") return WatchEventType::kAdded;
  if (text == "MODIFIED") return WatchEventType::kModified;
  if (text == "DELETED") return WatchEventType::kDeleted;
  if (text == "BOOKMARK") return WatchEventType::kBookmark;
  return std::nullopt;
}

}  // namespace

Result<bool> FrameDecoder::feed(std::string_view chunk, const WatchHandler& handler) {
  while (!chunk.empty()) {
    const auto newline = chunk.find('\n');
    const std::string_view piece = chunk.substr(0, newline);
    if (partial_.size() + piece.size() > max_bytes_) {
      return fail(Code::kExhausted, Origin::kProtocol,
                  "a watch event is larger than " + std::to_string(max_bytes_) + " bytes");
    }
    if (newline == std::string_view::npos) {
      partial_.append(piece);
      return true;
    }
    chunk.remove_prefix(newline + 1);
    Result<bool> more = true;
    if (partial_.empty()) {
      more = event(piece, handler);
    } else {
      partial_.append(piece);
      more = event(partial_, handler);
      // Free the buffer of a huge event; otherwise it stays allocated for the life of the watch.
      if (partial_.capacity() > 256 * 1024) {
        std::string().swap(partial_);
      } else {
        partial_.clear();
      }
    }
    if (!more || !*more) return more;
  }
  return true;
}

Result<bool> FrameDecoder::event(std::string_view line, const WatchHandler& handler) {
  if (line.empty() || line == "\r") return true;
  // Only the frame is parsed here. The object's bytes are passed on as they are, and the projection
  // parses them once.
  simdjson::ondemand::parser& parser = []() -> simdjson::ondemand::parser& {
    thread_local simdjson::ondemand::parser kept;
    return kept;
  }();
  const simdjson::padded_string padded(line);
  const auto bad = [&] {
    return fail(Code::kInvalid, Origin::kProtocol, "not a watch event: " + excerpt(line, 128));
  };
  simdjson::ondemand::document document;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS) return bad();
  std::string type;
  std::string_view object;
  simdjson::ondemand::object frame;
  if (document.get_object().get(frame) != simdjson::SUCCESS) return bad();
  for (auto field : frame) {
    std::string_view key;
    if (field.unescaped_key().get(key) != simdjson::SUCCESS) return bad();
    if (key == "type") {
      std::string_view value;
      if (field.value().get_string().get(value) != simdjson::SUCCESS) return bad();
      type = value;
    } else if (key == "object") {
      simdjson::ondemand::object inner;
      if (field.value().get_object().get(inner) != simdjson::SUCCESS ||
          inner.raw_json().get(object) != simdjson::SUCCESS)
        return bad();
    }
  }
  if (object.empty()) return bad();
  if (type == "ERROR") return std::unexpected(error_of_status(object, "watch"));
  const auto known = type_of(type);
  if (!known) return bad();
  return handler({*known, object});
}

}  // namespace paceline::kube
