// SPDX-License-Identifier: Apache-2.0
#include "agent/report/publisher.hpp"

#include <utility>

#include "agent/report/node_fabric.hpp"
#include "common/base/timestamp.hpp"
#include "common/contract/labels.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

kube::PatchOptions apply(std::string subresource = {}) {
  kube::PatchOptions options;
  options.type = kube::PatchType::kApply;
  options.force = true;  // the agent owns these fields
  options.field_manager = "paceline-agent";
  options.subresource = std::move(subresource);
  return options;
}

Result<json> parse_object(const std::string& body) {
  auto object = json::parse(body, nullptr, false);
  if (!object.is_object())
    return fail(Code::kInvalid, Origin::kProtocol, "the API server's answer is not a JSON object");
  return object;
}

std::string owner_uid(const json& metadata) {
  for (const auto& owner : metadata.value("ownerReferences", json::array())) {
    if (owner.is_object() && owner.value("kind", "") == "Node") return owner.value("uid", "");
  }
  return {};
}

}  // namespace

Status Publisher::read_node(const std::stop_token& stop) {
  auto answer = api_.get(kube::kNodes, "", options_.node_name, stop);
  if (!answer) return std::unexpected(explain(answer.error()));
  auto node = parse_object(*answer);
  if (!node) return std::unexpected(node.error());
  const std::string uid = node->value("metadata", json::object()).value("uid", "");
  if (uid.empty())
    return fail(Code::kInvalid, Origin::kProtocol,
                "Node " + options_.node_name + " has no metadata.uid");
  node_uid_ = uid;
  return {};
}

Status Publisher::read_stored(const std::stop_token& stop) {
  if (auto node = read_node(stop); !node) return node;
  auto answer = api_.get(kube::kNodeFabrics, "", options_.node_name, stop);
  stored_ = nullptr;
  if (answer) {
    auto object = parse_object(*answer);
    if (!object) return std::unexpected(object.error());
    // The object belongs to an earlier Node of this name and will be garbage-collected: apply it
    // again with the current owner.
    if (owner_uid(object->value("metadata", json::object())) == node_uid_)
      stored_ = object->value("status", json::object());
    if (options_.links != nullptr && stored_.is_object())
      options_.links->restore(stored_.value("links", json()));
  } else if (answer.error().code != Code::kNotFound) {
    return std::unexpected(explain(answer.error()));
  }
  read_at_ = clock_.steady();
  return {};
}

Result<bool> Publisher::publish(const Hardware& hardware, const std::vector<Finding>& findings,
                                const std::optional<Summary>& runtime,
                                const std::stop_token& stop) {
  if (!read_at_ || clock_.steady() - *read_at_ >= options_.resync) {
    if (auto read = read_stored(stop); !read) return std::unexpected(read.error());
  }
  json status = fabric_status(hardware, options_.version, findings, runtime);
  if (options_.links != nullptr) {
    if (const auto address = options_.links->address(); !address.empty())
      status["agentAddress"] = address;
    add_links(status, options_.links->latest(clock_.wall()));
  }
  if (!stored_.is_null() && same_fabric(stored_, status)) return false;

  // Until the whole write is confirmed, the next call reads again.
  read_at_.reset();
  json object = fabric_object(options_.node_name, node_uid_);
  if (stored_.is_null()) {
    auto created =
        api_.patch(kube::kNodeFabrics, "", options_.node_name, object.dump(), apply(), stop);
    if (!created) return std::unexpected(explain(created.error()));
  }
  stamp_times(status, stored_, clock_.wall());
  object["metadata"].erase("ownerReferences");
  object["status"] = status;
  auto written =
      api_.patch(kube::kNodeFabrics, "", options_.node_name, object.dump(), apply("status"), stop);
  if (!written) return std::unexpected(explain(written.error()));
  stored_ = std::move(status);
  read_at_ = clock_.steady();
  return true;
}

Status Publisher::renew(const std::stop_token& stop) {
  if (node_uid_.empty()) {
    if (auto node = read_node(stop); !node) return node;
  }
  const std::string name = std::string(contract::kAgentLeasePrefix) + options_.node_name;
  const json lease{
      {"apiVersion", "coordination.k8s.io/v1"},
      {"kind", "Lease"},
      {"metadata",
       {{"name", name},
        {"ownerReferences", json::array({node_owner(options_.node_name, node_uid_)})}}},
      {"spec",
       {{"holderIdentity", options_.holder},
        {"leaseDurationSeconds", options_.lease_duration.count()},
        {"renewTime", format_micro_time(clock_.wall())}}}};
  auto written = api_.patch(kube::kLeases, options_.ns, name, lease.dump(), apply(), stop);
  if (!written) return std::unexpected(explain(written.error()));
  return {};
}

Error Publisher::explain(Error error) const {
  if (error.code == Code::kNotFound) {
    error.message +=
        "; --node-name must be the name of this Node, and the CustomResourceDefinition NodeFabric "
        "must be installed";
  } else if (error.code == Code::kForbidden) {
    error.message +=
        "; the agent writes only the objects of its own node, by the service account that the "
        "chart installs";
  }
  return error;
}

}  // namespace paceline::agent
