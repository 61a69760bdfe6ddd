#include "tegula/plan/places.h"

#include <gtest/gtest.h>

namespace tegula {
namespace {

TEST(Places, NamesOfScopes) {
  EXPECT_EQ(layer_of("layers.3.attn"), "layer 3");
  EXPECT_EQ(layer_of("layers.12"), "layer 12");
  EXPECT_EQ(layer_of("head"), "head");
  EXPECT_EQ(layer_of("head.norm"), "head");
  EXPECT_EQ(layer_of(""), "other");

  EXPECT_EQ(place_in_layers("layers.3.attn"), "layers.*.attn");
  EXPECT_EQ(place_in_layers("layers.12.mlp.experts"), "layers.*.mlp.experts");
  EXPECT_EQ(place_in_layers("layers.0"), "layers.*");
  EXPECT_EQ(place_in_layers("embedding"), "embedding");
  EXPECT_EQ(place_in_layers(""), "other");
}

}  // namespace
}  // namespace tegula
