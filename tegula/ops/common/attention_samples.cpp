// Calls of attention that try its masks, features, positions, pages and parts, and its errors.

#include "tegula/ops/common/attention_call.h"

namespace tegula {

namespace {
// One row of samples: sizes, then attributes, then the operands they announce.
struct Sizes {
  int64_t b = 1, sq = 3, sk = 4, hq = 2, hk = 1, d = 3, dv = 2;
};
Sample sample(std::string name, const Sizes& s, Attrs attrs, std::vector<SampleInput> more = {},
              DType t = DType::kF32) {
  Sample out{std::move(name),
             {{{t, {s.b, s.sq, s.hq, s.d}}, -2, 2},
              {{t, {s.b, s.sk, s.hk, s.d}}, -2, 2},
              {{t, {s.b, s.sk, s.hk, s.dv}}}},
             std::move(attrs)};
  if (!out.attrs.has("scale")) out.attrs.set("scale", 0.7);
  for (SampleInput& in : more) out.in.push_back(std::move(in));
  if (out.attrs.flag("varlen")) out.cost_bound = kPackingDecides;
  if (out.attrs.flag("paged")) out.cost_bound = kPagingDecides;
  return out;
}
// s.b is what q has, and keys lie in n_pages pages of s.sk.
Sample paged(std::string name, const Sizes& s, int64_t n_pages, std::vector<double> lengths,
             std::vector<double> table, Attrs attrs = {}, std::vector<SampleInput> more = {},
             DType t = DType::kF32) {
  attrs.set("paged", true);
  const auto n = static_cast<int64_t>(lengths.size()), cells = static_cast<int64_t>(table.size());
  more.push_back({{DType::kI32, {n}}, 0, 0, std::move(lengths)});
  more.push_back({{DType::kI32, {n, cells / n}}, 0, 0, std::move(table)});
  Sample out = sample(std::move(name), s, std::move(attrs), std::move(more), t);
  out.in[1].type.shape[0] = out.in[2].type.shape[0] = n_pages;
  return out;
}
SampleInput offsets(std::vector<double> v) {
  const auto n = static_cast<int64_t>(v.size());
  return {{DType::kI32, {n}}, 0, 0, std::move(v)};
}

// Runs of a row of 8: its first and last quarters (zigzag), every other one (stripes).
std::vector<Sample> samples_in_runs() {
  using Ints = std::vector<int64_t>;
  const Ints zigzag = {0, 1, 2, 6, 1, 2}, odd = {1, 2, 4}, even = {0, 2, 4};
  const auto runs = [](const Ints& q, const Ints& k, Attrs more = {}) {
    more.set("is_causal", true), more.set("q_runs", q), more.set("k_runs", k);
    return more;
  };
  const Sizes four{1, 4, 4, 2, 1, 2, 2};
  const SampleInput slopes = {{DType::kF32, {2}}, 0.1, 0.5, {}, false};
  std::vector<Sample> s = {
      sample("zigzag", four, runs(zigzag, zigzag)),
      sample("stripes, a window", four, runs(odd, even, {{"window_left", 3}})),
      sample("queries in a stripe, rows that see nothing", four, runs(even, {1})),
      sample("keys in a stripe", four, runs({3}, odd)),
      sample("queries in runs, ALiBi", four, runs(zigzag, {2}, {{"alibi", true}}), {slopes}),
      sample("keys in runs, ALiBi", four, runs(odd, zigzag, {{"alibi", true}}), {slopes}),
      sample("runs misfit", four, runs(odd, {0, 1, 3})),
      sample("keys that go back", four, runs(odd, {4, 1, 2, 0, 1, 2})),
      sample("keys in stripes, one after another", {1, 4, 6, 2, 1, 2, 2},
             runs({2, 1, 4}, {1, 2, 3, 0, 2, 3}, {{"window_left", 2}})),
      sample("keys that go back, a bias and ALiBi", four,
             runs(zigzag, {4, 1, 2, 0, 1, 2}, {{"bias", true}, {"alibi", true}}),
             {{{DType::kF32, {1, 2, 4, 4}}, -2, 2}, slopes}),
      sample("keys that go back, dropout", four,
             runs(zigzag, {4, 1, 2, 0, 1, 2}, {{"dropout", 0.3}}), {{{DType::kI64, {}}, 0, 1000}}),
      sample("half a run", four, runs({0, 1}, even))};
  s[2].smooth = false;  // lse is -inf there
  s[6].expect_error = "k_runs has 3 positions for 4";
  s.back().expect_error = "q_runs has 2 numbers";
  return s;
}

// Parts of the keys, one after another.
std::vector<Sample> samples_in_parts() {
  const auto part = [](std::string name, const Sizes& s, std::string which, Attrs attrs = {},
                       DType t = DType::kF32, double lse = 0) {
    attrs.set("part", which);
    std::vector<SampleInput> before;
    if (which == "middle" || which == "last") {
      before = {{{DType::kF32, {s.b, s.sq, s.hq, s.dv}}},
                {{DType::kF32, {s.b, s.hq, s.sq}}, -2, 2}};
      if (lse != 0) before[1].low = before[1].high = lse;
    }
    return sample(std::move(name), s, std::move(attrs), std::move(before), t);
  };
  const Attrs causal{{"is_causal", true}};
  const Sizes grouped{2, 3, 4, 4, 2, 3, 2};
  std::vector<Sample> s = {
      part("the first part of the keys", grouped, "first", causal),
      part("a part between", grouped, "middle", causal),
      part("the last part", {1, 5, 70, 2, 1, 4, 3}, "last", causal),
      part("a part of which some see nothing", {1, 5, 3, 2, 1, 2, 2}, "last", causal),
      part("a cap and a window over a part", grouped, "middle",
           {{"softcap", 2.0}, {"window_left", 1}}),
      part("far more before", grouped, "last", causal, DType::kF32, 12),
      part("far less before", grouped, "middle", {}, DType::kF32, -30),
      part("the first part, bf16", grouped, "first", causal, DType::kBF16),
      part("a part between, bf16", {1, 3, 40, 2, 1, 4, 3}, "middle", causal, DType::kBF16),
      part("the last part, bf16", {1, 5, 3, 4, 2, 3, 2}, "last", causal, DType::kBF16),
      part("no such part", grouped, "second"),
      part("nothing before", grouped, "first")};
  s[s.size() - 2].expect_error = "part is second, not first, middle or last";
  s.back().attrs.set("part", "last"), s.back().expect_error = "takes 5 operands";
  return s;
}

std::vector<Sample> samples_in_pages() {
  const Attrs causal{{"is_causal", true}};
  const Attrs packed{{"is_causal", true}, {"varlen", true}};
  const Sizes two{2, 2, 2, 4, 2, 3, 2}, row{1, 5, 2, 2, 1, 2, 2};
  const SampleInput slopes = {{DType::kF32, {4}}, 0.1, 0.5, {}, false};
  const SampleInput bias = {{DType::kF32, {1, 1, 2, 4}}, -2, 2};
  std::vector<Sample> s = {
      paged("pages of a batch", two, 6, {5, 3}, {4, 0, 2, 1, 5, 1}, causal),
      paged("pages of one query each", {3, 1, 2, 4, 1, 3, 3}, 5, {1, 4, 2}, {3, 0, 1, 2, 4, 4},
            causal),
      paged("a padded batch with lengths", {2, 3, 5, 2, 1, 2, 2}, 2, {3, 5}, {0, 1}, causal),
      paged("packed queries, a page that both read", row, 4, {4, 5}, {1, 3, 0, 1, 2, 3}, packed,
            {offsets({0, 2, 5})}),
      paged("packed queries, an empty sequence, rows left over", row, 4, {4, 2, 0, 1},
            {0, 1, 2, 0, 3, 0, 3, 0}, packed, {offsets({0, 2, 2, 3, 4})}),
      paged("pages of a block", {2, 3, 64, 2, 1, 2, 2}, 4, {70, 3}, {2, 0, 1, 3}, causal),
      paged("pages, a window, a cap, ALiBi", {1, 4, 3, 4, 2, 2, 2}, 3, {5, 4}, {2, 0, 1, 2},
            {{"window_left", 1},
             {"window_right", 1},
             {"softcap", 3.0},
             {"alibi", true},
             {"varlen", true}},
            {slopes, offsets({0, 1, 4})}),
      paged("lengths and pages out of range", two, 3, {9, -1}, {-1, 1, 0, 7}),
      paged("pages of bf16", two, 6, {5, 3}, {4, 0, 2, 1, 5, 1}, causal, {}, DType::kBF16),
      paged("queries of f32, pages of f16", two, 6, {5, 3}, {4, 0, 2, 1, 5, 1}, causal),
      paged("packed queries of f32, pages of bf16", row, 4, {4, 5}, {1, 3, 0, 1, 2, 3}, packed,
            {offsets({0, 2, 5})}),
      paged("one query of f32, pages of f16", {3, 1, 2, 4, 1, 3, 3}, 5, {1, 4, 2},
            {3, 0, 1, 2, 4, 4}, causal),
      paged("pages and a bias", two, 2, {3, 4}, {0, 1, 1, 0}, {{"bias", true}}, {bias}),
      paged("pages, offsets misfit", row, 4, {4, 5}, {1, 3, 0, 1}, packed, {offsets({0, 5})})};
  // lse is -inf in some rows.
  for (Sample& x : s)
    x.smooth = !x.name.ends_with("rows left over") && !x.name.ends_with("out of range");
  for (Sample& x : s) {
    if (x.name.find("queries of f32, ") == x.name.npos && !x.name.starts_with("one query of f32"))
      continue;
    x.in[1].type.dtype = x.in[2].type.dtype = x.name.ends_with("bf16") ? DType::kBF16 : DType::kF16;
  }
  s[s.size() - 2].expect_error = "no bias, dropout or descale";
  s.back().expect_error = "2 offsets for 2 sequences";
  return s;
}

}  // namespace

std::vector<Sample> attention_samples() {
  const DType f32 = DType::kF32;
  const Attrs causal{{"is_causal", true}};
  auto bias = [&](Shape s) { return SampleInput{{f32, s}, -2, 2}; };
  const SampleInput seed = {{DType::kI64, {}}, 0, 1000};
  auto factors = [&](int64_t b, int64_t hk) {
    return SampleInput{{f32, {b, hk}}, 0.5, 2, {}, false};
  };
  const SampleInput slopes = {{f32, {4}}, 0.1, 0.5, {}, false};
  Attrs all{{"is_causal", true}, {"window_left", 3}, {"softcap", 4.0},  {"scale", 0.5},
            {"bias", true},      {"alibi", true},    {"dropout", 0.25}, {"stream", 7}};
  const Sizes grouped{2, 3, 4, 4, 2, 3, 2};
  std::vector<Sample> s = {
      sample("grouped heads", grouped, {}),
      sample("one key head", {1, 2, 3, 3, 1, 4, 4}, {{"scale", 0.25}}),
      sample("causal", {1, 4, 4, 2, 2, 2, 2}, causal),
      sample("causal after a cache", {1, 2, 5, 2, 1, 2, 2}, causal),
      sample("causal, rows that see nothing", {1, 5, 3, 2, 1, 2, 2}, causal),
      sample("one query", {2, 1, 6, 4, 1, 3, 3}, causal),
      sample("window", {1, 6, 6, 2, 1, 2, 2}, {{"window_left", 1}, {"window_right", 2}}),
      sample("causal window", {1, 5, 7, 2, 1, 2, 2}, {{"is_causal", true}, {"window_left", 2}}),
      sample("keys that nobody sees", {1, 2, 7, 2, 1, 2, 2},
             {{"is_causal", true}, {"window_left", 1}}),
      sample("softcap", grouped, {{"softcap", 1.5}}),
      sample("bias", grouped, {{"bias", true}}, {bias({2, 4, 3, 4})}),
      sample("bias for all heads", grouped, {{"bias", true}}, {bias({2, 1, 3, 4})}),
      sample("bias for all queries", grouped, {{"bias", true}, {"is_causal", true}},
             {bias({1, 4, 1, 4})}),
      sample("bias that masks", {1, 2, 2, 1, 1, 2, 2}, {{"bias", true}},
             {{{f32, {1, 1, 2, 2}}, 0, 0, {0, -kInfinity, -kInfinity, -kInfinity}, false}}),
      sample("ALiBi", {1, 3, 5, 4, 2, 2, 2}, {{"alibi", true}}, {slopes}),
      sample("packed", {1, 6, 6, 2, 1, 2, 2}, {{"varlen", true}, {"is_causal", true}},
             {offsets({0, 2, 6}), offsets({0, 2, 6})}),
      sample("packed, empty sequences, rows left over", {1, 7, 8, 2, 2, 2, 2},
             {{"varlen", true}, {"is_causal", true}},
             {offsets({0, 2, 2, 5, 6}), offsets({0, 3, 5, 5, 8})}),
      sample("packed, window, ALiBi", {1, 5, 7, 4, 2, 2, 2},
             {{"varlen", true}, {"window_left", 1}, {"window_right", 1}, {"alibi", true}},
             {slopes, offsets({0, 3, 5}), offsets({0, 3, 7})}),
      sample("dropout", {2, 3, 4, 4, 2, 3, 2}, {{"dropout", 0.4}}, {seed}),
      sample("all at once", {2, 4, 6, 4, 2, 3, 2}, all, {bias({1, 4, 4, 6}), slopes, seed}),
      sample("no keys", {1, 3, 0, 2, 1, 2, 2}, {}),
      sample("no queries", {1, 0, 3, 2, 1, 2, 2}, causal),
      sample("bf16", grouped, causal, {}, DType::kBF16),
      sample("e4m3", grouped, causal, {}, DType::kF8E4M3),
      sample("e4m3 with factors", {2, 5, 6, 4, 2, 3, 3}, {{"descale", true}, {"scale", 0.5}},
             {factors(2, 2), factors(1, 2), factors(1, 1)}, DType::kF8E4M3),
      sample("factors of f32", grouped, {{"descale", true}},
             {factors(2, 2), factors(2, 2), factors(2, 2)}),
      sample("head sizes differ", {}, {}),
      sample("heads do not divide", {1, 3, 4, 3, 2, 3, 2}, {}),
      sample("bias missing", {}, {{"bias", true}}),
      sample("bias misfits", {}, {{"bias", true}}, {bias({1, 2, 3, 5})}),
      sample("dropout of 1", {}, {{"dropout", 1.0}}, {seed}),
      sample("packed batch", grouped, {{"varlen", true}}, {offsets({0, 3}), offsets({0, 4})})};
  auto find = [&](std::string_view name) -> Sample& {
    return *std::find_if(s.begin(), s.end(), [&](const Sample& x) { return x.name == name; });
  };
  // lse is -inf there.
  for (const char* name : {"causal, rows that see nothing", "bias that masks", "no keys",
                           "packed, empty sequences, rows left over"})
    find(name).smooth = false;
  find("head sizes differ").in[1].type.shape[3] = 5;
  find("head sizes differ").expect_error = "k has d=5, q has d=3";
  find("heads do not divide").expect_error = "q has a dim of 3 that is not a multiple of 2";
  find("bias missing").expect_error = "takes 4 operands";
  find("bias misfits").expect_error = "bias has sk=5, k has sk=4";
  find("dropout of 1").expect_error = "dropout 1 must lie in [0, 1)";
  find("factors of f32").expect_error = "descale is for f8e4m3, q is f32";
  find("packed batch").expect_error = "stand in one batch entry, q has 2";
  for (Sample& x : samples_in_runs()) s.push_back(std::move(x));
  for (Sample& x : samples_in_parts()) s.push_back(std::move(x));
  for (Sample& x : samples_in_pages()) s.push_back(std::move(x));
  return s;
}

}  // namespace tegula
