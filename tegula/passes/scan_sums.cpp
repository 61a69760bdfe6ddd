// A loop's carry that only sums products, s + a · b, becomes one product after the loop, over steps
// too: the gradient of a recurrent layer's weight, whose every step would read and write a whole
// matrix for a few rows. Changes bits: the sum is one chain over steps and rows.
//
// Left alone where the operands do not depend on other carries (a blockwise layer: its loop is
// there so that its values need not be kept), and under a budget where the loop does not stack them
// yet.
#include <string>

#include "tegula/base/algorithm.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/common/scan.h"
#include "tegula/ops/math.h"
#include "tegula/passes/loops.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {

struct Sum {
  size_t carry = 0;
  const Node* dot = nullptr;
};

std::vector<int> count_uses(const Function& f) {
  std::vector<int> uses(f.values.size(), 0);
  for (const Node& n : f.nodes)
    for (ValueId v : n.inputs) ++uses[v];
  for (const Output& r : f.results) ++uses[r.value];
  return uses;
}

// Under a budget nothing is stacked that is not yet.
template <bool kHasBudget>
class Loop {
 public:
  Loop(Module& module, const Function& f, const Node& scan)
      : module_(module),
        scan_(scan),
        body_(module[scan.regions[0]]),
        layout_(layout_of(module, f, scan)) {
    find_sums();
  }

  bool has_work() const { return !sums_.empty(); }

