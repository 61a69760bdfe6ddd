#include "tegula/io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tegula/base/algorithm.h"

namespace tegula {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kMostPipedBytes = size_t{4} << 30;

std::string_view remedy(int errno_value) {
  switch (errno_value) {
    case ENOSPC:
      return "The disk is full: free some space or choose another directory";
    case EDQUOT:
      return "The disk quota is used up: free some space or choose another directory";
    case EFBIG:
      return "The file may not grow so large here: raise the limit (ulimit -f)";
    case ENOENT:
      return "Check the path";
    case EACCES:
    case EPERM:
      return "Check the owner and the permissions";
    case EISDIR:
      return "Name a file, not a directory";
    case ENOTDIR:
      return "A part of the path is not a directory";
    case EROFS:
      return "The file system is read-only: choose another directory";
    case EMFILE:
    case ENFILE:
      return "Too many files are open: raise the limit (ulimit -n)";
    case EIO:
      return "The device reports a fault: check the disk before trusting its files";
    case ENAMETOOLONG:
      return "Choose a shorter name";
    case ELOOP:
      return "The symbolic links lead in a circle";
    case ENOMEM:
      return "Not enough memory to hold the file";
    default:
      return "";
  }
}

// A fault that no other path would cure belongs to the machine.
Code code_of(int errno_value) {
  switch (errno_value) {
    case EISDIR:
      return Code::kInvalidArgument;
    case ENOMEM:
      return Code::kOutOfMemory;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EIO:
    case EROFS:
    case EMFILE:
    case ENFILE:
      return Code::kDevice;
    default:
      return Code::kIo;
  }
}

template <class Call>
auto retry(Call call) {
  decltype(call()) result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

// The rest of a descriptor's life: closed on every path.
struct Fd {
  explicit Fd(int fd) : fd(fd) {}
  Fd(const Fd&) = delete;
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
  int release() { return std::exchange(fd, -1); }
  int fd;
};

int open_file(const std::string& path, int flags) {
  if (path.find('\0') != path.npos) {  // a name of a file ends there, and would be another's
    errno = EINVAL;
    return -1;
  }
  return retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0644); });
}

Status write_all(int fd, const std::string& path, const char* data, size_t n_bytes) {
  while (n_bytes > 0) {
    const ssize_t n = retry([&] { return ::write(fd, data, n_bytes); });
    if (n < 0) return file_error("write", path, errno);
    data += n, n_bytes -= static_cast<size_t>(n);
  }
  return {};
}

// A name beside `path` that no living process uses.
std::string sibling(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  const size_t slash = path.rfind('/') + 1;  // npos + 1 = 0
  return cat(path.substr(0, slash), ".tmp-", path.substr(slash), "-", ::getpid(), "-", counter++);
}

// A device that may give bytes for ever, unlike a terminal and /dev/null.
bool is_endless(int fd, const struct stat& info) {
  const bool is_device = S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode);
  return is_device && info.st_rdev != makedev(1, 3) && ::isatty(fd) == 0;
}

// Gives `temporary` its final name, durably; on failure removes it.
Status publish(const std::string& temporary, const std::string& path) {
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return file_error("replace", path, error);
  }
  return sync_directory(parent_path(path));
}

}  // namespace

Error file_error(std::string_view action, std::string_view path, int errno_value,
                 std::source_location where) {
  const char* name = ::strerrorname_np(errno_value);
  const std::string_view advice = remedy(errno_value);
  std::string message = cat("cannot ", action, " '", path, "': ", ::strerror(errno_value), " (",
                            name ? name : "unknown", ")");
  if (!advice.empty()) append(message, cat(". ", advice));
  return {code_of(errno_value), std::move(message), where};
}

Result<std::string> read_file(const std::string& path) {
  Fd file(open_file(path, O_RDONLY));
  if (file.fd < 0) return file_error("open", path, errno);
  struct stat info;
  if (::fstat(file.fd, &info) != 0) return file_error("read", path, errno);
  if (S_ISDIR(info.st_mode)) return file_error("read", path, EISDIR);
  if (is_endless(file.fd, info))
    return invalid_argument(cat("'", path, "' is a device: name a file"));
  std::string bytes;
  size_t n_read = 0;
  // One byte more than the size says, so that the end of the file is seen without growing.
  size_t room = S_ISREG(info.st_mode) ? static_cast<size_t>(info.st_size) + 1 : kBufferBytes;
  while (true) {
    if (bytes.size() < n_read + room) bytes.resize(n_read + room);
    const ssize_t n =
        retry([&] { return ::read(file.fd, bytes.data() + n_read, bytes.size() - n_read); });
    if (n < 0) return file_error("read", path, errno);
    if (n == 0) break;
    n_read += static_cast<size_t>(n);
    if (!S_ISREG(info.st_mode) && n_read > kMostPipedBytes)
      return invalid_argument(cat("more than ", kMostPipedBytes >> 30, " GiB come out of '", path,
                                  "', the most that is read from a pipe: write them to a file"));
    room = bytes.size() > n_read ? 0 : std::max<size_t>(4096, n_read);
  }
  bytes.resize(n_read);
  return bytes;
}

static Status write_shown(const std::string& path, const std::string& shown_path,
                          std::string_view bytes) {
  auto file = TEGULA_TRY(OutputFile::create(path, shown_path));
  TEGULA_TRY(file.write(bytes));
  TEGULA_TRY(file.finish());
  return {};
}

