// Tests what mode exact promises, op by op, before anything is sent: the bits of one rank whatever
// is cut. Every op of the table is cut along every factor of its dims, and along every pair of
// those that it sums over, into 2, 4 and 8; its own kernels run on the parts; the parts are joined
// in the tree; and the bits are those of the op run whole. A new op is covered by its dims.
//
// A factor is tried as the samples have it, and with at least 8 blocks of its kernels and one more.
// An op that does not keep its bits stands in kNotCut with the reason, and `shard` must not cut it.
// An entry that keeps its bits fails, so that the list stays true.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tegula/ir/regions.h"
#include "tegula/kernels/kernel.h"
#include "tegula/kernels/target.h"
#include "tegula/ops/table.h"
#include "tegula/passes/local_call.h"
#include "tests/ops/enlarged.h"
#include "tests/ops/exact_parts.h"
#include "tests/ops/parts.h"

namespace tegula::testing {
namespace {

// Why a factor is not cut in mode exact: `shard` gathers what lies in shares of it, or cuts the op
// along another.
constexpr std::string_view kInner =
    "a sum has shards along dims 0 and 1 of its first operand alone";
constexpr std::string_view kAll = "a sum of all elements is one of integers: these are what is cut";
constexpr std::string_view kByLse =
    "a softmax is one chain over blocks of keys, or of the vocabulary";
constexpr std::string_view kHeads = "attention is cut along batch and key heads, with their group";
constexpr std::string_view kLowered = "no kernel runs it: its simpler ops are what is cut";
constexpr std::string_view kOne =
    "a dim of one element is none: what is summed around it is one row";

struct NotCut {
  std::string_view op, sample, factor, why;  // sample "": any; factor "a b": the pair
};
constexpr NotCut kNotCut[] = {
    {"attention", "", "sk", kByLse},
    {"attention_bwd", "", "sk", kHeads},
    {"attention_bwd", "", "sq", kHeads},
    {"attention_bwd", "", "g", kHeads},
    {"attention_bwd", "bias for all heads", "hk", "the gradient of a bias that all heads share"},
    {"conv", "", "c", kLowered},
    {"conv", "", "k0", kLowered},
    {"conv", "", "k1", kLowered},
    {"conv", "", "k2", kLowered},
    {"conv_bwd_data", "", "d", kLowered},
    {"conv_bwd_filter", "", "n", kLowered},
    {"conv_bwd_filter", "", "o0", kLowered},
    {"conv_bwd_filter", "", "o1", kLowered},
    {"expert_combine", "", "e", kLowered},
    {"expert_combine", "", "cap", kLowered},
    {"expert_combine", "", "k", kLowered},
    {"expert_combine_bwd", "", "d", kLowered},
    {"expert_combine_bwd", "", "k", kLowered},
    {"expert_combine_bwd", "", "t", kLowered},
    {"linear_cross_entropy", "", "v", kByLse},
    {"linear_cross_entropy_bwd", "", "v", "each row of logits is one chain over the vocabulary"},
    {"linear_cross_entropy_grads", "transposed", "...0", kLowered},
    {"logsumexp", "", "d", kByLse},
    {"reduce_prod", "two", "d1", kOne},
    {"reduce_prod", "middle", "d2", kOne},
    {"reduce_sum", "middle", "d1", kInner},
    {"reduce_sum", "all", "d0", kAll},
    {"reduce_sum", "all", "d1", kAll},
    {"reduce_sum", "two", "d1", kOne},
    {"reduce_sum", "", "d2", kInner},
    {"scatter", "", "i0", kInner},
    {"scatter", "", "i1", kInner},
};

// Elements of a factor that a kernel takes at a time, at most.
int64_t block_of(const OpDef& op, bool is_summed) {
  const bool has_tiles = Target::this_cpu(1).isa == Isa::kAmx;
  if (op.group == "attention" && !has_tiles) return 64;
  if (!is_summed) return 64;
  return op.name == "dot" ? 2048 : 512;
}

bool is_summed(const DimMap& m, size_t factor) {
  for (Combine how : m.combine[factor])
    if (how != Combine::kFree && how != Combine::kEqual) return true;
  return false;
}

// Where it stands in operand 0: what varies slowest is the outer part of a sum.
int depth_of(const DimMap& m, size_t factor) {
  int depth = 0;
  for (const DimExpr& e : m.operands[0])
    for (const DimTerm& t : e.terms) {
      if (t.factor == factor) return depth;
      ++depth;
    }
  return depth;
}

class ExactCuts : public ::testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& op_ = *GetParam();
  std::set<const NotCut*> failed_;           // entries that did differ
  std::map<std::string, bool> tried_large_;  // factors; was any of its samples enlarged?

  std::set<std::string> tried_pairs_;  // of one sample each

  static const NotCut* find(std::string_view sample, std::string_view factor) {
    for (const NotCut& n : kNotCut)
      if (n.op == GetParam()->name && n.factor == factor &&
          (n.sample.empty() || n.sample == sample))
        return &n;
    return nullptr;
  }

