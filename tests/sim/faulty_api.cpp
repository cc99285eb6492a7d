// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/faulty_api.hpp"

#include <functional>
#include <optional>

#include <nlohmann/json.hpp>

#include "common/kube/api/object_version.hpp"
#include "operator/render/pod.hpp"

namespace paceline::sim {
namespace {

using Answer = Result<std::string>;
using nlohmann::json;

class FaultyApi final : public kube::Api {
 public:
  FaultyApi(std::shared_ptr<kube::Api> inner, Chaos& chaos)
      : inner_(std::move(inner)), chaos_(chaos) {}

  Answer get(const kube::Resource& r, const std::string& ns, const std::string& name,
             const std::stop_token& stop) override {
    if (auto refused = lacks("get", r, "")) return *refused;
    if (chaos_.chance(chaos_.rates.fail)) return not_now();
    return seen(r, inner_->get(r, ns, name, stop));
  }
  Answer list(const kube::Resource& r, const std::string& ns, const kube::ListOptions& o,
              const std::stop_token& stop) override {
    return inner_->list(r, ns, o, stop);
  }
  Answer create(const kube::Resource& r, const std::string& ns, const std::string& body,
                const kube::WriteOptions& o, const std::stop_token& stop) override {
    if (auto refused = lacks("create", r, "")) return *refused;
    if (o.dry_run) {
      auto answer = inner_->create(r, ns, body, o, stop);
      return answer && chaos_.defect == Defect::kIgnoresAdmission ? body : answer;
    }
    if (r.plural == kube::kPods.plural && chaos_.chance(chaos_.rates.refuse)) {
      ++chaos_.writes;
      chaos_.laws.on_refusal(json::parse(body));
      const bool final = chaos_.defect != Defect::kRetriesRefusals;
      return fail(final ? Code::kForbidden : Code::kUnavailable, Origin::kKube,
                  "simulated: a webhook denied the request", !final);
    }
    auto answer = write([this, r, ns, sent = sent_through(chaos_.defect, r, body), o, stop] {
      return inner_->create(r, ns, sent, o, stop);
    });
    if (!answer && answer.error().message.find("exceeded quota") != std::string::npos &&
        chaos_.quota_is_known && !chaos_.laws.facts().any_placeholder())
      chaos_.laws.report(Law::kQuota, answer.error().message);
    if (answer && chaos_.defect == Defect::kOpensGatesAtOnce && r.plural == kube::kPods.plural) {
      const std::string name = json::parse(*answer)["metadata"]["name"];
      (void)inner_->patch(r, ns, name, render::ungate_patch(json::array()).dump(), {}, stop);
    }
    return answer;
  }
  Answer update(const kube::Resource& r, const std::string& ns, const std::string& name,
                const std::string& body, const kube::WriteOptions& o,
                const std::stop_token& stop) override {
    if (auto refused = lacks("update", r, "")) return *refused;
    return write(
        [this, r, ns, name, body, o, stop] { return inner_->update(r, ns, name, body, o, stop); });
  }
  Answer patch(const kube::Resource& r, const std::string& ns, const std::string& name,
               const std::string& body, const kube::PatchOptions& o,
               const std::stop_token& stop) override {
    if (auto refused = lacks("patch", r, o.subresource)) return *refused;
    if (chaos_.defect == Defect::kLosesStatusWrites && o.subresource == "status" &&
        chaos_.chance(0.3)) {
      auto present = inner_->get(r, ns, name, stop);
      if (!present) return present;
      json object = json::parse(*present);
      object["status"].merge_patch(json::parse(body)["status"]);
      return object.dump();
    }
    constexpr int kStuttered = 30;
    for (int i = 0; chaos_.defect == Defect::kStutters && i < kStuttered; ++i)
      (void)write([&] { return inner_->get(r, ns, name, stop); });
    return seen(r, write([this, r, ns, name, sent = sent_through(chaos_.defect, r, body), o, stop] {
                  return inner_->patch(r, ns, name, sent, o, stop);
                }));
  }
  Answer remove(const kube::Resource& r, const std::string& ns, const std::string& name,
                const kube::DeleteOptions& o, const std::stop_token& stop) override {
    if (auto refused = lacks("delete", r, "")) return *refused;
    if (r.plural != kube::kPods.plural)
      return write([this, r, ns, name, o, stop] { return inner_->remove(r, ns, name, o, stop); });
    kube::DeleteOptions options = o;
    if (chaos_.defect == Defect::kNoUidPrecondition) options.uid.clear();
    if (chaos_.defect == Defect::kAlwaysForces) options.grace_period_seconds = 0;
    if (chaos_.defect == Defect::kLeavesPodsBehind)
      return fail(Code::kNotFound, Origin::kKube, "not found");
    return write([this, r, ns, name, options, stop] {
      // A write that is refused because it is stale does no harm.
      const bool stale =
          !options.resource_version.empty() && stale_version(r, ns, name, options.resource_version);
      // What was right when it was asked for may not be so when it is carried out.
      if (!stale && !chaos_.carries_out_late)
        chaos_.laws.on_delete(name, options.uid, options.grace_period_seconds == 0);
      return inner_->remove(r, ns, name, options, stop);
    });
  }
  Status watch(const kube::Resource& r, const std::string& ns, const kube::WatchOptions& o,
               const kube::WatchHandler& h, const std::stop_token& stop) override {
    return inner_->watch(r, ns, o, h, stop);
  }
  Answer get_raw(const std::string& path, const std::stop_token& stop) override {
    return inner_->get_raw(path, stop);
  }

