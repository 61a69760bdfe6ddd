// Graphs as text: what is read is printed and read the same; what the verifier passes is cut for
// the ranks of its mesh, interpreted, compiled and run at several extents without touching memory
// that is not its own.
#include "tegula/ir/interpret.h"
#include "tegula/ir/text.h"
#include "tegula/ir/verify.h"
#include "tegula/runtime/compile.h"
#include "tests/fuzz/run_plan.h"

namespace tegula::fuzz {

namespace {

// As for plans; regions are functions of the module, and may call each other.
bool is_small(const Module& m) {
  int64_t elements = 0, trips = 1;
  size_t nodes = 0;
  if (m.functions.size() > 8) return false;
  for (const auto& f : m.functions) {
    nodes += f.nodes.size();
    for (const Value& v : f.values) {
      const int64_t n = v.type.shape.numel();
      if (n > 4096 || (elements += n) > 1 << 15) return false;
    }
    for (const Node& n : f.nodes) {
      int64_t longest = 1;
      if (n.regions.empty()) continue;
      for (const ValueId v : n.inputs)
        for (int d = 0; d < f.type(v).shape.rank(); ++d)
          longest = std::max(longest, f.type(v).shape[d].bound());
      if (const auto* most = n.attrs.find("max_trips"))
        if (const auto* k = most->get_if<int64_t>()) longest = std::max(longest, *k);
      if (longest > 64 || (trips *= longest) > 256) return false;
    }
  }
  return nodes <= 64;
}

void interpret_everywhere(const Module& m, const Function& f) {
  for (const auto& extents : extents_of(m.symbols)) {
    std::vector<HostTensor> in;
    for (const Param& p : f.params) {
      const Type& t = f.type(p.value);
      HostTensor& x = in.emplace_back(Type{t.dtype, t.shape.at(extents)});
      for (int64_t k = 0; k < x.numel(); ++k) x.put(k, static_cast<double>(k % 5) - 1);
    }
    for (const Arithmetic a : {Arithmetic::kOracle, Arithmetic::kNaive})
      (void)interpret(m, f, in, a, extents);
  }
}

// The facts said of where values lie is a given to the cutting of the step.
void cut_for_ranks(const std::string& text, FuncId f) {
  auto m = std::make_shared<Module>(std::move(*module_from_text(text)));
  if (m->mesh.axes.empty() || m->mesh.n_ranks() > 8) return;
  const ShardOptions options{
      m->mesh, std::vector<Sharding>((*m)[f].params.size(), replicated(m->mesh)), Mode::kFast};
  const auto ranks = compile_ranks(m, f, options, {});
  if (!ranks.ok()) return;
  const Status st = verify(*m, (*m)[f]);
  TEGULA_CHECK(st.ok(), st.error().message);
}

bool run(std::string_view input) {
  const auto parsed = module_from_text(input);
  if (!parsed.ok()) return false;
  const std::string text = to_text(*parsed);
  const auto again = module_from_text(text);
  TEGULA_CHECK(again.ok() && to_text(*again) == text, text);
  if (!verify(*parsed).ok() || !is_small(*parsed)) return false;
  for (size_t f = 0; f < parsed->functions.size() && f < 4; ++f) {
    interpret_everywhere(*parsed, parsed->functions[f]);
    cut_for_ranks(text, static_cast<FuncId>(f));
    auto copy = std::make_shared<Module>(std::move(*module_from_text(text)));  // it is rewritten
    CompileOptions options;
    options.plan.verify = true, options.plan.target.n_threads = 2;
    const auto compiled = compile(copy, static_cast<FuncId>(f), options);
    if (compiled.ok() && fuzz::is_small(*compiled->plan)) run_everywhere(compiled->plan);
  }
  return true;
}

}  // namespace

extern constinit const Target graph_target{"graph", run};

}  // namespace tegula::fuzz
