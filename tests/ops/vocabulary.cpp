#include "tests/ops/vocabulary.h"

#include <algorithm>

#include "tegula/ir/reference.h"
#include "tegula/ops/blocks.h"
#include "tegula/ops/dot_i8.h"
#include "tegula/ops/dot_quantised.h"
#include "tegula/ops/expert.h"
#include "tegula/ops/pad.h"
#include "tegula/ops/table.h"

namespace tegula::testing {
namespace {

Type f32(Shape s) { return {DType::kF32, s}; }
Type i32(Shape s) { return {DType::kI32, s}; }
Type i64(Shape s) { return {DType::kI64, s}; }
int in(int64_t x) { return static_cast<int>(x); }

void add_arrangements(std::vector<Function>& all) {
  const auto add = [&](std::string name, std::vector<Type> types, std::vector<int64_t> ints,
                       auto f) {
    all.push_back({std::move(name), std::move(types), std::move(ints), std::move(f)});
  };
  using R = std::vector<Var>;
  const Type x = f32({2, 4});
  add("roll", {x}, {1, 0}, [](Vars v, Ints n) -> R { return {roll(v[0], n[0], in(n[1]))}; });
  add("flip", {x}, {1}, [](Vars v, Ints n) -> R { return {flip(v[0], {n[0]})}; });
  add("tril", {x}, {0}, [](Vars v, Ints n) -> R { return {tril(v[0], n[0])}; });
  add("triu", {x}, {0}, [](Vars v, Ints n) -> R { return {triu(v[0], n[0])}; });
  add("repeat", {x}, {2, 3}, [](Vars v, Ints n) -> R { return {repeat(v[0], {n[0], n[1]})}; });
  add("repeat", {x}, {2, 3}, [](Vars v, Ints n) -> R { return {repeat(v[0], {1, n[0], n[1]})}; });
  add("repeat", {f32({1, 1, 1, 1, 1, 1, 2, 2})}, {2}, [](Vars v, Ints n) -> R {
    return {repeat(v[0], {1, 1, 1, 1, 1, 1, 1, n[0]})};
  });
  add("stack", {x, x}, {0}, [](Vars v, Ints n) -> R { return {stack(v, in(n[0]))}; });
  add("split", {x}, {1, 3, 1}, [](Vars v, Ints n) -> R {
    return split(v[0], {n[0], n[1]}, in(n[2]));
  });
  add("split", {x}, {2, 1}, [](Vars v, Ints n) -> R { return split(v[0], n[0], in(n[1])); });
  for (const PadMode mode : {PadMode::kReflect, PadMode::kEdge, PadMode::kWrap})
    add("pad", {x}, {1, 2, 1},
        [mode](Vars v, Ints n) -> R { return {pad(v[0], in(n[0]), n[1], n[2], mode)}; });
  add("reshape", {x}, {4, 2}, [](Vars v, Ints n) -> R { return {reshape(v[0], {n[0], n[1]})}; });
  add("permute", {x}, {1, 0}, [](Vars v, Ints n) -> R { return {permute(v[0], {n[0], n[1]})}; });
  add("transpose", {x}, {1, 0},
      [](Vars v, Ints n) -> R { return {transpose(v[0], in(n[0]), in(n[1]))}; });
  add("slice", {x}, {1, 1, 2, 1},
      [](Vars v, Ints n) -> R { return {slice(v[0], in(n[0]), n[1], n[2], n[3])}; });
  add("broadcast", {x}, {3, 2, 4}, [](Vars v, Ints n) -> R {
    return {broadcast(v[0], {n[0], n[1], n[2]})};
  });
  add("unsqueeze", {x}, {1}, [](Vars v, Ints n) -> R { return {unsqueeze(v[0], in(n[0]))}; });
  add("squeeze", {f32({2, 1})}, {1}, [](Vars v, Ints n) -> R { return {squeeze(v[0], in(n[0]))}; });
  add("pad", {x}, {0, 1, 2, 1},
      [](Vars v, Ints n) -> R { return {pad(v[0], in(n[0]), n[1], n[2], n[3], 0.0)}; });
  add("pad_to", {x}, {0, 1, 8, 1},
      [](Vars v, Ints n) -> R { return {pad_to(v[0], in(n[0]), n[1], n[2], n[3], 0.0)}; });
  add("concat", {x, x}, {1}, [](Vars v, Ints n) -> R { return {concat(v, in(n[0]))}; });
  add("dynamic_slice", {x, i64({}), i64({})}, {1, 2}, [](Vars v, Ints n) -> R {
    return {dynamic_slice(v[0], v.subspan(1), {n[0], n[1]})};
  });
  add("dynamic_update_slice", {x, f32({1, 2}), i64({}), i64({})}, {},
      [](Vars v, Ints) -> R { return {dynamic_update_slice(v[0], v[1], v.subspan(2))}; });
  add("unfold", {x}, {1, 2, 2, 1, 1},
      [](Vars v, Ints n) -> R { return {unfold(v[0], in(n[0]), n[1], n[2], n[3], n[4])}; });
}

void add_maths(std::vector<Function>& all) {
  const auto add = [&](std::string name, std::vector<Type> types, std::vector<int64_t> ints,
                       auto f) {
    all.push_back({std::move(name), std::move(types), std::move(ints), std::move(f)});
  };
  using R = std::vector<Var>;
  const Type x = f32({2, 4});
  for (const OpDef* op : all_ops()) {
    if (!op->is_elementwise || op->attrs.size() > 0) continue;
    const bool is_bitwise = op->name.starts_with("bitwise") || op->name.starts_with("shift");
    const bool is_logical = op->name.starts_with("logical");
    const Type t = is_bitwise ? i32({2, 4}) : is_logical ? Type{DType::kBool, {2, 4}} : x;
    const size_t n = op->samples()[0].in.size();
    if (n == 1)
      add(std::string(op->name), {t}, {},
          [op](Vars v, Ints) -> R { return {emit_unary(*op, v[0], Loc::current())}; });
    if (n != 2) continue;
    add(std::string(op->name), {t, t}, {},
        [op](Vars v, Ints) -> R { return {emit_binary(*op, v[0], v[1], Loc::current())}; });
    add(std::string(op->name), {t}, {},
        [op](Vars v, Ints) -> R { return {emit_binary(*op, v[0], 1.0, Loc::current())}; });
  }
  add("emit_unary", {x}, {}, [](Vars v, Ints) -> R { return {-v[0]}; });
  add("emit_binary", {x, f32({4})}, {}, [](Vars v, Ints) -> R {
    return {v[0] + v[1], v[0] - v[1], v[0] * v[1], v[0] / v[1]};
  });
  add("operator", {x}, {}, [](Vars v, Ints) -> R {
    return {v[0] + 1.0, v[0] - 1.0, v[0] * 2.0, v[0] / 2.0,
            1.0 + v[0], 1.0 - v[0], 2.0 * v[0], 2.0 / v[0]};
  });
  add("fill", {x}, {3, 2}, [](Vars v, Ints n) -> R {
    return {fill(v[0].builder(), 1, {DType::kF32, {n[0], n[1]}})};
  });
  add("constant", {x}, {},
      [](Vars v, Ints) -> R { return {constant(v[0].builder(), 1, DType::kF32)}; });
  add("constant_ints", {x}, {1},
      [](Vars v, Ints n) -> R { return {constant_ints(v[0].builder(), {n[0]}, DType::kI64)}; });
  add("zeros_like", {x}, {}, [](Vars v, Ints) -> R { return {zeros_like(v[0])}; });
  add("iota", {x}, {3, 2, 1}, [](Vars v, Ints n) -> R {
    return {iota(v[0].builder(), {n[0], n[1]}, in(n[2]), DType::kI32)};
  });
  add("random_uniform", {i64({})}, {3, 2, 1}, [](Vars v, Ints n) -> R {
    return {random_uniform(v[0], {n[0], n[1]}, n[2])};
  });
  add("extent", {x}, {1},
      [](Vars v, Ints n) -> R { return {extent(v[0], in(n[0]), DType::kI64)}; });
  add("gelu_erf", {x}, {}, [](Vars v, Ints) -> R { return {gelu_erf(v[0])}; });
  add("bitwise_not", {i32({2})}, {}, [](Vars v, Ints) -> R { return {bitwise_not(v[0])}; });
  add("select", {{DType::kBool, {2, 1}}, x, f32({4})}, {},
      [](Vars v, Ints) -> R { return {select(v[0], v[1], v[2])}; });
  add("fma", {x, x, x}, {}, [](Vars v, Ints) -> R { return {fma(v[0], v[1], v[2])}; });
  add("cast", {x}, {}, [](Vars v, Ints) -> R { return {cast(v[0], DType::kI8)}; });
  add("barrier", {x, x}, {}, [](Vars v, Ints) -> R { return barrier(v.first(1), v.subspan(1)); });
  add("reduce_sum", {x}, {0, 1}, [](Vars v, Ints n) -> R {
    return {reduce_sum(v[0], {n[0], n[1]})};
  });
  add("reduce_max", {x}, {0}, [](Vars v, Ints n) -> R { return {reduce_max(v[0], {n[0]}, true)}; });
  add("reduce_min", {x}, {0}, [](Vars v, Ints n) -> R { return {reduce_min(v[0], {n[0]}, true)}; });
  add("reduce_mean", {x}, {0, 1}, [](Vars v, Ints n) -> R {
    return {reduce_mean(v[0], {n[0], n[1]})};
  });
  add("reduce_prod", {x}, {0}, [](Vars v, Ints n) -> R { return {reduce_prod(v[0], {n[0]})}; });
  add("reduce_var", {x}, {0, 1},
      [](Vars v, Ints n) -> R { return {reduce_var(v[0], {n[0]}, static_cast<double>(n[1]))}; });
  add("reduce_std", {x}, {0, 1},
      [](Vars v, Ints n) -> R { return {reduce_std(v[0], {n[0]}, static_cast<double>(n[1]))}; });
  add("reduce_to", {x}, {2, 1}, [](Vars v, Ints n) -> R {
    return {reduce_to(v[0], {n[0], n[1]})};
  });
  add("argmax", {x}, {0}, [](Vars v, Ints n) -> R { return {argmax(v[0], in(n[0]), true)}; });
  add("argmin", {x}, {0}, [](Vars v, Ints n) -> R { return {argmin(v[0], in(n[0]))}; });
  add("argmax", {f32({})}, {0}, [](Vars v, Ints n) -> R { return {argmax(v[0], in(n[0]))}; });
  add("cumsum", {x}, {0}, [](Vars v, Ints n) -> R { return {cumsum(v[0], in(n[0]))}; });
  add("cumprod", {x}, {0}, [](Vars v, Ints n) -> R { return {cumprod(v[0], in(n[0]), true)}; });
  const auto ranked = [](const auto& r) -> R { return {r.values, r.indices}; };
  add("cummax", {x}, {0}, [=](Vars v, Ints n) { return ranked(cummax(v[0], in(n[0]))); });
  add("cummin", {x}, {0}, [=](Vars v, Ints n) { return ranked(cummin(v[0], in(n[0]))); });
  add("linear_recurrence", {x, x}, {0},
      [](Vars v, Ints n) -> R { return {linear_recurrence(v[0], v[1], in(n[0]))}; });
  add("linear_recurrence", {f32({}), f32({})}, {0},
      [](Vars v, Ints n) -> R { return {linear_recurrence(v[0], v[1], in(n[0]))}; });
  for (const Shape& s : {Shape{2, 4}, Shape{}}) {
    add("softmax", {f32(s)}, {}, [](Vars v, Ints) -> R { return {softmax(v[0])}; });
    add("log_softmax", {f32(s)}, {}, [](Vars v, Ints) -> R { return {log_softmax(v[0])}; });
    add("logsumexp", {f32(s)}, {}, [](Vars v, Ints) -> R { return {logsumexp(v[0])}; });
    add("sort", {f32(s)}, {}, [=](Vars v, Ints) { return ranked(sort(v[0])); });
  }
  add("top_k", {x}, {2}, [=](Vars v, Ints n) { return ranked(top_k(v[0], n[0])); });
  add("dot", {x, f32({4, 3})}, {},
      [](Vars v, Ints) -> R { return {dot("m k, k n -> m n", v[0], v[1])}; });
  add("dot", {x, f32({4, 3})}, {},
      [](Vars v, Ints) -> R { return {dot("m k, k n -> m n", v[0], v[1], DType::kF32)}; });
  add("matmul", {x, f32({4, 3})}, {}, [](Vars v, Ints) -> R { return {matmul(v[0], v[1])}; });
}

void add_indexing(std::vector<Function>& all) {
  const auto add = [&](std::string name, std::vector<Type> types, std::vector<int64_t> ints,
                       auto f) {
    all.push_back({std::move(name), std::move(types), std::move(ints), std::move(f)});
  };
  using R = std::vector<Var>;
  const Type x = f32({3, 4}), ids = i32({2});
  add("gather", {x, ids}, {0, 0},
      [](Vars v, Ints n) -> R { return {gather(v[0], v[1], in(n[0]), in(n[1]))}; });
  add("scatter_add", {f32({2, 4}), ids}, {0, 3, 0},
      [](Vars v, Ints n) -> R { return {scatter_add(v[0], v[1], in(n[0]), n[1], in(n[2]))}; });
  add("scatter", {x, ids, f32({2, 4})}, {0, 1, 0}, [](Vars v, Ints n) -> R {
    return {scatter(v[0], v[1], v[2], in(n[0]), static_cast<ScatterMode>(n[1]), in(n[2]))};
  });
  add("take_along", {x, i32({2, 4})}, {0},
      [](Vars v, Ints n) -> R { return {take_along(v[0], v[1], in(n[0]))}; });
  add("put_along", {x, i32({2, 4}), f32({2, 4})}, {0, 0}, [](Vars v, Ints n) -> R {
    return {put_along(v[0], v[1], v[2], in(n[0]), static_cast<ScatterMode>(n[1]))};
  });
  add("gather_nd", {x, i32({5, 2})}, {}, [](Vars v, Ints) -> R { return {gather_nd(v[0], v[1])}; });
  add("scatter_nd", {x, i32({5, 1}), f32({5, 4})}, {1}, [](Vars v, Ints n) -> R {
    return {scatter_nd(v[0], v[1], v[2], static_cast<ScatterMode>(n[0]))};
  });
  add("searchsorted", {f32({5}), f32({2, 3})}, {},
      [](Vars v, Ints) -> R { return {searchsorted(v[0], v[1])}; });
  add("searchsorted", {f32({5}), f32({})}, {},
      [](Vars v, Ints) -> R { return {searchsorted(v[0], v[1])}; });
  add("one_hot", {ids}, {5}, [](Vars v, Ints n) -> R { return {one_hot(v[0], n[0])}; });
  add("embedding", {x, ids}, {}, [](Vars v, Ints) -> R { return {embedding(v[0], v[1])}; });
  add("embedding", {x, ids}, {1},
      [](Vars v, Ints n) -> R { return {embedding(v[0], v[1], n[0])}; });
  add("expert_dispatch", {f32({1, 3, 4}), i32({1, 3, 2})}, {4, 2}, [](Vars v, Ints n) -> R {
    const Dispatched d = expert_dispatch(v[0], v[1], n[0], n[1]);
    return {d.buckets, d.positions, d.counts};
  });
  add("expert_combine", {f32({4, 1, 2, 4}), i32({1, 3, 2}), i32({1, 3, 2}), f32({1, 3, 2})}, {},
      [](Vars v, Ints) -> R { return {expert_combine(v[0], v[1], v[2], v[3])}; });
  add("quantise", {x}, {1}, [](Vars v, Ints n) -> R {
    const Quantised q = quantise(v[0], in(n[0]));
    return {q.q, q.scale};
  });
  add("dequantise", {{DType::kI8, {3, 4}}, f32({4})}, {1},
      [](Vars v, Ints n) -> R { return {dequantise(v[0], v[1], in(n[0]))}; });
  add("dequantise_blocks", {{DType::kU8, {3, 18}}}, {},
      [](Vars v, Ints) -> R { return {dequantise_blocks(v[0], BlockFormat::kQ4_0)}; });
  add("quantise_blocks", {f32({2, 32})}, {}, [](Vars v, Ints) -> R {
    const QuantisedRows q = quantise_blocks(v[0]);
    return {q.q, q.d};
  });
  add("dot_blocks", {f32({2, 32}), {DType::kU8, {3, 18}}}, {},
      [](Vars v, Ints) -> R { return {dot_blocks(v[0], v[1], BlockFormat::kQ4_0)}; });
  add("dot_blocks", {{DType::kI8, {2, 32}}, f32({2, 1}), {DType::kU8, {3, 18}}}, {},
      [](Vars v, Ints) -> R {
        return {dot_blocks(QuantisedRows{v[0], v[1]}, v[2], BlockFormat::kQ4_0)};
      });
  add("dot_quantised", {f32({2, 4}), {DType::kI8, {4, 3}}, f32({2, 3})}, {8},
      [](Vars v, Ints n) -> R { return {dot_quantised(v[0], v[1], v[2], in(n[0]))}; });
  add("dot_i8", {{DType::kI8, {2, 4}}, f32({2}), {DType::kI8, {4, 3}}, f32({2, 3})}, {8},
      [](Vars v, Ints n) -> R { return {dot_i8(v[0], v[1], v[2], v[3], in(n[0]))}; });
}

void add_layers(std::vector<Function>& all) {
  const auto add = [&](std::string name, std::vector<Type> types, std::vector<int64_t> ints, auto f,
                       std::set<size_t> optional = {}) {
    all.push_back(
        {std::move(name), std::move(types), std::move(ints), std::move(f), std::move(optional)});
  };
  using R = std::vector<Var>;
  const Type image = f32({2, 4, 6, 6}), c = f32({4});
  add("conv", {image, f32({4, 2, 3, 3})}, {1, 0, 0, 1, 2}, [](Vars v, Ints n) -> R {
    return {conv(v[0], v[1], {{{n[0], 1}, {n[1], 0}, {n[2], 0}, {n[3], 1}}, n[4]})};
  });
  add("conv_bwd_data", {f32({2, 4, 4, 4}), f32({4, 2, 3, 3})}, {6, 1, 2}, [](Vars v, Ints n) -> R {
    return {conv_bwd_data(v[0], v[1], {n[0], 6}, {{{n[1], 1}, {}, {}, {}}, n[2]})};
  });
  add("conv_transpose", {f32({2, 4, 4, 4}), f32({4, 2, 3, 3})}, {1, 0, 2, 0},
      [](Vars v, Ints n) -> R {
        ConvTransposeOptions o;
        o.stride = {n[0], 1}, o.lo = {n[1], 0}, o.groups = n[2], o.extra = {n[3], 0};
        return {conv_transpose(v[0], v[1], o)};
      });
  for (const bool over : {false, true}) {
    add("max_pool", {image}, {2, 2, 0, 1}, [over](Vars v, Ints n) -> R {
      return {
          max_pool(v[0], {n[0], 2}, {{n[1], 1}, {n[2], 0}, {n[3], 0}, {}}, {.ceil_mode = over})};
    });
    add("avg_pool", {image}, {2, 2, 0, 1}, [over](Vars v, Ints n) -> R {
      return {avg_pool(v[0], {n[0], 2}, {{n[1], 1}, {n[2], 0}, {n[3], 0}, {}}, {over, !over})};
    });
  }
  add("adaptive_max_pool", {image}, {4, 3}, [](Vars v, Ints n) -> R {
    return {adaptive_max_pool(v[0], {n[0], n[1]})};
  });
  add("adaptive_avg_pool", {image}, {4, 3}, [](Vars v, Ints n) -> R {
    return {adaptive_avg_pool(v[0], {n[0], n[1]})};
  });
  add("batch_norm_training", {image, c, c, c, c}, {}, [](Vars v, Ints) -> R {
    const BatchNorm y = batch_norm_training(v[0], v[1], v[2], v[3], v[4]);
    return {y.y, y.running_mean, y.running_var};
  });
  add("batch_norm_inference", {image, c, c, c, c}, {},
      [](Vars v, Ints) -> R { return {batch_norm_inference(v[0], v[1], v[2], v[3], v[4])}; });
  add("group_norm", {image, c, c}, {2},
      [](Vars v, Ints n) -> R { return {group_norm(v[0], n[0], v[1], v[2])}; }, {1, 2});
  add("instance_norm", {image, c, c}, {},
      [](Vars v, Ints) -> R { return {instance_norm(v[0], v[1], v[2])}; }, {1, 2});
  add("layer_norm", {image, f32({6}), f32({6})}, {},
      [](Vars v, Ints) -> R { return {layer_norm(v[0], v[1], v[2])}; }, {2});
  add("rms_norm", {image, f32({6})}, {}, [](Vars v, Ints) -> R { return {rms_norm(v[0], v[1])}; });
  add("dropout", {image, i64({})}, {3},
      [](Vars v, Ints n) -> R { return {dropout(v[0], v[1], n[0], 0.5)}; });
  const Type seq = f32({2, 3, 4});
  add("lstm", {seq, f32({4, 20}), f32({5, 20}), f32({20}), f32({2, 5}), f32({2, 5})}, {},
      [](Vars v, Ints) -> R {
        const Recurrent r = lstm(v[0], {v[1], v[2], v[3]}, v[4], v[5]);
        return {r.y, r.h, r.c};
      },
      {4, 5});
  add("gru", {seq, f32({4, 15}), f32({5, 15}), f32({15}), f32({15}), f32({2, 5})}, {},
      [](Vars v, Ints) -> R {
        const Recurrent r = gru(v[0], {v[1], v[2], v[3], v[4]}, v[5]);
        return {r.y, r.h};
      },
      {5});
  add("rope", {f32({1, 3, 2, 4}), i32({3})}, {},
      [](Vars v, Ints) -> R { return {rope(v[0], v[1])}; }, {1});
  const Type logits = f32({3, 5}), targets = i32({3});
  const auto both = [](const auto& e) -> R { return {e.sum, e.count}; };
  add("linear_cross_entropy", {f32({3, 4}), f32({5, 4}), targets}, {-100}, [](Vars v, Ints n) -> R {
    const auto e = linear_cross_entropy(v[0], v[1], v[2], {false, n[0]});
    return {e.lse, e.picked};
  });
  add("cross_entropy", {f32({3, 4}), f32({5, 4}), targets}, {-100}, [=](Vars v, Ints n) {
    return both(cross_entropy(v[0], v[1], v[2], {false, n[0]}));
  });
  add("cross_entropy_loss", {f32({3, 4}), f32({4, 5}), targets}, {-100}, [](Vars v, Ints n) -> R {
    return {cross_entropy_loss(v[0], v[1], v[2], {true, n[0]})};
  });
  add("logits_cross_entropy", {logits, targets}, {-100}, [=](Vars v, Ints n) {
    return both(logits_cross_entropy(v[0], v[1], {n[0], 0.1}));
  });
  add("logits_cross_entropy_loss", {logits, targets}, {-100}, [](Vars v, Ints n) -> R {
    return {logits_cross_entropy_loss(v[0], v[1], {n[0], 0})};
  });
}

void add_attention(std::vector<Function>& all) {
  using R = std::vector<Var>;
  const Type q = f32({2, 3, 4, 8}), kv = f32({2, 5, 2, 8});
  const auto add = [&](std::vector<Type> more, std::vector<int64_t> ints, auto options,
                       std::set<size_t> optional = {}) {
    std::vector<Type> types = {q, kv, kv};
    types.insert(types.end(), more.begin(), more.end());
    all.push_back({"attention", types, ints,
                   [options](Vars v, Ints n) -> R {
                     const Attention a = attention(v[0], v[1], v[2], options(v, n));
                     return {a.o, a.lse};
                   },
                   std::move(optional)});
  };
  add({}, {2, 0},
      [](Vars, Ints n) { return AttentionOptions{.window_left = n[0], .window_right = n[1]}; });
  add({}, {}, [](Vars, Ints) { return AttentionOptions{.is_causal_top_left = true}; });
  add({f32({1, 4, 3, 5}), f32({4})}, {},
      [](Vars v, Ints) {
        AttentionOptions o;
        o.bias = v[3], o.alibi = v[4];
        return o;
      },
      {3, 4});
  add({i64({})}, {7}, [](Vars v, Ints n) {
    AttentionOptions o;
    o.dropout = 0.5, o.seed = v[3], o.stream = n[0];
    return o;
  });
  add({}, {2, 1, 3, 0, 1, 5}, [](Vars, Ints n) {
    AttentionOptions o;
    o.q_runs = {n[0], n[1], n[2]}, o.k_runs = {n[3], n[4], n[5]};
    return o;
  });
  add({f32({2, 3, 4, 8}), f32({2, 4, 3})}, {},
      [](Vars v, Ints) {
        AttentionOptions o;
        o.o_before = v[3], o.lse_before = v[4];
        return o;
      },
      {3});
  add({i32({2}), i32({2, 1})}, {},
      [](Vars v, Ints) {
        AttentionOptions o;
        o.seqlens_k = v[3], o.block_table = v[4];
        return o;
      },
      {4});
}

void add_control(std::vector<Function>& all) {
  using R = std::vector<Var>;
  const auto add = [&](std::string name, std::vector<Type> types, std::vector<int64_t> ints, auto f,
                       std::set<size_t> optional = {}) {
    all.push_back(
        {std::move(name), std::move(types), std::move(ints), std::move(f), std::move(optional)});
  };
  const auto builder = [](Vars v) -> Builder& {
    for (const Var& x : v)
      if (x.valid() && !x.builder().failed()) return x.builder();
    return v[0].builder();
  };
  add("scan", {f32({2}), f32({3, 2}), f32({2})}, {3}, [=](Vars v, Ints n) -> R {
    auto out = scan(builder(v), {v[0]}, {v[1]}, {v[2]},
                    [](Builder&, Vars c, Vars x, Vars i) -> StepResult {
                      const Var h = c[0] * i[0] + x[0];
                      return {{h}, {h}};
                    },
                    {.length = n[0]});
    return {out.carry[0], out.ys[0]};
  });
  add("while_loop", {f32({})}, {3}, [=](Vars v, Ints n) -> R {
    return while_loop(
        builder(v), {v[0]}, {}, n[0], [](Builder&, Vars c, Vars) { return lt(c[0], 3.0); },
        [](Builder&, Vars c, Vars) { return R{c[0] + 1.0}; });
  });
  add("cond", {{DType::kBool, {}}, f32({2})}, {}, [](Vars v, Ints) -> R {
    return cond(
        v[0], {v[1]}, [](Builder&, Vars x) { return R{x[0] * 2.0}; },
        [](Builder&, Vars x) { return R{x[0]}; });
  });
  add("call", {f32({2})}, {}, [=](Vars v, Ints) -> R {
    Builder& b = builder(v);
    Builder f(b.module(), "callee");
    f.result("y", f.param("x", f32({2})) * 2.0);
    return call(b, *f.finish_into_module(), {v[0]});
  });
  add("inline_call", {f32({2})}, {}, [=](Vars v, Ints) -> R {
    Builder& b = builder(v);
    Builder f(b.module(), "callee");
    f.result("y", f.param("x", f32({2})) * 2.0);
    return inline_call(b, *f.finish(), v);
  });
  add("grad", {f32({2, 3})}, {}, [](Vars v, Ints) {
    return grad(reduce_sum(v[0] * v[0], {0, 1}), v);
  });
  add("pullback", {f32({2}), f32({2})}, {}, [=](Vars v, Ints) {
    const Var y = v[0] * v[0];
    return pullback(builder(v), std::span(&y, 1), v.subspan(1), v.first(1));
  });
  add("pushforward", {f32({2}), f32({2})}, {}, [=](Vars v, Ints) {
    const Var y = v[0] * v[0];
    return pushforward(builder(v), std::span(&y, 1), v.first(1), v.subspan(1));
  });
  const Type x = f32({4, 4});
  const Group dp = {"dp", 2};
  add("all_reduce", {x}, {2}, [](Vars v, Ints n) -> R { return {all_reduce(v[0], {"dp", n[0]})}; });
  add("all_gather", {x}, {2, 1, 2}, [](Vars v, Ints n) -> R {
    return {all_gather(v[0], {"dp", n[0]}, in(n[1]), n[2])};
  });
  add("reduce_scatter", {x}, {2, 1, 2}, [](Vars v, Ints n) -> R {
    return {reduce_scatter(v[0], {"dp", n[0]}, in(n[1]), n[2])};
  });
  add("all_to_all", {x}, {2, 1, 0}, [](Vars v, Ints n) -> R {
    return {all_to_all(v[0], {"dp", n[0]}, in(n[1]), in(n[2]))};
  });
  add("all_to_all_ragged", {f32({4, 2, 3}), i32({4, 2}), i32({2, 4})}, {2, 0, 1},
      [](Vars v, Ints n) -> R {
        return {all_to_all_ragged(v[0], v[1], v[2], {"dp", n[0]}, in(n[1]), in(n[2]))};
      });
  add("send_recv", {x}, {1, 0}, [=](Vars v, Ints n) -> R {
    return {send_recv(v[0], dp, {n[0], n[1]})};
  });
  add("broadcast_from", {x}, {1},
      [=](Vars v, Ints n) -> R { return {broadcast_from(v[0], dp, n[0])}; });
  add("reduce_to", {x}, {1}, [=](Vars v, Ints n) -> R { return {reduce_to(v[0], dp, n[0])}; });
  add("scatter_from", {x}, {1, 0},
      [=](Vars v, Ints n) -> R { return {scatter_from(v[0], dp, n[0], in(n[1]))}; });
  add("gather_to", {x}, {1, 0},
      [=](Vars v, Ints n) -> R { return {gather_to(v[0], dp, n[0], in(n[1]))}; });
}

}  // namespace

const std::vector<Function>& vocabulary() {
  static const std::vector<Function> all = [] {
    std::vector<Function> v;
    add_arrangements(v), add_maths(v), add_indexing(v), add_layers(v), add_attention(v),
        add_control(v);
    return v;
  }();
  return all;
}

}  // namespace tegula::testing
