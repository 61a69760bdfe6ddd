// Shapes with a size that is known only at run time, and an error that says what to do.
#include <cstdio>

#include "tegula/base/shape.h"

using tegula::Dim;

int main() {
  const Dim batch = Dim::of(/*symbol=*/0, /*bound=*/32);
  const tegula::Type tokens{tegula::DType::kI32, {batch, 64}};
  std::printf("%s takes at most %lld bytes\n", tegula::cat(tokens).c_str(),
              static_cast<long long>(tokens.bytes()));

  const auto halves = tegula::div_exact(tokens.shape[1], 2);
  if (!halves) return 1;
  std::printf("64 in two halves: %s each\n", tegula::cat(*halves).c_str());

  const auto thirds = tegula::div_exact(tokens.shape[1], 3);
  if (thirds) return 1;
  std::printf("in three: %s\n", thirds.error().message.c_str());
  return 0;
}
