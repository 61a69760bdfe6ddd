#include "cli/command.h"

namespace tegula::cli {

void add_tuning(const Command& cmd, std::string& mode, std::string& directory) {
  one_of(cmd.add_option("--tune", mode,
                        "Time kernels' sizes on this machine and keep them: never other bits"),
         {"off", "quick", "full"});
  cmd.add_option("--tune-cache", directory, "Directory of tunings; default: the user's cache")
      .type_name("DIR");
}

}  // namespace tegula::cli
