// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "common/kube/watch/reflector.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "common/base/excerpt.hpp"
#include "common/kube/api/json_reader.hpp"
#include "common/kube/api/object_version.hpp"

namespace paceline::kube {
namespace {

struct Page {
  std::string resource_version;
  std::string continue_token;
};

/// Passes each item of a page to the sink as its own bytes; the caller then drops the page.
Result<Page> take_page(std::string_view bytes, const std::function<void(std::string_view)>& item) {
  thread_local simdjson::ondemand::parser parser;
  const simdjson::padded_string padded(bytes);
  simdjson::ondemand::document document;
  simdjson::ondemand::object list;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS ||
      document.get_object().get(list) != simdjson::SUCCESS) {
    return fail(Code::kInvalid, Origin::kProtocol, "not a list: " + excerpt(bytes, 128));
  }
  Page page;
  for (auto field : list) {
    std::string_view key;
    if (field.unescaped_key().get(key) != simdjson::SUCCESS)
      return fail(Code::kInvalid, Origin::kProtocol, "broken JSON in a list");
    if (key == "metadata") {
      simdjson::ondemand::object meta;
      std::string_view raw;
      if (field.value().get_object().get(meta) != simdjson::SUCCESS ||
          meta.raw_json().get(raw) != simdjson::SUCCESS)
        continue;
      const auto parsed = parse(raw);
      if (!parsed) return std::unexpected(parsed.error());
      page.resource_version = text(at(*parsed, "resourceVersion"));
      page.continue_token = text(at(*parsed, "continue"));
    } else if (key == "items") {
      simdjson::ondemand::array elements;
      // null: an empty list
      if (field.value().get_array().get(elements) != simdjson::SUCCESS) continue;
      for (auto element : elements) {
        simdjson::ondemand::object object;
        std::string_view raw;
        if (element.get_object().get(object) != simdjson::SUCCESS ||
            object.raw_json().get(raw) != simdjson::SUCCESS) {
          return fail(Code::kInvalid, Origin::kProtocol, "broken item in a list");
        }
        item(raw);
      }
    }
  }
  return page;
}

}  // namespace

Reflector::Reflector(Api& api, const Resource& resource, ReflectorOptions options, ObjectSink& sink)
    : api_(api),
      resource_(resource),
      options_(std::move(options)),
      sink_(sink),
      streams_(options_.stream_lists),
      random_state_(std::random_device{}()) {}

std::uint64_t Reflector::random() {
  if (options_.random) return options_.random();
  random_state_ = random_state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  return random_state_ >> 33;
}

void Reflector::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const bool streaming = resource_version_.empty() && streams_;
    const bool paging = resource_version_.empty() && !streams_;
    const Status status = paging ? list(stop) : watch(stop);
    if (stop.stop_requested()) return;
    const bool listed = !resource_version_.empty();
    if (streaming && !listed && (status || status.error().code == Code::kInvalid)) {
      spdlog::debug("{}: lists are not streamed here, reading pages", resource_.plural);
      streams_ = false;
      continue;
    }
    if (status) {
      if (paging) backoff_ = std::chrono::milliseconds(0);
      continue;
    }
    if (status.error().code == Code::kGone) {
      spdlog::debug("{}: version {} is no longer kept, listing again", resource_.plural,
                    resource_version_);
      resource_version_.clear();
      if (listed) continue;  // if a second list also ends in kGone, wait as after any error
    } else if (!listed && options_.absent_is_empty && status.error().code == Code::kNotFound) {
      spdlog::debug("{}: not served here", resource_.plural);
      sink_.begin_replace();
      sink_.end_replace(0);
    } else {
      counts_.errors.fetch_add(1, std::memory_order_relaxed);
      spdlog::warn("{} {}: {}", listed ? "watch" : "list", resource_.plural,
                   to_string(status.error()));
      if (options_.on_error) options_.on_error(status.error());
    }
    pause(stop);
  }
}

