// tegula doctor: what this machine is, what it can do, and what Tegula makes of it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/process.h"
#include "tegula/base/amounts.h"
#include "tegula/base/container.h"
#include "tegula/base/text.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/kernels/cpu/common/isa_rate.h"
#include "tegula/kernels/device.h"
#include "tegula/runtime/memory.h"
#include "tegula/runtime/probe.h"

namespace tegula::cli {

namespace {
// The word in brackets: "always [madvise] never".
std::string huge_pages() {
  const auto text = read_file("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t at = text.ok() ? text->find('[') : std::string::npos;
  return at == std::string::npos ? "unknown" : text->substr(at + 1, text->find(']') - at - 1);
}

// `number` of these in `unit`.
std::string in_units(const Json& j, const char* number, double unit, const char* name) {
  return printed("%.4g %s", j.find(number)->number(0) / unit, name);
}

// All that the CUDA path needs, each thing with what was found, or what is missing.
Json examine_cuda() {
  return json_list(examine_device(), [](const DeviceFact& f) {
    return Json::object({{"what", f.what}, {"is_well", f.is_well}, {"text", f.text}});
  });
}

// TEGULA_ISA may name what this machine lacks: then kernels use another set, and nothing is forced.
bool is_isa_forced() {
  const char* asked = std::getenv("TEGULA_ISA");
  return asked != nullptr && is_same_name(isa_name(machine_isa()), asked);
}

Json examine(int threads) {
  Json::Array levels;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    const double rate = kernel::isa_flops_per_s(isa);
    levels.push_back(Json::object(
        {{"isa", isa_name(isa)}, {"present", rate > 0}, {"gflops_per_thread", rate / 1e9}}));
  }
  const MachineSpeed speed = probe_machine(threads);
  return Json::object({{"processor", processor_name()},
                       {"cores", ThreadPool(0).n_threads()},
                       {"memory_nodes", memory_nodes()},
                       {"memory_bytes", machine_memory()},
                       {"container_cpus", container_limits().cpus},
                       {"container_memory_bytes", container_limits().memory_bytes},
                       {"l1_bytes", int64_t{sysconf(_SC_LEVEL1_DCACHE_SIZE)}},
                       {"l2_bytes", int64_t{sysconf(_SC_LEVEL2_CACHE_SIZE)}},
                       {"l3_bytes", int64_t{sysconf(_SC_LEVEL3_CACHE_SIZE)}},
                       {"huge_pages", huge_pages()},
                       {"isa_levels", levels},
                       {"isa", isa_name(machine_isa())},
                       {"isa_is_forced", is_isa_forced()},
                       {"threads", ThreadPool(threads).n_threads()},
                       {"fma_gflops", speed.flops_per_s / 1e9},
                       {"read_gbytes_per_s", speed.bytes_per_s / 1e9},
                       {"cuda", examine_cuda()}});
}

void print(const Json& j) {
  const auto text = [&](const char* key) { return *j.find(key)->as<std::string>(); };
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-18s %s\n", name, value.c_str());
  };
  line("processor", text("processor"));
  line("cores", in_units(j, "cores", 1, "usable"));
  line("memory",
       in_units(j, "memory_bytes", 1 << 30, "GiB in ") + in_units(j, "memory_nodes", 1, "nodes"));
  const ContainerLimits& limits = container_limits();
  line("container",
       cat(limits.cpus > 0 ? in_units(j, "container_cpus", 1, "processors")
                           : std::string("no limit on processors"),
           ", ",
           limits.memory_bytes > 0 ? in_units(j, "container_memory_bytes", 1 << 30, "GiB")
                                   : std::string("none on memory")));
  line("caches", in_units(j, "l1_bytes", 1024, "KiB, ") + in_units(j, "l2_bytes", 1024, "KiB, ") +
                     in_units(j, "l3_bytes", 1 << 20, "MiB"));
  line("huge pages", text("huge_pages") + " (Tegula asks for them from 2 MiB on)");
  for (const Json& level : *j.find("isa_levels")->as<Json::Array>())
    line(*level.find("isa")->as<std::string>() == "portable" ? "instruction sets" : "",
         *level.find("isa")->as<std::string>() + ": " +
             (*level.find("present")->as<bool>()
                  ? in_units(level, "gflops_per_thread", 1, "GFLOP/s a thread")
                  : "absent"));
  line("kernels use", text("isa") + (*j.find("isa_is_forced")->as<bool>() ? ", forced" : ""));
  line("f32 multiply-adds",
       in_units(j, "fma_gflops", 1, "GFLOP/s, ") + in_units(j, "threads", 1, "threads"));
  line("memory is read at", in_units(j, "read_gbytes_per_s", 1, "GB/s"));
  for (const Json& fact : *j.find("cuda")->as<Json::Array>())
    line(("CUDA " + *fact.find("what")->as<std::string>()).c_str(),
         *fact.find("text")->as<std::string>());
}
}  // namespace

void add_doctor(const Command& app, int& exit_code) {
  const auto cmd =
      app.add_command("doctor", "What this machine can do, and what Tegula makes of it");
  static bool json = false;
  static int threads = 0;
  add_threads(cmd, threads);
  cmd.add_flag("--json", json, "One JSON object");
  cmd.callback([&exit_code] {
    const Json j = examine(threads);
    json ? print_text(j.dump() + "\n") : print(j);
    exit_code = kDone;
  });
}

}  // namespace tegula::cli
