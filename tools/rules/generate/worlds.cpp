// The worlds in which rules are sought, and what each lets programs do.
#include "tegula/base/algorithm.h"
#include "tools/rules/generate/generate.h"

namespace tegula::superopt {

namespace {
constexpr std::string_view kProducts = "dot add mul scale f concat slice permute reduce_sum",
                           kMovement =
                               "add mul max scale f g concat slice permute reduce_sum reduce_max",
                           kConvs = "conv add scale f concat slice pad",
                           kNarrow = "conv add concat slice pad";
constexpr World kWorlds[] = {
    // Products.
    {"sizes m k n\nscalars s\nfunctions f\ninputs x[m,k] a[k,n] b[k,n]\n", "m=2 k=3 n=4",
     kProducts},
    {"sizes m k n\nscalars s\nfunctions f\ninputs x[m,k] y[m,k] a[k,n]\n", "m=2 k=3 n=4",
     kProducts},
    {"sizes m k n1 n2\nscalars s\nfunctions f\ninputs x[m,k] a[k,n1] b[k,n2]\n",
     "m=2 k=3 n1=4 n2=5", kProducts},
    {"sizes m1 m2 k n\nscalars s\nfunctions f\ninputs x[m1,k] y[m2,k] a[k,n]\n",
     "m1=2 m2=4 k=3 n=5", kProducts},
    {"sizes m k n l\nscalars s\ninputs x[m,k] a[k,n] b[n,l]\n", "m=2 k=3 n=4 l=5", kProducts},
    {"sizes m k1 k2 n\nscalars s\ninputs x[m,k1+k2] a[k1,n] b[k2,n]\n", "m=2 k1=3 k2=4 n=5",
     "dot add scale concat slice permute"},
    {"sizes m k1 k2 n\ninputs x[m,k1] y[m,k2] a[k1,n] b[k2,n]\n", "m=2 k1=3 k2=4 n=5",
     "dot add concat slice", 3},
    {"sizes b t k n\nscalars s\nfunctions f\ninputs x[b,t,k] y[b*t,k] a[k,n]\n", "b=2 t=3 k=4 n=5",
     "dot add scale f reshape concat", 3},
    {"sizes m k n\nscalars s\ninputs x[m,k] a[k,n] c[n]\n", "m=2 k=3 n=4",
     "dot add mul scale broadcast"},
    // Pieces in a row, whatever the dim.
    {"sizes a b c m\nfunctions f\ninputs x[a,m] y[b,m] z[c,m]\n", "a=2 b=3 c=4 m=5", "concat f", 3},
    {"sizes a b c m n\nfunctions f\ninputs x[a,m,n] y[b,m,n] z[c,m,n]\n", "a=2 b=3 c=4 m=5 n=6",
     "concat f", 3},
    {"sizes a b c m n\nfunctions f\ninputs x[m,a,n] y[m,b,n] z[m,c,n]\n", "a=2 b=3 c=4 m=5 n=6",
     "concat f", 3},
    {"sizes a b c m n\nfunctions f\ninputs x[m,n,a] y[m,n,b] z[m,n,c]\n", "a=2 b=3 c=4 m=5 n=6",
     "concat f", 3},
    // Elements and movement.
    {"sizes m n\nscalars s\nfunctions f g\ninputs x[m,n] y[m,n] z[m,n]\n", "m=4 n=3", kMovement, 3},
    {"sizes m n1 n2 n3\nscalars s\nfunctions f g\ninputs x[m,n1] y[m,n2] z[m,n3]\n",
     "m=3 n1=4 n2=5 n3=7", "f g add concat slice permute reduce_sum reduce_max", 3},
    {"sizes m n1 n2\nscalars s\nfunctions f g\ninputs x[m,n1+n2] y[m,n1] z[m,n2]\n",
     "m=3 n1=4 n2=5", kMovement, 3},
    {"sizes a b c\nscalars s\nfunctions f\ninputs x[a,b,c] y[a,b,c]\n", "a=3 b=4 c=5", kMovement,
     3},
    {"sizes m n\nintegers p q\nscalars s\nfunctions f g\nwhere p >= 0\nwhere q >= 0\n"
     "inputs x[m,n] y[m,n]\n",
     "m=3 n=4 p=1 q=2", "add mul scale f pad permute reduce_sum", 3},
    {"sizes m n\nscalars s\nfunctions f g\ninputs x[m,n] c[n] d[m,1]\n", "m=3 n=4",
     "add mul scale f g broadcast permute reduce_sum reduce_max", 3},
    // Convolutions and pools.
    {"sizes n ci h co k d\nscalars s\nfunctions f\ninputs x[n,ci,h] a[co,ci,k] b[co,ci,k]\n",
     "n=1 ci=2 h=7 co=3 k=4 d=2", kConvs, 3},
    {"sizes n ci h co k d\nscalars s\nfunctions f\ninputs x[n,ci,h] y[n,ci,h] a[co,ci,k]\n",
     "n=1 ci=2 h=7 co=3 k=4 d=2", kConvs, 3},
    {"sizes n ci h co1 co2 k\nscalars s\nfunctions f\ninputs x[n,ci,h] a[co1,ci,k] b[co2,ci,k]\n",
     "n=1 ci=2 h=6 co1=4 co2=5 k=3", kConvs, 3},
    {"sizes n c1 c2 h co k\ninputs x[n,c1,h] y[n,c2,h] a[co,c1,k] b[co,c2,k]\n",
     "n=1 c1=2 c2=3 h=6 co=4 k=5", kNarrow, 3},
    {"sizes n1 n2 ci h co k\nscalars s\nfunctions f\ninputs x[n1,ci,h] y[n2,ci,h] a[co,ci,k]\n",
     "n1=1 n2=3 ci=2 h=6 co=4 k=5", kConvs, 3},
    {"sizes n ci h co k\nscalars s\ninputs x[n,ci,h] a[co,ci,1] b[co,ci,k]\n",
     "n=1 ci=2 h=7 co=3 k=5", kNarrow, 3},
    {"sizes n ci h w co\ninputs x[n,ci,h,w] a[co,ci,1,1]\n", "n=1 ci=2 h=4 w=5 co=3", "conv pad",
     3},
    {"sizes n ci h w co1 co2 k l\nfunctions f\ninputs x[n,ci,h,w] a[co1,ci,k,l] b[co2,ci,k,l]\n",
     "n=1 ci=2 h=8 w=7 co1=3 co2=6 k=5 l=4", "conv concat f slice", 3},
    {"sizes n c1 c2 h w co k l\ninputs x[n,c1,h,w] y[n,c2,h,w] a[co,c1,k,l] b[co,c2,k,l]\n",
     "n=1 c1=2 c2=3 h=7 w=8 co=4 k=5 l=3", "conv add concat", 3},
    {"sizes n ci h co k\ninputs x[n,ci,h] a[co,ci,k] c[co,1]\n", "n=1 ci=2 h=7 co=3 k=4",
     "conv mul broadcast reshape", 4},
    {"sizes n c1 c2 h w\nscalars s\nfunctions f\ninputs x[n,c1,h] y[n,c2,h] z[n,c1,h]\n",
     "n=1 c1=2 c2=3 h=6 w=4", "add max scale concat slice pool_sum pool_max", 3},
};

std::vector<Poly> ints(std::initializer_list<int64_t> all) {
  std::vector<Poly> list;
  for (const int64_t i : all) list.emplace_back(i);
  return list;
}
// Whether the text, words by spaces, has the word.
bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || std::string_view(" \n").find(text[at - 1]) != std::string_view::npos) &&
        (end == text.size() || std::string_view(" \n").find(text[end]) != std::string_view::npos))
      return true;
  }
  return false;
}
// n1 and n2: what is laid in a row is cut where it meets.
bool are_siblings(const Monomial& a, const Monomial& b) {
  if (a.size() != 1 || b.size() != 1) return false;
  const std::string x = a[0].name(), y = b[0].name();
  return x.size() == y.size() && x.substr(0, x.size() - 1) == y.substr(0, x.size() - 1) &&
         x.back() + 1 == y.back();
}
Poly symbol(std::string_view name) { return Poly(Symbol(name)); }
}  // namespace

