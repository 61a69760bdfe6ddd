#include "tegula/comm/greeting.h"

#include <sys/random.h>

#include <cstring>

#include "tegula/base/text.h"
#include "tegula/io/file.h"

namespace tegula {

namespace {
constexpr uint64_t kMagic = 0x616c75676574'0a0d;  // "tegula" and an end of line
constexpr uint32_t kVersion = 1;

void fill_at_random(void* to, size_t bytes) {
  const ssize_t n = ::getrandom(to, bytes, 0);
  TEGULA_CHECK(n == static_cast<ssize_t>(bytes), "the system has no random numbers");
}

// Hashes the whole program, so that two builds of one source differ where their code does.
uint64_t build_number() {
  static const uint64_t number = [] {
    uint64_t n = 0;
    if (const auto program = MappedFile::open("/proc/self/exe"); program.ok()) {
      Sha256 sha;
      sha.update(program->bytes());
      std::memcpy(&n, sha.finish().data(), sizeof n);
    }
    return n;
  }();
  return number;
}

std::string hex(uint64_t n) { return printed("%016llx", static_cast<unsigned long long>(n)); }
}  // namespace

Greeting greeting_of(int64_t n_processes, int64_t process, uint32_t port) {
  Greeting g{kMagic, kVersion, port, build_number(), n_processes, process, {}};
  fill_at_random(g.nonce, sizeof g.nonce);
  return g;
}

Proof proof_of(const std::string& key, const Greeting& own, const Greeting& other) {
  std::array<uint8_t, 64> block{};
  if (key.size() > block.size()) {
    Sha256 sha;
    sha.update(key);
    const auto digest = sha.finish();
    std::memcpy(block.data(), digest.data(), digest.size());
  } else {
    std::memcpy(block.data(), key.data(), key.size());
  }
  const auto padded = [&](uint8_t pad) {
    std::array<uint8_t, 64> out = block;
    for (uint8_t& b : out) b ^= pad;
    return out;
  };
  Sha256 inner, outer;
  inner.update(padded(0x36).data(), block.size());
  inner.update(&own, sizeof own), inner.update(&other, sizeof other);
  const auto digest = inner.finish();
  outer.update(padded(0x5c).data(), block.size());
  outer.update(digest.data(), digest.size());
  return outer.finish();
}

// In a time that says nothing of where they differ.
bool are_equal(const Proof& a, const Proof& b) {
  uint8_t differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ |= a[i] ^ b[i];
  return differ == 0;
}

Status check_version(const Greeting& other, const std::string& where) {
  if (other.magic != kMagic)
    return io_error(cat("whoever is at ", where, " is no process of tegula: give another address"));
  if (other.version != kVersion)
    return internal_error(cat("the tegula at ", where, " speaks version ", other.version,
                              " of frames between processes, this one version ", kVersion,
                              ": run one build on all hosts"));
  return {};
}

Status check_run(const Greeting& own, const Greeting& other, const std::string& where) {
  if (other.build != own.build)
    return internal_error(cat("process ", other.process, " (", where,
                              ") is another build of tegula (", hex(other.build), ", this is ",
                              hex(own.build), "): run one build on all hosts"));
  if (other.n_processes != own.n_processes)
    return invalid_argument(cat("process ", other.process, " (", where, ") is one of ",
                                other.n_processes, " processes, this one of ", own.n_processes,
                                ": start all with one number of processes"));
  if (other.process < 0 || other.process >= own.n_processes || other.process == own.process)
    return invalid_argument(cat("two processes say that they are number ", other.process, " (",
                                where, "): give each its own number"));
  return {};
}

std::string new_key() {
  uint64_t words[2];
  fill_at_random(words, sizeof words);
  return hex(words[0]) + hex(words[1]);
}

}  // namespace tegula
