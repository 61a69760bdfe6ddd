// The report of a training run: one self-contained HTML page (inline SVG, no script).
#pragma once

#include <string>
#include <vector>

#include "tegula/runtime/probe.h"
#include "tegula/train/trainer.h"
#include "tegula/train/utilisation.h"

namespace tegula {

struct TrainHistory {
  std::vector<StepReport> steps;
  std::vector<EvalReport> evals;
};

// The text that the trained model writes after a prompt.
struct TextSample {
  std::string prompt, text;
};

// Curves of loss, learning rate, gradient norm and throughput, samples (none: left out), predicted
// beside measured, time per part of the model and per op, roofline with every op on it, memory
// timeline of the plan, the configuration. Written whole and renamed.
Status write_report(const std::string& path, const Trainer& trainer, const TrainSummary& summary,
                    const TrainHistory& history, const MachineSpeed& speed,
                    const Utilisation& utilisation, const std::vector<TextSample>& samples);

}  // namespace tegula
