// tegula plan MODEL: the cluster planner.
#include "cli/plan_model.h"

#include <cstring>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/machine.h"
#include "cli/paths.h"
#include "cli/process.h"
#include "tegula/base/amounts.h"
#include "tegula/base/text.h"
#include "tegula/plan/gantt.h"
#include "tegula/planner/answer.h"
#include "tegula/planner/explain.h"
#include "tegula/planner/guide.h"
#include "tegula/planner/pipeline.h"
#include "tegula/planner/report.h"
#include "tools/microbenchmarks/microbenchmarks.h"

namespace tegula::cli {

namespace {

struct Options {
  planner::Question question;
  std::string explain, gantt, html, hardware, keeps;
  std::vector<std::string> fixes;
  double deadline_days = 0;
  int64_t trials = 0;
  int threads = 0;
  bool json = false, guide = false, train = false, stages = false, in_full = false;
};

// A file is an input, what stands on the command line is not.
Exit fault_of(const planner::Question& q, const Error& error) {
  const bool is_its =
      !q.microbenchmarks.empty() && error.message.find(q.microbenchmarks) != std::string::npos;
  return is_its || q.model.find('/') != q.model.npos || q.model.ends_with(".json") ? kInput
                                                                                   : kUsage;
}

// A table is a device, a text its preset, all else numbers.
Result<std::vector<planner::DeviceSheet>> read_hardware(const std::string& file) {
  std::vector<planner::DeviceSheet> sheets;
  for (const TomlTable& table : TEGULA_TRY(read_tables(file))) {
    planner::DeviceSheet sheet{table.name, "", {}};
    for (const auto& [key, value] : table.entries) {
      const std::string at = cat(file, ": [", table.name, "] ", key);
      const auto* text = std::get_if<std::string>(&value);
      if (is_same_name(key, "like")) {
        if (text == nullptr) return invalid_argument(at + " must be the name of a preset");
        sheet.like = *text;
      } else if (text == nullptr) {
        sheet.numbers.emplace_back(key, std::get<double>(value));
      } else {
        const auto number = read_amount(*text, 0, kUnlimited);  // "1.5k"
        if (!number.ok()) return named(at, number.error());
        sheet.numbers.emplace_back(key, *number);
      }
    }
    if (const auto made = make_accelerator(sheet); !made.ok())
      return invalid_argument(cat(file, ": ", made.error().message));
    sheets.push_back(std::move(sheet));
  }
  return sheets;
}

// The best layout's pipeline, run entry by entry.
Status draw(const planner::Answer& a, const std::string& file) {
  const planner::StepPrice& best = a.found.best[0];
  planner::StepPricer pricer(a.preset.model, a.params, *a.cluster, a.job);
  const planner::PipelineRun run = TEGULA_TRY(run_pipeline(pricer, best));
  const std::string title = cat(a.preset.model.name, ": ", to_string(best.layout));
  return write_result(file, gantt_svg(run.chain.program, run.simulated, title));
}

int run(const Options& o) {
  planner::Question q = o.question;
  q.built = o.keeps == "built", q.prefers_built = o.keeps.empty();
  LayerPlans plans;
  q.plans = &plans, q.fit = planner::apply_microbenchmarks;
  if (!o.hardware.empty()) {
    auto sheets = read_hardware(o.hardware);
    if (!sheets.ok()) return report(sheets.error(), kInput);
    q.devices = std::move(*sheets);
  }
  if (const Status s = add_this_cpu(q, o.threads); !s.ok())
    return report(s.error(), fault_of(q, s.error()));
  const auto answer = planner::answer(q);
  if (!answer.ok()) return report(answer.error(), fault_of(q, answer.error()));
  if (!o.explain.empty()) {
    const auto text = planner::explain(*answer, o.explain);
    if (!text.ok()) return report(text.error(), kUsage);
    print_text(*text);
    return kDone;
  }
  std::string text = o.json ? to_json(*answer) + "\n" : to_text(*answer);
  if (o.guide && !o.json && answer->cluster && !answer->serve)
    text += to_text(guide(*answer, 86400 * o.deadline_days));
  if (o.stages && answer->cluster) {
    const auto stages = unequal_stages(*answer);
    if (!stages.ok()) return report(stages.error());
    text += *stages;
  }
  if (o.in_full && answer->fits()) {
    const auto full = plan_in_full(*answer);
    if (!full.ok()) return report(full.error());
    text += *full;
  }
  if (o.trials > 0 && !o.json && !answer->found.best.empty())
    text += compare_searches(*answer, o.trials);
  print_text(text);
  if (!o.gantt.empty() && !answer->found.best.empty())
    if (const Status s = draw(*answer, o.gantt); !s.ok()) return report(s.error());
  if (!o.html.empty() && !answer->found.best.empty())
    if (const Status s = write_result(o.html, to_html(*answer)); !s.ok()) return report(s.error());
  if (answer->fits()) return kDone;
  return report(invalid_argument(why_nothing_fits(*answer)));
}

}  // namespace

bool asks_about_model(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2 || arguments[0] != "plan") return false;
  if (!arguments[1].starts_with('-')) return true;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    // A word behind a flag may be its value: --model gpt2.
    const bool may_be_value = arguments[i - 1].starts_with('-') && arguments[i - 1] != "--json";
    if (!may_be_value && planner::find_model_preset(a).ok()) return true;
    for (const char* flag : {"--gpus", "--fix", "--batch-tokens", "--serve", "--compare-gpus"})
      if (a == flag || a.starts_with(std::string(flag) + "=")) return true;
  }
  return false;
}

