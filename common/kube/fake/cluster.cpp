// SPDX-License-Identifier: Apache-2.0
#include "common/kube/fake/cluster.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <set>
#include <utility>

#include "common/kube/api/object_meta.hpp"
#include "common/kube/client/client.hpp"
#include "common/kube/fake/requests.hpp"

namespace paceline::kube {
namespace {

constexpr std::chrono::milliseconds kHeartbeat{200};

std::string_view type_name(WatchEventType type) {
  switch (type) {
    case WatchEventType::kAdded: return "ADDED";
    case WatchEventType::kModified: return "MODIFIED";
    case WatchEventType::kDeleted: return "DELETED";
    case WatchEventType::kBookmark: return "BOOKMARK";
  }
  return "ERROR";
}

std::string frame(std::string_view type, std::string_view object) {
  std::string text = R"({"type":")";
  return text.append(type).append(R"(","object":)").append(object).append("}\n");
}

std::string bookmark(const Resource& resource, std::uint64_t version, bool ends_initial_events) {
  return frame(
      "BOOKMARK",
      R"({"kind":")" + std::string(resource.kind) + R"(","apiVersion":")" + resource.api_version() +
          R"(","metadata":{"resourceVersion":")" + std::to_string(version) +
          (ends_initial_events ? R"(","annotations":{"k8s.io/initial-events-end":"true"}}})"
                               : "\"}}"));
}

/// The event type that a watcher with a selector sees. An object that starts to match is added; one
/// that stops matching is deleted.
std::optional<WatchEventType> seen_as(const FakeModel::Event& event, const Selector& selector) {
  if (selector.empty()) return event.type;
  const auto fits = [&](const FakeModel::Text& text) {
    return text && matches(selector, Document::parse(*text)).value_or(false);
  };
  const bool before = fits(event.before);
  const bool now = event.type != WatchEventType::kDeleted && fits(event.object);
  if (!before && !now) return std::nullopt;
  return !before ? WatchEventType::kAdded
         : now   ? WatchEventType::kModified
                 : WatchEventType::kDeleted;
}

Error lost(const http::Request& request) {
  return {
      Code::kUnavailable, Origin::kHttp,
      request.method + " " + request.target + ": the connection was lost before the answer came",
      true};
}

class FakeTransport final : public http::HttpTransport {
 public:
  explicit FakeTransport(FakeCluster& cluster) : cluster_(cluster) {}
  Result<http::Response> send(const http::Request& request, const std::stop_token&) override {
    return cluster_.handle(request);
  }
  Result<http::Response> stream(const http::Request& request, const http::ChunkHandler& on_chunk,
                                const std::stop_token& stop) override {
    return cluster_.watch(request, on_chunk, stop);
  }

 private:
  FakeCluster& cluster_;
};

}  // namespace

FakeCluster::FakeCluster(const Clock& clock) : impl_(std::make_unique<FakeModel>(clock)) {}
FakeCluster::~FakeCluster() = default;

void FakeCluster::set_faults(std::function<std::optional<Fault>(const http::Request&)> decide) {
  const std::lock_guard lock(impl_->faults_mutex);
  impl_->faults = std::move(decide);
}

void FakeCluster::set_observer(std::function<void(const Sight&)> observer) {
  const std::lock_guard lock(impl_->mutex);
  impl_->observer = std::move(observer);
}

void FakeCluster::set_admission(std::function<void(const Resource&, nlohmann::json&)> admit) {
  const std::lock_guard lock(impl_->mutex);
  impl_->admit = std::move(admit);
}

