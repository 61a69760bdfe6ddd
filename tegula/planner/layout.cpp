#include "tegula/planner/layout.h"

#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/base/text.h"
#include "tegula/planner/nearest.h"
#include "tegula/planner/settings.h"

namespace tegula::planner {

namespace {

// Naive's, then AttentionKernel's.
constexpr std::string_view kAttentionNames[] = {"naive",  "math",   "eager",  "flash",
                                                "flash1", "flash2", "flash3", "cudnn"};
constexpr size_t kNaives = 3;
constexpr std::string_view kTurnsNames[] = {"gpipe",       "one_f_one_b",    "interleaved",
                                            "zero_bubble", "zero_bubble_h2", "zero_bubble_v",
                                            "chimera",     "dual_pipe",      "tera_pipe"};
constexpr std::string_view kContextNames[] = {"zigzag", "striped", "contiguous", "ulysses"};
constexpr std::string_view kRematNames[] = {"none", "selective", "full", "every-other"};
constexpr int64_t kMostDegree = int64_t{1} << 20;

Result<int64_t> parse_size(std::string_view key, std::string_view value, int64_t low,
                           int64_t high) {
  auto n = read_count(value, low, high);
  if (!n.ok()) return named(cat("--fix ", key), n.error());
  return n;
}

template <size_t N>
Result<size_t> parse_choice(std::string_view key, std::string_view value,
                            const std::string_view (&names)[N]) {
  std::string list;
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == value) return i;
    list += cat(i ? "|" : "", names[i]);
  }
  return invalid_argument(cat("--fix ", key, "=", value, ": must be one of ", list));
}

constexpr std::string_view kBools[] = {"false", "true", "0", "1", "off", "on"};

struct SizeKey {
  std::string_view name;
  std::optional<int64_t> Pins::*at;
};
constexpr SizeKey kSizeKeys[] = {{"dp", &Pins::dp},         {"tp", &Pins::tp},
                                 {"pp", &Pins::pp},         {"cp", &Pins::cp},
                                 {"ep", &Pins::ep},         {"interleave", &Pins::interleave},
                                 {"slices", &Pins::slices}, {"microbatch", &Pins::microbatch}};
constexpr std::string_view kOtherKeys[] = {"zero",      "sp",   "context", "schedule", "remat",
                                           "attention", "loss", "dtype",   "stages",   "overlap"};

Status set_pin(std::string_view key, std::string_view value, Pins& pins) {
  for (const SizeKey& k : kSizeKeys)
    if (k.name == key) {
      pins.*k.at = TEGULA_TRY(parse_size(key, value, 1, kMostDegree));
      return {};
    }
  if (key == "zero") {
    pins.zero = static_cast<int>(TEGULA_TRY(parse_size(key, value, 0, 3)));
  } else if (key == "sp") {
    pins.sp = TEGULA_TRY(parse_choice(key, value, kBools)) % 2 == 1;
  } else if (key == "context") {
    pins.context = static_cast<ContextCut>(TEGULA_TRY(parse_choice(key, value, kContextNames)));
  } else if (key == "schedule") {
    if (value == "1f1b") value = "one_f_one_b";
    pins.turns = static_cast<Turns>(TEGULA_TRY(parse_choice(key, value, kTurnsNames)));
  } else if (key == "remat") {
    pins.remat = static_cast<Remat>(TEGULA_TRY(parse_choice(key, value, kRematNames)));
  } else if (key == "attention") {
    const size_t kind = TEGULA_TRY(parse_choice(key, value, kAttentionNames));
    pins.flash = kind >= kNaives;
    if (kind < kNaives) pins.naive = static_cast<Naive>(kind);
    if (kind > kNaives) pins.kernel = static_cast<AttentionKernel>(kind - kNaives);
  } else if (key == "loss") {
    constexpr std::string_view kLosses[] = {"fused", "chunked", "whole"};
    pins.loss = static_cast<Loss>(TEGULA_TRY(parse_choice(key, value, kLosses)));
  } else if (key == "overlap") {
    const auto share = read_amount(value, 0, 1);
    if (!share.ok()) return named("--fix overlap", share.error());
    pins.overlap = *share;
  } else if (key == "stages") {
    for (size_t begin = 0; begin <= value.size();) {
      const size_t end = std::min(value.find('+', begin), value.size());
      pins.stages.push_back(
          TEGULA_TRY(parse_size(key, value.substr(begin, end - begin), 1, kMostDegree)));
      begin = end + 1;
    }
  } else if (key == "dtype") {
    pins.dtype = TEGULA_TRY(parse_number(value));
  } else {
    std::vector<std::string_view> names(std::begin(kOtherKeys), std::end(kOtherKeys));
    for (const SizeKey& k : kSizeKeys) names.push_back(k.name);
    return invalid_argument(cat("--fix has no key '", key, "': the nearest are ",
                                nearest_names(key, names), "; write --fix tp=8,pp=4,remat=full"));
  }
  return {};
}

