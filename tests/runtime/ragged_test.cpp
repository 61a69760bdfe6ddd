// all_to_all_ragged on ranks as threads: what is filled of each row arrives, nothing else is sent.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tegula/base/philox.h"
#include "tegula/ir/collective.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/collective.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/session.h"

namespace tegula {
namespace {

// x [experts 24, shards 2, m 5] of each rank; experts are shared out, shards laid side by side.
constexpr int64_t kExperts = 24, kShards = 2, kRow = 5;

struct Case {
  int64_t n = 1;
  DType dtype = DType::kF32;
  std::vector<HostTensor> x, sent, received;
  int64_t share() const { return kExperts / n; }
  Type type_of_x() const { return {dtype, {kExperts, kShards, kRow}}; }
  Type type_of_y() const { return {dtype, {share(), n * kShards, kRow}}; }

  Case(int64_t n_ranks, DType t) : n(n_ranks), dtype(t) {
    for (int64_t r = 0; r < n; ++r) {
      x.emplace_back(type_of_x());
      sent.emplace_back(Type{DType::kI32, {kExperts, kShards}});
      received.emplace_back(Type{DType::kI32, {share(), n * kShards}});
      for (int64_t i = 0; i < x.back().numel(); ++i) x.back().put(i, draw(r, 1, i) * 8 - 4);
      for (int64_t i = 0; i < sent.back().numel(); ++i)
        sent.back().put(i, std::floor(draw(r, 2, i) * (kRow + 1)));
    }
    for (int64_t r = 0; r < n; ++r)
      for (int64_t e = 0; e < share(); ++e)
        for (int64_t s = 0; s < n * kShards; ++s)
          received[at(r)].put(e * n * kShards + s,
                              length(s / kShards, r * share() + e, s % kShards));
  }
  static size_t at(int64_t r) { return static_cast<size_t>(r); }
  static double draw(int64_t rank, uint64_t stream, int64_t i) {
    return philox_uniform(static_cast<uint64_t>(rank), stream, static_cast<uint64_t>(i));
  }
  double length(int64_t rank, int64_t e, int64_t s) const {
    return sent[at(rank)].at(e * kShards + s);
  }
  // Element j of rank r's row (e, s), said apart from the op.
  double wanted(int64_t r, int64_t e, int64_t s, int64_t j) const {
    const int64_t giver = s / kShards, row = (r * share() + e) * kShards + s % kShards;
    return static_cast<double>(j) < sent[at(giver)].at(row) ? x[at(giver)].at(row * kRow + j) : 0;
  }
  int64_t sent_elements(int64_t r) const {
    int64_t all = 0;
    for (int64_t e = 0; e < kExperts; ++e)
      for (int64_t s = 0; s < kShards; ++s)
        if (e / share() != r) all += static_cast<int64_t>(length(r, e, s));
    return all;
  }
};

Var call(Builder& b, const Case& c, bool in_background) {
  const Group g{"ep", c.n, in_background};
  const Var x = b.param("x", c.type_of_x());
  const Var sent = b.param("sent", c.sent[0].type),
            received = b.param("received", c.received[0].type);
  return all_to_all_ragged(x, sent, received, g, 0, 1);
}

class Ragged : public ::testing::TestWithParam<int> {};

TEST_P(Ragged, WhatIsFilledArrivesAndNothingElseIsSent) {
  const Mesh mesh = {{{"ep", GetParam()}}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
    const Case c(GetParam(), dtype);
    auto module = std::make_shared<Module>();
    Builder b(*module, "ragged");
    b.result("y", call(b, c, false));
    const FuncId f = *b.finish_into_module();
    CompileOptions options;
    options.plan.target = Target::this_cpu(2);
    const auto compiled = compile(module, f, options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    RankGroup group(mesh);
    std::vector<std::unique_ptr<Rank>> ranks;
    std::vector<std::unique_ptr<Session>> sessions;
    for (size_t r = 0; r < c.x.size(); ++r) {
      ranks.push_back(std::make_unique<Rank>(2));
      ranks.back()->peers = &group.peers(static_cast<int64_t>(r));
      sessions.push_back(std::move(*Session::create(compiled->plan, *ranks.back())));
      ASSERT_TRUE(sessions[r]->bind("x", c.x[r].ref().data).ok());
      ASSERT_TRUE(sessions[r]->bind("sent", c.sent[r].ref().data).ok());
      ASSERT_TRUE(sessions[r]->bind("received", c.received[r].ref().data).ok());
    }
    const Status st = group.run([&](int64_t r) { return sessions[Case::at(r)]->run(); });
    ASSERT_TRUE(st.ok()) << st.error().to_string();
    // The op's definition, on all ranks together.
    const Node& n = (*module)[f].nodes[0];
    const auto in = (*module)[f].input_types(n), out = (*module)[f].output_types(n);
    std::vector<HostTensor> defined(c.x.size(), HostTensor(c.type_of_y()));
    std::vector<TensorRef> from, to;
    for (size_t r = 0; r < c.x.size(); ++r) {
      for (const HostTensor* t : {&c.x[r], &c.sent[r], &c.received[r]}) from.push_back(t->ref());
      to.push_back(defined[r].ref());
    }
    n.op->collective->reference({n.op, &n.attrs, in, out, module.get(), {}}, from, to);
    for (int64_t r = 0; r < c.n; ++r) {
      const TensorRef y = sessions[Case::at(r)]->result("y");
      const HostTensor& d = defined[Case::at(r)];
      EXPECT_EQ(std::memcmp(y.data, d.ref().data, static_cast<size_t>(d.type.bytes())), 0) << r;
      for (int64_t e = 0, i = 0; e < c.share(); ++e)
        for (int64_t s = 0; s < c.n * kShards; ++s)
          for (int64_t j = 0; j < kRow; ++j, ++i) ASSERT_EQ(d.at(i), c.wanted(r, e, s, j)) << r;
      EXPECT_EQ(group.sent_bytes(r), c.sent_elements(r) * size_bytes(dtype));
      const int64_t most = compiled->plan->sent_bytes(mesh, mesh.at(r));
      EXPECT_EQ(most, (kExperts - c.share()) * kShards * kRow * size_bytes(dtype));
      if (c.n > 1) EXPECT_LT(group.sent_bytes(r), most);
    }
  }
}

// Over all ranks: sum of <v, A x> = sum of <A^T v, x>.
TEST_P(Ragged, IsAdjointToItsGradient) {
  const Case c(GetParam(), DType::kF64);
  Module module;
  Builder b(module, "ragged");
  const Var y = call(b, c, false);
  const Function& f = b.function();
  const Node& n = *f.producer(y.id());
  Builder back(module, "back");
  const Var v = back.param("v", c.type_of_y());
  const Var lengths[] = {back.param("x", c.type_of_x()), back.param("sent", c.sent[0].type),
                         back.param("received", c.received[0].type)};
  const OpCall none{n.op, &n.attrs, {}, {}, nullptr, {}};
  const Var outs[] = {v}, grads[] = {v};
  const Var dx = n.op->vjp(back, {&none, lengths, outs, grads})[0];
  const Node& t = *back.function().producer(dx.id());
  ASSERT_EQ(dx.type(), c.type_of_x());
  const Type of_lengths[] = {c.sent[0].type, c.received[0].type};
  double left = 0, right = 0, size = 0;
  std::vector<HostTensor> ax(c.x.size(), HostTensor(c.type_of_y())),
      w(c.x.size(), HostTensor(c.type_of_y())), aw(c.x.size(), HostTensor(c.type_of_x()));
  std::vector<TensorRef> from, to, from_w, to_w;
  for (size_t r = 0; r < c.x.size(); ++r) {
    for (int64_t i = 0; i < w[r].numel(); ++i)
      w[r].put(i, Case::draw(static_cast<int64_t>(r), 3, i) - .5);
    for (const HostTensor* h : {&c.x[r], &c.sent[r], &c.received[r]}) from.push_back(h->ref());
    from_w.push_back(w[r].ref());
    for (const HostTensor* h : {&c.received[r], &c.sent[r]}) from_w.push_back(h->ref());
    to.push_back(ax[r].ref()), to_w.push_back(aw[r].ref());
  }
  const Type in[] = {c.type_of_x(), of_lengths[0], of_lengths[1]}, out[] = {c.type_of_y()};
  const Type in_w[] = {c.type_of_y(), of_lengths[1], of_lengths[0]}, out_w[] = {c.type_of_x()};
  n.op->collective->reference({n.op, &n.attrs, in, out, &module, {}}, from, to);
  t.op->collective->reference({t.op, &t.attrs, in_w, out_w, &module, {}}, from_w, to_w);
  for (size_t r = 0; r < c.x.size(); ++r) {
    for (int64_t i = 0; i < ax[r].numel(); ++i)
      left += ax[r].at(i) * w[r].at(i), size += std::abs(ax[r].at(i) * w[r].at(i));
    for (int64_t i = 0; i < aw[r].numel(); ++i) right += aw[r].at(i) * c.x[r].at(i);
  }
  EXPECT_NEAR(left, right, size * 0x1p-40);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Ragged, ::testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace tegula