Result<http::Response> FakeCluster::handle(const http::Request& request) {
  std::optional<Fault> fault;
  {
    const std::lock_guard lock(impl_->faults_mutex);
    if (impl_->faults) fault = impl_->faults(request);
  }
  if (fault && fault->status != 0) {
    auto response = status_response({fault->status,
                                     fault->status == 429   ? "TooManyRequests"
                                     : fault->status == 410 ? "Expired"
                                                            : "InternalError",
                                     fault->message.empty() ? "injected fault" : fault->message});
    if (!fault->body.empty()) response.body = fault->body;
    if (fault->retry_after_seconds)
      response.headers.push_back({"Retry-After", std::to_string(*fault->retry_after_seconds)});
    return response;
  }
  http::Response response;
  {
    const std::lock_guard lock(impl_->mutex);
    response = serve(*impl_, request);
  }
  if (fault && fault->drop_after_apply) return std::unexpected(lost(request));
  return response;
}

Result<http::Response> FakeCluster::watch(const http::Request& request,
                                          const http::ChunkHandler& on_chunk,
                                          const std::stop_token& stop) {
  {
    std::optional<Fault> fault;
    {
      const std::lock_guard lock(impl_->faults_mutex);
      if (impl_->faults) fault = impl_->faults(request);
    }
    if (fault && fault->status != 0)
      return status_response(
          {fault->status, fault->status == 410 ? "Expired" : "InternalError", "injected fault"});
    if (fault && fault->drop_after_apply) return std::unexpected(lost(request));
  }
  const auto route = route_of(request.target);
  if (!route) return status_response(route.error());
  const Selector selector{route->parameter("labelSelector"), route->parameter("fieldSelector")};
  std::uint64_t from = 0;
  int seconds = 300;
  const std::string version = route->parameter("resourceVersion");
  const std::string timeout = route->parameter("timeoutSeconds");
  std::from_chars(version.data(), version.data() + version.size(), from);
  std::from_chars(timeout.data(), timeout.data() + timeout.size(), seconds);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  const bool initial_events = route->parameter("sendInitialEvents") == "true";
  if (initial_events && route->parameter("resourceVersionMatch") != "NotOlderThan")
    return status_response(
        {422, "Invalid", "resourceVersionMatch: sendInitialEvents requires NotOlderThan"});
  http::Response ok{200, {{"Content-Type", "application/json"}}, {}};

  std::unique_lock lock(impl_->mutex);
  if (from == 0) {  // no version: the present state first
    std::string state;
    for (const auto& [key, stored] : impl_->collections[route->resource.plural]) {
      const bool here =
          route->ns.empty() || stored.object["metadata"].value("namespace", "") == route->ns;
      if (here && matches(selector, stored.object).value_or(false))
        state += frame("ADDED", *stored.text);
    }
    from = impl_->version;
    if (initial_events) state += bookmark(route->resource, from, true);
    lock.unlock();
    if (!state.empty() && !on_chunk(state)) return ok;
    lock.lock();
  }
  std::uint64_t told = from;
  for (;;) {
    if (from < impl_->compacted) {
      lock.unlock();
      const auto gone =
          status_response({410, "Expired", "too old resource version: " + std::to_string(from)});
      on_chunk(frame("ERROR", gone.body));
      return ok;
    }
    std::string frames;
    const auto first =
        std::ranges::upper_bound(impl_->history, from, {}, &FakeModel::Event::version);
    for (auto event = first; event != impl_->history.end(); ++event) {
      from = event->version;
      if (event->plural != route->resource.plural || (!route->ns.empty() && event->ns != route->ns))
        continue;
      if (const auto type = seen_as(*event, selector)) {
        frames += frame(type_name(*type), *event->object);
        told = from;
      }
    }
    const bool over = stop.stop_requested() || std::chrono::steady_clock::now() >= deadline;
    lock.unlock();
    if (over && told != from) frames += bookmark(route->resource, from, false);
    // An empty chunk checks whether the client is still connected.
    const bool wanted = on_chunk(frames);
    if (stop.stop_requested()) return fail(Code::kCancelled, Origin::kHttp, "stopped");
    if (over || !wanted) return ok;
    lock.lock();
    impl_->changed.wait_for(lock, stop, kHeartbeat,
                            [&] { return impl_->version > from || impl_->compacted > from; });
  }
}