  void try_cut(const Case& c, const ExactCase& exact, std::span<const Cut> cuts,
               const std::string& factors) {
    const auto differs = exact.differs(cuts);
    const std::string why = differs.ok() ? *differs : differs.error().message;
    if (why.empty()) return;
    std::string text = cat(c.name(), ", ", c.in[0], ", factor ", factors, " in");
    for (const Cut& cut : cuts) append(text, cat(" ", cut.n));
    const NotCut* entry = find(c.sample.name, factors);
    if (!entry || !differs.ok()) {  // what cannot be tried says nothing of bits
      ADD_FAILURE() << text << ": " << why;
      return;
    }
    failed_.insert(entry);
    if (cuts.size() > 1) return;
    const auto is_cut = exact.is_cut_by_shard(cuts[0]);
    EXPECT_TRUE(is_cut.ok() && !*is_cut) << text << ": shard cuts it, and " << why;
  }

  // fn(the case, run whole), in f32 and, where the op takes it, in bf16.
  template <class F>
  void in_both_dtypes(const Sample& sample, F&& fn) {
    const Case c = make_case(op_, sample, 1);
    const auto run = [&](const Case& x) {
      const auto exact = ExactCase::create(x);
      ASSERT_TRUE(exact.ok()) << x.name() << ": " << exact.error().message;
      fn(x, *exact);
    };
    run(c);
    if (const auto narrow = in_dtype(c, DType::kBF16)) run(*narrow);
  }

  void try_factor(const Sample& sample, size_t factor, std::initializer_list<int64_t> parts) {
    in_both_dtypes(sample, [&](const Case& c, const ExactCase& exact) {
      const Factor& f = exact.map().factors[factor];
      for (const int64_t n : parts) {
        const Cut cut{static_cast<int>(factor), n};
        if (f.size.bound() >= n && exact.may_be_shards(cut)) try_cut(c, exact, {&cut, 1}, f.name);
      }
    });
  }

  // The sample as it is, which has parts of one element, then with a few and with many blocks.
  void try_factor(const Sample& sample, const DimMap& map, size_t factor) {
    const bool sums = is_summed(map, factor);
    const int64_t most = &op_ == &dot_op ? 1 << 19 : 1 << 14;  // elements of a tensor
    if (!sums) try_factor(sample, factor, {2, 4, 8});
    const auto large = [&](int64_t size, std::initializer_list<int64_t> parts) {
      const auto s = enlarged_all(op_, sample, static_cast<int>(factor), size, 24, most);
      tried_large_[map.factors[factor].name] |= s.has_value();
      if (s) try_factor(*s, factor, parts);
    };
    if (!sums) large(33, {8});
    // A summed dim has a whole number of shards.
    large(8 * block_of(op_, sums) + (sums ? 8 : 1), {2, 4, 8});
  }

  void try_pair(const Sample& sample, const DimMap& map, size_t f, size_t g) {
    if (depth_of(map, f) > depth_of(map, g)) std::swap(f, g);
    const std::string &outer = map.factors[f].name, &inner = map.factors[g].name;
    const std::string pair = cat(outer, " ", inner);
    if (find(sample.name, outer) || find(sample.name, inner) || tried_pairs_.count(pair)) return;
    const auto size = [&](size_t x) -> int64_t { return is_summed(map, x) ? 520 : 65; };
    const auto one = enlarged(op_, sample, static_cast<int>(f), size(f));
    const auto both = one ? enlarged(op_, *one, static_cast<int>(g), size(g)) : std::nullopt;
    if (!both) return;
    tried_pairs_.insert(pair);
    in_both_dtypes(*both, [&](const Case& c, const ExactCase& exact) {
      for (const auto& [n, m] : {std::pair<int64_t, int64_t>{2, 4}, {4, 2}, {8, 8}}) {
        const Cut cuts[] = {{static_cast<int>(f), n}, {static_cast<int>(g), m}};
        if (exact.may_be_shards(cuts[0]) && exact.may_be_shards(cuts[1]))
          try_cut(c, exact, cuts, pair);
      }
    });
  }
};

TEST_P(ExactCuts, KeepTheBits) {
  for (const Sample& sample : op_.samples()) {
    if (!sample.expect_error.empty() || sample.regions) continue;
    const auto map = dim_map(make_case(op_, sample, 1).call());
    ASSERT_TRUE(map.ok()) << map.error().message;
    std::vector<size_t> factors;
    for (size_t f = 0; f < map->factors.size(); ++f)
      if (is_cuttable(*map, f) && map->factors[f].ragged_by < 0) factors.push_back(f);
    for (const size_t f : factors) try_factor(sample, *map, f);
    for (const size_t f : factors)
      for (const size_t g : factors)
        if (f < g && (is_summed(*map, f) || is_summed(*map, g))) try_pair(sample, *map, f, g);
  }
  // AMX's kernel of this op keeps the bits of one cut.
  const bool has_all = machine_isa() == Isa::kAmx && op_.name == "linear_cross_entropy_grads";
  for (const NotCut& n : kNotCut)
    EXPECT_TRUE(has_all || n.op != op_.name || failed_.count(&n))
        << n.op << " " << n.sample << ", factor " << n.factor
        << ": keeps its bits, so take it off the list";
  for (const auto& [factor, is_large] : tried_large_)
    EXPECT_TRUE(is_large ||
                (op_.name == "constant" && factor == "n"))  // its values are written out
        << op_.name << ", factor " << factor << ": no sample of it could be made large";
}

std::vector<const OpDef*> ops_on_one_rank() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : all_ops())
    if (op->samples && !op->collective && !has_bodies(*op)) ops.push_back(op);
  return ops;
}

INSTANTIATE_TEST_SUITE_P(Ops, ExactCuts, ::testing::ValuesIn(ops_on_one_rank()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace tegula::testing
