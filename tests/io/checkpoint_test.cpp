#include "tegula/io/checkpoint.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>

#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

// Saves a checkpoint all of whose files tell their version; one tensor in the boxes of two ranks.
Status save(const std::string& dir, int64_t step, int32_t version) {
  std::vector<int32_t> values(700, version);
  const TensorRef whole = contiguous_ref(values.data(), {DType::kI32, {7, 100}});
  const NamedTensor tensors[] = {{"w", whole}};
  NamedTensor boxes{"w", whole};
  for (const Box& box : {Box{{0, 0}, {7, 30}}, Box{{0, 30}, {7, 70}}})
    boxes.parts.push_back({box, part_of(whole, box)});
  auto writer = TEGULA_TRY(CheckpointWriter::begin(dir, step));
  TEGULA_TRY(writer.add_tensors(kModelFile, std::span(&boxes, 1)));
  TEGULA_TRY(writer.add_file(kConfigFile, cat("{\"version\": ", version, "}")));
  TEGULA_TRY(writer.add_tensors(kOptimizerFile, tensors));
  TEGULA_TRY(writer.add_file(kTrainerStateFile, std::to_string(version)));
  TEGULA_TRY(writer.publish());
  return {};
}

// The version of a checkpoint whose files must all agree; -1 if they do not.
int32_t version_of(const std::string& checkpoint) {
  const auto state = read_file(join_path(checkpoint, kTrainerStateFile));
  if (!state.ok()) return -1;
  const int32_t version = std::stoi(*state);
  bool is_equal =
      read_file(join_path(checkpoint, kConfigFile)).value() == cat("{\"version\": ", version, "}");
  for (std::string_view name : {kModelFile, kOptimizerFile}) {
    const auto file = SafetensorsFile::open(join_path(checkpoint, name));
    is_equal = is_equal && file.ok() && file->find("w")->numel() == 700;
    for (int i = 0; is_equal && i < 700; ++i)
      is_equal = file->find("w")->as<int32_t>()[i] == version;
  }
  return is_equal ? version : -1;
}

std::vector<std::string> saved_names(const std::string& dir) {
  std::vector<std::string> names = list_directory(join_path(dir, "checkpoints")).value();
  std::erase(names, ".lock");
  return names;
}

using Names = std::vector<std::string>;

TEST(Checkpoint, PublishesLinksAndKeepsTheLastTwo) {
  TempDir dir;
  const std::string out = dir / "out";
  for (int32_t v = 1; v <= 4; ++v) ASSERT_TRUE(save(out, v * 100, v).ok());
  EXPECT_EQ(saved_names(out), (Names{"step-000300", "step-000400"}));
  const auto good = latest_good(out);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->step, 400);
  EXPECT_EQ(good->path, join_path(out, "checkpoints/step-000400"));
  EXPECT_TRUE(good->rejected.empty());
  EXPECT_EQ(version_of(good->path), 4);
  EXPECT_EQ(list_directory(out).value(),
            (Names{"checkpoints", "config.json", "latest", "model.safetensors"}));
  EXPECT_EQ(read_file(join_path(out, "config.json")).value(), "{\"version\": 4}");
  EXPECT_EQ(resolve_model_directory(out).value(), good->path);
  EXPECT_EQ(resolve_model_directory(good->path).value(), good->path);
}

TEST(Checkpoint, TheSameStepAgainAndAnEarlierStepAreNewCheckpoints) {
  TempDir dir;
  ASSERT_TRUE(save(dir.path(), 200, 1).ok());
  ASSERT_TRUE(save(dir.path(), 200, 2).ok());
  EXPECT_EQ(saved_names(dir.path()), (Names{"step-000200", "step-000200.1"}));
  EXPECT_EQ(version_of(latest_good(dir.path())->path), 2);
  ASSERT_TRUE(save(dir.path(), 50, 3).ok());
  EXPECT_EQ(saved_names(dir.path()), (Names{"step-000050", "step-000200.1"}));
  EXPECT_EQ(version_of(latest_good(dir.path())->path), 3);
  ASSERT_TRUE(save(dir.path(), 60, 4).ok());
  EXPECT_EQ(saved_names(dir.path()), (Names{"step-000050", "step-000060"}));
  EXPECT_EQ(latest_good(dir.path())->step, 60);
}

