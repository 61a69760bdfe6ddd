// Greeting: the first bytes of two processes to each other over TCP.
//
// Each says who it is, what it was built as, and a number that nobody has said before; then each
// proves that it has the run's key, which itself is never sent: HMAC-SHA256 over both greetings
// [RFC 2104]. Who has another key learns nothing, and no word of it counts.
#pragma once

#include <array>
#include <string>

#include "tegula/base/result.h"

namespace tegula {

struct Greeting {
  uint64_t magic = 0;    // of any version
  uint32_t version = 0;  // of the frames
  uint32_t port = 0;     // where it listens
  uint64_t build = 0;    // of the program
  int64_t n_processes = 0, process = -1;
  uint8_t nonce[32] = {};
};

using Proof = std::array<uint8_t, 32>;

// Makes that of this program, with a new nonce.
Greeting greeting_of(int64_t n_processes, int64_t process, uint32_t port);
// That whoever has the key has said `own` and heard `other`.
Proof proof_of(const std::string& key, const Greeting& own, const Greeting& other);
bool are_equal(const Proof& a, const Proof& b);

// Before anything is proved: is this Tegula, and one that speaks so? The error says what differs.
Status check_version(const Greeting& other, const std::string& where);
// After that: of this run?
Status check_run(const Greeting& own, const Greeting& other, const std::string& where);

// 32 hexadecimal digits at random.
std::string new_key();

}  // namespace tegula
