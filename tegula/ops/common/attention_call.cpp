#include "tegula/ops/attention_call.h"

namespace tegula {

std::string attention_operand_dims(const OpCall& c, bool backward) {
  const AttentionOperands at(*c.attrs, backward ? 6 : 3);
  std::string s = "q: b sq (hk g) d, k: b sk hk d, v: b sk hk dv";
  if (backward) s += ", o: b sq (hk g) dv, lse: b (hk g) sq, do: b sq (hk g) dv";
  if (at.bias >= 0 && static_cast<size_t>(at.bias) < c.in.size()) {
    const Shape& bias = c.shape(static_cast<size_t>(at.bias));
    const char* names[] = {"b", "(hk g)", "sq", "sk"};
    s += ", bias:";
    for (int d = 0; d < 4; ++d)
      s += cat(" ", d < 3 && bias.rank() == 4 && bias[d] == Dim(1) ? "1" : names[d]);
  }
  if (at.alibi >= 0) s += ", alibi: (hk g)";
  if (at.cu_q >= 0) s += ", cu_seqlens_q: n, cu_seqlens_k: n";
  if (at.seed >= 0) s += ", seed: ";
  if (at.dlse >= 0) s += ", dlse: b (hk g) sq";
  return s;
}

Result<DimMap> attention_dims(const OpCall& c, bool backward) {
  const AttentionOperands at(*c.attrs, backward ? 6 : 3);
  std::string s = attention_operand_dims(c, backward);
  if (backward) {
    s += " -> b sq (hk g) d, b sk hk d, b sk hk dv";
    if (at.bias >= 0) {
      const size_t begin = s.find("bias:") + 5;
      s += cat(",", s.substr(begin, s.find_first_of(",-", begin) - begin));
    }
  } else {
    s += " -> b sq (hk g) dv, b (hk g) sq";
  }
  DimMap m = TEGULA_TRY(solve_dims(c.op->name, s, c.in));
  auto whole = [&](const char* name) { m.factors[static_cast<size_t>(m.find(name))].whole = true; };
  if (at.cu_q >= 0) {  // packed sequences are cut by the caller, between sequences
    whole("sq"), whole("sk"), whole("n");
  }
  if (at.seed >= 0) whole("g");  // a part's heads would not lie one after another in the whole
  m.finish();
  return m;
}

Status attention_check(const OpCall& c, int first) {
  const Attrs& a = *c.attrs;
  const AttentionOperands at(a, first);
  const auto n = static_cast<int>(c.in.size());
  if (n != at.count)
    return invalid_argument(
        cat(c.op->name, ": takes ", at.count, " operands with these options, got ", n));
  if (!is_float(c.in[0].dtype))
    return invalid_argument(cat(c.op->name, ": q is ", c.in[0].dtype, ", expected a float"));
  for (int k : {1, 2})
    if (c.in[static_cast<size_t>(k)].dtype != c.in[0].dtype)
      return invalid_argument(cat(c.op->name, ": ", k == 1 ? "k" : "v", " is ",
                                  c.in[static_cast<size_t>(k)].dtype, ", q is ", c.in[0].dtype,
                                  ": cast one of them"));
  const double p = a.get_or<double>("dropout", 0);
  if (p < 0 || p >= 1)
    return invalid_argument(cat(c.op->name, ": dropout ", p, " must lie in [0, 1)"));
  auto type_is = [&](int k, DType want, const char* name) -> Status {
    if (k >= 0 && c.in[static_cast<size_t>(k)].dtype != want)
      return invalid_argument(cat(c.op->name, ": ", name, " is ",
                                  c.in[static_cast<size_t>(k)].dtype, ", expected ", want));
    return {};
  };
  for (auto [k, want, name] : {std::tuple{at.cu_q, DType::kI32, "cu_seqlens_q"},
                               {at.cu_k, DType::kI32, "cu_seqlens_k"},
                               {at.seed, DType::kI64, "seed"}}) {
    auto st = type_is(k, want, name);
    if (!st.ok()) return st;
  }
  return {};
}

Attrs attention_localize(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t) {
  Attrs a = *c.attrs;
  const std::string& name = m.factors[static_cast<size_t>(factor)].name;
  const int64_t sq = c.shape(0)[1].bound(), sk = c.shape(1)[1].bound();
  if (!a.has("q_offset")) a.set("q_offset", sk - sq);
  if (name == "sq") a.set("q_offset", a.i("q_offset") + lo);
  if (name == "sk") a.set("k_offset", a.get_or<int64_t>("k_offset", 0) + lo);
  if (a.get_or<double>("dropout", 0) > 0) {
    const int64_t hq = c.shape(0)[2].bound(), g = hq / c.shape(1)[2].bound();
    std::vector<int64_t> origin(4, 0), whole = {hq, sq, sk};
    if (a.has("origin")) origin = a.ints("origin"), whole = a.ints("whole");
    if (name == "b") origin[0] += lo;
    if (name == "hk") origin[1] += lo * g;
    if (name == "sq") origin[2] += lo;
    if (name == "sk") origin[3] += lo;
    a.set("origin", origin), a.set("whole", whole);
  }
  return a;
}

namespace {
// Keys [first, last] that row i sees.
struct Range {
  int64_t first, last;
  int64_t count() const { return std::max<int64_t>(last - first + 1, 0); }
};
Range visible_keys(const OpCall& c, int64_t i) {
  const Attrs& a = *c.attrs;
  const int64_t sk = c.shape(1)[1].bound(), sq = c.shape(0)[1].bound();
  const int64_t at = i + a.get_or<int64_t>("q_offset", sk - sq) - a.get_or<int64_t>("k_offset", 0);
  int64_t first = 0, last = sk - 1;
  if (a.flag("is_causal")) last = std::min(last, at);
  if (const int64_t w = a.get_or<int64_t>("window_left", -1); w >= 0)
    first = std::max(first, at - w);
  if (const int64_t w = a.get_or<int64_t>("window_right", -1); w >= 0)
    last = std::min(last, at + w);
  return {first, last};
}
}  // namespace

int64_t attention_visible_pairs(const OpCall& c) {
  int64_t n = 0;
  for (int64_t i = 0; i < c.shape(0)[1].bound(); ++i) n += visible_keys(c, i).count();
  return n;
}

int64_t attention_live_rows(const OpCall& c) {
  int64_t n = 0;
  for (int64_t i = 0; i < c.shape(0)[1].bound(); ++i) n += visible_keys(c, i).count() > 0;
  return n;
}

int64_t attention_score_flops(const Attrs& a) {
  return 1 + (a.get_or<double>("softcap", 0) > 0 ? 3 : 0) + (a.flag("bias") ? 1 : 0) +
         (a.flag("alibi") ? 2 : 0);
}

Var attention_rows(Var lse, const AttentionGraph& g) {
  return reshape(lse, Shape{g.shape[0], g.shape[1], g.shape[2], g.shape[3], 1});
}

namespace {

// Per query: the position that its own key 0 would have, and its sequence's key range, from packed
// offsets. All i64 [sq].
struct Packed {
  Var shift, first, last;
};
Packed packed_positions(Var cu_q, Var cu_k, Var i) {
  Builder& b = i.builder();
  const Dim n = cu_q.dim(0).bound() - 1;
  const Shape grid{i.dim(0), n};
  auto ends = [&](Var cu, int64_t at) {  // [1, n]
    return cast(reshape(slice(cu, 0, at, n), Shape{1, n}), DType::kI64);
  };
  const Var q0 = ends(cu_q, 0), q1 = ends(cu_q, 1), k0 = ends(cu_k, 0), k1 = ends(cu_k, 1);
  const Var at = broadcast(reshape(i, Shape{i.dim(0), 1}), grid);
  const Var mine = logical_and(ge(at, q0), lt(at, q1));
  auto pick = [&](Var v) {
    return reduce_sum(select(mine, broadcast(v, grid), fill(b, 0, {DType::kI64, grid})), {1});
  };
  const Var begin = pick(k0), end = pick(k1);
  return {end - pick(q1), begin, end};
}

}  // namespace

AttentionGraph attention_graph(Builder& b, const OpCall& c, std::span<const Var> in, int first) {
  const Attrs& a = *c.attrs;
  const AttentionOperands at(a, first);
  AttentionGraph g;
  g.scale = a.f("scale"), g.softcap = a.get_or<double>("softcap", 0);
  const Dim batch = in[0].dim(0), sq = in[0].dim(1), d = in[0].dim(3), hk = in[1].dim(2),
            sk = in[1].dim(1);
  const Dim groups = div_exact(in[0].dim(2), hk).ok() ? *div_exact(in[0].dim(2), hk) : Dim(1);
  const DType wide = accumulator(in[0].dtype());
  g.shape = Shape{batch, hk, groups, sq, sk};
  g.q = reshape(in[0], Shape{batch, sq, hk, groups, d});
  g.k = in[1], g.v = in[2];
  g.score = dot("b s h g d, b t h d -> b h g s t", cast(g.q, wide), cast(g.k, wide)) * g.scale;
  if (g.softcap > 0) {
    g.capped = tanh(g.score / g.softcap);
    g.score = g.capped * g.softcap;
  }
  if (at.bias >= 0) {
    const Var bias = in[static_cast<size_t>(at.bias)];
    const Var full = broadcast(bias, Shape{batch, in[0].dim(2), sq, sk});
    g.score = g.score + cast(reshape(full, g.shape), wide);
  }
  // Distances: query position − key position, i64 [sq, sk].
  const Shape pairs{sq, sk};
  const Var i = iota(b, Shape{sq}, 0, DType::kI64), j = iota(b, Shape{sk}, 0, DType::kI64);
  const Var keys = broadcast(reshape(j, Shape{1, sk}), pairs);
  Var visible = fill(b, 1, {DType::kBool, pairs});
  Var shift;  // added to i
  if (at.cu_q >= 0) {
    const Packed p =
        packed_positions(in[static_cast<size_t>(at.cu_q)], in[static_cast<size_t>(at.cu_k)], i);
    auto column = [&](Var v) { return broadcast(reshape(v, Shape{sq, 1}), pairs); };
    visible = logical_and(ge(keys, column(p.first)), lt(keys, column(p.last)));
    shift = p.shift;
  } else if (a.has("q_offset")) {
    shift =
        fill(b, static_cast<double>(a.i("q_offset") - a.get_or<int64_t>("k_offset", 0)), i.type());
  } else if (!(sq == sk)) {
    shift = broadcast(extent(in[1], 1, DType::kI64) - extent(in[0], 1, DType::kI64), Shape{sq});
  }
  const Var at_q = shift.valid() ? i + shift : i;
  const Var distance = broadcast(reshape(at_q, Shape{sq, 1}), pairs) - keys;
  auto also = [&](Var condition) { visible = logical_and(visible, condition); };
  if (a.flag("is_causal")) also(ge(distance, 0.0));
  if (a.has("window_left")) also(le(distance, static_cast<double>(a.i("window_left"))));
  if (a.has("window_right")) also(ge(distance, -static_cast<double>(a.i("window_right"))));
  if (at.alibi >= 0) {
    const Var slope = reshape(in[static_cast<size_t>(at.alibi)], Shape{1, hk, groups, 1, 1});
    g.score = g.score - cast(slope, wide) * cast(abs(distance), wide);
  }
  g.visible = broadcast(visible, g.shape);
  if (at.seed >= 0) {
    const double p = a.get_or<double>("dropout", 0);
    Attrs random{{"shape", std::vector<Dim>{batch, in[0].dim(2), sq, sk}},
                 {"stream", a.get_or<int64_t>("stream", 0)},
                 {"dtype", DType::kF32}};
    if (a.has("origin")) {
      const auto& w = a.ints("whole");
      random.set("origin", a.ints("origin"));
      random.set("whole", std::vector<int64_t>{batch.bound(), w[0], w[1], w[2]});
    }
    const Var u =
        reshape(b.emit(random_uniform_op, random, {in[static_cast<size_t>(at.seed)]}), g.shape);
    g.keep = select(ge(u, p), fill(b, 1 / (1 - p), {wide, g.shape}), fill(b, 0, {wide, g.shape}));
  }
  return g;
}

std::vector<Sample> attention_samples(bool backward) {
  struct Case {
    std::string name;
    Attrs attrs;
    int64_t b, sq, sk, hq, hk, d, dv;
    std::string error;
  };
  auto with = [](std::initializer_list<std::pair<std::string_view, AttrValue>> more) {
    Attrs a{{"scale", 0.5}};
    for (auto& [k, v] : more) a.set(k, v);
    return a;
  };
  std::vector<Case> cases = {
      {"plain", with({}), 2, 3, 4, 2, 2, 3, 3, ""},
      {"causal", with({{"is_causal", true}}), 1, 5, 5, 2, 2, 3, 2, ""},
      {"causal, longer keys", with({{"is_causal", true}}), 1, 2, 5, 2, 1, 3, 3, ""},
      {"causal, rows without keys", with({{"is_causal", true}}), 1, 5, 3, 2, 2, 2, 2, ""},
      {"grouped", with({}), 2, 3, 3, 6, 2, 3, 3, ""},
      {"window", with({{"window_left", int64_t{1}}, {"window_right", int64_t{1}}}), 1, 5, 5, 1, 1,
       2, 2, ""},
      {"softcap", with({{"softcap", 2.0}}), 1, 3, 3, 2, 2, 2, 2, ""},
      {"bias", with({{"bias", true}}), 2, 3, 4, 2, 2, 2, 2, ""},
      {"alibi", with({{"alibi", true}, {"is_causal", true}}), 1, 4, 4, 2, 1, 2, 2, ""},
      {"dropout", with({{"dropout", 0.3}}), 2, 3, 4, 2, 2, 2, 2, ""},
      {"packed", with({{"varlen", true}, {"is_causal", true}}), 1, 6, 6, 2, 2, 2, 2, ""},
      {"one query, one key", with({}), 1, 1, 1, 1, 1, 1, 1, ""},
      {"no keys", with({}), 1, 2, 0, 1, 1, 2, 2, ""},
      {"head_dim differs", with({}), 1, 2, 3, 1, 1, 2, 2, "d="},
  };
  std::vector<Sample> out;
  for (Case& c : cases) {
    auto f = [](Shape s) { return SampleInput{{DType::kF32, s}}; };
    Sample s{c.name,
             {f({c.b, c.sq, c.hq, c.d}), f({c.b, c.sk, c.hk, c.d + (c.error.empty() ? 0 : 1)}),
              f({c.b, c.sk, c.hk, c.dv})},
             c.attrs,
             c.error};
    if (backward) {
      s.in.push_back(f({c.b, c.sq, c.hq, c.dv}));
      SampleInput lse = f({c.b, c.hq, c.sq});
      lse.low = 1, lse.high = 2;
      s.in.push_back(lse);
      s.in.push_back(f({c.b, c.sq, c.hq, c.dv}));
    }
    if (c.attrs.flag("bias")) s.in.push_back(f({1, c.hq, c.sq, c.sk}));
    if (c.attrs.flag("alibi")) s.in.push_back({{DType::kF32, {c.hq}}, 0.1, 1, {}, false});
    if (c.attrs.flag("varlen")) {
      const SampleInput cu{{DType::kI32, {4}}, 0, 0, {0, 2, 2, 6}};
      s.in.push_back(cu), s.in.push_back(cu);
      s.cost_bound = "packed sequences are priced as one";
    }
    if (c.attrs.has("dropout")) s.in.push_back({{DType::kI64, {}}, 5, 5});
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace tegula
