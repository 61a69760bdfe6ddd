// Collectives on ranks as threads: the bits of their definition, what they send as planned, adjoint
// to their gradients, and no rank that waits for one that failed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tegula/base/philox.h"
#include "tegula/ir/collective.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/collective.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/rank_group.h"
#include "tegula/runtime/session.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

struct Kind {
  const char* name;
  Var (*call)(Var x, const Group& group);
};
std::vector<int64_t> from_neighbours(const Group& g) {
  std::vector<int64_t> from;
  for (int64_t r = 0; r < g.n_ranks; ++r) from.push_back((r + g.n_ranks - 1) % g.n_ranks);
  return from;
}
// The first sends to the last, nobody else does.
std::vector<int64_t> of_one_pair(const Group& g) {
  std::vector<int64_t> from(static_cast<size_t>(g.n_ranks), -1);
  from.back() = 0;
  return from;
}
const Kind kKinds[] = {
    {"all_reduce", [](Var x, const Group& g) { return all_reduce(x, g); }},
    {"max", [](Var x, const Group& g) { return all_reduce(x, g, Combine::kMax); }},
    {"min", [](Var x, const Group& g) { return all_reduce(x, g, Combine::kMin); }},
    {"all_gather", [](Var x, const Group& g) { return all_gather(x, g, 1); }},
    {"all_gather of parts", [](Var x, const Group& g) { return all_gather(x, g, 1, 2); }},
    {"reduce_scatter", [](Var x, const Group& g) { return reduce_scatter(x, g, 0); }},
    {"reduce_scatter of parts", [](Var x, const Group& g) { return reduce_scatter(x, g, 1, 2); }},
    {"all_to_all", [](Var x, const Group& g) { return all_to_all(x, g, 1, 0); }},
    {"a ring", [](Var x, const Group& g) { return send_recv(x, g, from_neighbours(g)); }},
    {"a pair", [](Var x, const Group& g) { return send_recv(x, g, of_one_pair(g)); }},
    {"broadcast_from", [](Var x, const Group& g) { return broadcast_from(x, g, g.n_ranks / 2); }},
    {"reduce_to", [](Var x, const Group& g) { return reduce_to(x, g, g.n_ranks - 1); }},
    {"scatter_from", [](Var x, const Group& g) { return scatter_from(x, g, g.n_ranks / 2, 1); }},
    {"scatter_from, a run each",
     [](Var x, const Group& g) { return scatter_from(x, g, g.n_ranks - 1, 0); }},
    {"gather_to", [](Var x, const Group& g) { return gather_to(x, g, g.n_ranks - 1, -2); }},
};
// Divided by 2 parts of every number of ranks below; enough elements for several tasks.
const Shape kShape = {48, 96, 3};

HostTensor values(const Type& type, int64_t rank, uint64_t stream) {
  HostTensor t(type);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const double u = philox_uniform(static_cast<uint64_t>(rank), stream, static_cast<uint64_t>(i));
    t.put(i, is_float(type.dtype) ? 2 * u - 1 : std::floor(200 * u) - 100);
  }
  return t;
}

struct Graph {
  std::shared_ptr<Module> module = std::make_shared<Module>();
  FuncId f = kNone;
};
Graph graph_of(const Kind& kind, DType dtype, const Group& group) {
  Graph g;
  Builder b(*g.module, kind.name);
  b.result("y", kind.call(b.param("x", {dtype, kShape}), group));
  g.f = *b.finish_into_module();
  return g;
}

// By the op's own definition.
std::vector<HostTensor> defined(const Graph& g, std::span<const HostTensor> x) {
  const Function& f = (*g.module)[g.f];
  const Node& n = f.nodes[0];
  const auto in = f.input_types(n), out = f.output_types(n);
  const OpCall call{n.op, &n.attrs, in, out, g.module.get(), {}};
  std::vector<HostTensor> y(x.size(), HostTensor(out[0]));
  std::vector<TensorRef> from, to;
  for (const HostTensor& t : x) from.push_back(t.ref());
  for (const HostTensor& t : y) to.push_back(t.ref());
  n.op->collective->reference(call, from, to);
  return y;
}

class Collectives : public ::testing::TestWithParam<int> {};

