#include "cli/train_flags.h"

#include <cstdlib>

namespace tegula::cli {

Result<int64_t> parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit(end);
  const std::pair<const char*, double> units[] = {
      {"", 1},     {"B", 1},        {"kB", 1e3},      {"MB", 1e6},
      {"GB", 1e9}, {"KiB", 1024.0}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  for (auto [name, scale] : units)
    if (unit == name && end != text.c_str() && value > 0 && value * scale < 9e18)
      return static_cast<int64_t>(value * scale);
  return invalid_argument("\"" + text +
                          "\" is no amount of memory: write 512MiB, 2GiB or a number of bytes");
}

void TrainFlags::add_to(CLI::App& cmd, bool needs_data) {
  cmd_ = &cmd;
  TrainConfig& c = config;
  auto positive = [](CLI::Option* o) {
    return o->check(CLI::PositiveNumber)->capture_default_str();
  };
  auto natural = [](CLI::Option* o) {
    return o->check(CLI::NonNegativeNumber)->capture_default_str();
  };
  cmd.set_config("--config", "", "TOML file with these options");
  cmd.add_option("--data", c.data, "Text file, or a folder of them")->required(needs_data);
  cmd.add_option("--out", c.out, "Directory for the model, metrics and report");
  cmd.add_option("--tokenizer", c.tokenizer, "bytes, chars or bpe:N")->capture_default_str();
  cmd.add_option("--model", c.model.type, "Model family")
      ->check(CLI::IsMember({"gpt2", "llama", "moe", "mlp", "lstm"}))
      ->capture_default_str();
  natural(cmd.add_option("--depth", depth, "One dial for the size: layers, width, heads, lr"));
  positive(cmd.add_option("--n-layers", c.model.n_layers, "Layers"));
  positive(cmd.add_option("--n-heads", c.model.n_heads, "Query heads"));
  natural(cmd.add_option("--n-kv-heads", c.model.n_kv_heads, "Key/value heads; 0: as query heads"));
  natural(cmd.add_option("--head-dim", c.model.head_dim, "0: d_model / n_heads"));
  positive(cmd.add_option("--d-model", c.model.d_model, "Width"));
  natural(cmd.add_option("--d-ff", c.model.d_ff, "Feed-forward width; 0: the family's"));
  positive(cmd.add_option("--n-experts", c.model.n_experts, "Experts (moe)"));
  positive(cmd.add_option("--experts-per-token", c.model.n_experts_per_token,
                          "Experts a token sees (moe)"));
  natural(cmd.add_option("--capacity-factor", c.model.capacity_factor,
                         "Room of an expert in training, in even loads; 0: for all (moe)"));
  natural(cmd.add_option("--balance-loss", c.model.balance_loss,
                         "Coefficient of the experts' balance loss (moe)"));
  cmd.add_flag("--bias", c.model.has_bias, "Biases in linear layers and norms (gpt2)");
  positive(cmd.add_option("--seqlen", c.model.max_seqlen, "Tokens in a sequence"));
  positive(cmd.add_option("--batch", c.batch, "Sequences in a step"));
  positive(cmd.add_option("--accumulate", c.accumulate, "Batches whose gradients make one step"));
  natural(cmd.add_option("--steps", c.steps, "Optimizer steps"));
  cmd.add_option("--optimizer", c.optimizer.name, "Update rule")
      ->check(CLI::IsMember({"adamw", "momentum", "sgd"}))
      ->capture_default_str();
  positive(cmd.add_option("--lr", c.lr, "Largest learning rate"));
  natural(cmd.add_option("--min-lr", c.min_lr, "Learning rate at the end"));
  natural(cmd.add_option("--warmup", c.warmup, "Steps of linear warm-up"));
  natural(cmd.add_option("--weight-decay", c.optimizer.weight_decay, "On matrices"));
  cmd.add_option("--beta1", c.optimizer.beta1)
      ->check(CLI::Range(0.0, 0.9999))
      ->capture_default_str();
  cmd.add_option("--beta2", c.optimizer.beta2)
      ->check(CLI::Range(0.0, 0.99999))
      ->capture_default_str();
  natural(cmd.add_option("--grad-clip", c.optimizer.clip, "Largest gradient norm; 0: no limit"));
  cmd.add_option("--dropout", c.model.dropout)->check(CLI::Range(0.0, 0.99))->capture_default_str();
  cmd.add_option("--dtype", c.dtype, "f32, or bf16 with f32 master weights")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  cmd.add_option("--seed", c.seed)->capture_default_str();
  natural(cmd.add_option("--eval-every", c.eval_every, "Steps between evaluations; 0: at the end"));
  natural(cmd.add_option("--save-every", c.save_every, "Steps between saves; 0: at the end"));
  cmd.add_flag("--resume", c.resume, "Go on from the last checkpoint in --out");
  cmd.add_option("--memory", memory,
                 "Budget for what a step holds besides weights and optimizer state: activations, "
                 "gradients, workspaces; e.g. 512MiB");
  cmd.add_option(
         "--checkpoint", c.checkpoint,
         "Activations to recompute: none; all but every sqrt(N)-th block's; auto: what fits "
         "--memory in the least time")
      ->check(CLI::IsMember({"none", "sqrt", "auto"}))
      ->capture_default_str();
  natural(cmd.add_option("--threads", c.threads, "0: all cores"));
  cmd.add_option("--passes", c.passes, "Passes to leave out, e.g. -fuse,-cse");
  cmd.add_flag("--json", c.json, "One JSON object on the last line");
}

Result<TrainConfig> TrainFlags::resolve() const {
  TrainConfig c = config;
  if (depth > 0) {
    apply_depth(c, depth);
    // What was said outright wins.
    if (cmd_->count("--n-layers")) c.model.n_layers = config.model.n_layers;
    if (cmd_->count("--d-model")) c.model.d_model = config.model.d_model;
    if (cmd_->count("--n-heads")) c.model.n_heads = config.model.n_heads;
    if (cmd_->count("--lr")) c.lr = config.lr;
    if (cmd_->count("--min-lr")) c.min_lr = config.min_lr;
  }
  if (!memory.empty()) c.memory_bytes = TEGULA_TRY(parse_bytes(memory));
  if (c.resume && c.out.empty())
    return invalid_argument("--resume needs --out, the directory to go on from");
  if (c.min_lr > c.lr)
    return invalid_argument(cat("--min-lr ", c.min_lr, " is larger than --lr ", c.lr));
  return c;
}

}  // namespace tegula::cli