Error does_not_divide(const char* what, int64_t whole, const char* by, int64_t part) {
  return invalid_argument(cat(what, " ", whole, " is not a multiple of ", by, " ", part));
}

Status check_model_cuts(const Layout& l, const ModelSpec& m) {
  if (m.kind != ModelKind::kDecoder && (l.tp > 1 || l.cp > 1))
    return invalid_argument(
        cat(m.name, " has no attention: tp ", l.tp, " and cp ", l.cp, " must be 1"));
  if (m.kind == ModelKind::kDecoder) {
    if (m.n_heads % l.tp != 0) return does_not_divide("n_heads", m.n_heads, "tp", l.tp);
    if (m.n_kv_heads % l.tp != 0 && l.tp % m.n_kv_heads != 0)
      return invalid_argument(cat("n_kv_heads ", m.n_kv_heads, " and tp ", l.tp,
                                  ": neither is a multiple of the other"));
    if (m.d_ff % l.tp != 0) return does_not_divide("d_ff", m.d_ff, "tp", l.tp);
    if (m.n_experts % l.ep != 0) return does_not_divide("n_experts", m.n_experts, "ep", l.ep);
  }
  return {};
}

// Schedules that hold two stages on each rank, or cut sequences.
Status check_pairs_and_slices(const Layout& l, const Job& job) {
  const std::string_view name = turns_name(l.turns);
  const int64_t m = n_microbatches(job, l);
  if (l.copies() == 2 && l.pp % 2 != 0)
    return invalid_argument(
        cat("schedule ", name, " pairs each rank with another one: pp ", l.pp, " is odd"));
  if (l.turns == Turns::kDualPipe && (m % 2 != 0 || m < 2 * l.pp))
    return invalid_argument(cat("schedule dual_pipe needs an even number of micro-batches, at ",
                                "least 2·pp = ", 2 * l.pp, ", and there are ", m));
  if (l.turns == Turns::kZeroBubbleV && l.pp < 2)
    return invalid_argument("schedule zero_bubble_v needs pp of at least 2");
  if ((l.slices > 1) != (l.turns == Turns::kTeraPipe))
    return invalid_argument(cat("slices ", l.slices, " with schedule ", name,
                                ": tera_pipe has 2 of them or more, the others 1"));
  if (l.slices == 1) return {};
  if (l.pp < 2) return invalid_argument("schedule tera_pipe needs pp of at least 2");
  if (l.cp > 1)
    return invalid_argument(
        cat("schedule tera_pipe cuts sequences that cp ", l.cp, " has cut: cp must be 1"));
  if (job.seqlen % l.slices != 0) return does_not_divide("seqlen", job.seqlen, "slices", l.slices);
  if (l.sp && job.seqlen / l.slices % l.tp != 0)
    return does_not_divide("sp: seqlen / slices", job.seqlen / l.slices, "tp", l.tp);
  return {};
}

}  // namespace

bool can_be_sharded_so(const Layout& l, const Job& job) {
  return !job.framework || !job.framework->is_sharded || l.zero >= 2 || l.zero_ranks() == 1;
}

