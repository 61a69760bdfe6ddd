// One test per rule: a valid function passes, and the same function broken in one way does not.
#include "tegula/ir/verify.h"

#include <gtest/gtest.h>

#include "tegula/ops/math.h"
#include "tegula/ops/table.h"

namespace tegula {
namespace {

// x (input), w (state, donated): y = x·w, w' = w − 1, over a symbolic batch.
class Verify : public ::testing::Test {
 protected:
  void SetUp() override {
    const Dim n = m.add_symbol("n", 8);
    Builder b(m, "step");
    const Var x = b.param("x", {DType::kF32, {n, 4}});
    const Var w = b.param("w", {DType::kF32, {4, 4}}, Role::kState);
    const Var v = b.param("v", {DType::kF32, {4, 4}}, Role::kState);
    b.result("y", matmul(x, w));
    b.result("w", w - v);
    b.donate("w", "w");
    auto id = b.finish_into_module();
    ASSERT_TRUE(id.ok()) << id.error().to_string();
    ASSERT_TRUE(verify(m).ok()) << verify(m).error().message;
    f = m[*id];
  }
  void expect(VerifyRule rule, std::string_view part) {
    auto status = verify(m, f);
    ASSERT_FALSE(status.ok());
    const std::string& message = status.error().message;
    EXPECT_EQ(message.rfind(cat(kVerifyRules[static_cast<size_t>(rule)], ": function step"), 0), 0u)
        << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  Module m;
  Function f;
};

TEST_F(Verify, SymbolOutOfRange) {
  f.values[0].type.shape[0].symbol = 3;
  expect(VerifyRule::kSymbols, "symbol 3, the module has 1");
}
TEST_F(Verify, SymbolWithAnotherBound) {
  f.values[0].type.shape[0].symbol_bound = 9;
  expect(VerifyRule::kSymbols, "bounds n by 9, the module by 8");
}
TEST_F(Verify, NegativeSize) {
  f.values[1].type.shape[0] = -4;
  expect(VerifyRule::kSymbols, "is -4");
}
TEST_F(Verify, MoreElementsThanATensorMayHave) {
  f.values[1].type.shape = {int64_t{1} << 21, int64_t{1} << 20};
  expect(VerifyRule::kSymbols, "more than 1099511627776 elements");
}
TEST_F(Verify, ValueOfAnotherNode) {
  f.values[f.nodes[0].output()].node = 1;
  expect(VerifyRule::kValues, "is result 0 of node 1");
}
TEST_F(Verify, ParameterOfAnotherValue) {
  std::swap(f.params[0].value, f.params[1].value);
  expect(VerifyRule::kValues, "parameter 0, which it is not");
}
TEST_F(Verify, OperandComesLater) {
  f.nodes[0].inputs[1] = f.nodes[1].output();
  expect(VerifyRule::kDominance, "node 0 (dot): operand 1 is value 4, which comes later");
}
TEST_F(Verify, OperandIsItself) {
  f.nodes[1].inputs[0] = f.nodes[1].output();
  expect(VerifyRule::kDominance, "operand 0 is value 4");
}
TEST_F(Verify, OperandDoesNotExist) {
  f.nodes[1].inputs[0] = 77;
  expect(VerifyRule::kDominance, "value 77 of 5");
}
TEST_F(Verify, RegionDoesNotExist) {
  f.nodes[1].regions = {5};
  expect(VerifyRule::kRegions, "region 5, the module has 1");
}
TEST_F(Verify, RegionHoldsItself) {
  m[0].nodes[1].regions = {0};
  f.nodes[1].regions = {0};
  expect(VerifyRule::kRegions, "region step holds itself");
}
// 2^40 paths lead to the innermost; each function is looked at once.
TEST_F(Verify, SharedRegionsAreSeenOnce) {
  FuncId inner = 0;
  for (int depth = 0; depth < 40; ++depth) {
    Builder b(m, cat("depth", depth));
    Var y = b.param("x", {DType::kF32, {4}});
    for (int i = 0; i < 2; ++i) y = -y;
    b.result("y", y);
    const FuncId next = *b.finish_into_module();
    for (Node& n : m[next].nodes) n.regions = {inner};
    inner = next;
  }
  f.nodes[1].regions = {inner};
  EXPECT_TRUE(verify(m, f).ok()) << verify(m, f).error().message;
  m[0].nodes[1].regions = {inner};  // and now the innermost holds them all
  expect(VerifyRule::kRegions, "holds itself");
}
TEST_F(Verify, WrongResultType) {
  f.values[f.nodes[1].output()].type.dtype = DType::kF64;
  expect(VerifyRule::kTypes, "its results are [f64[4,4]], infer() gives [f32[4,4]]");
}
TEST_F(Verify, OperandsDoNotFit) {
  f.nodes[1].inputs[1] = 0;
  expect(VerifyRule::kTypes, "broadcast one of them");
}
TEST_F(Verify, WrongAttribute) {
  f.nodes[1].attrs.set("surprise", true);
  expect(VerifyRule::kTypes, "unknown attribute surprise");
}
TEST_F(Verify, NoOp) {
  f.nodes[1].op = nullptr;
  expect(VerifyRule::kTypes, "no op");
}
TEST_F(Verify, ResultDoesNotExist) {
  f.results[0].value = 9;
  expect(VerifyRule::kResults, "result y is value 9 of 5");
}
TEST_F(Verify, DonatedToNothing) {
  f.params[1].donated_to = 2;
  expect(VerifyRule::kDonations, "parameter w is donated to result 2 of 2");
}
TEST_F(Verify, DonatedToAnotherType) {
  f.params[1].donated_to = 0;
  expect(VerifyRule::kDonations, "parameter w is f32[4,4], its result y is f32[s0,4]");
}
TEST_F(Verify, DonatedTwice) {
  f.params[2].donated_to = 1;
  expect(VerifyRule::kDonations, "result w takes over w and v");
}
TEST_F(Verify, StateWithoutName) {
  f.params[2].name = "";
  expect(VerifyRule::kState, "parameter 2 persists and has no name");
}
TEST_F(Verify, StateWithOneName) {
  f.params[2].name = "w";
  expect(VerifyRule::kState, "two parameters that persist are named w");
}

}  // namespace
}  // namespace tegula
