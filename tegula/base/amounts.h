// Numbers, amounts of memory and names of devices as people write them: on a command line, in a
// configuration, in a list of settings. Every text of that kind is read here.
//
// - Counts: 64, 64k, 1.5M, 300B, 16Ki. The letters k M G T P are 10^3, 10^6, …, and B is G; with an
//   i they are 2^10, 2^20, ….
// - Bytes: 512MiB, 2G, 1.5TiB, 80GB, 4096. The letters K M G T P alone and KiB, MiB, … are 2^10,
//   2^20, …; kB, MB, GB, … are 10^3, 10^6, ….
// - Names: H200 is h200, A100-40GB is a100_40gb.
//
// Upper and lower case are alike. Nothing may stand before or behind, no blank, no sign but a
// minus where a count may be below 0. Only amounts and bytes may be written as 1e9.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tegula/base/result.h"

namespace tegula {

// A whole number from `least` to `most`. The error begins with "must be", for the caller's name of
// it to stand before.
Result<int64_t> read_count(std::string_view text, int64_t least, int64_t most);
// A finite number, such as 1e13, 15.6e12 or 15T, from `least` to `most`. Error: as above.
Result<double> read_amount(std::string_view text, double least, double most);
// At least one byte. Error: as above.
Result<int64_t> read_bytes(std::string_view text);

// The error of one of these with what was read before it: "--memory: must be …".
Error named(std::string_view what, Error error);
template <class T>
Result<T> named(std::string_view what, Result<T> result) {
  if (result.ok()) return result;
  return named(what, std::move(result).error());
}

// Whether two names are of one device or model, whatever their case, hyphens and underscores.
bool is_same_name(std::string_view a, std::string_view b);

}  // namespace tegula