TEST(Checkpoint, DroppedWriterLeavesNoTrace) {
  TempDir dir;
  ASSERT_TRUE(save(dir.path(), 1, 1).ok());
  {
    auto writer = CheckpointWriter::begin(dir.path(), 2).value();
    ASSERT_TRUE(writer.add_file("a", "x").ok());
    auto moved = std::move(writer);
    expect_error(moved.add_file("a", "x"), Code::kInvalidArgument, {"'a' already"});
    expect_error(save(dir.path(), 3, 3), Code::kInvalidArgument, {"another process", ".lock"});
  }
  EXPECT_EQ(saved_names(dir.path()), Names{"step-000001"});
  EXPECT_TRUE(save(dir.path(), 3, 3).ok());
}

TEST(Checkpoint, AHolderOfTheLockSavesAgainAndAgain) {
  TempDir dir;
  {
    const auto lock = lock_checkpoints(dir.path());
    ASSERT_TRUE(lock.ok());
    expect_error(lock_checkpoints(dir.path()), Code::kInvalidArgument, {"another process"});
    expect_error(save(dir.path(), 1, 1), Code::kInvalidArgument, {"another process", ".lock"});
    for (int64_t step : {1, 2}) {
      auto writer = CheckpointWriter::begin(dir.path(), step, *lock);
      ASSERT_TRUE(writer.ok());
      ASSERT_TRUE(writer->add_file("a", "x").ok());
      ASSERT_TRUE(writer->publish().ok());
    }
  }
  EXPECT_TRUE(save(dir.path(), 3, 3).ok());
}

TEST(Checkpoint, TheBestStaysHoweverOld) {
  TempDir dir;
  EXPECT_FALSE(best_checkpoint(dir.path()).has_value());
  const auto best_is = [&](int64_t step) {
    const auto best = best_checkpoint(dir.path());
    return best && best->step == step && version_of(best->path) == step &&
           version_of(dir / "best") == step;
  };
  for (int32_t v = 1; v <= 9; ++v) {
    ASSERT_TRUE(save(dir.path(), v, v).ok());
    const std::string path = latest_good(dir.path())->path;
    if (v == 2 || v == 6) ASSERT_TRUE(keep_best(dir.path(), {path, v, 1.0 / v}).ok());
    if (v >= 2) EXPECT_TRUE(best_is(v < 6 ? 2 : 6)) << v;
  }
  EXPECT_EQ(saved_names(dir.path()),
            (Names{"best.json", "step-000006", "step-000008", "step-000009"}));
  EXPECT_EQ(best_checkpoint(dir.path())->val_loss, 1.0 / 6);
  for (const double loss : {NAN, INFINITY, -INFINITY})  // compare with nothing
    expect_error(keep_best(dir.path(), {best_checkpoint(dir.path())->path, 6, loss}),
                 Code::kInvalidArgument, {"step 6", "finite"});
  EXPECT_EQ(best_checkpoint(dir.path())->val_loss, 1.0 / 6);
  EXPECT_EQ(resolve_model_directory(dir / "best").value(), dir / "best");
  // A best that is gone, or a file that is none, is none.
  ASSERT_TRUE(remove_tree(dir / "checkpoints/step-000006").ok());
  EXPECT_FALSE(best_checkpoint(dir.path()).has_value());
  for (const char* text :
       {"", "{}", "[1]", R"({"checkpoint": "../x", "step": 8, "val_loss": 1})"}) {
    ASSERT_TRUE(write_file(dir / "checkpoints/best.json", text).ok());
    EXPECT_FALSE(best_checkpoint(dir.path()).has_value()) << text;
  }
  EXPECT_TRUE(save(dir.path(), 10, 10).ok());
}

