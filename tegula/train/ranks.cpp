#include "tegula/train/ranks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tegula/ir/hash.h"
#include "tegula/ir/regions.h"
#include "tegula/ir/sum_shards.h"
#include "tegula/models/model.h"
#include "tegula/plan/collectives.h"
#include "tegula/train/deal.h"

namespace tegula {

namespace {

constexpr std::string_view kAxes = "dp, tp, pp, cp and ep";
constexpr std::string_view kOrder[] = {"pp", "dp", "cp", "ep", "tp"};

// The axis that cuts a weight so: experts by ep, everything else by tp.
std::string_view axis_of(const Cut& cut) { return cut.units == &setting::kExperts ? "ep" : "tp"; }

bool is_table(const ModelDef& model, std::string_view name) {
  return name == model.names.table || name == model.names.head;
}

// Vocabularies are never cut: tokens are, over all axes.
const Cut* cut_of(const ModelDef& model, std::string_view name) {
  if (is_table(model, name)) return nullptr;
  const auto it = std::find_if(model.cuts.begin(), model.cuts.end(),
                               [&](const Cut& c) { return name.ends_with(c.name); });
  return it == model.cuts.end() ? nullptr : &*it;
}

// A sharding cuts all parts of a dim alike: grouped heads in one weight are not, which stays whole.
bool has_equal_parts(const ModelConfig& config, const Cut& cut) {
  return cut.first == nullptr || config.size(*cut.first) == config.size(*cut.units);
}

Result<Sharding> sharding_of_weight(const ModelConfig& config, const Mesh& mesh,
                                    const ModelDef& model, std::string_view name,
                                    const Shape& shape) {
  Sharding s = replicated(mesh);
  const Cut* cut = cut_of(model, name);
  if (!cut) return s;
  const int axis = mesh.find(axis_of(*cut));
  if (axis < 0) return s;
  const int64_t n = mesh.axes[static_cast<size_t>(axis)].size;
  if (!has_equal_parts(config, *cut)) return s;
  const int64_t extent = part_extent(config, *cut, shape[cut->dim].bound());
  const int64_t units = cut->units ? config.size(*cut->units) : extent;
  // Whole units alone: what does not divide stays whole, and its products are listed as uncut.
  if (units % n == 0) s[static_cast<size_t>(axis)] = AxisSharding::split(cut->dim, cut->parts);
  return s;
}

// Weights of which an axis cannot share out whole units, by axis and unit: a line each.
Result<std::vector<std::string>> left_whole(const TrainConfig& config) {
  const ModelDef& model = *TEGULA_TRY(find_model(config.model.type));
  std::map<std::string, std::string> names;  // what cannot be shared -> of which weights
  for (const Cut& cut : model.cuts) {
    const int axis = config.mesh.find(axis_of(cut));
    if (axis < 0 || !cut.units) continue;
    const MeshAxis& a = config.mesh.axes[static_cast<size_t>(axis)];
    const int64_t units = config.model.size(*cut.units);
    const bool is_equal = has_equal_parts(config.model, cut);
    if (a.size == 1 || (is_equal && units % a.size == 0)) continue;
    std::string& list =
        names[is_equal ? cat(a.name, ": the ", units, " ", cut.units->name,
                             " cannot be shared evenly by its ", a.size, " ranks")
                       : cat(a.name, ": ", config.model.size(*cut.first), " ", cut.first->name,
                             " of queries and ", units, " ", cut.units->name,
                             " of keys and of values lie in one weight, which it does not cut")];
    list += cat(list.empty() ? "" : ", ", cut.name);
  }
  std::vector<std::string> lines;
  for (const auto& [what, of] : names) lines.push_back(cat(what, ", all of which hold ", of));
  return lines;
}

// ZeRO: dp also splits what only the update reads, and in 3 weights, along the first dim that it
// divides.
// [Rajbhandari et al. 2020, section 5]
void split_state(const TrainConfig& config, std::string_view name, const Shape& shape,
                 std::string_view weight, Sharding& s) {
  const int dp = config.mesh.find("dp");
  const bool is_sum = is_sum_of_gradients(name);
  if (dp < 0 || config.zero < (name == weight ? 3 : is_sum ? 2 : 1)) return;
  const MeshAxis& axis = config.mesh.axes[static_cast<size_t>(dp)];
  for (int d = 0; d < shape.rank(); ++d) {
    const bool is_free = std::none_of(
        s.begin(), s.end(), [&](const AxisSharding& a) { return a.is_split() && a.dim == d; });
    if (!is_free || !divides(shape, AxisSharding::split(d), axis.size)) continue;
    s[static_cast<size_t>(dp)] = AxisSharding::split(d);
    return;
  }
}

// Sums of gradients over micro-batches are joined once a step: until then they pend over what the
// batch's tokens are cut by. (In mode exact a micro-batch's sum has its own order over ranks: they
// pend over dp alone, where its ranks have whole micro-batches.)
void leave_sums_pending(const TrainConfig& config, std::string_view name, Sharding& s) {
  const bool is_fast = config.mode == "fast";
  if ((!is_fast && batch_shares(config) == 1) || config.zero >= 2 || !is_sum_of_gradients(name))
    return;
  for (size_t a = 0; a < s.size(); ++a) {
    const std::string& axis = config.mesh.axes[a].name;
    if (s[a].is_replicated() && (is_fast ? axis != "tp" : axis == "dp"))
      s[a] = AxisSharding::pending();
  }
}

// "adam.m.wte.weight" is state of "wte.weight".
std::string_view weight_of_state(std::string_view name, const std::vector<WeightSpec>& weights) {
  for (const WeightSpec& w : weights)
    if (name.ends_with(w.name) &&
        (name.size() == w.name.size() || name[name.size() - w.name.size() - 1] == '.'))
      return w.name;
  return {};
}

}  // namespace

Mesh in_training_order(Mesh mesh) {
  std::stable_sort(mesh.axes.begin(), mesh.axes.end(), [](const MeshAxis& a, const MeshAxis& b) {
    return std::ranges::find(kOrder, a.name) < std::ranges::find(kOrder, b.name);
  });
  // One stage is none.
  std::erase_if(mesh.axes, [](const MeshAxis& a) { return a.name == "pp" && a.size == 1; });
  return mesh;
}

namespace {

// The size nearest to n that divides `whole`; of two the smaller.
int64_t nearest_divisor(int64_t whole, int64_t n) {
  for (int64_t by = 1;; ++by)
    for (const int64_t d : {n - by, n + by})
      if (d > 0 && whole % d == 0) return d;
}

// "dp=2": of an axis that cuts the batch, with which all of them do.
std::string nearest_of_batch(const Mesh& mesh, int64_t batch, int64_t n_batch) {
  for (const MeshAxis& a : mesh.axes) {
    const int64_t others = n_batch / a.size;
    if ((a.name == "dp" || a.name == "ep") && batch % others == 0)
      return cat(a.name, "=", nearest_divisor(batch / others, a.size));
  }
  return "dp=1,ep=1";
}

}  // namespace

Result<std::vector<Sharding>> param_shardings(const TrainConfig& config, const Function& step) {
  const Mesh& mesh = config.mesh;
  const ModelDef& model = *TEGULA_TRY(find_model(config.model.type));
  const auto weights = TEGULA_TRY(model_weights(config.model));
  int64_t n_batch = 1;
  for (const MeshAxis& a : mesh.axes) {
    if (a.name == "pp")
      return unsupported(cat("--mesh ", to_text(mesh), ": a pipeline's stages are cut after all ",
                             "else is sharded: leave out pp here"));
    if (a.name != "dp" && a.name != "tp" && a.name != "cp" && a.name != "ep")
      return invalid_argument(
          cat("--mesh ", to_text(mesh), ": there is no axis ", a.name, "; axes are ", kAxes));
    if (a.name == "dp" || a.name == "ep") n_batch *= a.size;
    if (a.name == "cp" && config.row_length() % a.size != 0)
      return invalid_argument(cat("--seqlen ", config.row_length(),
                                  " cannot be shared evenly by the ", a.size,
                                  " ranks of cp: the nearest that can is cp=",
                                  nearest_divisor(config.row_length(), a.size)));
  }
  const bool cuts_batch = std::any_of(step.params.begin(), step.params.end(),
                                      [](const Param& p) { return p.name == "tokens"; });
  if (cuts_batch && config.batch % n_batch != 0)
    return invalid_argument(cat("--batch ", config.batch, " cannot be shared evenly by the ",
                                n_batch, " ranks of --mesh ", to_text(mesh),
                                " that cut it: the nearest that can is ",
                                nearest_of_batch(mesh, config.batch, n_batch)));
  std::vector<Sharding> all;
  for (const Param& p : step.params) {
    const Shape& shape = step.type(p.value).shape;
    Sharding s = replicated(mesh);
    if (p.name == "tokens" || p.name == "targets") {
      for (size_t a = 0; a < mesh.axes.size(); ++a)
        if (mesh.axes[a].name != "tp")
          s[a] = AxisSharding::split(mesh.axes[a].name == "cp" ? 1 : 0);
    } else if (p.role != Role::kInput) {
      const auto weight = weight_of_state(p.name, weights);
      if (!weight.empty()) {
        s = TEGULA_TRY(sharding_of_weight(config.model, mesh, model, weight, shape));
        split_state(config, p.name, shape, weight, s);
        leave_sums_pending(config, p.name, s);
      }
    }
    all.push_back(std::move(s));
  }
  return all;
}

namespace {

// A loop that carries a sum from round to round has one order, which ranks cannot share.
Status check_loops(const TrainConfig& config, const Function& f) {
  if (config.mode != "exact" || config.mesh.n_ranks() == 1) return {};
  if (config.blockwise != "off")
    return unsupported(cat("--mode exact over ", config.mesh.n_ranks(),
                           " ranks: --blockwise carries sums from block to block, whose order "
                           "ranks cannot share: leave it out, or take --mode fast"));
  for (const Node& n : f.nodes)
    if (has_bodies(*n.op))
      return unsupported(cat("--mode exact over ", config.mesh.n_ranks(), " ranks: the ",
                             n.op->name, " of ", config.model.type,
                             " carries sums from round to round, whose order ranks cannot share: "
                             "take --mode fast"));
  return {};
}

void add_note_on_blocks(const TrainConfig& config, const StepFunctions& functions, FuncId function,
                        CompiledRanks& ranks) {
  if (function != functions.train_step && function != functions.micro_step) return;
  std::string note = note_on_blocks(config, ranks.reports);
  if (!note.empty()) ranks.notes.push_back(std::move(note));
}

Result<ShardOptions> options_of(const TrainConfig& config, const Function& f,
                                const CompileOptions& options) {
  ShardOptions o{config.mesh, {}, options.passes.pass.mode};
  o.params = TEGULA_TRY(param_shardings(config, f));
  for (const MeshAxis& a : config.mesh.axes)
    o.scatters.push_back(config.zero > 0 && a.name == "dp");
  o.target = options.plan.target;
  return o;
}

// Do dp's ranks run the function each for itself, on a batch that is not cut? So they do a micro
// step on whole micro-batches; an evaluation whose batch dp does not divide they do alike.
bool is_apart(const TrainConfig& config, const StepFunctions& functions, FuncId function) {
  const int64_t n = batch_shares(config);
  if (n == 1 || function == functions.update) return false;
  const int ep = config.mesh.find("ep");
  const int64_t n_ep = ep < 0 ? 1 : config.mesh.axes[static_cast<size_t>(ep)].size;
  return function != functions.eval_loss || config.batch % (n * n_ep) != 0;
}

// The functions that one of dp's ranks compiles for itself.
TrainConfig alone_in_dp(TrainConfig config) {
  config.mesh.axes[static_cast<size_t>(config.mesh.find("dp"))].size = 1;
  return config;
}

// The rank that stands where `rank` does, of a mesh without dp.
int64_t rank_without_dp(const TrainConfig& config, int64_t rank) {
  const std::vector<int64_t> at = config.mesh.at(rank);
  int64_t i = 0;
  for (size_t a = 0; a < at.size(); ++a)
    if (config.mesh.axes[a].name != "dp") i = i * config.mesh.axes[a].size + at[a];
  return i;
}

// The functions that ranks compile each for itself in dp. Their sums pend over dp.
Result<CompiledRanks> compile_apart(const TrainConfig& config, const StepFunctions& functions,
                                    FuncId function, const Target& target, RankRange own) {
  if (own.n < 0) own.n = config.mesh.n_ranks() - own.first;
  int64_t first = config.mesh.n_ranks(), last = 0;
  for (int64_t r = own.first; r < own.first + own.n; ++r) {
    first = std::min(first, rank_without_dp(config, r));
    last = std::max(last, rank_without_dp(config, r));
  }
  CompiledRanks one = TEGULA_TRY(compile_for_ranks(alone_in_dp(config), functions, function, target,
                                                   {first, last - first + 1}));
  const auto plans = std::move(one.plans);
  const std::vector<FuncId> made = std::move(one.functions);
  const auto rewritten = std::move(one.rewritten);
  one.plans.clear(), one.functions.clear(), one.rewritten.clear();
  one.mesh = config.mesh, one.first_rank = own.first;
  for (int64_t r = own.first; r < own.first + own.n; ++r) {
    const auto i = static_cast<size_t>(rank_without_dp(config, r) - first);
    one.plans.push_back(plans[i]), one.rewritten.push_back(rewritten[i]);
    if (!made.empty()) one.functions.push_back(made[i]);
  }
  const auto dp = static_cast<size_t>(config.mesh.find("dp"));
  for (size_t p = 0; p < one.params.size(); ++p)
    one.params[p][dp] = is_sum_of_gradients(one.plans[0]->params[p].name) ? AxisSharding::pending()
                                                                          : AxisSharding{};
  return one;
}

}  // namespace

Result<ShardOptions> shard_options(const TrainConfig& config, const StepFunctions& functions,
                                   FuncId function, const Target& target) {
  if (is_apart(config, functions, function))
    return shard_options(alone_in_dp(config), functions, function, target);
  const Function& f = (*functions.module)[function];
  TEGULA_TRY(check_loops(config, f));
  return options_of(config, f, compile_options(config, target));
}

Result<std::shared_ptr<const Plan>> plan_of_first_rank(const TrainConfig& config,
                                                       const StepFunctions& functions,
                                                       FuncId function, const Target& target) {
  if (is_apart(config, functions, function))
    return plan_of_first_rank(alone_in_dp(config), functions, function, target);
  const CompileOptions options = compile_options(config, target);
  const Function& f = (*functions.module)[function];
  TEGULA_TRY(check_loops(config, f));
  if (config.mesh.n_ranks() == 1)
    return TEGULA_TRY(compile(functions.module, function, options)).plan;
  return compile_first_rank(functions.module, function, TEGULA_TRY(options_of(config, f, options)),
                            options);
}

Result<std::vector<std::string>> notes_on_ranks(const TrainConfig& config) {
  std::vector<std::string> notes = TEGULA_TRY(left_whole(config));
  if (const std::string why = why_not_dealt(config); !why.empty() && config.mode != "exact")
    notes.push_back(cat("tokens are shared out over cp in order: ", why));
  const int cp = config.mesh.find("cp");
  const int64_t n_cp = cp < 0 ? 1 : config.mesh.axes[static_cast<size_t>(cp)].size;
  if (config.mode != "exact" || n_cp == 1) return notes;
  const int64_t seqlen = config.row_length(), shards = shards_of_sequence(seqlen);
  if (shards % n_cp != 0)
    notes.push_back(cat("mode exact over cp: a sum over ", seqlen, " tokens has ", shards,
                        shards == 1 ? " shard" : " shards", ", which ", n_cp,
                        " ranks cannot share (8 from ", kLeastSequence,
                        " tokens on, or as many as divide them): what it is made of is gathered, "
                        "or turned to rows"));
  notes.push_back(
      "mode exact over cp: attention gathers keys and values, or turns to heads; a ring, which "
      "takes less memory, joins parts in an order of its own (--mode fast)");
  return notes;
}

Result<CompiledRanks> compile_for_ranks(const TrainConfig& config, const StepFunctions& functions,
                                        FuncId function, const Target& target, RankRange own) {
  if (is_apart(config, functions, function))
    return compile_apart(config, functions, function, target, own);
  const CompileOptions options = compile_options(config, target);
  const Function& f = (*functions.module)[function];
  TEGULA_TRY(check_loops(config, f));
  ShardOptions o = TEGULA_TRY(options_of(config, f, options));
  if (config.mesh.n_ranks() > 1) {
    CompiledRanks ranks = TEGULA_TRY(compile_ranks(functions.module, function, o, options, own));
    for (std::string& line : TEGULA_TRY(notes_on_ranks(config)))
      ranks.notes.push_back(std::move(line));
    add_note_on_blocks(config, functions, function, ranks);
    return ranks;
  }
  Compiled one = TEGULA_TRY(compile(functions.module, function, options));
  CompiledRanks out{.mesh = config.mesh, .params = std::move(o.params)};
  out.plans = {std::move(one.plan)}, out.rewritten = {std::move(one.rewritten)},
  out.reports = std::move(one.reports);
  out.notes = std::move(one.notes), out.passes_ms = one.passes_ms, out.plan_ms = one.plan_ms;
  add_note_on_blocks(config, functions, function, out);
  return out;
}

namespace {
double product_flops(const Plan& plan) {
  double sum = 0;
  for (const Step& s : plan.steps)
    if (s.op->precision == Precision::kLow || has_bodies(*s.op))
      sum += static_cast<double>(s.flops);
  return sum;
}
}  // namespace

ProductShares product_shares(const CompiledRanks& ranks, const Plan& whole, int64_t batch_shares) {
  double all = 0, alike = 0;
  for (const auto& plan : ranks.plans) all += product_flops(*plan);
  for (const Uncut& u : ranks.sharded.uncut) {
    // Each group of the axis does it, as the axes before have left it.
    double n = static_cast<double>(ranks.mesh.axes[u.axis].size - 1);
    for (size_t a = 0; a < u.axis; ++a) n *= static_cast<double>(ranks.mesh.axes[a].size);
    alike += static_cast<double>(u.flops) * n;
  }
  const double one = product_flops(whole) * static_cast<double>(batch_shares);
  return one > 0 ? ProductShares{all / one, (all - alike) / one} : ProductShares{};
}

std::vector<const Plan*> plans_of_rank(std::span<const CompiledRanks> parts, int64_t rank) {
  std::vector<const Plan*> plans;
  for (const CompiledRanks& part : parts) plans.push_back(part.plan_of(rank).get());
  return plans;
}

Status agree_on_collectives(RankGroup& group, std::span<const CompiledRanks> plans) {
  return group.run([&](int64_t rank) {
    uint64_t h = plans.size();
    for (const CompiledRanks& c : plans) h = mix(h, collectives_hash(*c.plan_of(rank)));
    return group.agree(rank, "collectives", h);
  });
}

const Sharding* sharding_of(const CompiledRanks& ranks, std::string_view param) {
  const int p = ranks.plans[0]->find_param(param);
  return p < 0 ? nullptr : &ranks.params[static_cast<size_t>(p)];
}

bool is_writer(const CompiledRanks& ranks, const Sharding& sharding, int64_t rank) {
  const auto at = ranks.mesh.at(rank);
  for (size_t a = 0; a < sharding.size(); ++a)
    if (!sharding[a].is_split() && at[a] != 0) return false;
  return true;
}

Status bind_shares(Session& session, Store& store, const CompiledRanks& ranks, int64_t rank,
                   int64_t slot) {
  const auto at = ranks.mesh.at(rank);
  const Plan& plan = session.plan();
  for (size_t i = 0; i < plan.params.size(); ++i) {
    const Plan::Port& p = plan.params[i];
    if (p.role == Role::kInput) continue;
    Type whole = p.tensor.type;
    const Sharding& s = ranks.params[i];
    for (size_t a = 0; a < s.size(); ++a)
      if (s[a].is_split())
        whole.shape[s[a].dim] = whole.shape[s[a].dim].bound() * ranks.mesh.axes[a].size;
    TEGULA_TRY(
        store.get(name_at_slot(p.name, slot), whole, local_share(ranks.mesh, whole.shape, s, at)));
  }
  return session.bind_store(store, name_at_slot, slot);
}

namespace {
Share share_of_input(const CompiledRanks& ranks, int64_t rank, std::string_view param,
                     const TensorRef& whole) {
  const Sharding* s = sharding_of(ranks, param);
  TEGULA_CHECK(s != nullptr, "the step has no input ", param);
  const Shape shape(std::span<const int64_t>(whole.shape, static_cast<size_t>(whole.rank)));
  return local_share(ranks.mesh, shape, *s, ranks.mesh.at(rank));
}
}  // namespace

int64_t share_bytes(const CompiledRanks& ranks, int64_t rank, std::string_view param,
                    const TensorRef& whole) {
  const auto extent = share_of_input(ranks, rank, param, whole).extent();
  return Type{whole.dtype, Shape(std::span<const int64_t>(extent))}.bytes();
}

void take_share(const CompiledRanks& ranks, int64_t rank, std::string_view param,
                const TensorRef& whole, void* out) {
  const Share share = share_of_input(ranks, rank, param, whole);
  const Type type{whole.dtype, Shape(std::span<const int64_t>(share.extent()))};
  const TensorRef local = contiguous_ref(out, type);
  for (size_t i = 0; i < share.boxes.size(); ++i)
    copy_elements(part_of(whole, share.boxes[i]), part_of(local, share.places[i]));
}

}  // namespace tegula
