// Rows of f32 by weights in blocks: some rows of w at a time are dequantised, and multiplied by
// dot_packed as a dot of its own. So bits are those of dot.
#include "tegula/kernels/cpu/common/block_dot.h"
#include "tegula/kernels/cpu/common/dot_thin_plan.h"
#include "tegula/kernels/cpu/common/workspace.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
// The attributes of such a dot, made once: a launch allocates nothing.
const Attrs& dot_of(int rank, int64_t k_shards) {
  struct All {
    Attrs of[kMaxRank + 1][9];  // by the rank of x, and shards of k
    All() {
      for (int r = 1; r <= kMaxRank; ++r) {
        std::string m;
        for (int d = 0; d + 1 < r; ++d) m += "m" + std::to_string(d) + " ";
        for (const int64_t shards : {1, 2, 4, 8}) {
          Attrs& a = of[r][shards];
          a.set("dims", m + "k, n k -> " + m + "n");
          if (shards > 1) a.set("k_shards", shards);
        }
      }
    }
  };
  static const All all;
  return all.of[rank][k_shards];
}

// The dot of some rows of w, from `first` on.
struct PanelDot {
  const Attrs& attrs;
  TensorRef in[2], out[1];
  BlockDot c;

  PanelDot(const Attrs& of, std::span<const TensorRef> from, const TensorRef& y)
      : attrs(dot_of(from[0].rank, of.get_or<int64_t>("k_shards", 1))) {
    BlockDot::parse(of, from, y, c);
    in[0] = from[0], out[0] = y;
    in[1].dtype = DType::kF32, in[1].rank = 2;
    in[1].shape[1] = in[1].stride[0] = c.k, in[1].stride[1] = 1;
    rows(std::min(c.n, kBlockPanelRows));
  }
  void rows(int64_t n) { in[1].shape[0] = out[0].shape[out[0].rank - 1] = n; }
  int64_t panel_bytes() const { return round_up(4 * std::min(c.n, kBlockPanelRows) * c.k, 64); }
  int64_t bytes(int n_threads) const {
    const auto dot = parse_contraction(attrs, in, out);
    if (!dot.ok()) return 0;
    const Contraction laid = dot->last_is_m ? dot->swapped() : *dot;
    return panel_bytes() + packed_bytes(laid, {}, n_threads);
  }
};

void run(const KernelCall& call) {
  PanelDot p(*call.attrs, call.in, call.out[0]);
  const TensorRef& w = call.in[1];
  auto* panel = static_cast<float*>(call.workspace);
  p.in[1].data = panel;
  const int64_t widening = p.c.n * p.c.k * (p.c.layout->has_min ? 2 : 1);
  call.counters->add(widening, widening);
  for (int64_t n = 0; n < p.c.n; n += kBlockPanelRows) {
    const int64_t rows = std::min(kBlockPanelRows, p.c.n - n);
    call.pool->parallel_for(rows, [&](int64_t i, int) {
      dequantise_blocks(p.c.format, static_cast<const uint8_t*>(w.data) + (n + i) * w.stride[0],
                        p.c.k, panel + i * p.c.k);
    });
    p.rows(rows);
    p.out[0].data = call.out[0].as<float>() + n;
    KernelCall dot = call;
    dot.attrs = &p.attrs, dot.in = p.in, dot.out = p.out;
    dot.workspace = reinterpret_cast<char*>(panel) + p.panel_bytes();
    isa_table().dot_packed(dot);
  }
}

int64_t workspace(const Attrs& attrs, std::span<const TensorRef> in, const TensorRef& y,
                  int n_threads) {
  if (in[1].rank == 2) return PanelDot(attrs, in, y).bytes(n_threads);
  const TensorRef one[] = {expert_of(in[0], 0), expert_of(in[1], 0)};
  return PanelDot(attrs, one, expert_of(y, 0)).bytes(n_threads);
}

void launch(const KernelCall& call) {
  claim_workspace(call, workspace(*call.attrs, call.in, call.out[0], call.pool->n_threads()));
  if (call.in[1].rank == 2) return run(call);
  KernelCall one = call;
  for (int64_t e = 0; e < call.in[1].shape[0]; ++e) {
    const TensorRef in[] = {expert_of(call.in[0], e), expert_of(call.in[1], e)};
    const TensorRef out[] = {expert_of(call.out[0], e)};
    one.in = in, one.out = out;
    run(one);
  }
}
}  // namespace

extern constinit const KernelDef dot_blocks_panels{
    .name = "dot_blocks_panels",
    .op = "dot_blocks",
    .order = "fma_chain",
    .doc = "panels of w in f32, each multiplied by dot_packed",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          BlockDot c;
          return q.in.size() == 2 && BlockDot::parse(*q.attrs, q.in, q.out[0], c);
        },
    .workspace_bytes =
        [](const KernelQuery& q) {
          return workspace(*q.attrs, q.in, q.out[0], q.target->n_threads);
        },
    .launch = launch,
};

}  // namespace tegula::kernel
