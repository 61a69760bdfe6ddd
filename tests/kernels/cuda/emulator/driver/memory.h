// The emulated device's memory: the host's, each allocation between pages that nobody may touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tests/kernels/cuda/emulator/driver/outcome.h"

namespace tegula::emulated {

// All bits are set at first (NaN, -1). Ends where a page does, but for an alignment of 256 bytes.
Status allocate(void** data, size_t bytes);
Status release(void* data);
size_t total_bytes();
size_t free_bytes();

// The memory is the host's, and seen by the device too.
Status allocate_pinned(void** data, size_t bytes);
Status release_pinned(void* data);

// Whether an address is of the host's memory that a device could not see.
bool is_hosts(uintptr_t address);

// Pages with a forbidden one on either side; they are never given back.
char* guarded_pages(size_t bytes);

// All of the device's memory: allocations by their addresses.
using Contents = std::map<uintptr_t, std::string>;
Contents contents();

// Says what is wrong with so many bytes at an address, if the device's memory is or was there: "8
// bytes more than an allocation of 1024 bytes has from byte 512 on". Empty: nothing, or the host's.
std::string check_range(const void* data, size_t bytes);

// In words, what lies at an address: "4 bytes past the end of an allocation of 1024 bytes".
std::string describe_address(uintptr_t address);

}  // namespace tegula::emulated
