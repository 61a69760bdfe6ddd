// JSON Lines: whatever a file of metrics holds, a run resumes behind it, and rows that are added
// are read again.
#include "tegula/io/jsonl.h"

#include "tests/fuzz/target.h"

namespace tegula::fuzz {

namespace {

bool run(std::string_view input) {
  const std::string path = scratch() + "/metrics.jsonl";
  put(path, input);
  const auto before = read_jsonl(path);
  std::vector<std::string> notes;
  auto writer = JsonlWriter::resume(path, "step", 5, notes);
  if (!writer.ok()) return false;
  const Json row = Json::object({{"step", 6}, {"loss", 0.5}});
  TEGULA_CHECK(writer->append(row).ok());
  const auto after = read_jsonl(path);
  TEGULA_CHECK(after.ok() && !after->empty() && after->back() == row);
  for (const Json& kept : *after) {
    const Json* step = kept.find("step");
    TEGULA_CHECK(step == nullptr || !(step->number(0) > 6));
  }
  return before.ok();
}

}  // namespace

extern constinit const Target jsonl_target{"jsonl", run};

}  // namespace tegula::fuzz
