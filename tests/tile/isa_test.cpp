// Every loop of the interpreter gives the same bits on every instruction set, and a pair those of
// its two halves.
#include <cstring>

#include "tegula/base/integer.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/cpu/isa/tile_vm.h"
#include "tests/tile/harness.h"

namespace tegula::tile {
namespace {

using kernel::isa_table_of;
using kernel::IsaTable;
using kernel::TileFn;
using kernel::TileOp;

constexpr int64_t kRows = 5, kN = 48, kPitch = 48;

struct Registers {
  alignas(64) char source[kMaxSources][kRows * kPitch * 8];
  alignas(64) char dst[kRows * kPitch * 8];
};

void fill(char* data, DType dtype, Rng& rng) {
  const double inf = HUGE_VAL;
  const double specials[] = {0.0, -0.0, 1, -1, inf, -inf, std::nan(""), 1e30, 5e6, 3e9, -2e5};
  for (int64_t k = 0; k < kRows * kPitch; ++k) {
    double v = std::uniform_real_distribution<double>(-9, 9)(rng);
    if (pick(rng, 0, 5) == 0) v = specials[pick(rng, 0, 10)];
    if (dtype == DType::kBool) v = static_cast<double>(pick(rng, 0, 1));
    switch (class_of(dtype)) {
      case Class::kF32:
        reinterpret_cast<float*>(data)[k] = static_cast<float>(v);
        break;
      case Class::kF64:
        reinterpret_cast<double*>(data)[k] = v;
        break;
      case Class::kI64: {
        auto& i = reinterpret_cast<int64_t*>(data)[k];
        i = v == v && std::fabs(v) < 1e18 ? static_cast<int64_t>(v)
                                          : pick(rng, INT64_MIN, INT64_MAX);
      }
    }
  }
}

// Runs one loop on one instruction set; false where it has none.
bool run(const IsaTable& table, const MicroOp& m, unsigned scalars, Registers& r, bool by_row) {
  TileFn fn = nullptr;
  table.tile_lookup({&m, scalars, &fn});
  if (!fn) return false;
  TileOp o;
  o.op = m.op, o.dtype = m.dtype, o.src_dtype = m.src_dtype, o.imm = m.imm, o.value = m.value;
  o.scalars = scalars;
  o.rows = by_row ? kRows : 1, o.n = by_row ? kN : kRows * kPitch, o.pitch = kPitch;
  if (m.reduction >= 0) o.n = kN - 5;
  for (int k = 0; k < kMaxSources; ++k)
    o.src[k] = r.source[k], o.row_step[k] = scalars >> k & 1 ? 1 : kPitch;
  o.dst = r.dst;
  o.linear = 1000003, o.linear_step = 77, o.iota_weight = 5, o.iota_extent = 11;
  std::memset(r.dst, 0, sizeof r.dst);
  ThreadPool(1).parallel_for(1, [&](int64_t, int) { fn(o); });  // flushes denormals
  return true;
}

// NaNs equal each other, whatever their payloads.
bool same(const Registers& a, const Registers& b, DType dtype) {
  for (int64_t k = 0; k < kRows * kPitch; ++k) {
    if (class_of(dtype) == Class::kF32) {
      const float x = reinterpret_cast<const float*>(a.dst)[k],
                  y = reinterpret_cast<const float*>(b.dst)[k];
      if (std::memcmp(&x, &y, 4) != 0 && !(x != x && y != y)) return false;
    } else {
      double x, y;
      std::memcpy(&x, a.dst + k * 8, 8), std::memcpy(&y, b.dst + k * 8, 8);
      const bool nan = class_of(dtype) == Class::kF64 && x != x && y != y;
      if (std::memcmp(&x, &y, 8) != 0 && !nan) return false;
    }
  }
  return true;
}

std::vector<const IsaTable*> tables() {
  std::vector<const IsaTable*> out;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx})
    if (const IsaTable* t = isa_table_of(isa)) out.push_back(t);
  return out;
}

