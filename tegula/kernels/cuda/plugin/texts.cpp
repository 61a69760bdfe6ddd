#include "tegula/kernels/cuda/plugin/texts.h"

#include <mutex>
#include <set>

#include "tegula/kernels/cuda/tile_text.h"

namespace tegula::cuda {

namespace {

// Each text: the code, from when one thread begins to make it, then the module.
struct Texts {
  std::mutex one;
  std::set<std::string> begun;
  std::map<std::string, std::string> cubins;
  std::map<std::string, Module> modules;  // of the thread that launches
  // Never destroyed: the driver goes before statics do.
  static Texts& all() {
    static auto& texts = *new Texts();
    return texts;
  }
};

}  // namespace

Result<bool> compile_once(const KernelText& t) {
  Texts& texts = Texts::all();
  {
    const std::lock_guard lock(texts.one);
    if (!texts.begun.insert(t.name).second) return false;
  }
  CachedKernel code = TEGULA_TRY(cubin_of_text(t.path, t.text(), t.defines));
  const std::lock_guard lock(texts.one);
  texts.cubins[t.name] = std::move(code.kernel.cubin);
  return !code.was_found;
}

Result<const Module*> loaded_text(const KernelText& t) {
  Texts& texts = Texts::all();
  const auto found = texts.modules.find(t.name);
  if (found != texts.modules.end()) return static_cast<const Module*>(&found->second);
  std::string cubin;
  {
    const std::lock_guard lock(texts.one);
    if (const auto made = texts.cubins.extract(t.name)) cubin = std::move(made.mapped());
  }
  if (cubin.empty()) cubin = TEGULA_TRY(cubin_of_text(t.path, t.text(), t.defines)).kernel.cubin;
  Module module = TEGULA_TRY(Module::load(cubin));
  return static_cast<const Module*>(
      &texts.modules.emplace(t.name, std::move(module)).first->second);
}

std::vector<std::string> tile_defines(std::vector<std::string> more) {
  more.insert(more.end(), std::begin(kTileFlags), std::end(kTileFlags));
  return more;
}

}  // namespace tegula::cuda
