#include "tegula/kernels/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tegula/base/algorithm.h"

namespace tegula::cuda {

namespace {

using Program = void*;  // nvrtcProgram

struct Nvrtc {
  int (*version)(int*, int*);
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(Program*);
  int (*compile)(Program, int, const char* const*);
  int (*log_size)(Program, size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, size_t*);
  int (*cubin)(Program, char*);
};

template <class F>
bool find(void* library, const char* name, F& call) {
  call = reinterpret_cast<F>(dlsym(library, name));
  return call != nullptr;
}

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};

// The machine's, else the one that script/bootstrap --cuda left in build/nvrtc: in a folder nvrtc
// beside the file that this code is part of, or above it.
void* find_nvrtc() {
  if (const char* own = std::getenv("TEGULA_NVRTC")) return dlopen(own, RTLD_NOW | RTLD_LOCAL);
  for (const char* name : kNames)
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&find_nvrtc), &self) == 0) return nullptr;
  std::string folder = self.dli_fname;
  for (int up = 0; up < 4; ++up) {
    const size_t slash = folder.rfind('/');
    if (slash == folder.npos) break;
    folder.resize(slash);
    for (const char* name : kNames)
      if (void* library = dlopen(cat(folder, "/nvrtc/", name).c_str(), RTLD_NOW | RTLD_LOCAL))
        return library;
  }
  return nullptr;
}

Result<Nvrtc> open_nvrtc() {
  void* library = find_nvrtc();
  if (library == nullptr)
    return unsupported(
        cat("no run-time compiler: ", dlerror(),
            "; run script/bootstrap --cuda, or install CUDA's NVRTC 12 or 13, or set "
            "TEGULA_NVRTC to its path"));
  Nvrtc n;
  if (find(library, "nvrtcVersion", n.version) && find(library, "nvrtcCreateProgram", n.create) &&
      find(library, "nvrtcDestroyProgram", n.destroy) &&
      find(library, "nvrtcCompileProgram", n.compile) &&
      find(library, "nvrtcGetProgramLogSize", n.log_size) &&
      find(library, "nvrtcGetProgramLog", n.log) &&
      find(library, "nvrtcGetCUBINSize", n.cubin_size) && find(library, "nvrtcGetCUBIN", n.cubin))
    return n;
  return unsupported(cat("libnvrtc lacks a call: ", dlerror()));
}

const Result<Nvrtc>& nvrtc() {
  static const Result<Nvrtc> library = open_nvrtc();
  return library;
}

// The thread's own: builds beside it do not count.
double thread_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The largest number that stands before `word` in the log, which reports each kernel of a source.
int largest_before(const std::string& log, std::string_view word) {
  int largest = 0;
  for (size_t at = log.find(word); at != std::string::npos; at = log.find(word, at + 1)) {
    size_t begin = at;
    while (begin > 0 && (std::isdigit(static_cast<unsigned char>(log[begin - 1])) != 0)) --begin;
    largest = std::max(largest, std::atoi(log.c_str() + begin));
  }
  return largest;
}

struct Headers {
  std::vector<const char*> texts, names;
};

struct Output {
  int status = 0;
  double seconds = 0;
  std::string log, cubin;
};

Result<Output> compile_here(const std::string& path, const std::string& text,
                            const Headers& headers, const std::vector<const char*>& options) {
  const Nvrtc& n = *nvrtc();
  Output out;
  const double begin = thread_seconds();
  Program program = nullptr;
  if (n.create(&program, text.c_str(), path.c_str(), static_cast<int>(headers.names.size()),
               headers.texts.data(), headers.names.data()) != 0)
    return internal_error("nvrtcCreateProgram failed");
  out.status = n.compile(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  if (n.log_size(program, &size) == 0 && size > 1) {
    out.log.resize(size);
    n.log(program, out.log.data());
    out.log.resize(size - 1);
  }
  if (out.status == 0 && n.cubin_size(program, &size) == 0) {
    out.cubin.resize(size);
    n.cubin(program, out.cubin.data());
  }
  n.destroy(&program);
  out.seconds = thread_seconds() - begin;
  return out;
}

// The message that goes through the pipe before the log and the cubin.
struct Head {
  int status = 0;
  double seconds = 0;
  size_t log_bytes = 0, cubin_bytes = 0;
};

bool write_all(int fd, const void* data, size_t n) {
  for (const auto* p = static_cast<const char*>(data); n > 0;) {
    const ssize_t done = write(fd, p, n);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    p += done, n -= static_cast<size_t>(done);
  }
  return true;
}

std::string read_to_end(int fd) {
  std::string all;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return all;
    all.append(buffer, static_cast<size_t>(n));
  }
}

