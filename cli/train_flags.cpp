#include "cli/train_flags.h"

#include <cmath>
#include <cstdlib>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/machine.h"
#include "tegula/base/amounts.h"
#include "tegula/base/text.h"
#include "tegula/comm/join.h"
#include "tegula/models/checkpoint.h"
#include "tegula/passes/pipeline.h"
#include "tegula/passes/row_region.h"
#include "tegula/plan/schedule.h"
#include "tegula/text/tokenizer.h"
#include "tegula/train/loss_scale.h"
#include "tegula/train/pipeline.h"
#include "tegula/train/ranks.h"

namespace tegula::cli {

namespace {

// "Query heads (gpt2, llama)": who has it, where not all do.
std::string doc_of(const Setting& s) {
  std::string who;
  bool is_of_all = true;
  for (const ModelDef* m : all_models())
    if (has_setting(*m, s))
      who += cat(who.empty() ? "" : ", ", m->name);
    else
      is_of_all = false;
  return is_of_all ? std::string(s.doc) : cat(s.doc, " (", who, ")");
}

// A flag whose value goes into the configuration, with its default shown where there is one.
template <class T, class F>
Flag add_setting(const Command& cmd, ModelConfig& m, const Setting& s, F&& value_of) {
  const std::string name = cat("--", s.flag);
  if constexpr (!std::is_same_v<T, std::string>)  // the vocabulary has no texts
    if (const auto* at = std::get_if<T ModelConfig::*>(&s.at))
      return cmd.add_option(name, m.**at, doc_of(s));
  return cmd.add_option_for(
      name, [&m, &s, value_of](const std::string& text) { m.set(s, value_of(text)); }, doc_of(s));
}

void add_setting(const Command& cmd, ModelConfig& m, const Setting& s) {
  const auto number = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
  const auto size = [](const std::string& text) -> int64_t {
    return std::strtoll(text.c_str(), nullptr, 10);
  };
  switch (s.type) {
    case SettingType::kSize:
      whole(add_setting<int64_t>(cmd, m, s, size), s.least, s.most);
      return;
    case SettingType::kNumber:
      real(add_setting<double>(cmd, m, s, number), 0, s.range == Range::kShare ? 0.99 : HUGE_VAL);
      return;
    case SettingType::kFlag:
      if (const auto* at = std::get_if<bool ModelConfig::*>(&s.at))
        cmd.add_flag(cat("--", s.flag), m.**at, doc_of(s));
      else
        one_of(add_setting<std::string>(cmd, m, s, [](const auto& t) { return t == "true"; }),
               {"true", "false"});
      return;
    case SettingType::kText:
      one_of(add_setting<std::string>(cmd, m, s, [](const auto& t) { return t; }),
             split(s.choices, '|'));
      return;
    case SettingType::kTexts:
    case SettingType::kSizes:
      return;  // no flag has a list
  }
}

void add_model(const Command& cmd, ModelConfig& m, int64_t& depth, bool is_training) {
  std::vector<std::string> names;
  for (const ModelDef* model : all_models()) names.emplace_back(model->name);
  one_of(cmd.add_option("--model", m.type, "Model family"), names);
  whole(cmd.add_option("--depth", depth,
                       "One dial for the size: layers, width, heads and learning rate; 0: off"),
        0, 256);
  for (const Setting* s : all_settings())
    if (!s->flag.empty() && (is_training || !s->is_of_training)) add_setting(cmd, m, *s);
  cmd.flag(cat("--", setting::kContext.flag)).default_str("");
}

void add_optimizer(const Command& cmd, TrainConfig& c) {
  one_of(cmd.add_option("--optimizer", c.optimizer.name, "Update rule"),
         {"adamw", "momentum", "sgd"});
  real(cmd.add_option("--weight-decay", c.optimizer.weight_decay, "Decay of matrices"), 0);
  real(cmd.add_option("--beta1", c.optimizer.beta1, "Decay of the mean gradient (adamw, momentum)"),
       0, 0.9999);
  real(cmd.add_option("--beta2", c.optimizer.beta2, "Decay of its square (adamw)"), 0, 0.99999);
  real(cmd.add_option("--grad-clip", c.optimizer.clip, "Largest gradient norm; 0: no limit"), 0);
}

void add_data(const Command& cmd, TrainConfig& c, bool is_required) {
  cmd.add_option("--data", c.data, "Text file, a folder of them, or - for standard input")
      .required(is_required)
      .type_name("FILE|DIR");
  cmd.add_option("--tokenizer", c.tokenizer, "bytes, chars or bpe:N")
      .type_name("NAME")
      .show_default();
}

// Flags for what a run does beyond a step.
void add_run(const Command& cmd, TrainConfig& c) {
  cmd.add_option("--batches", c.batches,
                 "Which sequences each batch has: a line of places in the training split each")
      .type_name("FILE");
  cmd.add_option("--out", c.out, "Directory for the model, metrics and report").type_name("DIR");
  whole(cmd.add_option("--steps", c.steps, "Optimizer steps"), 0);
  real(cmd.add_option("--lr", c.lr, "Largest learning rate"), 0);
  real(cmd.add_option("--min-lr", c.min_lr, "Learning rate at the end; default: lr / 10"), 0)
      .default_str("");
  whole(cmd.add_option("--warmup", c.warmup, "Steps of linear warm-up"), 0);
  whole(cmd.add_option("--lr-decay-steps", c.lr_decay_steps,
                       "Step at which the learning rate reaches --min-lr; 0: the last one"),
        0);
  whole(cmd.add_option("--seed", c.seed, "Seed of weights, batches and dropout"), 0, INT64_MAX);
  whole(cmd.add_option("--eval-every", c.eval_every, "Steps between evaluations; 0: at the end"),
        0);
  whole(cmd.add_option("--save-every", c.save_every, "Steps between saves; 0: at the end"), 0);
  cmd.add_flag("--check", c.check,
               "After each op, check that its kernel wrote nothing but its own memory; slower");
  cmd.add_option("--timeline", c.timeline, "Write what a step's time goes to, op after op, as HTML")
      .type_name("FILE");
  const auto resume = cmd.add_flag("--resume", c.resume, "Go on from the last checkpoint in --out");
  cmd.add_option("--init-from", c.init_from,
                 "Start from the weights and the tokenizer of this model, with a new schedule")
      .type_name("DIR")
      .excludes(resume);
  cmd.add_flag("--overwrite", c.overwrite,
               "Train anew where --out holds a run, or files of other origin in its place")
      .excludes(resume);
}

void add_row(const Command& cmd, TrainConfig& c) {
  const Setting& context = setting::kContext;
  whole(cmd.add_option("--seqlen", c.seqlen,
                       "Tokens in a row of a batch, at most the context; default: 64, and with a "
                       "model that is there its context"),
        context.least, context.most)
      .default_str("");
}

void add_device(const Command& cmd, TrainConfig& c) {
  one_of(cmd.add_option("--device", c.device, "Where steps run"), {"cpu", "cuda"});
}

void add_loss_scale(const Command& cmd, TrainConfig& c) {
  real(cmd.add_option("--loss-scale", c.loss_scale,
                      "f16: what the loss is multiplied by at first, a power of two"),
       1, kMostLossScale);
  whole(cmd.add_option("--loss-scale-every", c.loss_scale_every,
                       "f16: good steps after which that doubles; it halves where gradients "
                       "overflow"),
        1, 1 << 24);
}

// How a step is computed.
void add_step(const Command& cmd, TrainConfig& c, std::string& memory) {
  whole(cmd.add_option("--batch", c.batch, "Sequences in a step"), 1, 1 << 24);
  whole(cmd.add_option("--accumulate", c.accumulate, "Batches whose gradients make one step"), 1,
        1 << 20);
  one_of(cmd.add_option("--mode", c.mode,
                        "exact: the bits of any number of ranks; fast: long sums in one chain"),
         {"exact", "fast"});
  cmd.add_option("--memory", memory, "Budget for activations, gradients and workspaces: 512MiB")
      .type_name("BYTES");
  one_of(cmd.add_option("--checkpoint", c.checkpoint,
                        "Recompute: nothing; all but every sqrt(N)-th block; what --memory needs"),
         {"none", "sqrt", "auto"});
  cmd.add_option("--blockwise", c.blockwise,
                 "Feed-forward layers over blocks of at most so many tokens: off, auto or a number")
      .type_name("off|auto|N")
      .show_default();
  add_tuning(cmd, c.tune, c.tune_cache);
  cmd.add_option("--passes", c.passes, "Passes to leave out, e.g. -fuse,-cse").type_name("LIST");
  add_superopt(cmd, c.superopt, c.rules);
}

// Sizes whose counts of operations and bytes would not fit in 63 bits are refused by name, before
// anything is multiplied.
Status check_size(const TrainConfig& c) {
  const ModelConfig& m = c.model;
  const auto d = static_cast<double>(m.d_model), layers = static_cast<double>(m.n_layers);
  const double ff = std::max(static_cast<double>(m.d_ff), 4 * d);
  const double heads = std::max(
      d, static_cast<double>(m.n_heads) * static_cast<double>(std::max<int64_t>(m.head_dim, 1)));
  const double weights = layers * (4 * d * heads + 3 * d * ff) * static_cast<double>(m.n_experts);
  const auto seqlen = static_cast<double>(c.row_length());
  const double tokens = static_cast<double>(c.batch) * seqlen;
  const double flops = tokens * (6 * (weights + 1e6 * d) + 12 * seqlen * heads * layers);
  if (flops < 1e18) return {};
  return invalid_argument(cat("a step of this size would take about ", printed("%.1e", flops),
                              " FLOPs, and at most 1e18 are supported: choose a smaller "
                              "d-model, d-ff, n-layers, seqlen or batch"));
}

void add_mesh(const Command& cmd, std::string& mesh) {
  cmd.add_option(
         "--mesh", mesh,
         "Ranks by axis: dp cuts the batch, tp heads and widths, cp the sequence, ep experts, pp "
         "layers")
      .type_name("AXIS=N,...");
}

// Adds the flags of pp's ranks.
void add_pipeline(const Command& cmd, TrainConfig& c) {
  std::vector<std::string> schedules;
  for (const ScheduleDef* def : all_schedules()) {
    if (!def->known_as.empty()) schedules.emplace_back(def->known_as);
    schedules.emplace_back(def->name);
  }
  one_of(cmd.add_option("--schedule", c.schedule,
                        "Who of pp runs which part of which of --accumulate's micro-batches when"),
         schedules);
  whole(cmd.add_option("--interleave", c.interleave,
                       "Stages of each rank of pp; 0: as many as the schedule has"),
        0, 1 << 10);
  cmd.add_option("--stages-at", c.stages_at,
                 "Layers with which the stages of pp begin: 0,7,12; default: balanced")
      .default_str("")
      .split_at(',')
      .type_name("L,L,...");
}

// A plan's ranks may be a pipeline's.
void add_processes(const Command& cmd, TrainConfig& c, int64_t& ranks) {
  whole(cmd.add_option("--ranks", ranks, "Ranks; without --mesh: dp"), 1, 1 << 10);
  whole(cmd.add_option("--processes", c.processes,
                       "Processes of this machine, each with as many of the ranks as threads"),
        1, 1 << 10);
  one_of(cmd.add_option("--transport", c.transport,
                        "Between processes: shm (shared memory), tcp, mpi; default: shm, and mpi "
                        "under mpirun"),
         {"shm", "tcp", "mpi"})
      .default_str("");
  cmd.add_option("--address", c.address,
                 "Where processes of --transport tcp meet; default: a free port of 127.0.0.1")
      .type_name("HOST:PORT");
  whole(cmd.add_option("--restart", c.restarts,
                       "How often to go on from the last checkpoint after a process has died"),
        0, 1 << 20);
}

}  // namespace

void TrainFlags::add_to(const Command& cmd, Purpose purpose) {
  cmd_ = cmd;
  TrainConfig& c = config;
  // The last one wins: over a config file, or over what a script gave first.
  cmd.take_last();
  cmd.add_option("--config", "TOML file with these options; those on the command line win")
      .type_name("FILE");
  if (purpose == Purpose::kTrain || purpose == Purpose::kPlan)
    add_data(cmd, c, purpose == Purpose::kTrain);
  if (purpose == Purpose::kTrain) add_run(cmd, c), add_device(cmd, c);
  add_row(cmd, c);
  add_model(cmd, c.model, depth, purpose != Purpose::kToken);
  if (purpose != Purpose::kToken) {
    add_optimizer(cmd, c);
    add_step(cmd, c, memory);
    if (purpose == Purpose::kTrain || purpose == Purpose::kPlan)
      cmd.add_option("--device-memory", device_memory,
                     "Budget for all that a run takes of its device, weights and all: 10GiB")
          .type_name("BYTES");
  } else {
    add_superopt(cmd, c.superopt, c.rules);
  }
  if (purpose == Purpose::kTrain || purpose == Purpose::kPlan) {
    add_mesh(cmd, mesh);
    one_of(cmd.add_option("--ring", c.ring,
                          "In which order the ranks of cp share out a row's tokens (mode fast)"),
           {"zigzag", "striped", "contiguous"});
    whole(cmd.add_option(
              "--zero", c.zero,
              "ZeRO: 1: dp splits optimizer state; 2: sums of gradients, too; 3: weights, too"),
          0, 3);
  }
  if (purpose == Purpose::kTrain || purpose == Purpose::kPlan) add_pipeline(cmd, c);
  if (purpose == Purpose::kTrain) add_processes(cmd, c, ranks);
  one_of(cmd.add_option("--dtype", c.dtype,
                        "f32; bf16, or f16 with a scaled loss, with f32 master weights"),
         {"f32", "bf16", "f16"});
  if (purpose != Purpose::kToken) add_loss_scale(cmd, c);
  add_threads(cmd, c.threads);
  cmd.add_flag("--json", c.json, "One JSON object on the last line");
  cmd.check([this] {
    if (const auto c = resolve(); !c.ok()) usage_error(c.error().message);
  });
}

bool TrainFlags::is_given(const std::string& flag) const {
  const Flag option = cmd_.find_flag(flag);
  return option && option.is_given();
}

// Flags on the command line that the family has not. A --config file may hold those of several.
Status TrainFlags::check_model(const ModelDef& model, const std::string& whose) const {
  for (const Setting* s : all_settings()) {
    if (s->flag.empty() || has_setting(model, *s) || !is_on_command_line(cmd_, cat("--", s->flag)))
      continue;
    std::string others;
    for (const ModelDef* m : all_models())
      if (has_setting(*m, *s)) others += cat(others.empty() ? "" : ", ", m->name);
    std::string has;
    for (const Setting* its : all_settings())
      if (has_setting(model, *its) && !its->flag.empty())
        has += cat(has.empty() ? "--" : ", --", its->flag);
    return invalid_argument(cat("--", s->flag, " is for --model ", others, "; ", whose, " has ",
                                has, ": leave it out or choose another model"));
  }
  return {};
}

// A run that starts from a checkpoint has the checkpoint's family. What cannot be read is told when
// the run begins.
Status TrainFlags::check_origin() const {
  const std::string& path = config.resume ? config.out : config.init_from;
  const auto files = ModelFiles::open(path, Check::kAllButTensors);
  if (!files.ok()) return {};
  const auto saved = load_model_config(**files);
  if (!saved.ok()) return {};
  return check_model(*TEGULA_TRY(find_model(saved->type)),
                     cat("the model in ", path, " is a ", saved->type, ", which"));
}

std::vector<std::string> TrainFlags::notes(const ModelConfig& model) const {
  const auto def = find_model(model.type);
  std::string left_out;
  for (const Setting* s : all_settings()) {
    const std::string flag = cat("--", s->flag);
    if (!def.ok() || s->flag.empty() || has_setting(**def, *s)) continue;
    if (is_given(flag) && !is_on_command_line(cmd_, flag))
      left_out += cat(left_out.empty() ? "" : ", ", s->flag);
  }
  if (left_out.empty()) return {};
  return {cat(config_file(cmd_), ": ", left_out, ": a ", model.type, " has none of these")};
}

// Flags of which one makes the other pointless.
Status TrainFlags::check_together(const TrainConfig& c) const {
  const auto is_said = [&](const char* flag) { return is_on_command_line(cmd_, flag); };
  const std::string& rule = c.optimizer.name;
  for (const auto& [flag, is_used] :
       {std::pair{"--beta1", rule != "sgd"}, std::pair{"--beta2", rule == "adamw"}})
    if (!is_used && is_said(flag))
      return invalid_argument(
          cat(flag, " is not for --optimizer ", rule, ", which keeps no such mean: leave it out"));
  if (c.memory_bytes > 0 && c.checkpoint != "auto")
    return invalid_argument(cat("--checkpoint ", c.checkpoint,
                                " decides by itself what is recomputed, and --memory would have no "
                                "effect: give one of them"));
  if (c.device_memory_bytes > 0 && (c.memory_bytes > 0 || c.checkpoint != "auto"))
    return invalid_argument(
        cat("--device-memory decides what is recomputed, and so does ",
            c.memory_bytes > 0 ? "--memory" : cat("--checkpoint ", c.checkpoint),
            ": give one of them"));
  if (c.device_memory_bytes > 0 && c.mesh.n_ranks() > 1)
    return invalid_argument("--device-memory is of one device: leave out one of it and --mesh");
  if (!c.init_from.empty() && is_said("--tokenizer"))
    return invalid_argument("--init-from brings the tokenizer of its model: leave out --tokenizer");
  if (is_said("--ring") && c.mesh.find("cp") < 0)
    return invalid_argument("--ring is of the ranks that share a sequence: give --mesh an axis cp");
  // --stages of tegula plan has a schedule, too.
  for (const char* flag : {"--schedule", "--interleave", "--stages-at"})
    if (is_said(flag) && !has_pipeline(c) &&
        (flag != std::string("--schedule") || !is_given("--stages")))
      return invalid_argument(cat(
          flag, " is of the ranks of a pipeline: give --mesh an axis pp of two or more",
          cmd_.find_flag("--stages") && flag == std::string("--schedule") ? ", or --stages" : ""));
  if (has_pipeline(c) && !c.resume && c.init_from.empty()) TEGULA_TRY(schedule_of(c));
  if (c.zero > 0 && c.mesh.find("dp") < 0)
    return invalid_argument("--zero splits state over dp: give --mesh an axis dp");
  for (const char* flag : {"--loss-scale", "--loss-scale-every"})
    if (c.dtype != "f16" && is_said(flag))
      return invalid_argument(cat(flag,
                                  " is for --dtype f16, in which small gradients would "
                                  "vanish; ",
                                  c.dtype, " scales no loss: leave it out"));
  int exponent = 0;
  if (std::frexp(c.loss_scale, &exponent) != 0.5)
    return invalid_argument(cat("--loss-scale ", c.loss_scale,
                                " is no power of two, and would "
                                "round gradients: take ",
                                std::ldexp(1, exponent - 1)));
  if (c.tune == "off" && c.superopt == 0 && is_said("--tune-cache"))
    return invalid_argument("--tune-cache is of no use without --tune quick or --tune full");
  return {};
}

// Who is one of several processes already starts none.
Status TrainFlags::resolve_processes(TrainConfig& c) const {
  const auto others = world();
  const Engine engine = TEGULA_TRY(engine_of(c.transport, others));
  c.transport = engine == Engine::kMpi ? "mpi" : engine == Engine::kTcp ? "tcp" : "shm";
  if (!others) return {};
  const int64_t n = others->n_processes;
  if (is_given("--processes") && c.processes != n)
    return invalid_argument(cat(others->starter, " has started ", n, " processes, --processes is ",
                                c.processes, ": leave out one of the two"));
  if (c.restarts > 0)
    return invalid_argument(cat("--restart starts processes anew, and these are ", others->starter,
                                "'s: leave out ", others->starter, " and give --processes ", n,
                                ", or start ", others->starter, " again with --resume"));
  if (!c.address.empty())
    return invalid_argument(cat("--address is for --processes; for those of ", others->starter,
                                " set ", kAddressVariable));
  if (c.data == "-")
    return invalid_argument(cat("--data -: standard input reaches one process of ", others->starter,
                                ", and all read it: write it to a file"));
  if (c.mesh.n_ranks() == 1)
    return invalid_argument(cat(others->starter, " has started ", n, " processes, and there is ",
                                "one rank: give --mesh dp=", n));
  c.processes = n;
  return {};
}

// Ranks in processes: as many in each.
Status TrainFlags::check_processes(const TrainConfig& c) const {
  const int64_t n = c.mesh.n_ranks(), p = c.processes;
  if (p == 1 && (is_given("--transport") || is_given("--address")))
    return invalid_argument(
        "--transport and --address are for several processes: give "
        "--processes, too");
  if (c.transport != "tcp" && !c.address.empty())
    return invalid_argument(cat("--address is where processes meet over TCP, and --transport is ",
                                c.transport, ": give --transport tcp, or leave it out"));
  if (!c.address.empty()) TEGULA_TRY(check_address(c.address));
  if (c.restarts > 0 && p == 1)
    return invalid_argument(
        "--restart starts processes anew: give --processes, or --resume by hand");
  if (p == 1) return {};
  if (n == 1)
    return invalid_argument(
        cat("--processes ", p, " share out ranks, and there is one: give --ranks or --mesh"));
  if (c.tune != "off")
    return invalid_argument(cat("--tune ", c.tune,
                                ": processes would time kernels at once and find other sizes each: "
                                "tune with tegula tune, or leave out --processes"));
  if (c.superopt > 0)
    return unsupported(
        "--superopt: processes would time rewritings at once and take others each: leave out "
        "--processes, so that ranks are threads of one");
  if (n % p == 0) return {};
  int64_t near = std::min(p, n);
  while (n % near != 0) --near;
  return invalid_argument(
      cat("--processes ", p, " cannot share the ", n, " ranks evenly: take ", near));
}

Result<Mesh> TrainFlags::resolve_mesh() const {
  if (mesh.empty()) return ranks > 1 ? Mesh{{{"dp", ranks}}} : Mesh{};
  const Mesh m = in_training_order(TEGULA_TRY(mesh_from_text(mesh)));
  if (ranks > 0 && m.n_ranks() != ranks)
    return invalid_argument(cat("--mesh ", mesh, " has ", m.n_ranks(), " ranks, --ranks is ", ranks,
                                ": leave one of them out"));
  return m;
}

// A new model sees what a row of a batch has, unless more is said.
Status TrainFlags::resolve_context(TrainConfig& c) const {
  if (!is_given("--context") && c.seqlen > 0) c.model.max_seqlen = c.seqlen;
  if (c.seqlen == 0) c.seqlen = std::min(ModelConfig().max_seqlen, c.model.max_seqlen);
  if (c.seqlen <= c.model.max_seqlen) return {};
  return invalid_argument(cat("--seqlen ", c.seqlen, " is more than --context ", c.model.max_seqlen,
                              ", which the model can see: make one of them the other's size"));
}

Result<TrainConfig> TrainFlags::resolve() const {
  TrainConfig c = config;
  c.mesh = TEGULA_TRY(resolve_mesh());
  if (c.device == "cuda" && c.mesh.n_ranks() > 1)
    return invalid_argument("--mesh: ranks run on the CPU: leave out one of it and --device cuda");
  if (c.device == "cuda" && c.check)
    return invalid_argument(
        "--check watches the CPU's kernels: leave out one of it and --device cuda");
  // A checkpoint says by itself what model it is of.
  const bool has_origin = c.resume || !c.init_from.empty();
  if (!has_origin || is_given("--model"))
    TEGULA_TRY(check_model(*TEGULA_TRY(find_model(c.model.type)), c.model.type));
  if (has_origin) TEGULA_TRY(check_origin());
  if (depth > 0) {
    apply_depth(c, depth);
    // A flag that was given outright wins.
    if (is_given("--n-layers")) c.model.n_layers = config.model.n_layers;
    if (is_given("--d-model")) c.model.d_model = config.model.d_model;
    if (is_given("--n-heads")) c.model.n_heads = config.model.n_heads;
    if (is_given("--lr")) c.lr = config.lr;
  }
  if (!is_given("--min-lr")) c.min_lr = c.lr / 10;
  for (const auto& [flag, text, bytes] :
       {std::tuple{"--memory", &memory, &c.memory_bytes},
        std::tuple{"--device-memory", &device_memory, &c.device_memory_bytes}}) {
    if (text->empty()) continue;
    const auto n = read_bytes(*text);
    if (!n.ok()) return named(flag, n.error());
    *bytes = *n;
  }
  if (c.blockwise != "off" && c.blockwise != "auto") {
    const auto n = read_count(c.blockwise, kLeastBlockRows, int64_t{1} << 40);
    if (!n.ok())
      return invalid_argument(cat("--blockwise ", c.blockwise,
                                  ": write off, auto or the most tokens of a block, at least ",
                                  kLeastBlockRows));
    c.blockwise = cat(*n);
  }
  if (c.resume && c.out.empty())
    return invalid_argument("--resume needs --out, the directory to go on from");
  if (c.min_lr > c.lr)
    return invalid_argument(cat("--min-lr ", c.min_lr, " is larger than --lr ", c.lr));
  TEGULA_TRY(check_together(c));
  if (c.superopt > 0 && c.mesh.find("pp") >= 0)
    return unsupported("--superopt searches no stages of a pipeline: leave out pp or --superopt");
  if (cmd_.find_flag("--processes")) TEGULA_TRY(resolve_processes(c));
  TEGULA_TRY(check_processes(c));
  TEGULA_TRY(
      Tokenizer::train(c.tokenizer, "a"));  // what cannot be is found before the data is read
  Module empty;
  TEGULA_TRY(run_passes(empty, empty.add({}), {.passes = c.passes}));  // and names of passes
  for (const Flag& flag : cmd_.flags())
    if (flag.is_given() && !flag.long_name().empty()) c.said.push_back(flag.long_name());
  if (depth > 0) c.said.insert(c.said.end(), {"n-layers", "d-model", "n-heads"});
  if (!has_origin) TEGULA_TRY(resolve_context(c));
  TEGULA_TRY(check_size(c));
  if (has_origin) return c;  // the sizes come from its checkpoint
  // Shapes that cannot be are found before the data is read and a tokenizer trained.
  ModelConfig trial = c.model;
  trial.vocab_size = 256;
  TEGULA_TRY(trial.resolve());
  return c;
}

}  // namespace tegula::cli