  // The loop without its sums, and the products.
  void write(Rewriter& rw) {
    Builder& b = rw.builder();
    b.set_origin(scan_.origin);
    b.set_phase(scan_.phase);
    Function body = body_;
    std::vector<bool> keep_param(body.params.size(), true), keep_result(body.results.size(), true);
    for (const Sum& s : sums_) {
      keep_param[s.carry] = keep_result[s.carry] = false;
      for (ValueId v : s.dot->inputs)
        if (place_of(body, v) == kNone && x_of(v) == kNone)
          body.results.push_back({cat("factor", body.results.size()), v});
    }
    keep_result.resize(body.results.size(), true);
    const size_t n_ys = body.results.size() - layout_.n_carry;

    std::vector<int64_t> carries;  // those that stay, by their old number
    std::vector<Var> in;
    for (size_t i = 0; i < scan_.inputs.size(); ++i)
      if (keep_param[i]) {
        in.push_back(rw.at(scan_.inputs[i]));
        if (i < layout_.n_carry) carries.push_back(static_cast<int64_t>(i));
      }
    Attrs attrs = scan_.attrs;
    attrs.set("n_carry", static_cast<int64_t>(carries.size()));
    std::vector<int64_t> saves(layout_.saves.begin(), layout_.saves.end());
    for (int64_t& s : saves) s = std::find(carries.begin(), carries.end(), s) - carries.begin();
    if (!saves.empty()) attrs.set("saves", saves);
    Function rest = restrict_to(body, keep_param, keep_result);
    rest.name = fresh_name(b, "scan_sums");
    const FuncId region = module_.add(std::move(rest));
    const auto out = b.emit_n(scan_op, std::move(attrs), in, {region});
    if (b.failed()) return;

    for (size_t i = 0; i < carries.size(); ++i)
      rw.bind(scan_.output(static_cast<uint32_t>(carries[i])), out[i]);
    for (size_t i = 0; i < layout_.n_ys; ++i)
      rw.bind(scan_.output(static_cast<uint32_t>(layout_.n_carry + i)), out[carries.size() + i]);
    for (size_t i = 0; i < saves.size(); ++i)
      rw.bind(scan_.output(static_cast<uint32_t>(layout_.n_carry + layout_.n_ys + i)),
              out[carries.size() + n_ys + i]);
    for (const Sum& s : sums_) {
      const auto stack = [&](ValueId v) {
        if (const size_t x = x_of(v); x != kNone) return rw.at(scan_.inputs[x]);
        return out[carries.size() + place_of(body, v)];
      };
      const Var product = dot(over_steps(*s.dot), stack(s.dot->inputs[0]), stack(s.dot->inputs[1]));
      rw.bind(scan_.output(static_cast<uint32_t>(s.carry)),
              add(rw.at(scan_.inputs[s.carry]), product));
    }
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  static ScanLayout layout_of(const Module& module, const Function& f, const Node& scan) {
    std::vector<Type> in;
    for (ValueId v : scan.inputs) in.push_back(f.type(v));
    return ScanLayout({scan.op, &scan.attrs, in, {}, &module, scan.regions});
  }

  // Which operand of the scan a body's value is a step of.
  size_t x_of(ValueId v) const {
    for (size_t i = layout_.n_carry; i < layout_.first_invariant(); ++i)
      if (body_.params[i].value == v) return i;
    return kNone;
  }
  // Which of the ys it is.
  size_t place_of(const Function& body, ValueId v) const {
    for (size_t i = layout_.n_carry; i < body.results.size(); ++i)
      if (body.results[i].value == v) return i - layout_.n_carry;
    return kNone;
  }

  static std::string over_steps(const Node& dot) {
    const DotDims names = dims_of(dot);
    std::string step = "step";
    while (names.a.has(step) || names.b.has(step)) step += '_';
    return cat(step, " ", names.a.text(), ", ", step, " ", names.b.text(), " -> ",
               names.out.text());
  }

  void find_sums() {
    const auto uses = count_uses(body_);
    std::vector<bool> is_carried(body_.values.size(), false), varies(body_.values.size(), false);
    for (size_t i = 0; i < layout_.first_invariant(); ++i) {
      const ValueId v = body_.params[i].value;
      is_carried[v] = i < layout_.n_carry, varies[v] = true;
    }
    for (const Node& n : body_.nodes)
      for (uint32_t o = 0; o < n.n_outputs; ++o)
        for (ValueId v : n.inputs) {
          if (is_carried[v]) is_carried[n.output(o)] = true;
          if (varies[v]) varies[n.output(o)] = true;
        }
    for (size_t i = 0; i < layout_.n_carry; ++i) {
      const ValueId param = body_.params[i].value, result = body_.results[i].value;
      const Node* sum = body_.producer(result);
      if (!sum || sum->op != &add_op || uses[param] != 1 || uses[result] != 1) continue;
      if (std::count(layout_.saves.begin(), layout_.saves.end(), static_cast<int64_t>(i))) continue;
      const bool is_first = sum->inputs[0] == param;
      if (!is_first && sum->inputs[1] != param) continue;
      const ValueId share = sum->inputs[is_first ? 1 : 0];
      const Node* dot = body_.producer(share);
      if (!dot || dot->op != &dot_op || uses[share] != 1 || !is_plain_dot(*dot)) continue;
      const auto stacks = [&](ValueId v) {
        return varies[v] && body_.type(v).shape.rank() < kMaxRank &&
               (!kHasBudget || x_of(v) != kNone || place_of(body_, v) != kNone);
      };
      const ValueId a = dot->inputs[0], b = dot->inputs[1];
      if (stacks(a) && stacks(b) && (is_carried[a] || is_carried[b])) sums_.push_back({i, dot});
    }
  }

  Module& module_;
  const Node& scan_;
  const Function body_;  // a copy: the module grows
  ScanLayout layout_;
  std::vector<Sum> sums_;
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  return options.remat == Remat::kBudget ? rewrite_loops<Loop<true>>(module, f)
                                         : rewrite_loops<Loop<false>>(module, f);
}

}  // namespace

extern const PassDef scan_sums_pass = {
    .name = "scan_sums",
    .doc = "a loop's sum of products becomes one product after it",
    .sums = "a loop's sum of products is one chain over steps and rows, rounded once",
    .phase = PassPhase::kLoops,
    .run = run,
};

}  // namespace tegula
