#include "tegula/train/settings.h"

#include "tegula/io/json.h"

namespace tegula {

namespace {

// Keys and values, one a line. JSON's strings and numbers are TOML's.
class Lines {
 public:
  void add(std::string_view key, const Json& value) {
    if (!value.is_null()) text_ += cat(key, " = ", value.dump(), "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_model(Lines& out, const ModelConfig& m) {
  out.add("model", m.type);
  const auto model = find_model(m.type);
  for (const Setting* s : all_settings())
    if (model.ok() && has_setting(**model, *s) && !s->flag.empty())
      out.add(s->flag, setting_json(m.get(*s)));
}

void add_optimizer(Lines& out, const TrainConfig& c) {
  const OptimizerConfig& o = c.optimizer;
  out.add("optimizer", o.name);
  out.add("lr", c.lr), out.add("min-lr", c.min_lr), out.add("warmup", c.warmup);
  if (c.lr_decay_steps > 0) out.add("lr-decay-steps", c.lr_decay_steps);
  out.add("weight-decay", o.weight_decay);
  if (o.name != "sgd") out.add("beta1", o.beta1);
  if (o.name == "adamw") out.add("beta2", o.beta2);
  out.add("grad-clip", o.clip);
}

}  // namespace

std::string settings_toml(const TrainConfig& c) {
  Lines out;
  out.add("data", c.data), out.add("out", c.out), out.add("tokenizer", c.tokenizer);
  if (!c.batches.empty()) out.add("batches", c.batches);
  add_model(out, c.model);
  out.add("seqlen", c.row_length());
  out.add("batch", c.batch), out.add("accumulate", c.accumulate), out.add("steps", c.steps);
  add_optimizer(out, c);
  out.add("dtype", c.dtype), out.add("mode", c.mode), out.add("seed", c.seed);
  if (c.dtype == "f16")
    out.add("loss-scale", c.loss_scale), out.add("loss-scale-every", c.loss_scale_every);
  out.add("eval-every", c.eval_every), out.add("save-every", c.save_every);
  if (c.memory_bytes > 0 && c.device_memory_bytes == 0)
    out.add("memory", std::to_string(c.memory_bytes));
  if (c.device_memory_bytes > 0) out.add("device-memory", std::to_string(c.device_memory_bytes));
  out.add("checkpoint", c.checkpoint), out.add("blockwise", c.blockwise);
  if (!c.mesh.axes.empty()) out.add("mesh", to_text(c.mesh)), out.add("ring", c.ring);
  if (c.mesh.find("pp") >= 0) {
    out.add("schedule", c.schedule), out.add("interleave", c.interleave);
    if (!c.stages_at.empty()) out.add("stages-at", stages_at_text(c));
  }
  if (c.zero > 0) out.add("zero", c.zero);
  out.add("device", c.device), out.add("threads", c.threads), out.add("tune", c.tune);
  if (!c.tune_cache.empty()) out.add("tune-cache", c.tune_cache);
  if (c.superopt > 0) out.add("superopt", c.superopt);
  if (!c.rules.empty()) out.add("rules", c.rules);
  if (!c.passes.empty()) out.add("passes", c.passes);
  return out.text();
}

}  // namespace tegula