Status check_context(const Layout& l, const ModelSpec& m, const Job& job) {
  if (l.cp == 1) return {};
  if (m.kind != ModelKind::kDecoder)
    return invalid_argument(cat(m.name, " has no attention: cp ", l.cp, " must be 1"));
  if (l.context == ContextCut::kZigzag && job.seqlen % (2 * l.cp) != 0)
    return does_not_divide("seqlen", job.seqlen, "2 · cp", 2 * l.cp);
  if (job.seqlen % l.cp != 0) return does_not_divide("seqlen", job.seqlen, "cp", l.cp);
  if (l.context == ContextCut::kUlysses && m.n_heads % (l.tp * l.cp) != 0)
    return does_not_divide("context ulysses: n_heads", m.n_heads, "tp · cp", l.tp * l.cp);
  return {};
}

namespace {

// The bytes of one parameter, over a layer's matrices [m n], m ≤ n, at rank r = m/4: two moments [r
// n] of a byte, a projection [m r] of two.
double galore_bytes(const ModelSpec& m) {
  double bytes = 0, params = 0;
  const auto add = [&](int64_t rows, int64_t columns, double times) {
    const double low = static_cast<double>(std::min(rows, columns)),
                 high = static_cast<double>(std::max(rows, columns)), rank = low / 4;
    bytes += times * (2 * rank * high + 2 * low * rank), params += times * low * high;
  };
  if (m.kind == ModelKind::kDecoder) {
    const double dense = m.dense_share(), matrices = static_cast<double>(m.n_ff_matrices);
    if (m.is_latent()) {
      if (m.q_rank > 0) add(m.d_model, m.q_rank, 1), add(m.q_rank, m.q_width(), 1);
      if (m.q_rank == 0) add(m.d_model, m.q_width(), 1);
      add(m.d_model, m.kv_rank + m.rope_dim, 1);
      add(m.kv_rank, m.n_heads * (m.head_dim - m.rope_dim) + m.o_width(), 1);
    } else {
      add(m.d_model, m.q_width(), 1), add(m.d_model, m.kv_width(), 2);
    }
    add(m.d_model, m.o_width(), 1);
    add(m.d_model, m.d_ff, (1 - dense) * matrices * static_cast<double>(m.n_experts));
    add(m.d_model, m.shared_ff, (1 - dense) * matrices);
    add(m.d_model, m.dense_ff, dense * matrices);
  } else {
    const int64_t width = m.kind == ModelKind::kMlp ? m.d_ff : m.d_model;
    add(width, width, 1);
  }
  return bytes / params;
}

}  // namespace

std::string_view turns_name(Turns turns) { return kTurnsNames[static_cast<int>(turns)]; }
std::string_view context_name(ContextCut context) {
  return kContextNames[static_cast<int>(context)];
}
std::string_view remat_name(Remat remat) { return kRematNames[static_cast<int>(remat)]; }

std::string stages_name(const std::vector<int64_t>& stages) { return joined(stages, "+"); }

std::string to_string(const Layout& l) {
  std::string text = cat("dp ", l.dp, " tp ", l.tp, " pp ", l.pp, " cp ", l.cp);
  if (l.cp > 1 && l.context != ContextCut::kZigzag) text += cat(" ", context_name(l.context));
  if (l.ep > 1) text += cat(" ep ", l.ep);
  text += cat(" zero ", l.zero, l.sp ? " sp" : "");
  if (l.pp > 1) text += cat(" ", turns_name(l.turns));
  if (l.interleave > 1) text += cat(" ×", l.interleave);
  if (l.slices > 1) text += cat(" of ", l.slices, " slices");
  return text + cat(" microbatch ", l.microbatch, " remat ", remat_name(l.remat));
}

Result<Optimizer> parse_optimizer(std::string_view name) {
  constexpr std::string_view kNames[] = {"adam", "adam-pure", "adam8bit", "galore", "sgd"};
  std::string list;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Optimizer>(i);
    list += cat(i ? "|" : "", kNames[i]);
  }
  return invalid_argument(cat("--optimizer ", name, ": must be one of ", list));
}

bool is_autocast(const Job& job) {
  return job.framework && job.framework->has_f32_weights && !job.framework->is_sharded &&
         job.optimizer == Optimizer::kAdam && bytes_of(job.dtype) < 4;
}

