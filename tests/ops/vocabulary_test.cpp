// Every function of ops/*.h is given what it must not be given, as every op is in
// misuse_sweep_test.cpp.
#include "tests/ops/vocabulary.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

namespace tegula::testing {
namespace {

struct Attempt {
  Module module;
  Builder builder{module, "f"};
  std::vector<Var> in, out;
  explicit Attempt(const Function& f) {
    for (const Type& t : f.in) in.push_back(builder.param(cat("x", in.size()), t));
  }
  // The error of what it gives, as results of a function.
  std::string run(const Function& f, Ints ints) {
    out = f.call(in, ints);
    for (const Var& v : out) builder.result("y", v);
    return error_of(builder);
  }
};

TEST(Vocabulary, EveryFunctionOfTheHeadersIsTried) {
  std::set<std::string> known;
  for (const Function& f : vocabulary()) known.insert(f.name);
  // Halves of templates, what takes no Var, and what misuse_test.cpp tries.
  const std::set<std::string> others = {"types_of",      "slice_types",  "emit_scan",
                                        "emit_while",    "emit_cond",    "in_key_order",
                                        "clamped_start", "vjp_function", "jvp_function"};
  const std::regex function(R"(^(?:inline )?[A-Za-z][\w:<>]* ([a-z_]\w*)\()"),
      macro(R"(^TEGULA_(?:UNARY|BINARY)\((\w+)\))");
  int n = 0;
  for (const auto& file : std::filesystem::directory_iterator("tegula/ops")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream text(file.path());
    for (std::string line; std::getline(text, line);) {
      std::smatch m;
      if (!std::regex_search(line, m, function) && !std::regex_search(line, m, macro)) continue;
      if (line.starts_with("//") || m[1].str().starts_with("operator")) continue;
      EXPECT_TRUE(known.count(m[1]) || others.count(m[1])) << file.path() << ": " << line;
      ++n;
    }
  }
  EXPECT_GT(n, 150);
}

TEST(Vocabulary, ValidCallsAreValid) {
  for (const Function& f : vocabulary()) {
    Attempt a(f);
    EXPECT_EQ(a.run(f, f.ints), "") << f.name;
    for (const size_t k : f.optional) {
      Attempt b(f);
      b.in[k] = {};
      if (f.name != "attention")
        EXPECT_EQ(b.run(f, f.ints), "") << f.name << " without operand " << k;
    }
  }
}

TEST(Vocabulary, PoisonGivesTheFirstError) {
  for (const Function& f : vocabulary())
    for (size_t k = 0; k < f.in.size(); ++k) {
      SCOPED_TRACE(cat(f.name, ", operand ", k));
      Attempt a(f);
      // A reshape that does not fit.
      a.in[k] = reshape(a.in[k], {7, 11});
      const std::string first = error_of(a.builder);
      ASSERT_NE(first, "");
      EXPECT_EQ(a.run(f, f.ints), first);
    }
}

TEST(Vocabulary, VarsOfNobodyOrOthersAreErrors) {
  BadVars bad;
  for (const Function& f : vocabulary()) {
    for (size_t k = 0; k < f.in.size(); ++k)
      for (const Bad kind : kBad) {
        if (f.optional.count(k) && (kind == Bad::kEmpty || kind == Bad::kOrphaned)) continue;
        SCOPED_TRACE(cat(f.name, ", operand ", k, ", ", static_cast<int>(kind)));
        Attempt a(f);
        a.in[k] = bad.make(kind, f.in[k]);
        EXPECT_NE(a.run(f, f.ints), "");
      }
    Attempt none(f);
    none.in.assign(f.in.size(), Var());
    EXPECT_NE(none.run(f, f.ints), "") << f.name << " of empty Vars alone";
  }
}

TEST(Vocabulary, NumbersOutOfEveryRange) {
  constexpr int64_t kFar[] = {-1,
                              0,
                              -3,
                              9,
                              1000,
                              -1000,
                              int64_t{1} << 20,
                              int64_t{1} << 30,
                              int64_t{1} << 40,
                              int64_t{1} << 62,
                              INT64_MAX,
                              INT64_MIN,
                              INT32_MAX,
                              INT32_MIN};
  for (const Function& f : vocabulary())
    for (size_t k = 0; k < f.ints.size(); ++k)
      for (const int64_t far : kFar) {
        SCOPED_TRACE(cat(f.name, ", number ", k, " = ", far));
        Attempt a(f);
        auto ints = f.ints;
        ints[k] = far;
        (void)a.run(f, ints);
      }
}

TEST(Vocabulary, OperandsOfEveryRankAndDType) {
  for (const Function& f : vocabulary())
    for (size_t k = 0; k < f.in.size(); ++k) {
      const auto attempt = [&](const Type& t) {
        SCOPED_TRACE(cat(f.name, ", operand ", k, " is ", t));
        Function other = f;
        other.in[k] = t;
        Attempt a(other);
        (void)a.run(other, other.ints);
      };
      for (int rank = 0; rank <= kMaxRank; ++rank)
        for (const Dim d : {Dim(0), Dim(1), Dim(2)}) {
          Shape s;
          for (int i = 0; i < rank; ++i) s.push_back(d);
          attempt({f.in[k].dtype, s});
        }
      for (const DType d : {DType::kF64, DType::kBF16, DType::kF16, DType::kI8, DType::kI32,
                            DType::kI64, DType::kU8, DType::kBool, DType::kF8E4M3})
        attempt({d, f.in[k].shape});
    }
}

TEST(Vocabulary, SymbolicSizes) {
  for (const Function& f : vocabulary())
    for (size_t k = 0; k < f.in.size(); ++k)
      for (int d = 0; d < f.in[k].shape.rank(); ++d) {
        SCOPED_TRACE(cat(f.name, ", operand ", k, ", dim ", d));
        Module m;
        const Dim s = m.add_symbol("s", f.in[k].shape[d].bound());
        Builder b(m, "f");
        std::vector<Var> in;
        for (size_t i = 0; i < f.in.size(); ++i) {
          Type t = f.in[i];
          if (i == k) t.shape[d] = s;
          in.push_back(b.param(cat("x", i), t));
        }
        auto out = f.call(in, f.ints);
        // And its gradient.
        Var loss;
        for (const Var& v : out)
          if (v.valid() && is_float(v.dtype())) {
            std::vector<int64_t> dims;
            for (int i = 0; i < v.rank(); ++i) dims.push_back(i);
            const Var sum = cast(reduce_sum(v, dims), DType::kF32);
            loss = loss.valid() ? loss + sum : sum;
          }
        if (loss.valid()) (void)grad(loss, in);
      }
}

TEST(Vocabulary, EmptyLists) {
  const std::vector<Var> none;
  for (const Var& y : {concat(none, 0), stack(none, 0)}) {
    EXPECT_FALSE(y.valid());
    Module m;
    Builder b(m, "f");
    b.result("y", y);
    EXPECT_EQ(b.finish().error().message, "result y is an empty Var");
  }
  EXPECT_TRUE(barrier(none, none).empty());
  EXPECT_TRUE(grad(Var(), none).empty());
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", Type{DType::kF32, {2}});
  EXPECT_TRUE(split(x, std::vector<int64_t>{}, 0).empty());
  EXPECT_NE(error_of(b), "");
}

}  // namespace
}  // namespace tegula::testing
