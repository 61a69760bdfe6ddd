#include "tests/kernels/cuda/emulator/driver/module.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tegula/base/str.h"

namespace tegula::emulated {

namespace {

struct Seen {
  const void* inside;
  StaticShared found;
};

int see_library(dl_phdr_info* info, size_t, void* data) {
  Seen& seen = *static_cast<Seen*>(data);
  const auto at = reinterpret_cast<uintptr_t>(seen.inside);
  bool is_it = false;
  size_t bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& p = info->dlpi_phdr[i];
    if (p.p_type == PT_TLS) bytes = p.p_memsz;
    is_it |= p.p_type == PT_LOAD && at >= info->dlpi_addr + p.p_vaddr &&
             at < info->dlpi_addr + p.p_vaddr + p.p_memsz;
  }
  if (is_it) seen.found = {static_cast<char*>(info->dlpi_tls_data), bytes};
  return is_it ? 1 : 0;
}

// The size of an ELF file, whose size is not told: the table of its sections stands last.
size_t size_of(const Elf64_Ehdr& head) {
  return head.e_shoff + size_t{head.e_shnum} * head.e_shentsize;
}

}  // namespace

Outcome Module::load(const void* image, Module** out) {
  *out = nullptr;
  if (image == nullptr || std::memcmp(image, ELFMAG, SELFMAG) != 0) return {kInvalidImage, ""};
  Elf64_Ehdr head;
  std::memcpy(&head, image, sizeof head);
  auto module = std::make_unique<Module>();
  if (head.e_machine == EM_X86_64) {
    // By a file of its own name: the host's loader takes two of one name for the same.
    std::string path = (std::filesystem::temp_directory_path() / "emulated-cubin-XXXXXX").string();
    const int file = ::mkstemp(path.data());
    const auto bytes = static_cast<ssize_t>(size_of(head));
    const bool is_whole = file >= 0 && ::write(file, image, static_cast<size_t>(bytes)) == bytes;
    if (is_whole) module->library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* why = module->library_ == nullptr ? ::dlerror() : nullptr;
    if (file >= 0) ::close(file), ::unlink(path.c_str());
    if (module->library_ == nullptr)
      return {kInvalidImage, cat("a compiled kernel does not load: ", why != nullptr ? why : "")};
    module->cubin_ = static_cast<const Cubin*>(::dlsym(module->library_, "tegula_emulated_cubin"));
    if (module->cubin_ == nullptr || module->cubin_->abi != kMachineAbi)
      return {kInvalidImage, "this library was not made by this emulator's NVRTC"};
  }
  *out = module.release();
  return {};
}

Function* Module::function(const std::string& name) {
  std::unique_ptr<Function>& f = functions_[name];
  if (f != nullptr) return f.get();
  if (cubin_ == nullptr) {
    f = std::make_unique<Function>(Function{this});
    return f.get();
  }
  for (unsigned i = 0; i < cubin_->n_kernels; ++i)
    if (name == cubin_->kernels[i].name) {
      f = std::make_unique<Function>(Function{this, &cubin_->kernels[i]});
      return f.get();
    }
  functions_.erase(name);
  return nullptr;
}

void* Module::global(const std::string& name) const {
  return library_ != nullptr ? ::dlsym(library_, name.c_str()) : nullptr;
}

StaticShared Module::static_shared() const {
  const void* inside = cubin_->touch();  // the host makes a thread's copy when it is first touched
  Seen seen{cubin_, {}};
  ::dl_iterate_phdr(see_library, &seen);
  return inside != nullptr ? seen.found : StaticShared{};
}

}  // namespace tegula::emulated