Loss loss_of(const Job& job) {
  if (job.loss) return *job.loss;
  return job.framework && job.framework->logit_bytes > 0 ? Loss::kWhole : Loss::kFused;
}

StateBytes state_bytes(const Job& job, const ModelSpec& model) {
  const double weight = job.dtype == Number::kF32 || job.dtype == Number::kTf32 ? 4
                        : job.dtype == Number::kF64                             ? 8
                                                                                : 2;
  StateBytes s{weight, weight >= 4 ? weight : job.gradient_bytes, 0};
  if (job.framework && weight < 4 && job.optimizer == Optimizer::kAdam) {
    if (job.framework->has_f32_weights) return {4, 4, 8};
    s.gradients = job.framework->gradient_bytes;
  }
  const double master = weight < 4 ? 4 : 0;
  switch (job.optimizer) {
    case Optimizer::kAdam:
      s.optimizer = master + 8;
      break;
    case Optimizer::kAdamPure:
      s.optimizer = 2 * weight;
      break;
    case Optimizer::kAdam8bit:
      s.optimizer = 2;
      break;
    case Optimizer::kGalore:
      s.optimizer = galore_bytes(model);
      s.gradients /= static_cast<double>(model.n_layers);
      break;
    case Optimizer::kSgd:
      s.optimizer = master;
      break;
  }
  return s;
}

int64_t n_microbatches(const Job& job, const Layout& l) {
  return job.batch_tokens / job.seqlen / l.dp / l.microbatch;
}

std::string_view made_again(const Job& job, const Layout& l) {
  constexpr std::string_view kSelectives[] = {"", "scores of attention", "norms and activations",
                                              "all but every other product and attention"};
  if (l.remat == Remat::kNone) return "nothing";
  if (l.remat == Remat::kFull) return "whole layers";
  if (l.remat == Remat::kEveryOther) return "every other layer";
  return kSelectives[static_cast<int>(selective_of(job.framework, job.flash))];
}

double hides_of(const Job& job) {
  return job.overlap.value_or(job.framework ? job.framework->hides : 1);
}

Result<Pins> parse_pins(std::string_view text) {
  Pins pins;
  std::vector<std::string_view> seen;
  for (const auto& [key, value] :
       TEGULA_TRY(parse_settings("--fix", "KEY=VALUE, as in tp=8", text))) {
    for (const std::string_view s : seen)
      if (s == key) return invalid_argument(cat("--fix gives ", key, " twice"));
    seen.push_back(key);
    TEGULA_TRY(set_pin(key, value, pins));
  }
  return pins;
}

Status check_turns(const Layout& l, const ModelSpec& m, const Job& job) {
  if (l.pp * l.chunks() > m.n_layers)
    return invalid_argument(cat("n_layers ", m.n_layers, " is less than pp ", l.pp,
                                l.interleave > 1 ? " · interleave " : " · stages of a rank ",
                                l.chunks()));
  if (const auto n = static_cast<int64_t>(job.stages.size()); n > 0 && l.pp * l.chunks() != n)
    return invalid_argument(cat("stages ", stages_name(job.stages), " are ", n, ", and pp ", l.pp,
                                l.chunks() > 1 ? cat(" of ", l.chunks(), " chunks") : "", " has ",
                                l.pp * l.chunks()));
  if (l.slices > 1 && m.kind != ModelKind::kDecoder)
    return invalid_argument(cat("slices ", l.slices, ": only a decoder's tokens go in slices"));
  const bool is_interleaved = l.turns == Turns::kInterleaved;
  if (l.interleave > 1 && !is_interleaved)
    return invalid_argument(
        cat("interleave ", l.interleave, " needs schedule interleaved, not ", turns_name(l.turns)));
  if (is_interleaved && (l.interleave < 2 || l.pp < 2))
    return invalid_argument(cat("schedule interleaved needs pp ", l.pp, " and interleave ",
                                l.interleave, " of at least 2"));
  const int64_t n = n_microbatches(job, l);
  if (is_interleaved && n < l.pp)
    return invalid_argument(cat("schedule interleaved needs as many micro-batches as pp, ", l.pp,
                                ", and there are ", n));
  if (l.turns == Turns::kZeroBubbleH2 && n < 2 * l.pp - 1)
    return invalid_argument(cat("schedule zero_bubble_h2 needs 2·pp − 1 = ", 2 * l.pp - 1,
                                " micro-batches, and there are ", n));
  return check_pairs_and_slices(l, job);
}

