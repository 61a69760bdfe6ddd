#include "tests/kernels/cuda/emulator/nvrtc/compile.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/kernels/cuda/emulator/nvrtc/rewrite.h"

namespace tegula::emulated {

namespace {

namespace fs = std::filesystem;

// As a machine with fused multiply-adds computes them; without them fmaf is a slow function.
const char* machine_option() {
  __builtin_cpu_init();
  const bool is_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return is_v3 ? "-march=x86-64-v3" : "-march=x86-64";
}

const char* compiler() {
  const char* own = std::getenv("TEGULA_EMULATOR_CXX");
  return own != nullptr ? own : TEGULA_EMULATOR_COMPILER;
}

// A folder that goes when this does.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "emulated-nvrtc-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code error;
    if (!path_.empty() && std::getenv("TEGULA_EMULATOR_KEEP") == nullptr)
      fs::remove_all(path_, error);
  }
  bool is_there() const { return !path_.empty(); }
  const fs::path& path() const { return path_; }
  void write(const std::string& name, std::string_view text) const {
    const fs::path path = path_ / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream(path, std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream f(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(f), {}};
  }

 private:
  fs::path path_;
};

// Runs the compiler in the folder; its messages are added to `log`.
bool run_compiler(const Folder& folder, std::vector<std::string> words, std::string& log) {
  words.insert(words.begin(), compiler());
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  const std::string messages = (folder.path() / "log").string(), where = folder.path().string();
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open(messages.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (fd < 0 || ::dup2(fd, 1) < 0 || ::dup2(fd, 2) < 0 || ::chdir(where.c_str()) != 0)
      ::_exit(126);
    ::unsetenv("LD_PRELOAD");
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) {
    log += "no process for the compiler\n";
    return false;
  }
  log += folder.read("log");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) log += words[0] + " does not start\n";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Whether accesses are looked at for races.
bool checks_races() {
  const char* text = std::getenv("FAKE_CUDA_RACES");
  return text != nullptr && std::atoi(text) != 0;
}

std::string table_of(const std::vector<KernelName>& kernels, bool flushes) {
  std::string out =
      "\nnamespace tegula::cuda {}\nusing namespace tegula::cuda;\n"
      "static constexpr tegula::emulated::Kernel tegula_kernels[] = {\n";
  for (const KernelName& k : kernels)
    out += "    tegula::emulated::describe<&" + k.name + ">(\"" + k.name +
           "\", tegula::emulated::bound(" + k.bounds + ")),\n";
  return out +
         "    {}};\n"
         "extern \"C\" __attribute__((visibility(\"default\"))) const tegula::emulated::Cubin "
         "tegula_emulated_cubin = {tegula::emulated::kMachineAbi, "
         "&tegula::emulated::current_thread, &tegula::emulated::current_machine, "
         "tegula_kernels, " +
         std::to_string(kernels.size()) + ", tegula::emulated::touch, " +
         (checks_races() ? "true, " : "false, ") + (flushes ? "true" : "false") + "};\n";
}

}  // namespace

Built build(const Source& source, const std::vector<std::string>& options) {
  Built out;
  const Folder folder;
  if (!folder.is_there()) {
    out.log = "no temporary folder can be made";
    return out;
  }
  std::string prelude;
  for (const DeviceHeader& h : device_headers()) {
    folder.write("emulator/" + std::string(h.path), h.text);
    prelude += "#include \"emulator/" + std::string(h.path) + "\"\n";
  }
  folder.write("emulator/prelude.h", prelude);
  for (const auto& [path, text] : source.headers) folder.write(path, text);
  folder.write(source.path, source.text);

  std::vector<std::string> words = {
      "-E", "-x", "c++", "-std=gnu++20", "-I.", "-include", "emulator/prelude.h"};
  if (checks_races()) words.emplace_back("-DTEGULA_EMULATOR_RACES=1");
  for (const std::string& o : options) {
    if (o.starts_with("-D")) words.push_back(o);
    if (const size_t at = o.find("sm_"); o.starts_with("--gpu-architecture=") && at != o.npos)
      words.push_back("-D__CUDA_ARCH__=" + std::to_string(10 * std::atoi(o.c_str() + at + 3)));
  }
  words.insert(words.end(), {"-o", "preprocessed.ii", source.path});
  if (!run_compiler(folder, words, out.log)) return out;

  const bool flushes = std::find(options.begin(), options.end(), "--ftz=true") != options.end();
  const std::string text = folder.read("preprocessed.ii");
  const Rewritten rewritten = rewrite(text, [&text](const std::string& instruction) {
    return text.find("void " + instruction + "(") != std::string::npos ||
           text.find("\n" + instruction + "(") != std::string::npos;
  });
  folder.write("kernel.ii", rewritten.text + table_of(rewritten.kernels, flushes));
  // Device code reads memory as what it likes, and its variables are its library's alone. So are
  // its kernels, whatever they are called: `puts` is not the C library's.
  words = {"-c",
           "-fpreprocessed",
           "-x",
           "c++-cpp-output",
           "-std=gnu++20",
           machine_option(),
           "-O1",
           "-ftree-vectorize",
           "-ffp-contract=off",
           "-fno-math-errno",
           "-fno-trapping-math",
           "-fno-strict-aliasing",
           "-fno-exceptions",
           "-fno-rtti",
           "-fno-gnu-unique",
           "-fvisibility=hidden",
           "-fPIC",
           "-w",
           "-Wno-psabi",
           "kernel.ii",
           "-o",
           "kernel.o"};
  if (checks_races())
    words.insert(words.end(), {"-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0",
                               "--param", "tsan-distinguish-volatile=1"});
  if (!run_compiler(folder, words, out.log) ||
      !run_compiler(folder, {"-shared", "-Wl,-Bsymbolic", "kernel.o", "-o", "kernel.so"}, out.log))
    return out;
  out.library = folder.read("kernel.so");
  out.ok = true;
  return out;
}

unsigned fingerprint() {
  unsigned h = 2166136261U;
  const auto add = [&h](std::string_view text) {
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16777619U;
  };
  for (const DeviceHeader& d : device_headers()) add(d.path), add(d.text);
  add(TEGULA_EMULATOR_SOURCES), add(compiler()), add(machine_option()),
      add(checks_races() ? "races" : "");
  return h;
}

}  // namespace tegula::emulated
