#include "tegula/io/jsonl.h"

#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

Json row(int step) { return Json::object({{"step", step}, {"loss", 1.0 / step}}); }

TEST(Jsonl, AppendsRowsThatAreThereAtOnce) {
  TempDir dir;
  auto writer = JsonlWriter::create(dir / "m").value();
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(writer.append(row(step)).ok());
    const auto rows = read_jsonl(dir / "m").value();
    ASSERT_EQ(rows.size(), static_cast<size_t>(step));
    EXPECT_EQ(rows.back(), row(step));
  }
}

TEST(Jsonl, ResumeDropsATornLineAndLaterRows) {
  TempDir dir;
  std::vector<std::string> notes;
  std::string text;
  for (int step = 1; step <= 5; ++step) text += row(step).dump() + "\n";
  ASSERT_TRUE(write_file(dir / "m", "{\"note\": \"start\"}\n" + text + "{\"step\": 6, \"lo").ok());
  EXPECT_EQ(read_jsonl(dir / "m").value().size(), 6u);
  {
    auto writer = JsonlWriter::resume(dir / "m", "step", 3, notes).value();
    ASSERT_TRUE(writer.append(row(4)).ok());
  }
  EXPECT_EQ(read_file(dir / "m").value(), "{\"note\": \"start\"}\n" + row(1).dump() + "\n" +
                                              row(2).dump() + "\n" + row(3).dump() + "\n" +
                                              row(4).dump() + "\n");
  auto fresh = JsonlWriter::resume(dir / "new", "step", 3, notes);
  ASSERT_TRUE(fresh.ok());
  ASSERT_TRUE(fresh->append(row(4)).ok());
  EXPECT_EQ(read_jsonl(dir / "new").value().size(), 1u);
  EXPECT_TRUE(notes.empty());
}

TEST(Jsonl, ResumeDropsBrokenRowsAndTells) {
  TempDir dir;
  const std::string zeros(30, '\0');  // what a power cut may leave
  ASSERT_TRUE(write_file(dir / "m", cat(row(1).dump(), "\n", zeros, "\n{\"step\": 2, \"l\n",
                                        row(3).dump(), "\n"))
                  .ok());
  std::vector<std::string> notes;
  ASSERT_TRUE(JsonlWriter::resume(dir / "m", "step", 9, notes)->append(row(4)).ok());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("dropped 2 rows of '"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("/m:2'"), std::string::npos) << notes[0];
  EXPECT_EQ(read_jsonl(dir / "m").value(), (std::vector<Json>{row(1), row(3), row(4)}));
}

TEST(Jsonl, ALastRowWithoutItsNewlineIsKeptWhole) {
  TempDir dir;
  std::vector<std::string> notes;
  ASSERT_TRUE(write_file(dir / "m", row(1).dump() + "\n" + row(2).dump()).ok());
  auto writer = JsonlWriter::resume(dir / "m", "step", 9, notes).value();
  ASSERT_TRUE(writer.append(row(3)).ok());
  EXPECT_EQ(read_jsonl(dir / "m").value().size(), 3u);
}

TEST(Jsonl, Errors) {
  TempDir dir;
  ASSERT_TRUE(write_file(dir / "m", "{}\nnonsense\n{}\n").ok());
  expect_error(read_jsonl(dir / "m"), Code::kInvalidArgument, {"/m:2'", "JSON"});
  expect_error(read_jsonl(dir / "absent"), Code::kIo, {"ENOENT"});
  auto full = JsonlWriter::create("/dev/full").value();
  expect_error(full.append(row(1)), Code::kDevice, {"/dev/full", "ENOSPC"});
}

}  // namespace
}  // namespace tegula