Result<std::vector<FakeCluster::Change>> FakeCluster::changes_since(
    const Resource& resource, std::uint64_t resource_version) const {
  const std::lock_guard lock(impl_->mutex);
  if (resource_version < impl_->compacted) {
    return fail(Code::kGone, Origin::kKube,
                "too old resource version: " + std::to_string(resource_version));
  }
  std::vector<Change> changes;
  const auto first =
      std::ranges::upper_bound(impl_->history, resource_version, {}, &FakeModel::Event::version);
  for (auto event = first; event != impl_->history.end(); ++event) {
    if (event->plural == resource.plural)
      changes.push_back({event->type, event->version, *event->object});
  }
  return changes;
}

std::vector<std::string> FakeCluster::objects(const Resource& resource) const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> all;
  for (const auto& [key, stored] : impl_->collections[resource.plural]) all.push_back(*stored.text);
  return all;
}

std::uint64_t FakeCluster::resource_version() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->version;
}

void FakeCluster::compact() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->compacted = impl_->version;
    impl_->history.clear();
    impl_->snapshots.clear();
  }
  impl_->changed.notify_all();
}

bool FakeCluster::poke(const Resource& resource, std::string_view ns, std::string_view name,
                       std::string_view merge_patch) {
  const std::lock_guard lock(impl_->mutex);
  const auto* stored = impl_->find(resource, ns, name);
  if (stored == nullptr) return false;
  Document object = stored->object;
  object.merge_patch(Document::parse(merge_patch));
  impl_->commit(resource, std::move(object));
  return true;
}

bool FakeCluster::erase(const Resource& resource, std::string_view ns, std::string_view name) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->find(resource, ns, name) == nullptr) return false;
  impl_->erase(resource, ns, name);
  return true;
}

std::size_t FakeCluster::collect_garbage() {
  const std::lock_guard lock(impl_->mutex);
  struct Orphan {
    Resource resource;
    std::string ns, name;
  };
  const auto counted = impl_->counts;
  std::size_t gone = 0;
  for (;;) {
    std::set<std::string> alive;
    for (const auto& [plural, objects] : impl_->collections) {
      for (const auto& [key, stored] : objects)
        alive.insert(stored.object["metadata"].value("uid", ""));
    }
    std::vector<Orphan> orphans;
    for (const auto& [plural, objects] : impl_->collections) {
      for (const auto& [key, stored] : objects) {
        const auto& meta = stored.object["metadata"];
        if (!meta.contains("ownerReferences") || meta["ownerReferences"].empty() ||
            meta.contains("deletionTimestamp"))
          continue;
        const bool owned = std::ranges::any_of(meta["ownerReferences"], [&](const Document& owner) {
          return alive.contains(owner.value("uid", ""));
        });
        if (owned) continue;
        const std::string api_version = stored.object.value("apiVersion", "");
        const auto slash = api_version.find('/');
        const std::string group = slash == std::string::npos ? "" : api_version.substr(0, slash);
        const std::string version =
            slash == std::string::npos ? api_version : api_version.substr(slash + 1);
        if (const auto* resource = find_resource(group, version, plural))
          orphans.push_back({*resource, meta.value("namespace", ""), meta.value("name", "")});
      }
    }
    if (orphans.empty()) break;
    for (const auto& orphan : orphans) {
      if (impl_->remove(orphan.resource, orphan.ns, orphan.name, Document::object(), false)) ++gone;
    }
  }
  impl_->counts = counted;  // only requests are counted
  return gone;
}

FakeCluster::Counts FakeCluster::counts() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->counts;
}

std::shared_ptr<http::HttpTransport> make_fake_transport(FakeCluster& cluster) {
  return std::make_shared<FakeTransport>(cluster);
}

std::shared_ptr<Api> make_fake_api(FakeCluster& cluster) {
  ClientOptions options;
  options.throttle_retries = 0;
  const auto transport = make_fake_transport(cluster);
  return std::make_shared<Client>(transport, transport, nullptr, options);
}

}  // namespace paceline::kube