std::span<const World> all_worlds() { return kWorlds; }

std::vector<Choice> choices(const World& w, const Extents& x, std::span<const Extents> known) {
  std::vector<Choice> all;
  auto has = [&](std::string_view kind) { return has_word(w.kinds, kind); };
  auto add = [&](std::string kind, std::map<std::string, std::vector<Poly>, std::less<>> polys) {
    if (has(kind)) all.push_back({std::move(kind), {std::move(polys), {}}});
  };
  if (has("f")) all.push_back({"function", {{}, {{"name", "f"}}}});
  add("scale", {{"by", {symbol("s")}}});
  if (x.size() == 2) add("permute", {{"order", ints({1, 0})}});
  if (x.size() == 3) add("permute", {{"order", ints({0, 2, 1})}});
  if (x.size() == 3) add("permute", {{"order", ints({1, 0, 2})}});
  for (size_t d = 0; d < x.size(); ++d) {
    const Poly dim(static_cast<int64_t>(d));
    if (x[d] != Poly(1)) {
      add("reduce_sum", {{"dims", {dim}}});
      add("reduce_max", {{"dims", {dim}}});
    }
    const auto& parts = x[d].terms();
    if (parts.size() == 2 && are_siblings(parts[0].first, parts[1].first)) {
      const Poly first(parts[0].first[0]), second = x[d] - first;
      add("slice", {{"dim", {dim}}, {"start", {0}}, {"size", {first}}});
      add("slice", {{"dim", {dim}}, {"start", {first}}, {"size", {second}}});
    }
    if (has_word(w.header, "p")) add("pad", {{"dim", {dim}}, {"lo", {symbol("p")}}});
    if (has_word(w.header, "q"))
      add("pad", {{"dim", {dim}}, {"lo", {symbol("p")}}, {"hi", {symbol("q")}}});
    if (d >= 2 && x[d] == Poly(1)) add("pad", {{"dim", {dim}}, {"lo", {1}}, {"hi", {1}}});
    if (d == 2 && x[d] == symbol("k") && has_word(w.header, "d"))
      add("pad", {{"dim", {dim}}, {"interior", {symbol("d") - 1}}});
  }
  if (x.size() == 3 && x[2] == symbol("h"))
    for (const char* kind : {"pool_sum", "pool_max"}) add(kind, {{"kernel", {symbol("w")}}});
  for (const Extents& y : known)
    for (const char* kind : {"broadcast", "reshape"}) {
      const KindAttrs to{{{"shape", y}}, {}};
      const bool is_other = std::string_view(kind) == "reshape" ? y.size() != x.size() : y != x;
      if (is_other && has(kind) && form_of(kind, {{&x, 1}, to}).ok()) all.push_back({kind, to});
    }
  if (x.size() == 2 && x[1] == Poly(1)) add("reshape", {{"shape", {x[0], 1, 1}}});
  return all;
}

