#include "cli/processes.h"

#include <sys/stat.h>

#include "cli/paths.h"
#include "cli/process.h"
#include "tegula/io/file.h"
#include "tegula/runtime/memory.h"
#include "tegula/runtime/rank_group.h"

namespace tegula::cli {

namespace {
// Each process reads these: what can be read once is not there for the second one.
Status check_is_file(const NamedPath& in) {
  struct stat info;
  if (in.path.empty() || in.path == "-" || ::stat(in.path.c_str(), &info) != 0 ||
      S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))
    return {};
  return invalid_argument(cat(in.flag, " '", in.path,
                              "' can be read only once, and every process of --processes reads it: "
                              "write it to a file"));
}
}  // namespace

Segment::Size size_of_processes(const TrainConfig& c) {
  return {c.mesh.n_ranks(), c.processes, RankGroup::flow_bytes(c.mesh), machine_memory(),
          c.transport != "shm"};
}

Result<int> start_processes(const TrainConfig& c, const std::string& config_file) {
  for (const NamedPath& in : {NamedPath{"--data", c.data}, NamedPath{"--config", config_file},
                              NamedPath{"--batches", c.batches}})
    TEGULA_TRY(check_is_file(in));
  Launch l;
  l.size = size_of_processes(c);
  if (!c.address.empty()) l.address = c.address;
  l.restarts = c.restarts;
  l.has_input = c.data == "-";
  if (l.has_input) l.input = TEGULA_TRY(read_file("/dev/stdin"));
  l.note = [](const std::string& text) { print_note(text); };
  return launch(l);
}

}  // namespace tegula::cli
