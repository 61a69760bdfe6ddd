// bench_cuda_compile OUT [VARIANTS]: compiles variants of the kernels by NVRTC into
// OUT/<name>.cubin and prints registers, spills and seconds of each. Fails on a spill or on
// serialized products. VARIANTS (default bench/cuda/variants.txt) has a line per variant: its name,
// its source, and its defines without their TEGULA_; # begins a comment.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tegula/kernels/cuda/nvrtc.h"

namespace tegula::cuda {
namespace {

bool write(const std::string& path, const std::string& bytes) {
  std::ofstream f(path, std::ios::binary);
  f << bytes;
  return f.good();
}

// Whether the kernel compiled without loss.
bool compile_to(const std::string& folder, const std::string& name, const std::string& source,
                const std::vector<std::string>& defines) {
  const Result<Compiled> c = compile_kernel(source, defines);
  if (!c.ok()) {
    std::fprintf(stderr, "%s\n", c.error().to_string().c_str());
    return false;
  }
  const bool good = c->spill_bytes == 0 && !c->is_serialized;
  std::printf("%-36s %4d registers %5d bytes spilled %6.2f s%s\n", name.c_str(), c->registers,
              c->spill_bytes, c->seconds, c->is_serialized ? "  products serialized" : "");
  if (c->is_serialized) std::printf("%s\n", c->log.c_str());
  std::fflush(stdout);
  return write(folder + "/" + name + ".cubin", c->cubin) && good;
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_cuda_compile OUT [VARIANTS]\n");
    return 2;
  }
  const std::string folder = argv[1];
  std::ifstream list(argc > 2 ? argv[2] : "bench/cuda/variants.txt");
  if (!list) {
    std::fprintf(stderr, "bench_cuda_compile: no list of variants; run in the repository's root\n");
    return 2;
  }
  bool good = true;
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, source;
    if (!(words >> name >> source)) continue;
    std::vector<std::string> defines;
    for (std::string define; words >> define;) defines.push_back("TEGULA_" + define);
    good &= compile_to(folder, name, source, defines);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tegula::cuda

int main(int argc, char** argv) { return tegula::cuda::run(argc, argv); }
