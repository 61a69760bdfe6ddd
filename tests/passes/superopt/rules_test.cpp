// Whole files of rules: the published ones, what is refused of them when they are changed, and what
// the generator finds.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "tools/rules/check/check.h"
#include "tools/rules/generate/generate.h"
#include "tools/rules/generate/instances.h"

namespace tegula::superopt {
namespace {

std::vector<Rule> published() {
  std::ifstream file("tests/data/rules_xla.txt");
  std::stringstream text;
  text << file.rdbuf();
  return *parse_rules(text.str(), "rules_xla.txt");
}

void attach(Rule& rule, const Proof& proof) { rule.proof = proof.steps, rule.has_proof = true; }

TEST(PublishedRules, AreProvenAndChecked) {
  int proven = 0, exact = 0;
  for (Rule& rule : published()) {
    const Proof proof = prove(rule);
    EXPECT_TRUE(proof.is_proven) << rule.text() << proof.failure;
    EXPECT_FALSE(is_refuted(rule, 10, 3)) << rule.text();
    if (!proof.is_proven) continue;
    attach(rule, proof);
    const auto checked = rulecheck::check_rules(rule.text(), "rules");
    EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().message);
    ++proven, exact += class_of(rule) == "exact";
    // The text is the rule.
    EXPECT_EQ((*parse_rules(rule.text(), "again"))[0].text(), rule.text());
  }
  EXPECT_GE(proven, 85);
  EXPECT_GE(exact, 30);
}

TEST(RuleClass, SumsKeepTheirOrderOrNot) {
  const auto expect = [](const char* text, std::string_view wanted) {
    EXPECT_EQ(class_of((*parse_rules(std::string("rule r\n") + text, "t"))[0]), wanted) << text;
  };
  expect(
      "sizes m k n1 n2\ninputs x[m,k] a[k,n1] b[k,n2]\nleft concat(dot(x,a),dot(x,b),dim=1)\n"
      "right dot(x,concat(a,b,dim=1))\n",
      "exact");
  expect(
      "sizes m a b\ninputs x[m,a] y[m,b]\nleft slice(concat(x,y,dim=1),dim=1,start=0,size=a)\n"
      "right x\n",
      "exact");
  expect(
      "sizes m k1 k2 n\ninputs x[m,k1] y[m,k2] a[k1,n] b[k2,n]\nleft add(dot(x,a),dot(y,b))\n"
      "right dot(concat(x,y,dim=1),concat(a,b,dim=0))\n",
      "fast");
  expect(
      "sizes m a b\ninputs x[m,a] y[m,b]\nleft reduce_sum(concat(x,y,dim=1),dims=[1])\n"
      "right reduce_sum(concat(y,x,dim=1),dims=[1])\n",
      "fast");
  expect(
      "sizes m k n\ninputs x[m,k] a[k,n]\nleft dot(x,a)\n"
      "right "
      "dot(slice(x,dim=1,start=k-1,size=k,step=-1),slice(a,dim=0,start=k-1,size=k,step=-1))\n",
      "fast");
  expect(
      "sizes l m n\ninputs x[l,m,n]\nleft reduce_sum(x,dims=[1,2])\n"
      "right reduce_sum(permute(x,order=[0,2,1]),dims=[1,2])\n",
      "fast");
  expect(
      "sizes b t k n\ninputs x[b,t,k] a[k,n]\nleft dot(x,a,dims=\"b t k, k n -> b t n\")\n"
      "right reshape(dot(reshape(x,shape=[b*t,k]),a),shape=[b,t,n])\n",
      "exact");
  expect(
      "sizes n ci h co1 co2 k\ninputs x[n,ci,h] a[co1,ci,k] b[co2,ci,k]\n"
      "left concat(conv(x,a),conv(x,b),dim=1)\nright conv(x,concat(a,b,dim=0))\n",
      "exact");
}

// One change to the text of left, right or a condition: a digit, a name by another, a condition
// left out or made weaker.
std::string changed(const std::string& text, std::mt19937& random) {
  std::vector<std::string> lines;
  std::istringstream in(text.substr(0, text.find("\nproof")));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::vector<size_t> open;
  std::vector<std::string> names;
  for (size_t k = 0; k < lines.size(); ++k) {
    const std::string key = lines[k].substr(0, lines[k].find(' '));
    if (key == "left" || key == "right" || key == "where") open.push_back(k);
    if (key != "sizes" && key != "integers" && key != "scalars" && key != "inputs") continue;
    std::istringstream words(lines[k].substr(key.size()));
    for (std::string w; words >> w;) names.push_back(w.substr(0, w.find('[')));
  }
  auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  std::string& line = lines[open[pick(open.size())]];
  if (line.starts_with("where") && pick(2) == 0) {
    line = "";
  } else {
    std::vector<std::pair<size_t, size_t>> places;  // digits and whole names
    for (size_t a = line.find(' ') + 1; a < line.size();) {
      size_t b = a;
      while (b < line.size() && (std::isalnum(line[b]) || line[b] == '_')) ++b;
      const std::string word = line.substr(a, b - a);
      const bool is_name = std::find(names.begin(), names.end(), word) != names.end();
      if (is_name || (b > a && std::isdigit(word[0]))) places.emplace_back(a, b - a);
      a = std::max(b, a + 1);
    }
    if (places.empty()) return "";
    const auto [at, n] = places[pick(places.size())];
    const bool is_digit = std::isdigit(line[at]) && pick(2) == 0;
    line.replace(at, n, is_digit ? std::to_string(pick(4)) : names[pick(names.size())]);
  }
  std::string all;
  for (const std::string& l : lines) all += l + "\n";
  return all;
}

TEST(ChangedRules, AreRefusedByProverAndChecker) {
  std::mt19937 random(11);
  std::vector<Rule> rules = published();
  std::map<std::string, std::string> proofs;
  for (Rule& r : rules) {
    attach(r, prove(r));
    const std::string text = r.text();
    proofs[r.name] = text.substr(text.find("\nproof") + 1);
  }
  int n_false = 0;
  for (int n = 0; n < 20'000 && n_false < 100; ++n) {
    const Rule& old = rules[static_cast<size_t>(n) % rules.size()];
    const std::string text = changed(old.text(), random);
    const auto parsed = parse_rules(text, "changed");
    if (text.empty() || !parsed.ok() || parsed->size() != 1) continue;
    if (!is_refuted((*parsed)[0], 12, static_cast<uint64_t>(n))) continue;  // it may well be true
    ++n_false;
    EXPECT_FALSE(prove((*parsed)[0]).is_proven) << text;
    EXPECT_FALSE(rulecheck::check_rules(text + proofs[old.name], "changed").ok()) << text;
  }
  EXPECT_EQ(n_false, 100);
}

TEST(ChangedProofs, NameTheFirstWrongStep) {
  Rule rule =
      (*parse_rules("rule r\nsizes m n1 n2\ninputs x[m,n1] y[m,n2]\n"
                    "left slice(concat(x,y,dim=1),dim=1,start=0,size=n1)\nright x\n",
                    "t"))[0];
  attach(rule, prove(rule));
  ASSERT_TRUE(rulecheck::check_rules(rule.text(), "t").ok());
  for (size_t k = 0; k < rule.proof.size(); ++k) {
    Rule less = rule;
    less.proof.erase(less.proof.begin() + static_cast<std::ptrdiff_t>(k));
    EXPECT_FALSE(rulecheck::check_rules(less.text(), "t").ok()) << "without " << rule.proof[k];
  }
  rule.proof[1] = "drop 0 0 by 1: 5*h0";
  const auto checked = rulecheck::check_rules(rule.text(), "t");
  ASSERT_FALSE(checked.ok());
  EXPECT_NE(checked.error().message.find("rule r: step 2, 'drop 0 0 by 1: 5*h0'"),
            std::string::npos)
      << checked.error().message;
}

// Any rule of the file says, whatever its names: it matches both sides.
bool has_rule(std::span<const Rule> rules, const std::string& text) {
  Rule wanted = (*parse_rules("rule wanted\n" + text, "wanted"))[0];
  for (const Rule& r : rules)
    for (const bool from_left : {true, false})
      for (const Instance& m :
           instances_of(r, from_left ? r.left : r.right, wanted.graph, wanted.left, wanted.where)) {
        const auto other = instantiate(r, from_left ? r.right : r.left, m, wanted.graph);
        if (other.ok() && *other == wanted.right) return true;
      }
  return false;
}

TEST(GeneratedRules, RediscoverWhatPapersName) {
  const Generated g = generate_rules(2);
  EXPECT_GT(g.counts.graphs, 100'000);
  EXPECT_EQ(g.counts.proven, static_cast<int64_t>(g.rules.size()));
  std::string all;
  for (const Rule& r : g.rules) all += r.text();
  const auto read = parse_rules(all, "generated");  // names of functions, too, are said
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->size(), g.rules.size());
  const auto checked = rulecheck::check_rules(all, "generated");
  EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().message);

