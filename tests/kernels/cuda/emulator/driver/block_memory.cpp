#include <cstring>

#include "tegula/base/str.h"
#include "tests/kernels/cuda/emulator/driver/block.h"
#include "tests/kernels/cuda/emulator/driver/memory.h"

namespace tegula::emulated {

namespace {

uintptr_t address_of(const void* p) { return reinterpret_cast<uintptr_t>(p); }

Later later(unsigned key, const void* what, unsigned bytes, void (*act)(const void*)) {
  Later l{key, act, {}};
  std::memcpy(l.what, what, bytes);
  return l;
}

}  // namespace

unsigned Block::shared_address(const void* data) {
  const uintptr_t at = address_of(data), dynamic = address_of(dynamic_);
  if (at >= dynamic && at <= dynamic + launch_.dynamic_bytes)
    return dynamic_address_ + static_cast<unsigned>(at - dynamic);
  const uintptr_t fixed = address_of(static_.begin);
  if (at >= fixed && at <= fixed + static_.bytes)  // as aligned as the memory is
    return static_cast<unsigned>(kSharedPage_bytes + fixed % kSharedPage_bytes + at - fixed);
  fail(kIllegalAddress,
       cat("the shared address of what is not in shared memory, but ", describe_address(at)));
}

char* Block::shared_data(unsigned address, unsigned bytes, unsigned alignment) {
  if (address % alignment != 0)
    fail(kIllegalAddress, cat("shared address ", address, " is not aligned to ", alignment));
  if (address >= dynamic_address_) {
    const unsigned at = address - dynamic_address_;
    if (uint64_t{at} + bytes > launch_.dynamic_bytes)
      fail(kIllegalAddress,
           cat("bytes ", at, " to ", uint64_t{at} + bytes,
               " of dynamic shared memory, of which the launch gave ", launch_.dynamic_bytes));
    return dynamic_ + at;
  }
  const auto at =
      static_cast<int64_t>(address) -
      static_cast<int64_t>(kSharedPage_bytes + address_of(static_.begin) % kSharedPage_bytes);
  if (at < 0 || static_cast<uint64_t>(at) + bytes > static_.bytes)
    fail(kIllegalAddress,
         cat("byte ", at, " of the ", static_.bytes, " bytes of static shared memory"));
  return static_.begin + at;
}

void Block::access(const void* data, unsigned bytes, bool writes) {
  if (is_engine_) return;
  const uintptr_t at = address_of(data), dynamic = address_of(dynamic_);
  const uintptr_t fixed = address_of(static_.begin);
  size_t place = 0;
  const bool is_dynamic = at >= dynamic && at + bytes <= dynamic + launch_.dynamic_bytes;
  if (is_dynamic)
    place = at - dynamic;
  else if (at >= fixed && at + bytes <= fixed + static_.bytes)
    place = launch_.dynamic_bytes + (at - fixed);
  else
    return;
  const std::string why = races_.access(now_ / kWarpSize, place, bytes, writes);
  if (!why.empty())
    fail(kLaunchFailed, cat("a race: byte ", is_dynamic ? place : at - fixed, " of ",
                            is_dynamic ? "dynamic" : "static", " shared memory ", why));
}

void Block::release(const void* data) {
  if (checks_races_) races_.release(now_ / kWarpSize, races_.at(address_of(data)));
}
void Block::acquire(const void* data) {
  if (checks_races_) races_.acquire(now_ / kWarpSize, races_.at(address_of(data)));
}

void Block::await_copies(unsigned n_left) {
  Fiber& f = current();
  size_t done = 0;
  for (; done < f.copies.size() && f.copies[done].group + n_left < f.group; ++done) {
    const Copy& c = f.copies[done];
    if (checks_races_) access(c.to, 16, true);
    std::memcpy(c.to, c.from, c.bytes);
    std::memset(c.to + c.bytes, 0, 16 - c.bytes);
  }
  f.copies.erase(f.copies.begin(), f.copies.begin() + static_cast<ptrdiff_t>(done));
}

void Block::arrive_later(unsigned key, const void* what, unsigned bytes, void (*act)(const void*)) {
  arriving_.push_back(later(key, what, bytes, act));
}

void Block::land(unsigned key) {
  for (size_t i = 0; i < arriving_.size();) {
    if (arriving_[i].key != key) {
      ++i;
      continue;
    }
    const Later l = arriving_[i];
    arriving_.erase(arriving_.begin() + static_cast<ptrdiff_t>(i));
    is_engine_ = true;
    l.act(l.what);
    is_engine_ = false;
  }
}

void Block::leave_later(const void* what, unsigned bytes, void (*act)(const void*)) {
  current().leaving.push_back(later(current().bulk_group, what, bytes, act));
}

void Block::await_bulk(unsigned n_left) {
  Fiber& f = current();
  size_t done = 0;
  is_engine_ = true;
  for (; done < f.leaving.size() && f.leaving[done].key + n_left < f.bulk_group; ++done)
    f.leaving[done].act(f.leaving[done].what);
  is_engine_ = false;
  f.leaving.erase(f.leaving.begin(), f.leaving.begin() + static_cast<ptrdiff_t>(done));
}

}  // namespace tegula::emulated
