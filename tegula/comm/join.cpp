#include "tegula/comm/join.h"

#include <cstdlib>

#include "tegula/comm/mpi.h"

namespace tegula {

namespace {
int64_t number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text && *text ? std::strtoll(text, nullptr, 10) : -1;
}

// "node[03-07,9],other" -> "node03"
std::string first_of(std::string_view nodes) {
  const size_t bracket = nodes.find_first_of("[,");
  std::string first(nodes.substr(0, bracket));
  if (bracket == nodes.npos || nodes[bracket] == ',') return first;
  nodes.remove_prefix(bracket + 1);
  return first + std::string(nodes.substr(0, nodes.find_first_of("-,]")));
}
}  // namespace

std::optional<World> world() {
  struct Variables {
    const char *starter, *size, *rank;
  };
  for (const Variables& v : {Variables{"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                             {"mpirun", "PMI_SIZE", "PMI_RANK"}}) {
    const int64_t n = number_of(v.size), rank = number_of(v.rank);
    if (n > 1 && rank >= 0 && rank < n) return World{v.starter, n, rank, ""};
  }
  // A script of sbatch has Slurm's numbers, too, but is no step.
  const char* nodes = std::getenv("SLURM_STEP_NODELIST");
  int64_t n = number_of("SLURM_STEP_NUM_TASKS");
  if (n < 0) n = number_of("SLURM_NTASKS");
  const int64_t rank = number_of("SLURM_PROCID");
  if (!nodes || n <= 1 || rank < 0 || rank >= n) return std::nullopt;
  return World{"srun", n, rank, first_of(nodes)};
}

Result<Engine> engine_of(std::string_view transport, const std::optional<World>& world) {
  if (transport == "tcp") return Engine::kTcp;
  if (!world) {
    if (transport != "mpi") return Engine::kShm;
    return invalid_argument(
        "--transport mpi is for processes that mpirun or srun has started: "
        "type mpirun -n 4 tegula train --mesh dp=4 …, or leave it out");
  }
  if (transport == "shm")
    return invalid_argument(cat("--transport shm: processes of ", world->starter,
                                " share no memory: leave out --transport, or leave out ",
                                world->starter, " and give --processes ", world->n_processes));
  const auto plugin = load_mpi_plugin();
  if (plugin.ok()) return Engine::kMpi;
  if (world->is_slurm() && transport.empty()) return Engine::kTcp;
  return plugin.error();
}

Result<std::unique_ptr<Segment>> join(const World& world, Engine engine,
                                      const Segment::Size& size) {
  auto segment = TEGULA_TRY(Segment::alone(size, world.process));
  if (engine == Engine::kTcp) {
    if (!std::getenv(kAddressVariable) && !world.first_host.empty())
      return invalid_argument(
          cat("processes of srun meet over TCP at an address, and none is said: "
              "export ",
              kAddressVariable, "=", world.first_host, ":29400 and ", kKeyVariable,
              "=$(openssl rand -hex 16) before srun"));
    TEGULA_TRY(meet_apart(*segment, Listener()));
    return segment;
  }
  const MpiPlugin* plugin = TEGULA_TRY(load_mpi_plugin());
  struct Context {
    const MpiPlugin* plugin;
    const World* world;
  } context{plugin, &world};
  TEGULA_TRY(segment->connect(
      [](void* c) {
        const auto* here = static_cast<const Context*>(c);
        return here->plugin->open(here->world->n_processes, here->world->process);
      },
      &context));
  return segment;
}

Status meet_apart(Segment& segment, Listener listener) {
  const char *address = std::getenv(kAddressVariable), *key = std::getenv(kKeyVariable);
  if (!address || !*address)
    return invalid_argument(cat("processes meet over TCP at an address, and none is said: set ",
                                kAddressVariable, " to a host and port of the first process ",
                                "(node01:29400) for all"));
  if (!key || !*key)
    return invalid_argument(cat("processes that meet at ", address, " know one another by a key, ",
                                "and none is said: set ", kKeyVariable,
                                " to one secret for all (openssl rand -hex 16)"));
  TcpMeeting how{segment.n_processes(), segment.process(), address, key, std::move(listener)};
  ::unsetenv(kKeyVariable);
  return segment.connect(
      [](void* context) { return meet_by_tcp(std::move(*static_cast<TcpMeeting*>(context))); },
      &how);
}

}  // namespace tegula