// Every instruction that the verifier would allow, for these dtypes.
std::vector<MicroOp> all_micro_ops() {
  std::vector<MicroOp> out;
  for (int k = 0; k < kNumOps; ++k) {
    MicroOp m;
    m.op = static_cast<Op>(k);
    const OpInfo& info = op_info(m.op);
    if (info.kind == Kind::kMemory) continue;
    for (const DType t : kAllDTypes) {
      m.dtype = m.src_dtype = t, m.imm = 7, m.value = 0.3;
      const bool is_index = m.op == Op::kIota || m.op == Op::kIndex;
      if (is_index && class_of(t) != Class::kI64) continue;
      if (m.op == Op::kRandomUniform && t != DType::kF32) continue;
      if (info.kind == Kind::kCompare) m.dtype = DType::kBool;
      if (info.kind == Kind::kLogical && t != DType::kBool) continue;
      if ((info.kind == Kind::kArithmetic || info.kind == Kind::kReduce) && !info.takes_ints &&
          !is_float(t))
        continue;
      if (!info.takes_floats && is_float(t)) continue;
      if (m.op == Op::kRandomUniform) m.src_dtype = DType::kI64;
      for (int s = 0; s < info.n_src; ++s) m.src[s] = static_cast<uint16_t>(s);
      m.reduction = info.kind == Kind::kReduce ? 0 : -1;
      if (info.kind == Kind::kCast) {
        for (const DType from : kAllDTypes) m.src_dtype = from, out.push_back(m);
      } else {
        out.push_back(m);
      }
    }
  }
  return out;
}

DType source_dtype(const MicroOp& m, int k) {
  if (m.op == Op::kSelect) return k == 0 ? DType::kBool : m.dtype;
  return m.src_dtype;
}

TEST(TileIsa, EveryLoopHasTheSameBits) {
  const auto isas = tables();
  ASSERT_GE(isas.size(), 1u);
  Rng rng(1);
  auto a = std::make_unique<Registers>(), b = std::make_unique<Registers>();
  int64_t n = 0;
  for (const MicroOp& m : all_micro_ops()) {
    // Masks that no program asks for, too: all sources, or bits past the last.
    for (unsigned scalars : {0u, 1u, 2u, 3u, 5u, 7u}) {
      if (op_info(m.op).kind == Kind::kGenerator && scalars != 0) continue;
      for (int k = 0; k < kMaxSources; ++k) fill(a->source[k], source_dtype(m, k), rng);
      std::memcpy(b->source, a->source, sizeof a->source);
      const bool by_row =
          scalars != 0 || m.reduction >= 0 || op_info(m.op).kind == Kind::kGenerator;
      ASSERT_TRUE(run(*isas[0], m, scalars, *a, by_row)) << op_info(m.op).name;
      for (size_t i = 1; i < isas.size(); ++i, ++n) {
        ASSERT_TRUE(run(*isas[i], m, scalars, *b, by_row));
        EXPECT_TRUE(same(*a, *b, m.dtype))
            << op_info(m.op).name << " " << dtype_name(m.src_dtype) << " → " << dtype_name(m.dtype)
            << " scalars " << scalars << ": " << isa_name(isas[i]->isa) << " differs";
      }
    }
  }
  RecordProperty("comparisons", static_cast<int>(n));
}

// Every exponent, in blocks that stay below 2^55 and in such that do not, is what a scalar makes of
// it.
TEST(TileIsa, AFloatIsTruncatedToALongInteger) {
  MicroOp m;
  m.op = Op::kCast, m.src_dtype = DType::kF32, m.dtype = DType::kI64, m.src[0] = 0;
  auto r = std::make_unique<Registers>();
  auto* from = reinterpret_cast<float*>(r->source[0]);
  const auto* to = reinterpret_cast<const int64_t*>(r->dst);
  Rng rng(3);
  for (const IsaTable* t : tables())
    for (int most = -3; most <= 70; ++most)
      for (const bool has_nan : {false, true}) {
        for (int64_t k = 0; k < kRows * kPitch; ++k) {
          const double significand = std::uniform_real_distribution<double>(1, 2)(rng);
          const double v = std::ldexp(significand, most - static_cast<int>(pick(rng, 0, 27)));
          from[k] = static_cast<float>(pick(rng, 0, 1) == 0 ? v : -v);
        }
        from[7] = std::ldexp(1.0F, most), from[40] = -from[7];
        from[90] = std::nextafter(from[7], 0.0F), from[130] = -from[90];
        if (has_nan) from[3] = std::nanf(""), from[200] = HUGE_VALF, from[220] = -HUGE_VALF;
        ASSERT_TRUE(run(*t, m, 0, *r, false));
        for (int64_t k = 0; k < kRows * kPitch; ++k)
          ASSERT_EQ(to[k], truncated_int(DType::kI64, double{from[k]}))
              << from[k] << " on " << isa_name(t->isa);
      }
}

MicroOp simple(Op op, int n_src) {
  MicroOp m;
  m.op = op;
  if (op_info(op).kind == Kind::kCompare) m.dtype = DType::kBool;
  for (int k = 0; k < n_src; ++k) m.src[k] = static_cast<uint16_t>(k);
  return m;
}

