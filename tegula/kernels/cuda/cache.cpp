#include "tegula/kernels/cuda/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/cache_entry.h"

namespace tegula::cuda {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNoFolder =
    "there is no folder for the kernel cache: set HOME or TEGULA_KERNEL_CACHE";
constexpr const char* kAnotherFolder =
    "; kernels are compiled anew in each process: free room there, or set TEGULA_KERNEL_CACHE to a "
    "folder that can be written";
constexpr uint64_t kSeeds[2] = {0xcbf29ce484222325, 0x9ae16a3b2f90404f};  // two make 128 bits

// A file that only one process at a time holds; gone when the process is.
class Lock {
 public:
  explicit Lock(const std::string& path)
      : fd_(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    if (fd_ >= 0)
      while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
      }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool is_held() const { return fd_ >= 0; }

 private:
  int fd_;
};

enum class Found { kYes, kNo, kBroken };

Found read_entry(const std::string& path, Compiled& out) {
  std::ifstream f(path, std::ios::binary);
  if (!f) return Found::kNo;
  const std::string text(std::istreambuf_iterator<char>(f), {});
  CacheEntry entry;
  if (!parse_entry(text, entry)) return Found::kBroken;
  out.cubin = std::move(entry.cubin), out.registers = entry.registers;
  out.spill_bytes = entry.spill_bytes, out.is_serialized = entry.is_serialized;
  return Found::kYes;
}

// All of it, or false with errno set: streams would lose why a disk is full.
bool write_whole(const std::string& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  const int why = errno;
  const bool is_closed = ::close(fd) == 0;
  if (!bytes.empty()) errno = why;
  return bytes.empty() && is_closed;
}

// Returns what went wrong, or nothing. Only the holder of the lock calls it, so a draft that a
// killed process left is written over.
std::string write_entry(const std::string& path, const Compiled& c) {
  const std::string draft = path + ".draft";
  const bool is_written =
      write_whole(draft, entry_text({c.cubin, c.registers, c.spill_bytes, c.is_serialized}));
  std::string why = std::strerror(errno);
  std::error_code error;
  if (is_written) fs::rename(draft, path, error);
  if (is_written && !error) return {};
  if (error) why = error.message();
  fs::remove(draft, error);
  return cat("the kernel cache could not keep ", path, ": ", why, kAnotherFolder);
}

// Removes the entries used longest ago until the rest fits.
void shrink(const KernelCache& cache) {
  struct Entry {
    fs::file_time_type used;
    fs::path path;
    int64_t bytes;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (const auto& e : fs::directory_iterator(cache.folder, error)) {
    if (e.path().extension() != ".cubin") continue;
    const auto bytes = static_cast<int64_t>(e.file_size(error));
    if (!error) entries.push_back({e.last_write_time(error), e.path(), bytes}), total += bytes;
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& e : entries) {
    if (total <= cache.limit_bytes) break;
    fs::remove(e.path, error);
    total -= e.bytes;
  }
}

}  // namespace

KernelCache KernelCache::standard() {
  KernelCache cache;
  if (const char* own = std::getenv("TEGULA_KERNEL_CACHE"))
    cache.folder = own;
  else if (const char* xdg = std::getenv("XDG_CACHE_HOME"))
    cache.folder = cat(xdg, "/tegula/kernels");
  else if (const char* home = std::getenv("HOME"))
    cache.folder = cat(home, "/.cache/tegula/kernels");
  return cache;
}

namespace {
uint64_t hash_on(uint64_t h, std::string_view text) {
  return fnv1a(text, fnv1a(cat(text.size(), ':'), h));
}
}  // namespace

std::string kernel_key(std::string_view source, std::span<const std::string> defines,
                       std::string_view arch, std::string_view version) {
  // The sources are the same for all kernels of a process, of which there may be hundreds.
  static const auto of_sources = [] {
    auto hashes = std::to_array(kSeeds);
    for (uint64_t& h : hashes)
      for (const KernelSource& s : kernel_sources()) h = hash_on(hash_on(h, s.path), s.text);
    return hashes;
  }();
  std::string key;
  for (uint64_t h : of_sources) {
    h = hash_on(hash_on(hash_on(h, source), arch), version);
    for (const std::string& d : defines) h = hash_on(h, d);
    key += hex(h);
  }
  return key;
}

std::string KernelCache::why_unusable() const {
  if (folder.empty()) return kNoFolder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return cat("no kernel cache in ", folder, ": ", error.message(), kAnotherFolder);
  const std::string probe = cat(folder, "/probe-", ::getpid());
  const bool is_written = write_whole(probe, "probe");
  const std::string why = std::strerror(errno);
  fs::remove(probe, error);
  if (is_written) return "";
  return cat("the kernel cache ", folder, " cannot be written: ", why, kAnotherFolder);
}

namespace {

// `named` is what the entry is a hash of, `compile` makes it.
template <class Compile>
Result<CachedKernel> cached(const KernelCache& cache, std::string_view named,
                            std::span<const std::string> defines, std::string_view arch,
                            Compile compile) {
  CachedKernel out;
  std::error_code error;
  if (!cache.folder.empty()) fs::create_directories(cache.folder, error);
  if (cache.folder.empty() || error) {
    out.note = cache.folder.empty() ? kNoFolder
                                    : cat("no kernel cache in ", cache.folder, ": ",
                                          error.message(), kAnotherFolder);
    out.kernel = TEGULA_TRY(compile());
    return out;
  }
  const std::string version = TEGULA_TRY(nvrtc_version());
  const std::string key = kernel_key(named, defines, arch, version);
  const std::string path = cat(cache.folder, "/", key, ".cubin");
  // One of 256 locks, which stay: a lock that is removed can be held by two processes at once.
  const Lock lock(cat(cache.folder, "/lock-", std::string_view(key).substr(0, 2)));
  if (!lock.is_held())
    out.note = cat("the kernel cache ", cache.folder, " cannot be locked: ", std::strerror(errno),
                   kAnotherFolder);
  const Found found = read_entry(path, out.kernel);
  if (found == Found::kYes) {
    fs::last_write_time(path, fs::file_time_type::clock::now(), error);
    out.was_found = true;
    return out;
  }
  out.kernel = TEGULA_TRY(compile());
  if (found == Found::kBroken) out.note = cat("the kernel cache's ", path, " was damaged: rebuilt");
  if (!lock.is_held()) return out;
  if (const std::string why = write_entry(path, out.kernel); !why.empty()) out.note = why;
  shrink(cache);
  return out;
}

}  // namespace

Result<CachedKernel> compile_cached(const KernelCache& cache, std::string_view source,
                                    std::span<const std::string> defines, std::string_view arch) {
  return cached(cache, source, defines, arch,
                [&] { return compile_kernel(source, defines, arch); });
}

Result<CachedKernel> compile_text_cached(const KernelCache& cache, const std::string& path,
                                         const std::string& text,
                                         std::span<const std::string> defines,
                                         std::string_view arch) {
  return cached(cache, text, defines, arch,
                [&] { return compile_text(path, text, defines, arch); });
}

}  // namespace tegula::cuda
