// Saved plans, with their hash and instruction set repaired: what is accepted is printed and read
// the same, and runs at several extents without touching memory that is not its own.
#include "tegula/io/json.h"
#include "tegula/io/sha256.h"
#include "tegula/kernels/kernel.h"
#include "tegula/plan/plan_json.h"
#include "tests/fuzz/run_plan.h"

namespace tegula::fuzz {

namespace {

std::string repaired(std::string_view input) {
  auto file = Json::parse(input, "plan");
  const Json* plan = file.ok() ? file->find("plan") : nullptr;
  if (plan == nullptr) return std::string(input);
  Json fixed = *plan;
  if (const Json* target = plan->find("target")) {
    Json here = *target;
    here.set("isa", isa_name(machine_isa()));
    fixed.set("target", std::move(here));
  }
  file->set("sha256", sha256_hex(fixed.dump()));
  file->set("plan", std::move(fixed));
  return file->dump();
}

bool run(std::string_view input) {
  auto plan = plan_from_json(repaired(input), "plan");
  if (!plan.ok()) return false;
  TEGULA_CHECK(verify_plan(*plan).ok());
  const std::string text = plan_to_json(*plan);
  const auto again = plan_from_json(text, "again");
  TEGULA_CHECK(again.ok() && plan_to_json(*again) == text);
  (void)plan->to_string();
  if (!is_small(*plan)) return true;
  run_everywhere(std::make_shared<const Plan>(std::move(*plan)));
  return true;
}

}  // namespace

extern constinit const Target plan_target{"plan", run};

}  // namespace tegula::fuzz
