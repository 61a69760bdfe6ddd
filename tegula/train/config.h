// The options of `tegula train`: flags and TOML keys have these names with dashes.
#pragma once

#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/ir/sharding.h"
#include "tegula/models/model.h"
#include "tegula/train/optimizer.h"

namespace tegula {

namespace superopt {
class RuleSet;
}

struct TrainConfig {
  std::string data;
  std::string out;
  std::string
      batches;  // file that says which sequences each batch has (train/batches.h); "": drawn
  std::string tokenizer = "chars";  // bytes, chars, bpe:N
  ModelConfig model;
  OptimizerConfig optimizer;
  int64_t batch = 12;
  int64_t seqlen = 0;  // tokens of each of its rows, at most the model's context; 0: as many
  int64_t accumulate = 1;
  int64_t steps = 2000;
  double lr = 1e-3;
  double min_lr = 1e-4;
  int64_t warmup = 100;
  int64_t lr_decay_steps = 0;  // where the learning rate reaches min_lr; 0: at the last step
  // Products' type: f32; bf16 or f16, with f32 master weights, and f16 with a scaled loss
  // (train/loss_scale.h): what it is scaled by at first, and after how many good steps it doubles.
  std::string dtype = "f32";
  double loss_scale = 65536;
  int64_t loss_scale_every = 2000;
  std::string mode = "fast";  // fast, exact: passes/pass.h
  uint64_t seed = 1337;
  int64_t eval_every = 250;
  int64_t save_every = 250;  // 0: at the end only
  bool resume = false;
  std::string init_from;   // a model's directory: its weights instead of random ones
  bool overwrite = false;  // train anew where `out` holds a run, or files of other origin
  // Budget for what a step holds besides weights and optimizer state: activations, gradients and
  // workspaces, that is, its arena. 0: none.
  int64_t memory_bytes = 0;
  // Budget for all that a run takes of its device: the arena, weights, state, inputs, what other
  // plans and the plug-in hold (train/device_memory.h). 0: none.
  int64_t device_memory_bytes = 0;
  std::string checkpoint = "auto";  // recompute activations: none, sqrt, auto (to fit the budget)
  // Rows of a block of a feed-forward layer (passes/blockwise.cpp): off, auto, or so many at most.
  std::string blockwise = "off";
  Mesh mesh;                       // of the ranks; no axis: one rank
  int64_t processes = 1;           // that share out the ranks, in a row, as threads
  int64_t restarts = 0;            // of all processes after one has died
  std::string schedule = "1f1b";   // of the ranks of pp: plan/schedules
  int64_t interleave = 0;          // stages of each rank of pp; 0: as the schedule has them
  std::vector<int64_t> stages_at;  // layers with which stages begin; none: balanced
  std::string ring = "zigzag";     // train/deal.h: zigzag, striped, contiguous
  int64_t zero = 0;                // 1: dp splits optimizer state; 2: sums of gradients too (ZeRO)
  std::string device = "cpu";      // cpu, cuda: where steps run
  int threads = 0;                 // of each rank; 0: all cores, shared out
  std::string tune = "off";        // off, quick, full: runtime/tuner.h
  std::string tune_cache;          // directory of tunings; "": the user's cache
  double superopt = 0;             // seconds of searching for faster blocks: passes/superopt
  std::string rules;               // a file of more rules for that; "": those in the tool
  std::shared_ptr<const superopt::RuleSet> rule_set;  // that file's, whoever read it
  std::string timeline;   // HTML file that shows when each of a step's ops ran; "": none
  std::string transport;  // shm, tcp, mpi: what is between processes; "": what there is
  std::string address;    // where those of tcp meet: comm/join.h
  bool json = false;
  bool check = false;  // after each op: did its kernel keep to its memory (runtime/memory_watch.h)?
  std::string passes;  // "-fuse,-cse": passes to disable
  int64_t row_length() const { return seqlen > 0 ? seqlen : model.max_seqlen; }
  // Flags that were said outright ("n-heads"): a resume takes the model from its checkpoint, and
  // refuses what was said otherwise. A field that differs from its default counts as said.
  std::vector<std::string> said;
  bool was_said(std::string_view flag) const;
};

std::string stages_at_text(const TrainConfig& config);  // "0,7,12"

// Linear warm-up from 0 over `warmup` steps, then a cosine from lr to min_lr at step
// decay_steps(c), and min_lr from there on. [Loshchilov and Hutter 2017, eq. 5]
int64_t decay_steps(const TrainConfig& c);
double learning_rate(const TrainConfig& c, int64_t step);

// The one dial: n_layers = depth, d_model = 64·depth, n_heads = depth, as GPT-2's family scales;
// the learning rate falls with 1/sqrt(d_model). Explicit flags win over it.
void apply_depth(TrainConfig& c, int64_t depth);

}  // namespace tegula