Status Reflector::list(const std::stop_token& stop) {
  counts_.lists.fetch_add(1, std::memory_order_relaxed);
  ListOptions options{options_.label_selector, options_.field_selector, options_.page_size, {}};
  sink_.begin_replace();
  for (;;) {
    auto bytes = api_.list(resource_, options_.ns, options, stop);
    if (!bytes) {
      sink_.abort_replace();
      return std::unexpected(
          // kGone: the continue token expired; start at the first page again, so that all pages
          // have one version
          bytes.error());
    }
    auto page = take_page(*bytes, [&](std::string_view object) { add(object); });
    if (page && page->resource_version.empty())
      page = fail(Code::kInvalid, Origin::kProtocol, "a list without a resourceVersion");
    if (!page) {
      sink_.abort_replace();
      return std::unexpected(page.error());
    }
    if (page->continue_token.empty()) {
      resource_version_ = page->resource_version;
      sink_.end_replace(std::strtoull(resource_version_.c_str(), nullptr, 10));
      return {};
    }
    options.continue_token = page->continue_token;
  }
}

void Reflector::add(std::string_view object) {
  if (const auto added = sink_.add(object); !added) {
    counts_.errors.fetch_add(1, std::memory_order_relaxed);
    spdlog::warn("list {}: skipped an object: {}", resource_.plural, to_string(added.error()));
  }
}

Status Reflector::watch(const std::stop_token& stop) {
  bool filling = resource_version_.empty();
  (filling ? counts_.lists : counts_.watches).fetch_add(1, std::memory_order_relaxed);
  if (filling) sink_.begin_replace();
  const auto span = static_cast<std::uint64_t>(
      std::max<std::int64_t>(1, (options_.max_watch - options_.min_watch).count() + 1));
  WatchOptions options{options_.label_selector, options_.field_selector, resource_version_,
                       options_.min_watch + std::chrono::seconds(random() % span), filling};
  const auto began = std::chrono::steady_clock::now();
  bool heard = false;
  const Status status = api_.watch(
      resource_, options_.ns, options,
      [&](const WatchEvent& event) {
        heard = true;
        // The events of a list that never ends are no success: back off before the next one.
        if (!filling) backoff_ = std::chrono::milliseconds(0);
        if (filling) {
          if (event.type == WatchEventType::kAdded) add(event.object);
          if (event.type == WatchEventType::kBookmark && ends_initial_events(event.object)) {
            const std::uint64_t version = version_of(event.object);
            resource_version_ = std::to_string(version);
            sink_.end_replace(version);
            filling = false;
            backoff_ = std::chrono::milliseconds(0);
          }
          return !stop.stop_requested();
        }
        counts_.events.fetch_add(1, std::memory_order_relaxed);
        if (const auto version = version_of(event.object); version != 0)
          resource_version_ = std::to_string(version);
        if (const auto applied = sink_.apply(event); !applied) {
          counts_.errors.fetch_add(1, std::memory_order_relaxed);
          spdlog::warn("watch {}: skipped an event: {}", resource_.plural,
                       to_string(applied.error()));
        }
        return !stop.stop_requested();
      },
      stop);
  if (filling) sink_.abort_replace();
  // Do not spin if a server (or a proxy) ends every watch at once.
  if (status && !heard && std::chrono::steady_clock::now() - began < std::chrono::seconds(1))
    pause(stop);
  return status;
}

void Reflector::pause(const std::stop_token& stop) {
  backoff_ = std::clamp(backoff_ * 2, options_.min_backoff, options_.max_backoff);
  const auto jittered =
      backoff_ / 2 +
      std::chrono::milliseconds(random() % static_cast<std::uint64_t>(backoff_.count() / 2 + 1));
  std::mutex mutex;
  std::condition_variable_any nothing;
  std::unique_lock lock(mutex);
  nothing.wait_for(lock, stop, jittered, [] { return false; });
}

}  // namespace paceline::kube
