// printf into a string, and numbers as pages print them.
#pragma once

#include <cstdint>
#include <string>

namespace tegula::planner {

// Appends one piece of at most 1023 bytes.
__attribute__((format(printf, 2, 3))) void print(std::string& out, const char* format, ...);
std::string grouped(int64_t n);     // "405,853,388,800"
std::string gb(double bytes);       // "79.6 GB", of 10^9
std::string percent(double share);  // "4.3 %"

// A part of a sum: in JSON, for people.
struct Part {
  const char *key, *name;
  double value;
};

}  // namespace tegula::planner
