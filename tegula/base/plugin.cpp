#include "tegula/base/plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "tegula/base/str.h"

namespace tegula {

namespace {
std::string folder_of_program() {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string_view text(path, n > 0 ? static_cast<size_t>(n) : 0);
  return std::string(text.substr(0, text.rfind('/')));
}

std::string path_of(const PluginKind& kind) {
  if (const char* own = std::getenv(kind.variable)) return own;
  const std::string folder = folder_of_program();
  for (const char* where : {"/", "/../lib/"})
    if (const std::string path = cat(folder, where, kind.library);
        ::access(path.c_str(), R_OK) == 0)
      return path;
  return "";
}
}  // namespace

Result<void*> open_plugin(const PluginKind& kind) {
  const std::string path = path_of(kind);
  if (path.empty())
    return unsupported(cat("no ", kind.name, " plug-in: ", kind.library,
                           " lies neither beside the program nor in ../lib; ", kind.how_to_build));
  void* library = ::dlopen(path.c_str(), RTLD_NOW | (kind.is_global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (!library)
    return unsupported(
        cat("the ", kind.name, " plug-in does not load: ", ::dlerror(), "; ", kind.how_to_build));
  void* entry = ::dlsym(library, kind.entry);
  if (!entry)
    return unsupported(cat(path, " is no ", kind.name, " plug-in of Tegula: it lacks ", kind.entry,
                           "; ", kind.how_to_build));
  return entry;
}

Error wrong_abi(const PluginKind& kind, int64_t abi, int64_t expected) {
  return unsupported(cat(path_of(kind),
                         " was built for another version of this program (interface ", abi,
                         ", expected ", expected, "): build both together"));
}

}  // namespace tegula