TEST(Checkpoint, StaleTemporariesAreRemoved) {
  TempDir dir;
  for (const char* stale : {"checkpoints/.tmp-step-000001-99", "checkpoints/.tmp-old-step-7.2"}) {
    ASSERT_TRUE(make_directories(dir / stale).ok());
    ASSERT_TRUE(write_file(join_path(dir / stale, "x"), "half").ok());
  }
  // A temporary name alone does not make it ours: these are no directories of files that a save of
  // ours would have been.
  const Names foreign = {".tmp-mine", ".tmp-step-000001-99x", ".tmp-step-x-99", ".tmp-old-mine",
                         ".tmp-step-000002-99/folder"};
  for (const auto& name : foreign)
    ASSERT_TRUE(make_directories(join_path(dir / "checkpoints", name)).ok());
  ASSERT_EQ(::symlink("nowhere", (dir / ".tmp-mine").c_str()), 0);
  // Other names are nobody's business, and no candidates.
  const Names others = {"step-", "step-1x", "step-1.", "notes"};
  for (const auto& name : others)
    ASSERT_TRUE(make_directories(join_path(dir / "checkpoints", name)).ok());
  ASSERT_EQ(::symlink("checkpoints/step-000009", (dir / ".tmp-latest-99-0").c_str()), 0);
  ASSERT_TRUE(save(dir.path(), 1, 1).ok());
  for (const auto& name : foreign)
    EXPECT_TRUE(path_exists(join_path(dir / "checkpoints", name))) << name;
  EXPECT_EQ(saved_names(dir.path()),
            (Names{".tmp-mine", ".tmp-old-mine", ".tmp-step-000001-99x", ".tmp-step-000002-99",
                   ".tmp-step-x-99", "notes", "step-", "step-000001", "step-1.", "step-1x"}));
  const Names at_root = list_directory(dir.path()).value();
  EXPECT_EQ(at_root[0], ".tmp-mine");
  EXPECT_FALSE(at_root[1].starts_with(".tmp"));
}

TEST(Checkpoint, DoesNotHideFilesOfOtherOrigin) {
  TempDir dir;
  ASSERT_TRUE(write_file(dir / "model.safetensors", "precious").ok());
  expect_error(prepare_checkpoints(dir.path()), Code::kInvalidArgument,
               {"/model.safetensors'", "Choose another"});
  expect_error(save(dir.path(), 1, 1), Code::kInvalidArgument, {"/model.safetensors'"});
  EXPECT_EQ(read_file(dir / "model.safetensors").value(), "precious");
}

// A copy of a run whose links became what they led to, or files with their text.
enum class Copied { kFollowed, kAsText };