TEST_P(Collectives, HaveTheBitsOfTheirDefinitionAndSendWhatIsPlanned) {
  const Mesh mesh = {{{"dp", GetParam()}}};
  for (const Kind& kind : kKinds)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
      SCOPED_TRACE(cat(kind.name, " ", dtype_name(dtype)));
      const Graph g = graph_of(kind, dtype, {"dp", GetParam()});
      CompileOptions options;
      options.plan.target = Target::this_cpu(2);
      const auto compiled = compile(g.module, g.f, options);
      ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
      RankGroup group(mesh);
      std::vector<std::unique_ptr<Rank>> ranks;
      std::vector<std::unique_ptr<Session>> sessions;
      std::vector<HostTensor> x;
      for (int64_t r = 0; r < mesh.n_ranks(); ++r) {
        ranks.push_back(std::make_unique<Rank>(2));
        ranks.back()->peers = &group.peers(r);
        ranks.back()->pool.limit_grain(64);
        x.push_back(values({dtype, kShape}, r, 1));
        sessions.push_back(std::move(*Session::create(compiled->plan, *ranks.back())));
      }
      for (size_t r = 0; r < x.size(); ++r)
        ASSERT_TRUE(sessions[r]->bind("x", x[r].ref().data).ok());
      for (int again = 1; again <= 2; ++again) {
        const Status st =
            group.run([&](int64_t r) { return sessions[static_cast<size_t>(r)]->run(); });
        ASSERT_TRUE(st.ok()) << st.error().to_string();
        const auto want = defined(g, x);
        for (int64_t r = 0; r < mesh.n_ranks(); ++r) {
          const TensorRef y = sessions[static_cast<size_t>(r)]->result("y");
          const HostTensor& w = want[static_cast<size_t>(r)];
          ASSERT_EQ(std::memcmp(y.data, w.ref().data, static_cast<size_t>(w.type.bytes())), 0)
              << "rank " << r;
          EXPECT_EQ(group.sent_bytes(r), again * compiled->plan->sent_bytes(mesh, mesh.at(r)));
        }
      }
    }
}

// Over all ranks together: sum of <v, A x> = sum of <A^T v, x>.
TEST_P(Collectives, AreAdjointToTheirGradients) {
  for (const Kind& kind : kKinds) {
    const Group group{"dp", GetParam()};
    const Graph g = graph_of(kind, DType::kF64, group);
    const Function& f = (*g.module)[g.f];
    if (f.nodes[0].attrs.has("combine")) continue;  // a largest one has no gradient
    Graph back;
    Builder b(*back.module, "back");
    const Var y = kind.call(b.param("x", {DType::kF64, kShape}), group);
    const Var v = b.param("v", y.type());
    const OpCall call{f.nodes[0].op, &f.nodes[0].attrs, {}, {}, nullptr, {}};
    const Var in[] = {y}, grad[] = {v};
    Builder only(*back.module, "only");
    const Var w = only.param("v", y.type());
    const Var grads[] = {w};
    only.result("dx", f.nodes[0].op->vjp(only, {&call, in, in, grads})[0]);
    back.f = *only.finish_into_module();
    std::vector<HostTensor> x, cotangents;
    for (int64_t r = 0; r < GetParam(); ++r) {
      x.push_back(values({DType::kF64, kShape}, r, 1));
      cotangents.push_back(values(f.type(f.results[0].value), r, 2));
    }
    const auto ax = defined(g, x), av = defined(back, cotangents);
    double left = 0, right = 0, size = 0;
    for (size_t r = 0; r < x.size(); ++r) {
      for (int64_t i = 0; i < ax[r].numel(); ++i) {
        left += ax[r].at(i) * cotangents[r].at(i);
        size += std::fabs(ax[r].at(i) * cotangents[r].at(i));
      }
      for (int64_t i = 0; i < x[r].numel(); ++i) right += av[r].at(i) * x[r].at(i);
    }
    EXPECT_NEAR(left, right, size * 0x1p-40) << kind.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4, 8));

TEST(RankGroup, NobodyWaitsForARankThatFailed) {
  const Mesh mesh = *mesh_from_text("dp=2,tp=2");
  RankGroup group(mesh);
  TensorRef none;
  for (const int64_t failing : {0, 3}) {
    const Status st = group.run([&](int64_t r) -> Status {
      if (r == failing) return invalid_argument("out of sorts");
      if (group.peers(r).meet("dp", none, none).all.empty()) return io_error("the others are gone");
      if (!group.peers(r).meet("tp")) return io_error("the others are gone");
      return {};
    });
    expect_error(st, Code::kInvalidArgument, {cat("rank ", failing, ": out of sorts")});
  }
  // And all go on together the next time.
  const Status st = group.run([&](int64_t r) -> Status {
    for (int i = 0; i < 100; ++i)
      for (const char* axis : {"dp", "tp"})
        if (group.peers(r).meet(axis, none, none).all.size() != 2 || !group.peers(r).meet(axis))
          return io_error("alone");
    return {};
  });
  EXPECT_TRUE(st.ok());
}

TEST(RankGroup, APlanOfSeveralRanksIsRefusedByOne) {
  const Graph g = graph_of(kKinds[0], DType::kF32, {"dp", 2});
  const auto compiled = compile(g.module, g.f, {});
  ASSERT_TRUE(compiled.ok());
  Rank rank(1);
  auto session = std::move(*Session::create(compiled->plan, rank));
  HostTensor x({DType::kF32, kShape});
  ASSERT_TRUE(session->bind("x", x.ref().data).ok());
  expect_error(session->run(), Code::kInvalidArgument, {"one rank's of several"});
}

}  // namespace
}  // namespace tegula
