// SPDX-License-Identifier: Apache-2.0
#include "operator/api/template/template_shape.hpp"

#include <array>
#include <string_view>

#include "operator/api/object_reader.hpp"
#include "operator/api/template/containers.hpp"

namespace paceline::api {
namespace {

using nlohmann::json;

enum class Shape { kText, kInteger, kObject, kObjects, kTexts, kQuantity, kQuantities };

struct Rule {
  std::string_view path;  // keys below the pod's spec; "*" stands for each element of a list
  Shape shape;
};

constexpr std::array kPodRules{
    Rule{"volumes", Shape::kObjects},
    Rule{"volumes/*/persistentVolumeClaim", Shape::kObject},
    Rule{"volumes/*/persistentVolumeClaim/claimName", Shape::kText},
    Rule{"volumes/*/emptyDir/sizeLimit", Shape::kQuantity},
    Rule{"volumes/*/ephemeral/volumeClaimTemplate/spec/resources/limits", Shape::kQuantities},
    Rule{"volumes/*/ephemeral/volumeClaimTemplate/spec/resources/requests", Shape::kQuantities},
    Rule{"initContainers", Shape::kObjects},
    Rule{"securityContext", Shape::kObject},
    Rule{"nodeSelector", Shape::kTexts},
    Rule{"tolerations", Shape::kObjects},
    Rule{"tolerations/*/key", Shape::kText},
    Rule{"tolerations/*/operator", Shape::kText},
    Rule{"tolerations/*/value", Shape::kText},
    Rule{"tolerations/*/effect", Shape::kText},
    Rule{"affinity", Shape::kObject},
    Rule{"affinity/nodeAffinity", Shape::kObject},
    Rule{"affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution", Shape::kObject},
    Rule{"affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
         Shape::kObjects},
    Rule{"affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/*/"
         "matchFields",
         Shape::kObjects},
    Rule{"affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/*/"
         "matchExpressions",
         Shape::kObjects},
    Rule{"terminationGracePeriodSeconds", Shape::kInteger},
    Rule{"overhead", Shape::kQuantities},
    Rule{"resources", Shape::kObject},
    Rule{"resources/limits", Shape::kQuantities},
    Rule{"resources/requests", Shape::kQuantities},
};

constexpr std::array kContainerRules{
    Rule{"env", Shape::kObjects},
    Rule{"env/*/name", Shape::kText},
    Rule{"env/*/valueFrom/resourceFieldRef/divisor", Shape::kQuantity},
    Rule{"volumeMounts", Shape::kObjects},
    Rule{"terminationMessagePath", Shape::kText},
    Rule{"resources", Shape::kObject},
    Rule{"resources/limits", Shape::kQuantities},
    Rule{"resources/requests", Shape::kQuantities},
};

bool all(const json& list, bool (*holds)(const json&)) {
  for (const json& value : list) {
    if (!holds(value)) return false;
  }
  return true;
}

/// The API server's error about a quantity does not name the field, so it must be found here. It
/// names the field of a negative one.
bool is_quantity(const json& value) {
  if (!value.is_string()) return value.is_number();
  std::string_view text = value.get_ref<const std::string&>();
  constexpr std::string_view kBlanks = " \t\n\r\f\v";  // the API server strips them
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return false;
  text = text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
  if (text.starts_with('-')) text.remove_prefix(1);
  return api::parse_quantity_text(text).has_value();
}

bool has(const json& value, Shape shape) {
  switch (shape) {
    case Shape::kText: return value.is_string();
    case Shape::kInteger: return value.is_number_integer();
    case Shape::kObject: return value.is_object();
    case Shape::kObjects:
      return value.is_array() && all(value, [](const json& v) { return v.is_object(); });
    case Shape::kTexts:
      return value.is_object() && all(value, [](const json& v) { return v.is_string(); });
    case Shape::kQuantity: return is_quantity(value);
    case Shape::kQuantities: return value.is_object();
  }
  return false;
}

FieldError wrong(Shape shape, std::string path, const json& value) {
  const auto error = [&](const char* problem, const char* remedy) {
    return FieldError{std::move(path), shown(value), problem, remedy};
  };
  switch (shape) {
    case Shape::kText: return error("is not a string", "put it in quotes");
    case Shape::kInteger: return error("is not a whole number", "write a number without quotes");
    case Shape::kObject: return error("is not an object", "write key: value pairs");
    case Shape::kObjects: return error("is not a list of objects", "write a list of - key: value");
    case Shape::kTexts:
      return error("is not an object of strings", "write key: value pairs, and quote the values");
    case Shape::kQuantity: return error("is not a quantity", "write for example 500m, 2 or 64Gi");
    case Shape::kQuantities:
      return error("is not an object of quantities", "write pairs such as cpu: \"2\"");
  }
  return error("has a wrong type", "remove it");
}

void check(const json& value, std::string_view rest, Shape shape, const std::string& path,
           FieldErrors& errors) {
  if (value.is_null()) return;
  if (rest.empty()) {
    if (!has(value, shape)) {
      errors.push_back(wrong(shape, path, value));
    } else if (shape == Shape::kQuantities) {
      for (const auto& [name, amount] : value.items()) {
        if (!is_quantity(amount))
          errors.push_back(wrong(Shape::kQuantity, path + "[" + name + "]", amount));
      }
    }
    return;
  }
  const std::size_t slash = rest.find('/');
  const std::string key(rest.substr(0, slash));
  rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  if (key == "*") {
    for (std::size_t i = 0; value.is_array() && i < value.size(); ++i)
      check(value[i], rest, shape, path + "[" + std::to_string(i) + "]", errors);
  } else if (value.is_object()) {
    // A parent of a wrong type has a rule of its own.
    if (const auto it = value.find(key); it != value.end())
      check(*it, rest, shape, path + "." + key, errors);
  }
}

}  // namespace

void check_template_shape(const json& pod_spec, const std::string& path, FieldErrors& errors) {
  for (const Rule& rule : kPodRules) check(pod_spec, rule.path, rule.shape, path, errors);
  for (const std::string list : {"containers/*/", "initContainers/*/"}) {
    for (const Rule& rule : kContainerRules)
      check(pod_spec, list + std::string(rule.path), rule.shape, path, errors);
  }
}

}  // namespace paceline::api