void unlink_copy(const TempDir& dir, Copied how) {
  const Names names = list_directory(dir.path()).value();
  for (const std::string& name : names) {
    const std::string path = dir / name;
    char target[256] = {};
    if (::readlink(path.c_str(), target, sizeof target - 1) <= 0) continue;
    const std::string command =
        how == Copied::kAsText
            ? cat("rm ", path, " && printf %s ", target, " > ", path)
            : cat("cp -rL ", path, " ", path, ".new && rm ", path, " && mv ", path, ".new ", path);
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
}

class Copy : public ::testing::TestWithParam<Copied> {};

TEST_P(Copy, LinksOfACopyAreMadeAgain) {
  TempDir dir;
  // `latest` is not the newest by name, and `best` is the oldest.
  for (const int64_t step : {7, 3, 5}) ASSERT_TRUE(save(dir.path(), step, 1).ok());
  ASSERT_TRUE(keep_best(dir.path(), {dir / "checkpoints/step-000003", 3, 1.0}).ok());
  const auto links = [&] {
    Names all;
    const Names names = list_directory(dir.path()).value();
    for (const std::string& name : names) {
      char target[256] = {};
      if (::readlink((dir / name).c_str(), target, sizeof target - 1) > 0)
        all.push_back(cat(name, " -> ", target));
    }
    return all;
  };
  const Names before = links(), saved = saved_names(dir.path());
  ASSERT_EQ(before.size(), 4u);
  unlink_copy(dir, GetParam());
  ASSERT_TRUE(links().empty());
  EXPECT_EQ(latest_good(dir.path())->step, 5);
  const Status restored = restore_links(dir.path());
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_EQ(links(), before);
  EXPECT_EQ(saved_names(dir.path()), saved);
  EXPECT_EQ(latest_good(dir.path())->step, 5);
  EXPECT_TRUE(save(dir.path(), 6, 2).ok());
  EXPECT_EQ(version_of(dir / "latest"), 2);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Copy, ::testing::Values(Copied::kFollowed, Copied::kAsText));

TEST(Checkpoint, ACopysOnlyCheckpointIsKept) {
  TempDir dir;
  ASSERT_TRUE(save(dir.path(), 4, 1).ok());
  unlink_copy(dir, Copied::kFollowed);
  ASSERT_TRUE(remove_tree(dir / "checkpoints/step-000004").ok());
  ASSERT_TRUE(restore_links(dir.path()).ok());
  EXPECT_EQ(saved_names(dir.path()), Names{"step-000004"});
  EXPECT_EQ(latest_good(dir.path())->step, 4);
  EXPECT_EQ(version_of(dir / "latest"), 1);
}

TEST(Checkpoint, WhatNoCopyMakesIsRefused) {
  TempDir dir;
  ASSERT_TRUE(save(dir.path(), 4, 1).ok());
  ASSERT_EQ(::unlink((dir / "latest").c_str()), 0);
  ASSERT_TRUE(make_directories(dir / "latest").ok());
  ASSERT_TRUE(write_file(dir / "latest/notes", "mine").ok());
  expect_error(restore_links(dir.path()), Code::kInvalidArgument, {"/latest'", "move it away"});
  EXPECT_EQ(read_file(dir / "latest/notes").value(), "mine");
  ASSERT_TRUE(remove_tree(dir / "latest").ok());
  ASSERT_TRUE(write_file(dir / "latest", "mine").ok());
  expect_error(restore_links(dir.path()), Code::kInvalidArgument, {"/latest'", "move it away"});
  EXPECT_EQ(read_file(dir / "latest").value(), "mine");
}

class Damage : public ::testing::Test {
 protected:
  Damage() {
    EXPECT_TRUE(save(dir.path(), 1, 1).ok());
    EXPECT_TRUE(save(dir.path(), 2, 2).ok());
  }
  std::string file(std::string_view name) { return dir / cat("checkpoints/step-000002/", name); }
  // The newest is refused with a message of these parts, and the older one is taken.
  void expect_fallback(std::initializer_list<std::string_view> parts) {
    expect_error(verify_checkpoint(dir / "checkpoints/step-000002"), Code::kIo, parts);
    const auto good = latest_good(dir.path());
    ASSERT_TRUE(good.ok());
    EXPECT_EQ(good->step, 1);
    EXPECT_EQ(good->rejected.size(), 1u);
  }
  TempDir dir;
};

TEST_F(Damage, AlteredFileIsNamedWithBothHashes) {
  std::string bytes = read_file(file(kModelFile)).value();
  const std::string before = sha256_hex(bytes);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(write_file(file(kModelFile), bytes).ok());
  expect_fallback({"model.safetensors'", "altered", before, sha256_hex(bytes)});
}

TEST_F(Damage, TruncatedFileIsNamedWithBothSizes) {
  ASSERT_EQ(::truncate(file(kOptimizerFile).c_str(), 100), 0);
  expect_fallback({"optimizer.safetensors'", "truncated", "100 bytes"});
}

TEST_F(Damage, MissingFileIsNamed) {
  ASSERT_EQ(::unlink(file(kConfigFile).c_str()), 0);
  expect_fallback({"config.json'", "ENOENT"});
}

TEST_F(Damage, DamagedManifestIsNoticed) {
  const std::string good = read_file(file(kManifestFile)).value();
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"\"step\": 2", "\"step\": 3"},
                                 {"\"n_bytes\": ", "\"n_bytes\": 1"},
                                 {"config.json", "c0nfig.json"},
                                 {"\"config.json\"", "\"../config.json\""},
                                 {"}", ""}}) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    ASSERT_TRUE(write_file(file(kManifestFile), bad).ok());
    expect_fallback({"manifest.json' is damaged"});
  }
  ASSERT_TRUE(write_file(file(kManifestFile), "").ok());
  expect_fallback({"manifest.json' is damaged"});
}

