#include "tegula/plan/places.h"

#include "tegula/base/str.h"

namespace tegula {

namespace {
constexpr std::string_view kLayers = "layers.", kNowhere = "other";
}

std::string layer_of(std::string_view scope) {
  if (scope.empty()) return std::string(kNowhere);
  if (!scope.starts_with(kLayers)) return std::string(scope.substr(0, scope.find('.')));
  scope.remove_prefix(kLayers.size());
  return cat("layer ", scope.substr(0, scope.find('.')));
}

std::string place_in_layers(std::string_view scope) {
  if (scope.empty()) return std::string(kNowhere);
  if (!scope.starts_with(kLayers)) return std::string(scope);
  const size_t end = scope.find('.', kLayers.size());
  return cat(kLayers, "*", end == scope.npos ? "" : scope.substr(end));
}

}  // namespace tegula
