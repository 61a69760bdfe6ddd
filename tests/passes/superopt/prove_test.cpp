#include "tools/rules/prove/prove.h"

#include <gtest/gtest.h>

#include "tools/rules/generate/generate.h"

namespace tegula::superopt {
namespace {

Rule rule_of(const std::string& text) {
  auto rules = parse_rules("rule r\n" + text, "test");
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().message);
  return rules.ok() ? (*rules)[0] : Rule();
}

// Proven, and no small sizes refute it; or neither.
void expect_proven(const std::string& text, bool is_true = true) {
  const Rule rule = rule_of(text);
  const Proof proof = prove(rule);
  EXPECT_EQ(proof.is_proven, is_true) << text << proof.failure;
  EXPECT_EQ(is_refuted(rule, 20, 1), !is_true) << text;
}

TEST(Prove, ProductDistributesOverConcat) {
  const std::string sizes = "sizes m k n1 n2\ninputs x[m,k] a[k,n1] b[k,n2]\n";
  expect_proven(sizes +
                "left concat(dot(x, a), dot(x, b), dim=1)\n"
                "right dot(x, concat(a, b, dim=1))\n");
  expect_proven(sizes +
                    "left concat(dot(x, a), dot(x, b), dim=1)\n"
                    "right dot(x, concat(b, a, dim=1))\n",
                false);
}

TEST(Prove, ConcatAlongKIsASumOfProducts) {
  const std::string sizes = "sizes m k1 k2 n\ninputs x[m,k1] y[m,k2] a[k1,n] b[k2,n]\n";
  expect_proven(sizes +
                "left add(dot(x,a), dot(y,b))\n"
                "right dot(concat(x,y,dim=1), concat(a,b,dim=0))\n");
}

TEST(Prove, ConvolutionDistributesOverConcat) {
  const std::string head =
      "sizes n ci h w co1 co2 kh kw\nintegers p q\ninputs x[n,ci,h,w] a[co1,ci,kh,kw] "
      "b[co2,ci,kh,kw]\n";
  expect_proven(head +
                "left concat(conv(x,a,lo=[p,q],hi=[p,q]), conv(x,b,lo=[p,q],hi=[p,q]),dim=1)\n"
                "right conv(x,concat(a,b,dim=0),lo=[p,q],hi=[p,q])\n");
}

TEST(Prove, ConvolutionIsBilinear) {
  expect_proven(
      "sizes n ci h co k\nscalars s\ninputs x[n,ci,h] y[n,ci,h] a[co,ci,k]\n"
      "left conv(add(x,scale(y,by=s)),a)\n"
      "right add(conv(x,a),scale(conv(y,a),by=s))\n");
  expect_proven(
      "sizes n ci h co k\nscalars s\ninputs x[n,ci,h] a[co,ci,k] b[co,ci,k]\n"
      "left conv(x,add(a,scale(b,by=s)))\n"
      "right add(conv(x,a),scale(conv(x,b),by=s))\n");
}

TEST(Prove, KernelsEnlargedAndDilated) {
  expect_proven(
      "sizes n ci h w co\ninputs x[n,ci,h,w] a[co,ci,1,1]\nleft conv(x,a)\n"
      "right conv(x,pad(pad(a,dim=2,lo=1,hi=1),dim=3,lo=1,hi=1),lo=[1,1],hi=[1,1])\n");
  expect_proven(
      "sizes n ci h co k d\ninputs x[n,ci,h] a[co,ci,k]\nleft conv(x,a,dilation=[d])\n"
      "right conv(x,pad(a,dim=2,interior=d-1))\n");
  expect_proven(
      "sizes n ci h co k d\ninputs x[n,ci,h] a[co,ci,k]\nleft conv(x,a,dilation=[d])\n"
      "right conv(x,pad(a,dim=2,interior=d-1,hi=1),hi=[1])\n");
}

TEST(Prove, FunctionsGoThroughMovement) {
  expect_proven(
      "sizes m n1 n2\nfunctions f\ninputs x[m,n1] y[m,n2]\n"
      "left f(concat(x,y,dim=1))\nright concat(f(x),f(y),dim=1)\n");
  expect_proven(
      "sizes m n\nfunctions f\ninputs x[m,n]\n"
      "left f(pad(x,dim=1,lo=1))\nright pad(f(x),dim=1,lo=1)\n",
      false);
}

TEST(Prove, MaximaOfPieces) {
  expect_proven(
      "sizes m n1 n2\ninputs x[m,n1] y[m,n2]\nleft reduce_max(concat(x,y,dim=1),dims=[1])\n"
      "right max(reduce_max(x,dims=[1]),reduce_max(y,dims=[1]))\n");
}

// A maximum of equal operands becomes their sum, whose variable has the name of the other scope's.
TEST(Prove, NamesOfScopesBesideOneAnotherDoNotMeet) {
  const std::string head = "sizes n m\ninputs x[n] y[m]\nwhere m - n - 1 >= 0\n";
  const std::string same = "mul(max(reduce_sum(x,dims=[0]),reduce_sum(x,dims=[0])), ";
  expect_proven(head + "left " + same + "reduce_max(y,dims=[0]))\nright " + same +
                    "reduce_max(slice(y,dim=0,start=0,size=n),dims=[0]))\n",
                false);
}

TEST(Prove, RowsAsOneRow) {
  expect_proven(
      "sizes b t k n\ninputs x[b,t,k] a[k,n]\n"
      "left dot(x,a,dims=\"b t k, k n -> b t n\")\n"
      "right reshape(dot(reshape(x,shape=[b*t,k]),a),shape=[b,t,n])\n");
}

TEST(Prove, ConditionsFallOutOfTheCases) {
  const std::string head = "sizes n\nintegers a b c d\n", inputs = "inputs x[n]\n",
                    sides =
                        "left pad(pad(x,dim=0,lo=a,hi=b),dim=0,lo=c,hi=d)\n"
                        "right pad(x,dim=0,lo=a+c,hi=b+d)\n";
  expect_proven(head + inputs + sides, false);  // what is cut is not padded again
  expect_proven(head + inputs + "where a >= 0\nwhere b >= 0\n" + sides);
  Rule rule =
      rule_of("sizes m n s k\ninputs x[m,n]\nleft slice(x,dim=1,start=0,size=n)\nright x\n");
  EXPECT_TRUE(prove(rule).is_proven);
}

TEST(Derive, CertificatesAddUp) {
  const Poly n(Symbol("n")), m(Symbol("m")), a(Symbol("a")), b(Symbol("b"));
  // 0 ≤ a < n and 0 ≤ b < m give m·a + b < n·m.
  const Guard facts[] = {{n - 1}, {m - 1}, {a}, {n - 1 - a}, {b}, {m - 1 - b}};
  EXPECT_NE(derive(facts, {n * m - 1 - m * a - b}), "");
  EXPECT_EQ(derive(facts, {n * m - 2 - m * a - b}), "");
  EXPECT_EQ(derive(facts, {a - b}), "");
}

}  // namespace
}  // namespace tegula::superopt