TEST_F(Damage, NothingGoodIsAnErrorThatListsEverything) {
  ASSERT_EQ(::truncate(file(kModelFile).c_str(), 100), 0);
  ASSERT_EQ(::truncate((dir / "checkpoints/step-000001/config.json").c_str(), 1), 0);
  expect_error(latest_good(dir.path()), Code::kIo,
               {"step-000001/config.json'", "step-000002/model.safetensors'", "truncated"});
}

TEST_F(Damage, ADamagedCheckpointTakesNoPlaceAmongTheKept) {
  ASSERT_EQ(::truncate(file(kModelFile).c_str(), 100), 0);
  ASSERT_TRUE(save(dir.path(), 3, 3).ok());
  EXPECT_EQ(saved_names(dir.path()), (Names{"step-000001", "step-000003"}));
}

TEST(Checkpoint, ResolvesOrExplains) {
  TempDir dir;
  expect_error(latest_good(dir.path()), Code::kInvalidArgument, {"holds no checkpoint", "--out"});
  expect_error(resolve_model_directory(dir / "no"), Code::kIo, {"ENOENT"});
  expect_error(resolve_model_directory(dir.path()), Code::kInvalidArgument, {"no model"});
  ASSERT_TRUE(write_file(dir / "config.json", "{}").ok());
  EXPECT_EQ(resolve_model_directory(dir.path()).value(), dir.path());
}

TEST(Checkpoint, FullDiskKeepsTheOldCheckpoint) {
  TempDir dir;
  ASSERT_TRUE(save(dir.path(), 1, 1).ok());
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit lowered{1000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &lowered);
  const Status failed = save(dir.path(), 2, 2);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  expect_error(failed, Code::kDevice,
               {"cannot write", "checkpoints/step-000002/model.safetensors'"});
  EXPECT_EQ(saved_names(dir.path()), Names{"step-000001"});
  EXPECT_EQ(version_of(latest_good(dir.path())->path), 1);
}

// A file system of 4, 8, 12, … KiB more than one checkpoint needs, so that the save fails at
// another file each time, and at last succeeds.
TEST(Checkpoint, FullDiskAtEveryFile) {
  TempDir dir;
  int n_failed = 0;
  for (int extra_kib = 0; extra_kib <= 64; extra_kib += 4) {
    const std::string size = cat("size=", 64 + extra_kib, "k");
    if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, size.c_str()) != 0)
      GTEST_SKIP() << "cannot mount a small file system here: " << std::strerror(errno);
    ASSERT_TRUE(save(dir / "out", 1, 1).ok());
    // Leave only `extra_kib` of room.
    if (auto filler = OutputFile::create(dir / "filler"); filler.ok()) {
      for (int i = 0; i < 64; ++i) (void)filler->write(std::string(4096, 'f'));
      (void)filler->finish();
      struct stat info {};
      ::stat((dir / "filler").c_str(), &info);
      EXPECT_EQ(
          ::truncate((dir / "filler").c_str(), std::max<off_t>(info.st_size - extra_kib * 1024, 0)),
          0);
    }
    const Status second = save(dir / "out", 2, 2);
    if (!second.ok()) {
      ++n_failed;
      expect_error(second, Code::kDevice, {"ENOSPC", "step-000002", "free some space"});
    }
    const auto good = latest_good(dir / "out");
    const int32_t version = good.ok() ? version_of(good->path) : -1;
    EXPECT_EQ(version, second.ok() ? 2 : 1) << extra_kib;
    ASSERT_EQ(::umount(dir.path().c_str()), 0);
  }
  EXPECT_GT(n_failed, 2);
  EXPECT_LT(n_failed, 17);
}

