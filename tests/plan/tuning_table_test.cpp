// The table of tunings on disk: what is saved comes back; what is cut, altered or of another
// machine is ignored with one line, and replaced by the next save.
#include "tegula/plan/tuning_table.h"

#include <gtest/gtest.h>

#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/io/sha256.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

TunedCall call(int knob) {
  TunedCall c;
  c.tuning.knob[0] = knob, c.tuning.knob[7] = 3;
  c.is_full = knob % 2 == 0, c.trials = 24, c.points = 300, c.ms = 1.5, c.default_ms = 2.25;
  return c;
}

TEST(TuningTable, ComesBackAsItWasSaved) {
  const TempDir dir;
  const std::string folder = (dir / "a/b");
  TuningTable table(folder, "m1");
  EXPECT_EQ(table.warning(), "");
  table.put("one", call(1)), table.put("two", call(2));
  ASSERT_TRUE(table.save().ok());
  const TuningTable again(folder, "m1");
  EXPECT_EQ(again.warning(), "");
  ASSERT_EQ(again.size(), 2u);
  const TunedCall* c = again.find("two");
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->tuning, call(2).tuning);
  EXPECT_TRUE(c->is_full);
  EXPECT_EQ(c->trials, 24);
  EXPECT_EQ(c->default_ms, 2.25);
  EXPECT_EQ(again.find("three"), nullptr);
  EXPECT_EQ(TuningTable(folder, "m2").size(), 0u);  // another machine has a file of its own
}

TEST(TuningTable, TwoProcessesKeepWhatTheOtherAdded) {
  const TempDir dir;
  TuningTable a(dir.path(), "m"), b(dir.path(), "m");
  a.put("one", call(1)), b.put("two", call(2)), b.put("one", call(3));
  ASSERT_TRUE(a.save().ok());
  ASSERT_TRUE(b.save().ok());
  const TuningTable both(dir.path(), "m");
  EXPECT_EQ(both.size(), 2u);
  EXPECT_EQ(both.find("one")->tuning.knob[0], 3);
}

TEST(TuningTable, DamageIsIgnoredWithALineAndReplaced) {
  const TempDir dir;
  TuningTable table(dir.path(), "m");
  table.put("one", call(1));
  ASSERT_TRUE(table.save().ok());
  const std::string good = *read_file(table.path());
  std::vector<std::string> bad;
  for (size_t n = 0; n + 1 < good.size(); n += 7) bad.push_back(good.substr(0, n));
  for (const auto& [from, to] : {std::pair{"\"version\": 1", "\"version\": 9"},
                                 {"1.5", "1.6"},
                                 {"\"machine\": \"m\"", "\"machine\": \"n\""},
                                 {"tegula.tunings", "tegula.plans"}}) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    bad.push_back(text.replace(text.find(from), std::string(from).size(), to));
  }
  for (const std::string& text : bad) {
    ASSERT_TRUE(write_file(table.path(), text).ok());
    TuningTable read(dir.path(), "m");
    ASSERT_EQ(read.size(), 0u) << text;
    EXPECT_NE(read.warning(), "") << text;
    EXPECT_EQ(read.warning().find('\n'), std::string::npos);
    read.put("one", call(1));
    ASSERT_TRUE(read.save().ok());
    EXPECT_EQ(*read_file(table.path()), good);
  }
}

// Numbers that no run wrote, in a file whose hash fits.
TEST(TuningTable, CountsThatAreNoneAreRefused) {
  const TempDir dir;
  TuningTable table(dir.path(), "m");
  table.put("one", call(1));
  ASSERT_TRUE(table.save().ok());
  const Json good = *Json::parse(*read_file(table.path()), "t");
  for (const Json& count : {Json(1e300), Json(-1), Json(2.5), Json(int64_t{1} << 40), Json("many")})
    for (const char* key : {"trials", "points"}) {
      Json::Array calls = *good.find("calls")->as<Json::Array>();
      calls[0].set(key, count);
      Json bad = good;
      bad.set("sha256", sha256_hex(Json(calls).dump())), bad.set("calls", calls);
      ASSERT_TRUE(write_file(table.path(), bad.dump()).ok());
      const TuningTable read(dir.path(), "m");
      EXPECT_EQ(read.size(), 0u) << key << " " << count.dump();
      EXPECT_NE(read.warning().find("malformed"), std::string::npos) << read.warning();
    }
}

TEST(TuningTable, MemoryOnlyAndUnwritable) {
  TuningTable memory;
  memory.put("one", call(1));
  EXPECT_TRUE(memory.save().ok());
  const TempDir dir;
  ASSERT_TRUE(write_file((dir / "file"), "x").ok());
  TuningTable blocked((dir / "file"), "m");
  blocked.put("one", call(1));
  EXPECT_FALSE(blocked.save().ok());
}

}  // namespace
}  // namespace tegula