Status write_file(const std::string& path, std::string_view bytes) {
  return write_shown(path, path, bytes);
}

Status replace_file(const std::string& path, std::string_view bytes) {
  const std::string temporary = sibling(path);
  if (Status s = write_shown(temporary, path, bytes); !s.ok()) {
    ::unlink(temporary.c_str());
    return s;
  }
  return publish(temporary, path);
}

Status replace_link(const std::string& path, const std::string& target) {
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0 && !S_ISLNK(info.st_mode))
    return invalid_argument(cat("'", path, "' is there and is not a link that tegula made; move ",
                                "it away or choose another directory"));
  const std::string temporary = sibling(path);
  if (::symlink(target.c_str(), temporary.c_str()) != 0) return file_error("link", path, errno);
  return publish(temporary, path);
}

Unpublished::Unpublished(const std::string& path) : path_(path), temporary_(sibling(path)) {}

Unpublished::~Unpublished() {
  if (!temporary_.empty()) static_cast<void>(remove_tree(temporary_));
}

Status Unpublished::publish() {
  const std::string from = std::exchange(temporary_, "");
  if (Status s = tegula::publish(from, path_); !s.ok()) {
    static_cast<void>(remove_tree(from));
    return s;
  }
  return {};
}

Status sync_directory(const std::string& path) {
  Fd directory(open_file(path, O_RDONLY | O_DIRECTORY));
  if (directory.fd < 0) return file_error("open", path, errno);
  // Some network file systems refuse to sync directories and are durable without it.
  if (::fsync(directory.fd) != 0 && errno != EINVAL) return file_error("sync", path, errno);
  return {};
}

Status make_directories(const std::string& path) {
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0755) == 0) {
      // Or what is saved in it later may be lost with its name.
      TEGULA_TRY(sync_directory(parent_path(part)));
    } else if (errno != EEXIST) {
      return file_error("create directory", part, errno);
    }
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return file_error("create directory", path, errno);
  if (!S_ISDIR(info.st_mode)) return file_error("create directory", path, ENOTDIR);
  return {};
}

Status remove_tree(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  if (errno != EISDIR && errno != EPERM) return file_error("remove", path, errno);
  for (const std::string& name : TEGULA_TRY(list_directory(path)))
    TEGULA_TRY(remove_tree(join_path(path, name)));
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) return file_error("remove", path, errno);
  return {};
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return file_error("open directory", path, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  ::closedir(directory);
  if (error != 0) return file_error("read directory", path, error);
  std::sort(names.begin(), names.end());
  return names;
}

bool path_exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

bool is_regular_file(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return cat(directory, directory.back() == '/' ? "" : "/", name);
}

std::string parent_path(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, std::max<size_t>(slash, 1)));
}

Result<OutputFile> OutputFile::create(const std::string& path, const std::string& shown_path) {
  const std::string& shown = shown_path.empty() ? path : shown_path;
  const int fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (fd < 0) return file_error("create", shown, errno);
  return OutputFile(fd, shown);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      n_bytes_(other.n_bytes_),
      path_(std::move(other.path_)),
      buffer_(std::move(other.buffer_)),
      hash_(other.hash_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status OutputFile::flush() {
  TEGULA_TRY(write_all(fd_, path_, buffer_.data(), buffer_.size()));
  buffer_.clear();
  return {};
}

Status OutputFile::write(const void* data, size_t n_bytes) {
  hash_.update(data, n_bytes);
  n_bytes_ += n_bytes;
  if (buffer_.size() + n_bytes > kBufferBytes) TEGULA_TRY(flush());
  // Large pieces go straight to the kernel; only small ones are gathered.
  if (n_bytes >= kBufferBytes)
    return write_all(fd_, path_, static_cast<const char*>(data), n_bytes);
  if (n_bytes > 0) buffer_.append(static_cast<const char*>(data), n_bytes);
  return {};
}

Result<OutputFile::Digest> OutputFile::finish() {
  TEGULA_TRY(flush());
  if (retry([&] { return ::fsync(fd_); }) != 0) return file_error("write", path_, errno);
  // Not retried: Linux frees the descriptor even when close() reports an error.
  if (::close(std::exchange(fd_, -1)) != 0) return file_error("write", path_, errno);
  return Digest{n_bytes_, hash_.finish_hex()};
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  Fd file(open_file(path, O_RDONLY));
  if (file.fd < 0) return file_error("open", path, errno);
  struct stat info;
  if (::fstat(file.fd, &info) != 0) return file_error("read", path, errno);
  if (S_ISDIR(info.st_mode)) return file_error("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) return invalid_argument(cat("'", path, "' is not a regular file"));
  MappedFile mapped;
  if (info.st_size == 0) return mapped;
  mapped.size_ = static_cast<size_t>(info.st_size);
  mapped.data_ = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (mapped.data_ == MAP_FAILED) {
    mapped.data_ = nullptr;
    return file_error("map", path, errno);
  }
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<FileLock> FileLock::acquire(const std::string& path) {
  Fd file(open_file(path, O_RDWR | O_CREAT));
  if (file.fd < 0) return file_error("create", path, errno);
  if (retry([&] { return ::flock(file.fd, LOCK_EX | LOCK_NB); }) == 0)
    return FileLock(file.release());
  if (errno == EWOULDBLOCK)
    return invalid_argument(cat("another process is writing here (it holds '", path,
                                "'); wait for it to end or choose another directory"));
  return FileLock(-1);
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace tegula
