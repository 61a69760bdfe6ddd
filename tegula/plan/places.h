// Names of the parts of a model, from the scopes of a plan's steps ("layers.3.attn"): what sums of
// FLOPs, bytes and times stand under.
#pragma once

#include <string>
#include <string_view>

namespace tegula {

// "layer 3" of "layers.3.attn"; "embedding", "head"; what stands nowhere (the gradient's norm) is
// "other".
std::string layer_of(std::string_view scope);

// The same place in any layer: "layers.*.attn". What is alike in all layers is summed under it.
std::string place_in_layers(std::string_view scope);

}  // namespace tegula