// The version that DIR loads as, after checks that hold at every moment: `latest` and the links to
// it lead to the best checkpoint, and every directory named step-… is whole.
int32_t version_after_kill(const std::string& dir) {
  for (const std::string& name : saved_names(dir)) {
    if (name.starts_with(".tmp-")) continue;
    const auto step = verify_checkpoint(join_path(dir, cat("checkpoints/", name)));
    EXPECT_TRUE(step.ok()) << step.error().message;
  }
  const auto good = latest_good(dir);
  EXPECT_TRUE(good.ok()) << good.error().message;
  if (!good.ok()) return -1;
  EXPECT_TRUE(good->rejected.empty());
  const int32_t version = version_of(good->path);
  EXPECT_EQ(version_of(join_path(dir, "latest")), version);
  EXPECT_TRUE(path_exists(join_path(dir, kModelFile)));
  return version;
}

// A child saves in a loop and reports each save that publish() acknowledged; it is killed at a
// random moment. Whatever happened: the latest good checkpoint is whole, newest first, and at
// least as new as the last acknowledged save.
TEST(Checkpoint, SurvivesKillAtRandomMoments) {
  TempDir dir(TempDir::Where::kMemory);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(save(dir.path(), 0, 0).ok());
  const std::chrono::duration<double, std::micro> four_saves =
      std::chrono::steady_clock::now() - begin;
  std::mt19937 random(11);
  std::uniform_real_distribution<double> delay_us(0, four_saves.count());
  int32_t newest = 0;
  int n_unacknowledged = 0, n_saved = 0;
  for (int kill = 0; kill < 220; ++kill) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int32_t version = newest + 1;; ++version) {
        if (!save(dir.path(), version / 3, version).ok()) ::_exit(1);
        if (::write(pipe_ends[1], &version, sizeof version) != sizeof version) ::_exit(1);
      }
    }
    ::close(pipe_ends[1]);
    ::usleep(static_cast<useconds_t>(delay_us(random)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed to save after kill " << kill;
    int32_t acknowledged = newest, version = 0;
    while (::read(pipe_ends[0], &version, sizeof version) == sizeof version) acknowledged = version;
    ::close(pipe_ends[0]);
    const int32_t found = version_after_kill(dir.path());
    ASSERT_TRUE(found == acknowledged || found == acknowledged + 1)
        << found << " after " << acknowledged;
    n_unacknowledged += found != acknowledged;
    n_saved += found - newest;
    newest = found;
  }
  RecordProperty("saves", n_saved);
  RecordProperty("published_but_not_acknowledged", n_unacknowledged);
  EXPECT_GT(n_saved, 0);
  ASSERT_TRUE(save(dir.path(), newest, newest + 1).ok());
  EXPECT_EQ(saved_names(dir.path()).size(), 2u);
}

// Runs one save in a child that is killed when it enters its n-th system call; false when it
// ended before.
bool save_and_kill_at(const std::string& dir, int32_t version, int n_calls) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::_exit(save(dir, version, version).ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  for (int n = 0; WIFSTOPPED(status);) {
    // Stops come in pairs, at entry and exit; a call entered when it is killed does not happen.
    if (n++ == 2 * n_calls) ::kill(child, SIGKILL);
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
  }
  return WIFSIGNALED(status);
}

TEST(Checkpoint, SurvivesKillBeforeEverySystemCall) {
  TempDir dir(TempDir::Where::kMemory);
  ASSERT_TRUE(save(dir.path(), 1000, 1000).ok());
  ASSERT_TRUE(save(dir.path(), 1001, 1001).ok());
  int32_t newest = 1001;
  int n_kills = 0, n_changes = 0;
  // A save that adopts the leavings of the one before makes other calls than a first one; the
  // number of calls is not fixed, so go on until a save gets through.
  while (save_and_kill_at(dir.path(), newest + 1, n_kills + 1)) {
    if (++n_kills > 1000) break;
    const int32_t found = version_after_kill(dir.path());
    ASSERT_TRUE(found == newest || found == newest + 1) << found << " after call " << n_kills;
    n_changes += found != newest;
    newest = found;
  }
  EXPECT_GT(n_kills, 50);
  EXPECT_LT(n_kills, 1000);
  EXPECT_GT(n_changes, 0);
  EXPECT_EQ(version_of(latest_good(dir.path())->path), newest + 1);
}

}  // namespace
}  // namespace tegula