Status check_layout(const Layout& l, const ModelSpec& m, const ClusterSpec& c, const Job& job) {
  if (l.devices() != c.n_devices)
    return invalid_argument(cat("dp ", l.dp, " · tp ", l.tp, " · pp ", l.pp, " · cp ", l.cp, " = ",
                                l.devices(), " is not the number of devices, ", c.n_devices));
  TEGULA_TRY(check_model_cuts(l, m));
  TEGULA_TRY(check_context(l, m, job));
  if (!can_be_sharded_so(l, job))
    return invalid_argument(cat("--framework ", job.framework->name, " shards weights: zero ",
                                l.zero,
                                " must be 3, or 2 where they are kept from forward to "
                                "backward"));
  if (l.zero_ranks() % l.ep != 0) return does_not_divide("dp · cp", l.zero_ranks(), "ep", l.ep);
  if (l.sp && l.tp > 1 && job.seqlen / l.cp % l.tp != 0)
    return does_not_divide("sp: seqlen / cp", job.seqlen / l.cp, "tp", l.tp);
  if (l.sp && l.tp == 1)
    return invalid_argument("sp cuts what tensor parallelism leaves whole: it needs tp above 1");
  const int64_t sequences = job.batch_tokens / job.seqlen;
  if (sequences % l.dp != 0) return does_not_divide("a step's sequences", sequences, "dp", l.dp);
  if (sequences / l.dp % l.microbatch != 0)
    return does_not_divide("a rank's sequences", sequences / l.dp, "microbatch", l.microbatch);
  if (l.zero > 0 && l.zero_ranks() == 1)
    return invalid_argument(cat("zero ", l.zero, " shards over dp · cp, which is 1"));
  return check_turns(l, m, job);
}

std::string_view Job::attention() const {
  return flash ? kernel_name(kernel) : kAttentionNames[static_cast<size_t>(naive)];
}

Status check_job(const ModelSpec& m, const ClusterSpec& c, const Job& job) {
  if (job.seqlen < 1 || job.batch_tokens < 1)
    return invalid_argument(
        cat("seqlen ", job.seqlen, " and batch-tokens ", job.batch_tokens, " must be at least 1"));
  if (m.n_positions > 0 && job.seqlen > m.n_positions)
    return invalid_argument(cat("seqlen ", job.seqlen, " is longer than the table of positions of ",
                                m.name, ", ", m.n_positions));
  if (job.batch_tokens % job.seqlen != 0)
    return invalid_argument(cat("batch-tokens ", job.batch_tokens, " is not a multiple of seqlen ",
                                job.seqlen, ": the nearest are ",
                                job.batch_tokens / job.seqlen * job.seqlen, " and ",
                                (job.batch_tokens / job.seqlen + 1) * job.seqlen));
  const Sustained& s = c.device.sustained;
  if (job.flash && job.kernel != AttentionKernel::kDefault &&
      !s.attention[static_cast<size_t>(job.kernel)].is_known) {
    std::string known = "flash";
    for (size_t k = 1; k < kAttentionKernels; ++k)
      if (s.attention[k].is_known) known += cat(", ", kKernelNames[k]);
    return invalid_argument(cat("--fix attention=", kernel_name(job.kernel),
                                ": what it reaches is not known on ", c.device.name,
                                ", or it does not run there: take one of ", known,
                                ", or measure it (--microbenchmarks)"));
  }
  if (job.dtype == Number::kI8)
    return invalid_argument("nothing is trained in int8: it is for --serve");
  if (c.device.peak(job.dtype) == 0)
    return invalid_argument(cat(c.device.name, " has no units for ", number_name(job.dtype),
                                ": choose another --dtype"));
  return {};
}

}  // namespace tegula::planner