void add_plan_model(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("plan", "What training a model on a cluster will cost");
  static Options o;
  planner::Question& q = o.question;
  cmd.take_last();
  cmd.add_option("MODEL", q.model, "A preset (llama3-405b), a config.json, or its folder")
      .required();
  cmd.add_option("--gpus", q.gpus,
                 "Devices to plan for: 64xH100; this-cpu: this machine's, measured; default: the "
                 "model alone")
      .type_name("NxNAME");
  whole(cmd.add_option("--seqlen", q.seqlen, "Tokens in a sequence; 0: as it was trained"), 0,
        int64_t{1} << 32);
  whole(cmd.add_option("--batch-tokens", q.batch_tokens,
                       "Tokens in a step, all devices; 0: as it was trained"),
        0, int64_t{1} << 50);
  one_of(cmd.add_option("--dtype", q.dtype, "Of products: weights and activations of fp8 are bf16"),
         {"bf16", "fp8", "f32", "tf32", "int8"});
  cmd.add_option(
         "--fix", o.fixes,
         "Settled already: dp=,tp=,pp=,cp=,context=,ep=,zero=,sp=,schedule=,interleave=,"
         "slices=,microbatch=,remat=,attention=,loss=,stages=,overlap=,dtype=; several add up")
      .keep_all()
      .type_name("KEY=VALUE,…");
  cmd.add_option(
         "--stages-at", q.stages_at,
         "Layers with which the stages of pp begin: 0,6; default: even; as --fix stages=6+6")
      .default_str("")
      .split_at(',')
      .type_name("L,L,...");
  one_of(cmd.add_option("--keeps", o.keeps,
                        "What a layer keeps for backward: what tegula's own graph keeps, by its "
                        "plans, or 16 bits throughout, by the book; default: built, where it is"),
         {"built", "mixed"});
  one_of(cmd.add_option("--optimizer", q.optimizer, "Whose state is held"),
         {"adam", "adam-pure", "adam8bit", "galore", "sgd"});
  one_of(cmd.add_option(
             "--framework", q.framework,
             "Whose conventions: dtypes of gradients, logits, what is fused and what hides; "
             "default: mixed precision by the book, or tegula's own graph (--keeps)"),
         {"tegula", "torch", "torch-compile", "transformers", "fsdp", "torchtitan", "megatron",
          "deepspeed"});
  real(cmd.add_option("--tokens-total", q.tokens_total,
                      "Also what a run over so many tokens costs: 15.6e12")
           .type_name("N"),
       0, 1e18);
  real(cmd.add_option("--budget", q.budget, "Also what so many FLOPs buy: parameters and tokens")
           .type_name("FLOPS"),
       0, 1e32);
  cmd.add_option("--hardware", o.hardware, "TOML file with accelerators of your own")
      .type_name("FILE");
  cmd.add_option("--microbenchmarks", q.microbenchmarks,
                 "What calls of the device took: its constants are fitted to them "
                 "(bench/microbenchmarks.py writes it)")
      .needs(cmd.flag("--gpus"))
      .type_name("FILE");
  const auto serve =
      cmd.add_flag("--serve", q.serve, "Serving instead of training: prefill and decoding");
  cmd.add_flag("--train", o.train, "Training, which is what is planned unless --serve is given")
      .excludes(serve);
  whole(cmd.add_option("--prompt", q.prompt, "Tokens of a request's prompt, with --serve"), 1,
        int64_t{1} << 28)
      .default_str("1024");
  whole(cmd.add_option("--output", q.output, "Tokens that come out of it, with --serve"), 1,
        int64_t{1} << 28)
      .default_str("256");
  whole(cmd.add_option("--batch", q.serve_batch,
                       "Sequences that a copy decodes at once, with --serve; 0: what is best"),
        0, 1 << 14);
  cmd.add_option("--compare-gpus", q.compare, "Also as many of each of these: A100,H100,H200")
      .type_name("NAME,…");
  cmd.add_option(
         "--explain", o.explain,
         "Where a number comes from: an op (ff up, attention, …), step, memory, params, ring, "
         "collectives")
      .type_name("WHAT");
  cmd.add_option("--html", o.html, "Write the answer into FILE, a page complete in itself")
      .needs(cmd.flag("--gpus"))
      .type_name("FILE");
  cmd.add_option("--gantt", o.gantt, "Draw the best layout's pipeline into FILE, an SVG")
      .needs(cmd.flag("--gpus"))
      .type_name("FILE");
  add_threads(cmd, o.threads);
  const auto json = cmd.add_flag("--json", o.json, "One JSON object on one line");
  json.excludes(cmd.flag("--explain"));
  const auto guide =
      cmd.add_flag("--guide", o.guide, "Also the way there: one device, data parallelism, …")
          .needs(cmd.flag("--gpus"))
          .excludes(json);
  real(cmd.add_option("--deadline", o.deadline_days,
                      "Days that the run may take, for --guide; with --tokens-total"),
       0, 1e6)
      .needs(guide)
      .needs(cmd.flag("--tokens-total"));
  whole(cmd.add_option(
            "--baselines", o.trials,
            "Also what so many trials of random, MCMC, policy-gradient and Bayesian search "
            "find"),
        0, 1000000)
      .needs(cmd.flag("--gpus"))
      .excludes(json);
  cmd.add_flag("--unequal-stages", o.stages,
               "Also stages of unequal sizes on submeshes of unequal sizes, exactly the best")
      .needs(cmd.flag("--gpus"))
      .excludes(json)
      .excludes(serve);
  cmd.add_flag("--plan-in-full", o.in_full,
               "Also the best layouts' memory from the graph that tegula itself would run")
      .needs(cmd.flag("--gpus"))
      .excludes(json)
      .excludes(serve);
  for (const char* of_serving : {"--prompt", "--output", "--batch"})
    cmd.flag(of_serving).needs(serve);
  for (const char* of_training :
       {"--batch-tokens", "--keeps", "--stages-at", "--optimizer", "--framework", "--guide",
        "--gantt", "--html", "--baselines", "--tokens-total", "--explain"})
    serve.excludes(cmd.flag(of_training));
  cmd.callback([cmd, &exit_code] {
    o.question.fix = joined(o.fixes, ",");
    // For a model without devices these change nothing; a dtype counts its cache.
    const bool has_devices = !o.question.gpus.empty() || !o.question.compare.empty();
    const bool is_dtype = o.fixes.size() == 1 && o.fixes[0].starts_with("dtype=") &&
                          o.fixes[0].find(',') == std::string::npos;
    for (const char* of_devices :
         {"--fix", "--stages-at", "--optimizer", "--framework", "--keeps", "--batch-tokens"})
      if (!has_devices && cmd.flag(of_devices).is_given() &&
          !(is_dtype && of_devices == std::string_view("--fix")))
        usage_error(cat(of_devices, " is of a plan for devices: give --gpus, too"));
    o.question.has_dtype = cmd.flag("--dtype").is_given();
    if (cmd.flag("--threads").is_given() && o.question.gpus.find("this-cpu") == std::string::npos)
      usage_error("--threads is of --gpus this-cpu: leave it out");
    exit_code = run(o);
  });
}

}  // namespace tegula::cli