std::vector<Choice> choices(const World& w, const Extents& x, const Extents& y) {
  std::vector<Choice> all;
  auto has = [&](std::string_view kind) { return has_word(w.kinds, kind); };
  if (x == y) {
    for (const char* kind : {"add", "mul", "max"})
      if (has(kind)) all.push_back({kind, {}, true});
    if (has("g")) all.push_back({"function", {{}, {{"name", "g"}}}});
  }
  const Extents both[] = {x, y};
  auto try_add = [&](std::string kind, KindAttrs attrs) {
    if (has(kind) && form_of(kind, {both, attrs}).ok())
      all.push_back({std::move(kind), std::move(attrs)});
  };
  if (x.size() == y.size() && x.size() > 1)
    for (size_t d = 0; d < x.size(); ++d)
      try_add("concat", {{{"dim", {static_cast<int64_t>(d)}}}, {}});
  if (x.size() == 2) try_add("dot", {});
  if (x.size() == 3) try_add("dot", {{}, {{"dims", "b t k, k n -> b t n"}}});
  if (x.size() < 3) return all;
  try_add("conv", {});
  if (has_word(w.header, "d")) try_add("conv", {{{"dilation", {symbol("d")}}}, {}});
  if (x.size() == 3) try_add("conv", {{{"lo", {1}}, {"hi", {1}}}, {}});
  if (x.size() == 4) try_add("conv", {{{"lo", ints({1, 1})}, {"hi", ints({1, 1})}}, {}});
  return all;
}

}  // namespace tegula::superopt