// In a child: within a process NVRTC compiles one program after another, whatever the threads.
// Another library than NVRTC may keep state, and is called here.
Result<Output> compile_beside(const std::string& path, const std::string& text,
                              const Headers& headers, const std::vector<const char*>& options) {
  static const bool forks = std::getenv("TEGULA_NVRTC") == nullptr;
  if (!forks) return compile_here(path, text, headers, options);
  // All that the library sets up at its first program is there in every child, and no child is
  // begun while this process holds a lock of the library's.
  static const bool is_warm = [] {
    return compile_here("empty.cu", "", {}, {"--gpu-architecture=sm_80"}).ok();
  }();
  int ends[2];
  if (!is_warm || pipe2(ends, O_CLOEXEC) != 0)
    return internal_error(cat("compiling ", path, ": no pipe: ", std::strerror(errno)));
  const pid_t child = fork();
  if (child < 0) {
    const std::string why = std::strerror(errno);
    close(ends[0]), close(ends[1]);
    return internal_error(cat("compiling ", path, ": no process to do it in: ", why));
  }
  if (child == 0) {
    const Result<Output> out = compile_here(path, text, headers, options);
    const Head head =
        out.ok() ? Head{out->status, out->seconds, out->log.size(), out->cubin.size()} : Head{-1};
    bool is_written = write_all(ends[1], &head, sizeof(head));
    if (out.ok())
      is_written = is_written && write_all(ends[1], out->log.data(), out->log.size()) &&
                   write_all(ends[1], out->cubin.data(), out->cubin.size());
    _exit(is_written ? 0 : 1);
  }
  close(ends[1]);
  const std::string all = read_to_end(ends[0]);
  close(ends[0]);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  Head head;
  if (all.size() >= sizeof(head)) std::memcpy(&head, all.data(), sizeof(head));
  if (all.size() < sizeof(head) || all.size() != sizeof(head) + head.log_bytes + head.cubin_bytes)
    return internal_error(cat("compiling ", path, ": the compiler's process ended early"));
  return Output{head.status, head.seconds, all.substr(sizeof(head), head.log_bytes),
                all.substr(sizeof(head) + head.log_bytes)};
}

}  // namespace

Result<std::string> nvrtc_version() {
  if (!nvrtc().ok()) return nvrtc().error();
  int major = 0, minor = 0;
  if (nvrtc()->version(&major, &minor) != 0) return internal_error("nvrtcVersion failed");
  return cat(major, ".", minor);
}

Result<Compiled> compile_kernel(std::string_view source, std::span<const std::string> defines,
                                std::string_view arch) {
  const std::string path = cat("tegula/kernels/cuda/", source);
  for (const KernelSource& s : kernel_sources())
    if (s.path == path) return compile_text(path, std::string(s.text), defines, arch);
  if (!nvrtc().ok()) return nvrtc().error();
  return invalid_argument(cat("there is no device source ", path));
}

Result<Compiled> compile_text(const std::string& path, const std::string& text,
                              std::span<const std::string> defines, std::string_view arch) {
  if (!nvrtc().ok()) return nvrtc().error();
  const Nvrtc& n = *nvrtc();
  std::vector<std::string> headers, names;
  for (const KernelSource& s : kernel_sources())
    names.emplace_back(s.path), headers.emplace_back(s.text);
  std::vector<const char*> header_texts, header_names, options;
  for (size_t i = 0; i < names.size(); ++i)
    header_names.push_back(names[i].c_str()), header_texts.push_back(headers[i].c_str());

  std::vector<std::string> flags = {cat("--gpu-architecture=", arch), "--std=c++17", "--fmad=false",
                                    "--ptxas-options=-v"};
  // NVRTC's own cache, since 12.9, returns no log: registers and spills would read as 0.
  int major = 0, minor = 0;
  if (n.version(&major, &minor) == 0 && (major > 12 || (major == 12 && minor >= 9)))
    flags.emplace_back("--no-cache");
  for (const std::string& d : defines) flags.push_back(d.starts_with("--") ? d : "-D" + d);
  for (const std::string& f : flags) options.push_back(f.c_str());

  const Headers all{header_texts, header_names};
  const Output made = TEGULA_TRY(compile_beside(path, text, all, options));
  Compiled out;
  out.cubin = made.cubin, out.log = made.log, out.seconds = made.seconds;
  if (made.status != 0) return internal_error(cat(path, " did not compile:\n", out.log));
  out.registers = largest_before(out.log, " registers");
  out.spill_bytes = largest_before(out.log, " bytes spill stores") +
                    largest_before(out.log, " bytes spill loads");
  out.smem_bytes = largest_before(out.log, " bytes smem");
  out.is_serialized = out.log.find("instructions are serialized") != std::string::npos;
  return out;
}

}  // namespace tegula::cuda