// The pair's first half, then its second, by loops of their own.
void by_halves(const IsaTable& t, const MicroOp& pair, unsigned scalars, Registers& r) {
  auto half = std::make_unique<Registers>();
  std::memcpy(half->source, r.source, sizeof r.source);
  MicroOp first = simple(pair.op, op_info(pair.op).n_src);
  if (pair.op == Op::kCast) first.dtype = pair.dtype;
  run(t, first, scalars & 3, *half, true);
  auto whole = std::make_unique<Registers>();
  std::memcpy(whole->source, r.source, sizeof r.source);
  const auto put = [&](int to, const char* from) {
    std::memcpy(whole->source[to], from, sizeof r.dst);
  };
  unsigned mask = 0;
  if (pair.is_two_products) {
    put(0, half->dst);
    std::memcpy(half->source[0], r.source[2], sizeof r.dst);
    std::memcpy(half->source[1], r.source[3], sizeof r.dst);
    run(t, simple(Op::kMul, 2), scalars >> 2, *half, true);
    put(1, half->dst);
  } else if (pair.then == Op::kSelect) {
    put(0, half->dst), put(1, r.source[2]), put(2, r.source[3]);
    mask = (scalars >> 2 & 1) << 1 | (scalars >> 3 & 1) << 2;
  } else {
    put(pair.then_reversed ? 1 : 0, half->dst), put(pair.then_reversed ? 0 : 1, r.source[2]);
    mask = (scalars >> 2 & 1) << (pair.then_reversed ? 0 : 1);
  }
  MicroOp second = simple(pair.then, op_info(pair.then).n_src);
  second.reduction = pair.reduction, second.dtype = second.src_dtype = pair.dtype;
  run(t, second, mask, *whole, true);
  std::memcpy(r.dst, whole->dst, sizeof r.dst);
}

TEST(TileIsa, APairIsItsHalves) {
  std::vector<MicroOp> pairs;
  const auto add = [&](Op first, Op then, int n_src, bool reversed = false, bool products = false) {
    MicroOp m = simple(first, n_src);
    m.dtype = DType::kF32, m.then = then, m.then_reversed = reversed, m.is_two_products = products;
    if (then == Op::kReduceSum || then == Op::kReduceMax) m.reduction = 0;
    pairs.push_back(m);
  };
  for (const Op first : {Op::kAdd, Op::kSub, Op::kMul})
    for (const Op then : {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv})
      for (const bool reversed : {false, true}) add(first, then, 3, reversed);
  for (const bool reversed : {false, true})
    add(Op::kMax, Op::kMin, 3, reversed), add(Op::kMin, Op::kMax, 3, reversed);
  for (const Op first : {Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt, Op::kGe})
    add(first, Op::kSelect, 4);
  add(Op::kMul, Op::kAdd, 4, false, true), add(Op::kMul, Op::kSub, 4, false, true);
  add(Op::kSub, Op::kExp, 2), add(Op::kMul, Op::kReduceSum, 2);
  add(Op::kAbs, Op::kReduceMax, 1), add(Op::kCast, Op::kReduceSum, 1);
  pairs.back().dtype = DType::kI64, pairs.back().src_dtype = DType::kF32;

  Rng rng(2);
  auto a = std::make_unique<Registers>(), b = std::make_unique<Registers>();
  for (const MicroOp& m : pairs) {
    int n_found = 0;
    for (unsigned scalars = 0; scalars < 15; ++scalars) {
      if ((scalars & 3) == 3) continue;                 // the first half is full
      if (m.op != Op::kSub && (scalars & 1)) continue;  // put second by the scheduler
      if (m.is_two_products && scalars >> 2 != 0 && scalars >> 2 != 2) continue;
      const bool is_unary = op_info(m.op).n_src == 1;
      const int n_src = is_unary                                         ? 1
                        : m.then == Op::kSelect || m.is_two_products     ? 4
                        : m.then == Op::kExp || m.then == Op::kReduceSum ? 2
                                                                         : 3;
      if (scalars >> n_src) continue;
      for (const IsaTable* t : tables()) {
        for (int k = 0; k < kMaxSources; ++k) fill(a->source[k], DType::kF32, rng);
        std::memcpy(b->source, a->source, sizeof a->source);
        ASSERT_TRUE(run(*t, m, scalars, *a, true))
            << op_info(m.op).name << " then " << op_info(m.then).name << " scalars " << scalars;
        by_halves(*t, m, scalars, *b);
        EXPECT_TRUE(same(*a, *b, m.dtype))
            << op_info(m.op).name << " then " << op_info(m.then).name << " scalars " << scalars
            << " reversed " << m.then_reversed << " on " << isa_name(t->isa);
        ++n_found;
      }
    }
    EXPECT_GT(n_found, 0);
  }
}

}  // namespace
}  // namespace tegula::tile
