#include "tegula/planner/enumerate.h"

#include "tegula/base/amounts.h"
#include "tegula/planner/search.h"

namespace tegula::planner {

namespace {

bool divides(int64_t part, int64_t whole) { return part > 0 && whole % part == 0; }

// The values of a setting: the pinned one, or all.
template <class T>
std::vector<T> choices(const std::optional<T>& pin, std::vector<T> all) {
  return pin ? std::vector<T>{*pin} : std::move(all);
}

bool cuts_model(const ModelSpec& m, int64_t tp) {
  if (m.kind != ModelKind::kDecoder) return tp == 1;
  return divides(tp, m.n_heads) && divides(tp, m.d_ff) &&
         (divides(tp, m.n_kv_heads) || divides(m.n_kv_heads, tp));
}

std::vector<int64_t> microbatches(int64_t sequences_of_rank, const Pins& pins) {
  std::vector<int64_t> list;
  for (int64_t b = 1; b <= kMostMicrobatch; ++b)
    if (divides(b, sequences_of_rank)) list.push_back(b);
  if (!pins.microbatch) return list;
  if (divides(*pins.microbatch, sequences_of_rank)) return {*pins.microbatch};
  return {};
}

void add_meshes(const Layout& mesh, const ModelSpec& model, const Job& job, const Pins& pins,
                std::vector<Layout>& out) {
  const std::vector<int64_t> experts =
      model.is_moe() ? divisors(model.n_experts) : std::vector<int64_t>{1};
  std::vector<bool> sps = {false};
  if (mesh.tp > 1 && divides(mesh.tp, job.seqlen / mesh.cp)) sps.push_back(true);
  if (pins.sp) {
    if (*pins.sp && sps.size() == 1) return;
    sps = {*pins.sp};
  }
  for (const int64_t ep : choices(pins.ep, experts)) {
    if (!divides(ep, mesh.zero_ranks()) || !divides(ep, model.n_experts)) continue;
    for (const bool sp : sps)
      for (const int64_t b : microbatches(job.batch_tokens / job.seqlen / mesh.dp, pins))
        for (const Remat remat :
             choices(pins.remat, std::vector<Remat>(std::begin(kRemats), std::end(kRemats)))) {
          Layout l = mesh;
          l.ep = ep, l.sp = sp, l.microbatch = b, l.remat = remat;
          out.push_back(l);
        }
  }
}

}  // namespace

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d)
    if (n % d == 0) {
      low.push_back(d);
      if (d * d != n) high.push_back(n / d);
    }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<Layout> meshes(const ModelSpec& model, const ClusterSpec& cluster, const Job& job,
                           const Pins& pins) {
  std::vector<Layout> out;
  const int64_t n = cluster.n_devices, sequences = job.batch_tokens / job.seqlen;
  for (const int64_t tp : choices(pins.tp, divisors(n))) {
    if (!divides(tp, n) || !cuts_model(model, tp)) continue;
    for (const int64_t pp : choices(pins.pp, divisors(n / tp))) {
      if (!divides(pp, n / tp) || pp > model.n_layers) continue;
      for (const int64_t cp : choices(pins.cp, divisors(n / tp / pp))) {
        if (!divides(cp, n / tp / pp)) continue;
        Layout mesh;
        mesh.tp = tp, mesh.pp = pp, mesh.cp = cp, mesh.dp = n / tp / pp / cp;
        if ((pins.dp && *pins.dp != mesh.dp) || !divides(mesh.dp, sequences)) continue;
        // Striped costs what zigzag does, contiguous more.
        for (const ContextCut context :
             choices(pins.context, {ContextCut::kZigzag, ContextCut::kUlysses})) {
          mesh.context = context;
          if (cp == 1 && context != pins.context.value_or(ContextCut::kZigzag)) continue;
          if (check_context(mesh, model, job).ok()) add_meshes(mesh, model, job, pins, out);
        }
      }
    }
  }
  return out;
}

namespace {

// A schedule's own settings: chunks of a rank, slices of tokens.
std::vector<Layout> with_settings(const Layout& l, const Pins& pins) {
  std::vector<Layout> all;
  if (l.turns == Turns::kInterleaved) {
    for (int64_t v = 2; v <= kMostInterleave; ++v) all.push_back(l), all.back().interleave = v;
    if (pins.interleave) all = {l}, all[0].interleave = *pins.interleave;
  } else if (l.turns == Turns::kTeraPipe) {
    for (int64_t n = 2; n <= kMostSlices; n *= 2) all.push_back(l), all.back().slices = n;
    if (pins.slices) all = {l}, all[0].slices = *pins.slices;
  } else {
    all = {l};
  }
  std::erase_if(all, [&](const Layout& one) {
    return one.interleave != pins.interleave.value_or(one.interleave) ||
           one.slices != pins.slices.value_or(one.slices);
  });
  return all;
}

}  // namespace

void complete(const Layout& mesh, const ModelSpec& model, const Job& job, const Pins& pins,
              std::vector<Layout>& out) {
  out.clear();
  std::vector<Layout> turned;
  for (const Turns turns : kTurns) {
    // One stage has no turns to take, and the order that keeps least is 1F1B's.
    if (mesh.pp == 1 && turns != pins.turns.value_or(Turns::kOneFOneB)) continue;
    if (pins.turns && *pins.turns != turns) continue;
    Layout with_turns = mesh;
    with_turns.turns = turns;
    for (const Layout& l : with_settings(with_turns, pins))
      if (check_turns(l, model, job).ok()) turned.push_back(l);
  }
  for (Layout l : turned)
    for (int zero = 0; zero <= 3; ++zero) {
      if (pins.zero && *pins.zero != zero) continue;
      if (zero > 0 && l.zero_ranks() == 1) continue;
      l.zero = zero;
      if (can_be_sharded_so(l, job)) out.push_back(l);
    }
}

Error why_none(const ModelSpec& model, const ClusterSpec& cluster, const Job& job,
               const Pins& pins) {
  Layout l;
  l.tp = pins.tp.value_or(1), l.pp = pins.pp.value_or(1), l.cp = pins.cp.value_or(1);
  l.ep = pins.ep.value_or(1), l.zero = pins.zero.value_or(0), l.sp = pins.sp.value_or(false);
  l.context = pins.context.value_or(ContextCut::kZigzag);
  l.turns = pins.turns.value_or(Turns::kOneFOneB), l.interleave = pins.interleave.value_or(1);
  l.slices = pins.slices.value_or(l.turns == Turns::kTeraPipe ? 2 : 1);
  l.microbatch = pins.microbatch.value_or(1);
  if (const auto stages = static_cast<int64_t>(job.stages.size()); stages > 0 && !pins.pp)
    l.pp = stages / l.chunks();
  const int64_t others = l.tp * l.pp * l.cp, n = cluster.n_devices;
  if (pins.dp) {
    l.dp = *pins.dp;
  } else if (n % others == 0) {
    l.dp = n / others;
  } else {
    return invalid_argument(cat("no layout: the number of devices, ", n,
                                ", is not a multiple of tp ", l.tp, " · pp ", l.pp, " · cp ", l.cp,
                                " = ", others));
  }
  TEGULA_TRY(named("no layout", check_layout(l, model, cluster, job)));
  return invalid_argument(cat("no layout of ", n, " devices divides ", model.name,
                              " as --fix wants it: fix fewer settings"));
}

}  // namespace tegula::planner
