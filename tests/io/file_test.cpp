#include "tegula/io/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

// While it lives, no file of this process may grow beyond `n_bytes`; writes fail with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t n_bytes) : before_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit lowered{n_bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &lowered);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    ::signal(SIGXFSZ, before_);
  }

 private:
  rlimit limit_;
  sighandler_t before_;
};

TEST(File, WritesAndReadsBack) {
  TempDir dir;
  for (size_t n : {size_t{0}, size_t{1}, size_t{1000}, size_t{3} << 20}) {
    std::string bytes(n, '\0');
    for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    ASSERT_TRUE(write_file(dir / "f", bytes).ok());
    EXPECT_EQ(read_file(dir / "f").value(), bytes);
    EXPECT_EQ(MappedFile::open(dir / "f").value().bytes(), bytes);
  }
}

TEST(File, OutputFileHashesWhatItWrites) {
  TempDir dir;
  auto file = OutputFile::create(dir / "f").value();
  std::string all;
  for (size_t n : {size_t{3}, size_t{2} << 20, size_t{0}, size_t{17}, size_t{1} << 20}) {
    const std::string piece(n, static_cast<char>('a' + n % 26));
    ASSERT_TRUE(file.write(piece).ok());
    all += piece;
  }
  const auto digest = file.finish().value();
  EXPECT_EQ(digest.n_bytes, all.size());
  EXPECT_EQ(digest.sha256, sha256_hex(all));
  EXPECT_EQ(read_file(dir / "f").value(), all);
}

TEST(File, ReplaceIsCompleteAndLeavesNoTemporary) {
  TempDir dir;
  ASSERT_TRUE(replace_file(dir / "f", "old").ok());
  ASSERT_TRUE(replace_file(dir / "f", "new").ok());
  EXPECT_EQ(read_file(dir / "f").value(), "new");
  EXPECT_EQ(list_directory(dir.path()).value(), std::vector<std::string>{"f"});
}

TEST(File, ReplaceLinkRefusesToDestroyARealFile) {
  TempDir dir;
  ASSERT_TRUE(write_file(dir / "a", "A").ok());
  ASSERT_TRUE(replace_link(dir / "link", "a").ok());
  EXPECT_EQ(read_file(dir / "link").value(), "A");
  ASSERT_TRUE(write_file(dir / "b", "B").ok());
  ASSERT_TRUE(replace_link(dir / "link", "b").ok());
  EXPECT_EQ(read_file(dir / "link").value(), "B");
  expect_error(replace_link(dir / "a", "b"), Code::kInvalidArgument, {"/a'", "not a link"});
  EXPECT_EQ(read_file(dir / "a").value(), "A");
}

TEST(File, ErrorsNamePathReasonAndRemedy) {
  TempDir dir;
  expect_error(read_file(dir / "absent"), Code::kIo,
               {"cannot open", "/absent'", "No such file", "ENOENT", "Check the path"});
  expect_error(read_file(dir.path()), Code::kInvalidArgument, {"EISDIR", "not a directory"});
  expect_error(MappedFile::open(dir.path()), Code::kInvalidArgument, {"EISDIR"});
  expect_error(write_file(dir / "no/such/f", "x"), Code::kIo, {"cannot create", "ENOENT"});
  ASSERT_TRUE(write_file(dir / "f", "x").ok());
  expect_error(make_directories(dir / "f/g"), Code::kIo, {"/f", "ENOTDIR"});
  if (::geteuid() != 0) {
    ::chmod((dir / "f").c_str(), 0);
    expect_error(read_file(dir / "f"), Code::kIo, {"EACCES", "permissions"});
  }
}

TEST(File, FullDiskIsAnErrorAndKeepsTheOldFile) {
  TempDir dir;
  expect_error(write_file("/dev/full", "x"), Code::kDevice,
               {"/dev/full", "ENOSPC", "free some space"});
  ASSERT_TRUE(replace_file(dir / "f", "old").ok());
  {
    FileSizeLimit limit(1000);
    expect_error(replace_file(dir / "f", std::string(5000, 'n')), Code::kDevice, {"EFBIG", "/f"});
  }
  EXPECT_EQ(read_file(dir / "f").value(), "old");
  EXPECT_EQ(list_directory(dir.path()).value(), std::vector<std::string>{"f"});
}

TEST(File, MakesAndRemovesTrees) {
  TempDir dir;
  ASSERT_TRUE(make_directories(dir / "a/b/c").ok());
  ASSERT_TRUE(make_directories(dir / "a/b/c/").ok());
  ASSERT_TRUE(write_file(dir / "a/b/f", "x").ok());
  ASSERT_TRUE(write_file(dir / "keep", "x").ok());
  ASSERT_TRUE(replace_link(dir / "a/b/to-keep", "../../keep").ok());
  ASSERT_TRUE(replace_link(dir / "a/to-dir", "..").ok());
  ASSERT_TRUE(remove_tree(dir / "a").ok());
  EXPECT_EQ(list_directory(dir.path()).value(), std::vector<std::string>{"keep"});
  EXPECT_TRUE(remove_tree(dir / "a").ok());
}

TEST(File, Paths) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(parent_path("a/b/"), "a");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path("/a"), "/");
}

TEST(File, ReadsAPipeToItsEnd) {
  TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  const std::string bytes(300000, 'p');
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open((dir / "pipe").c_str(), O_WRONLY);
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
      if (n <= 0) ::_exit(1);
      done += static_cast<size_t>(n);
    }
    ::_exit(0);
  }
  EXPECT_EQ(read_file(dir / "pipe").value(), bytes);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(File, LockExcludesASecondHolderUntilReleased) {
  TempDir dir;
  {
    auto held = FileLock::acquire(dir / "lock");
    ASSERT_TRUE(held.ok() && held->is_held());
    expect_error(FileLock::acquire(dir / "lock"), Code::kInvalidArgument,
                 {"another process", "/lock'", "wait"});
  }
  EXPECT_TRUE(FileLock::acquire(dir / "lock").ok());
}

}  // namespace
}  // namespace tegula