 private:
  Answer seen(const kube::Resource& r, Answer answer) const {
    if (!answer || chaos_.defect == Defect::kNone) return answer;
    auto object = seen_through(chaos_.defect, r, *answer);
    if (!object) return fail(Code::kNotFound, Origin::kKube, "not found");
    return std::move(*object);
  }

  bool stale_version(const kube::Resource& r, const std::string& ns, const std::string& name,
                     const std::string& version) {
    const auto present = inner_->get(r, ns, name, {});
    return !present || std::to_string(kube::version_of(*present)) != version;
  }

  /// Every error here means "not applied": the server, or a layer before it, refused.
  std::unexpected<Error> not_now() {
    switch (chaos_.pick(4)) {
      case 0:
        return fail(Code::kConflict, Origin::kKube, "simulated: the object has been modified");
      case 1: return fail(Code::kExhausted, Origin::kKube, "simulated: too many requests", true);
      case 2: return fail(Code::kUnavailable, Origin::kKube, "simulated: internal error", true);
      default: return fail(Code::kTimeout, Origin::kKube, "simulated: no answer", true);
    }
  }

  /// The answer to a request that the operator's role does not allow; nullopt if it may.
  std::optional<Answer> lacks(const char* verb, const kube::Resource& r,
                              const std::string& subresource) {
    if (chaos_.forbidden.empty()) return std::nullopt;
    std::string plural(r.plural);
    if (!subresource.empty()) plural += "/" + subresource;
    if (!chaos_.forbidden.contains({verb, plural}) && !chaos_.forbidden.contains({verb, "*"}))
      return std::nullopt;
    // One that asks again at once, and for ever.
    constexpr int kAgain = 300;
    chaos_.refusals += chaos_.defect == Defect::kInsists ? kAgain : 1;
    if (chaos_.defect == Defect::kHidesRefusals)
      return fail(Code::kUnavailable, Origin::kKube, "simulated: something went wrong", true);
    return fail(Code::kForbidden, Origin::kKube,
                "simulated: " + plural + " is forbidden: the operator cannot " + verb + " it");
  }

  Answer write(std::function<Answer()> call) {
    if (chaos_.chance(chaos_.rates.meanwhile)) chaos_.meanwhile();
    ++chaos_.writes;
    const bool due = chaos_.countdown > 0 && --chaos_.countdown == 0;
    if (due && !chaos_.crash_after) throw Crash{};
    if (chaos_.chance(chaos_.rates.crash / 2)) throw Crash{};
    if (chaos_.chance(chaos_.rates.fail)) return not_now();
    if (chaos_.chance(chaos_.rates.late)) {
      chaos_.late.push_back([call = std::move(call)] { (void)call(); });
      return fail(Code::kTimeout, Origin::kKube, "simulated: no answer yet", true);
    }
    chaos_.laws.set_operator_acts(true);
    auto answer = call();
    if (chaos_.chance(chaos_.rates.twice)) answer = call();
    chaos_.laws.set_operator_acts(false);
    if ((due && chaos_.crash_after) || chaos_.chance(chaos_.rates.crash / 2)) throw Crash{};
    if (chaos_.chance(chaos_.rates.lost))
      return fail(chaos_.chance(0.5) ? Code::kTimeout : Code::kUnavailable, Origin::kKube,
                  "simulated: the answer was lost", true);
    return answer;
  }

  std::shared_ptr<kube::Api> inner_;
  Chaos& chaos_;
};

}  // namespace

std::unique_ptr<kube::Api> make_faulty_api(std::shared_ptr<kube::Api> inner, Chaos& chaos) {
  return std::make_unique<FaultyApi>(std::move(inner), chaos);
}

}  // namespace paceline::sim
