// The one runner: every sample of every op through every check. A new op is tested by existing.
//
// A failure names the op, the sample and the seed. What a check does not apply to is counted, and
// printed at the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "tegula/ir/regions.h"
#include "tegula/kernels/registry.h"
#include "tests/ops/checks.h"

namespace tegula::testing {
namespace {

struct Entry {
  const OpDef* op;
  Sample sample;
  std::string name;  // op_sample, unique
};

// GoogleTest's name for it.
void PrintTo(const Entry& e, std::ostream* out) {  // NOLINT(readability-identifier-naming)
  *out << e.name;
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  std::set<std::string> names;
  for (const OpDef* op : all_ops()) {
    if (!op->samples) continue;
    for (const Sample& s : op->samples()) {
      std::string name = cat(op->name, "_", s.name);
      for (char& ch : name)
        if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
      while (!names.insert(name).second) name += "_";
      all.push_back({op, s, name});
    }
  }
  return all;
}

// check → what became of it → how often; and which ops passed a check at least once.
struct Tally {
  std::map<std::string, std::map<std::string, int>> outcomes;
  std::map<std::string, std::set<std::string_view>> passed;
};
Tally& tally() {
  static Tally t;
  return t;
}

class OpRunner : public ::testing::TestWithParam<Entry> {};

TEST_P(OpRunner, Holds) {
  const Entry& e = GetParam();
  for (uint64_t seed : {1, 2}) {
    const Case c = make_case(*e.op, e.sample, seed);
    for (const CheckDef& check : kChecks) {
      if (check.run != check_types && (!e.sample.expect_error.empty() || HasFailure())) continue;
      const Verdict v = check.run(c);
      if (v.kind == Verdict::kFail)
        ADD_FAILURE() << check.name << ": " << c.name() << "\n" << v.why;
      ++tally().outcomes[check.name][v.kind == Verdict::kPass ? "passed" : v.why];
      if (v.kind == Verdict::kPass) tally().passed[check.name].insert(e.op->name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OpRunner, ::testing::ValuesIn(entries()),
                         [](const auto& info) { return info.param.name; });

// Runs last: what was promised by an op's fields was tried at least once.
class Coverage : public ::testing::Environment {
 public:
  void TearDown() override {
    const auto n = std::count_if(all_ops().begin(), all_ops().end(),
                                 [](const OpDef* op) { return op->samples != nullptr; });
    if (static_cast<ptrdiff_t>(tally().passed["types"].size()) < n) return;  // a filtered run
    for (const OpDef* op : all_ops()) {
      if (!op->samples) continue;  // tests/passes tries it
      if (op->vjp && !op->is_view)
        EXPECT_TRUE(tally().passed["adjoint"].count(op->name)) << op->name << ": no derivative ran";
      EXPECT_TRUE(tally().passed["cost"].count(op->name)) << op->name << ": cost never checked";
      if (op->decompose)
        EXPECT_TRUE(tally().passed["decompose"].count(op->name)) << op->name << ": never checked";
    }
    for (const KernelDef* k : all_kernels())
      if (k->device == DeviceKind::kCpu && k->op != "fused" && k->min_isa <= machine_isa())
        EXPECT_GE(most_tasks_of(*k), 3)
            << k->name << " never ran with three tasks: give its op a sample that is large enough "
            << "(tests/ops/wide_test.cpp), or let the kernel ask ThreadPool::grain()";
    for (const auto& [check, outcomes] : tally().outcomes) {
      std::printf("%s:", check.c_str());
      for (const auto& [what, n] : outcomes) std::printf(" %d %s;", n, what.c_str());
      std::printf("\n");
    }
  }
};
[[maybe_unused]] const auto* const kCoverage =
    ::testing::AddGlobalTestEnvironment(new Coverage);  // owned by GoogleTest

TEST(OpTable, EveryOpHasSamplesAReferenceAndOneWayOfEach) {
  for (const OpDef* op : all_ops()) {
    SCOPED_TRACE(std::string(op->name));
    // A fused node means what its body says: tests/passes tries it.
    EXPECT_TRUE(op->samples != nullptr || op->name == "fused");
    EXPECT_TRUE(op->reference.f64 && op->reference.f32);
    EXPECT_EQ(op->dims.empty(), op->dims_fn != nullptr || op->regions != nullptr);
    // Beside a function, a spec says only who shares a dtype: it has no results.
    EXPECT_EQ(op->types.find("->") == op->types.npos, op->types_fn != nullptr || has_bodies(*op));
    EXPECT_FALSE(op->formula.empty());
    EXPECT_FALSE(op->group.empty());
    EXPECT_EQ(find_op(op->name), op);
  }
}

}  // namespace
}  // namespace tegula::testing
