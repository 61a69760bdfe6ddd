// Random programs on random layouts: the kernel gives the reference's bits.
#include "tests/tile/random_program.h"

namespace tegula::tile {
namespace {

void run_one(uint64_t seed, int64_t max_inner) {
  Rng rng(seed);
  const int rank = static_cast<int>(pick(rng, 0, 4));
  const int n_inner =
      rank == 0 || pick(rng, 0, 1) ? 0 : static_cast<int>(pick(rng, 1, std::min(rank, 2)));
  const Result<Program> p =
      RandomProgram(rng, rank, n_inner, static_cast<int>(pick(rng, 0, 14))).finish();
  ASSERT_TRUE(p.ok()) << p.error().message;
  const Result<Program> again = parse(to_text(*p));
  ASSERT_TRUE(again.ok()) << again.error().message;
  ASSERT_TRUE(*again == *p);

  const std::vector<int64_t> shape = random_shape(rng, rank, n_inner, max_inner);
  const auto shape_for = [&](Extent e) {
    std::vector<int64_t> s = shape;
    if (e == Extent::kRow) std::fill(s.end() - n_inner, s.end(), 1);
    if (e == Extent::kUniform) s.clear();
    return s;
  };
  // 0: the reference; 1 and 2: the kernel, with its own inputs, for an output may lie on one.
  std::vector<Tensor> in[3], out[3];
  for (const Operand& o : p->inputs) {
    in[0].emplace_back(o.dtype, shape_for(o.extent), static_cast<Layout>(pick(rng, 0, 4)));
    in[0].back().fill(rng, -2, 2, true);
  }
  in[1] = in[0], in[2] = in[0];
  std::vector<size_t> lies_on(p->outputs.size(), p->inputs.size());
  std::vector<bool> taken(p->inputs.size(), false);
  for (size_t k = 0; k < p->outputs.size(); ++k) {
    const Operand& o = p->outputs[k];
    const auto layout = static_cast<Layout>(pick(rng, 0, 3));
    for (auto& list : out) list.emplace_back(o.dtype, shape_for(o.extent), layout);
    const auto i = static_cast<size_t>(pick(rng, 0, static_cast<int64_t>(p->inputs.size()) - 1));
    if (!taken[i] && p->inputs[i] == o && in[0][i].is_one_to_one()) lies_on[k] = i, taken[i] = true;
  }
  std::vector<TensorRef> in_refs[3], out_refs[3];
  for (size_t t = 0; t < 3; ++t) {
    for (const Tensor& i : in[t]) in_refs[t].push_back(i.ref());
    for (size_t k = 0; k < out[t].size(); ++k)
      out_refs[t].push_back(t > 0 && lies_on[k] < in[t].size() ? in_refs[t][lies_on[k]]
                                                               : out[t][k].ref());
  }

  ASSERT_TRUE(run_reference(*p, in_refs[0], out_refs[0]).ok());
  const Counts one = run_kernel(*p, in_refs[1], out_refs[1], 1);
  const Counts three = run_kernel(*p, in_refs[2], out_refs[2], 3);
  std::string text = to_text(*p);
  for (int64_t d : shape) append(text, cat(" ", d));
  for (size_t t = 1; t < 3; ++t)
    for (size_t k = 0; k < out[0].size(); ++k) {
      const bool in_place = lies_on[k] < in[t].size();
      const Tensor& got = in_place ? in[t][lies_on[k]] : out[t][k];
      ASSERT_TRUE(in_place ? same_values(got, out[0][k]) : same_bits(got, out[0][k]))
          << "seed " << seed << ", run " << t << ", out" << k << (in_place ? " in place" : "")
          << "\n"
          << text;
    }
  EXPECT_EQ(one.math, flops(*p, shape)) << text;
  EXPECT_EQ(three.math, one.math);
  EXPECT_GE(one.executed, one.math);
}

TEST(TileRandom, SmallShapes) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    run_one(seed, 300);
    if (HasFatalFailure()) return;
  }
}

// Rows past the tile, and past what is kept between phases.
TEST(TileRandom, LongRows) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    run_one(1000000 + seed, 40000);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tegula::tile