  const char* const wanted[] = {
      // QKV
      "sizes m k n1 n2\ninputs x[m,k] a[k,n1] b[k,n2]\nleft concat(dot(x,a),dot(x,b),dim=1)\n"
      "right dot(x,concat(a,b,dim=1))\n",
      // along k
      "sizes m k1 k2 n\ninputs x[m,k1] y[m,k2] a[k1,n] b[k2,n]\nleft add(dot(x,a),dot(y,b))\n"
      "right dot(concat(x,y,dim=1),concat(a,b,dim=0))\n",
      // convolution over output and input channels
      "sizes n ci h co1 co2 k\ninputs x[n,ci,h] a[co1,ci,k] b[co2,ci,k]\n"
      "left concat(conv(x,a),conv(x,b),dim=1)\nright conv(x,concat(a,b,dim=0))\n",
      "sizes n c1 c2 h co k\ninputs x[n,c1,h] y[n,c2,h] a[co,c1,k] b[co,c2,k]\n"
      "left add(conv(x,a),conv(y,b))\nright conv(concat(x,y,dim=1),concat(a,b,dim=1))\n",
      // 1 × 1 enlarged
      "sizes n ci h w co\ninputs x[n,ci,h,w] a[co,ci,1,1]\nleft conv(x,a)\n"
      "right conv(x,pad(pad(a,dim=2,lo=1,hi=1),dim=3,lo=1,hi=1),lo=[1,1],hi=[1,1])\n",
      // convolution and batch norm's scale
      "sizes n ci h co k\ninputs x[n,ci,h] a[co,ci,k] c[co,1]\n"
      "left mul(conv(x,a),broadcast(c,shape=[n,co,h-k+1]))\n"
      "right conv(x,mul(broadcast(reshape(c,shape=[co,1,1]),shape=[co,ci,k]),a))\n",
      // dilated as plain
      "sizes n ci h co k d\ninputs x[n,ci,h] a[co,ci,k]\nleft conv(x,a,dilation=[d])\n"
      "right conv(x,pad(a,dim=2,interior=d-1))\n"};
  for (const char* text : wanted) EXPECT_TRUE(has_rule(g.rules, text)) << text;
}

}  // namespace
}  // namespace tegula::superopt
