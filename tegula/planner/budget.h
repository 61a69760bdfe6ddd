// Says what a budget of operations buys, and how large a batch may be.
//
//   loss        L(N, D) = 1.69 + 406.4/N^0.34 + 410.7/D^0.28      [Hoffmann et al. 2022, eq. 10]
//   optimum     C = 6·N·D with D = 20·N                            [there, table 3: "20 tokens"]
//   batch       B_crit = 2·10⁸ tokens / L^(1/0.21)                 [Kaplan et al. 2020, eq. 1.4]
// All three are fits of their authors to their own models and data: numbers to begin with. Kaplan's
// is of losses on WebText2, so that putting Hoffmann's L into it is an order of magnitude.
#pragma once

namespace tegula::planner {

struct Optimum {
  double params = 0, tokens = 0;
};
Optimum chinchilla(double flops);
// The least of L(N, D) on C = 6·N·D by its closed form: exponents .45 and .55, fewer parameters and
// more tokens than the rule of 20 gives for large budgets.
Optimum chinchilla_by_loss(double flops);
double predicted_loss(double params, double tokens);
double critical_batch_tokens(double loss);

}  // namespace tegula::planner
