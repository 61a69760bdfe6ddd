// Ring attention's overlap: from how many tokens a device on a hop of keys and values takes no
// longer than the attention over them. [Liu et al. 2023, section 3, "overlap"]
//
// With c tokens a device, a query heads, k key/value heads of size d and e bytes an element, a hop
// moves 2·c·k·d·e bytes, and attention over its block takes 4·c²·a·d operations (half of them with
// a balanced causal mask):
//   c ≥ F/B · e·k/(2a),   twice that for a balanced causal ring
// with F the device's operations a second and B the link's bytes a second. A device holds six such
// blocks at a time, so the shortest sequence for each is 6c: with as many key/value heads as
// queries 6·F/B, 6,240 tokens for an A100's 312 TFLOP/s over 300 GB/s (table 2 there: 6.2
// thousand).
#pragma once

#include <string>

#include "tegula/planner/layout.h"

namespace tegula::planner {

// flops_per_s, bytes_per_s: what the kernel and the link reach.
double least_ring_tokens(const ModelSpec& model, double flops_per_s, double bytes_per_s,
                         double element_bytes, bool is_causal);

// The numbers for this device's links, within a node and between nodes.
void explain_ring(std::string& out, const ModelSpec& model, const ClusterSpec& cluster,
                  const Job& job);

}  // namespace tegula::planner
