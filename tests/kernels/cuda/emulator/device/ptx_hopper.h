// Instructions of sm_90: barriers in shared memory, bulk and tensor copies, products of warpgroups.
//
// A copy to shared memory is done when its barrier is first asked about, one from there when its
// group is waited for, no sooner: what reads or overwrites too early is seen. Products are done at
// once.
#pragma once

namespace tegula::emulated::ptx {

// mbarrier: arrivals a phase takes, those to come, bytes to come, and the phase's parity.
struct MemoryBarrier {
  u64 n_arrivals : 20, pending : 20;
  long long bytes : 23;
  u64 parity : 1;

  EMULATED_UNSEEN void turn_if_complete() {
    if (pending != 0 || bytes != 0) return;
    pending = n_arrivals, parity ^= 1;
    current_machine->get_on();
  }
};
static_assert(sizeof(MemoryBarrier) == 8);
inline MemoryBarrier& barrier_at(u32 address) {
  return *reinterpret_cast<MemoryBarrier*>(current_machine->shared_data(address, 8, 8));
}
EMULATED_UNSEEN inline void mbarrier_init_shared_cta_b64(u32 address, u32 n_arrivals) {
  if (n_arrivals == 0) fail("an mbarrier of no arrivals");
  barrier_at(address) = {n_arrivals, n_arrivals, 0, 0};
}
inline void fence_mbarrier_init_release_cluster() {}
EMULATED_UNSEEN inline void mbarrier_arrive_shared_cta_b64(u32 address) {
  MemoryBarrier& b = barrier_at(address);
  current_machine->release(&b);
  if (b.pending == 0) fail("more arrivals at an mbarrier than its phase takes");
  --b.pending;
  b.turn_if_complete();
}
EMULATED_UNSEEN inline void mbarrier_arrive_expect_tx_shared_cta_b64(u32 address, u32 bytes) {
  barrier_at(address).bytes += bytes;
  mbarrier_arrive_shared_cta_b64(address);
}
EMULATED_UNSEEN inline void complete_bytes(u32 address, u32 bytes) {
  MemoryBarrier& b = barrier_at(address);
  b.bytes -= bytes;
  b.turn_if_complete();
}
// Whether the phase of this parity is over.
EMULATED_UNSEEN inline void mbarrier_try_wait_parity_shared_cta_b64(bool& is_over, u32 address,
                                                                    u32 parity) {
  current_machine->land(address);
  const MemoryBarrier& b = barrier_at(address);
  is_over = b.parity != (parity & 1);
  if (is_over)
    current_machine->acquire(&b);
  else
    current_machine->pause();
}

// Straight copies.
struct BulkCopy {
  u32 shared;
  char* global;
  u32 bytes, barrier;
};
inline void check_bulk(u32 shared, const void* global, u32 bytes) {
  current_machine->shared_data(shared, bytes, 16);
  if (bytes % 16 != 0 || reinterpret_cast<u64>(global) % 16 != 0)
    fail("a bulk copy is not of multiples of 16 bytes, or not aligned to them");
}
inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(u32 to, const void* from,
                                                                           u32 bytes, u32 barrier) {
  check_bulk(to, from, bytes);
  const BulkCopy copy{to, static_cast<char*>(const_cast<void*>(from)), bytes, barrier};
  current_machine->arrive_later(barrier, &copy, sizeof copy, [](const void* what) {
    const BulkCopy& c = *static_cast<const BulkCopy*>(what);
    __builtin_memcpy(current_machine->shared_data(c.shared, c.bytes, 16), c.global, c.bytes);
    complete_bytes(c.barrier, c.bytes);
  });
}
inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes_L2_cache_hint(
    u32 to, const void* from, u32 bytes, u32 barrier, u64) {
  cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(to, from, bytes, barrier);
}
inline void cp_async_bulk_global_shared_cta_bulk_group(void* to, u32 from, u32 bytes) {
  check_bulk(from, to, bytes);
  const BulkCopy copy{from, static_cast<char*>(to), bytes, 0};
  current_machine->leave_later(&copy, sizeof copy, [](const void* what) {
    const BulkCopy& c = *static_cast<const BulkCopy*>(what);
    __builtin_memcpy(c.global, current_machine->shared_data(c.shared, c.bytes, 16), c.bytes);
  });
}
inline void cp_reduce_async_bulk_global_shared_cta_bulk_group_add_f32(void* to, u32 from,
                                                                      u32 bytes) {
  check_bulk(from, to, bytes);
  const BulkCopy copy{from, static_cast<char*>(to), bytes, 0};
  current_machine->leave_later(&copy, sizeof copy, [](const void* what) {
    const BulkCopy& c = *static_cast<const BulkCopy*>(what);
    const auto* x =
        reinterpret_cast<const float*>(current_machine->shared_data(c.shared, c.bytes, 16));
    for (u32 i = 0; i < c.bytes / 4; ++i) reinterpret_cast<float*>(c.global)[i] += x[i];
  });
}
inline void cp_async_bulk_commit_group() { current_machine->end_bulk_group(); }
inline void cp_async_bulk_wait_group_read(u32 n_left) { current_machine->await_bulk(n_left); }
inline void cp_async_bulk_wait_group(u32 n_left) { current_machine->await_bulk(n_left); }

// Boxes of tensors of 4 dims.
struct BoxCopy {
  TensorBox map;
  int at[4];  // of its first element; the fastest first
  u32 shared, barrier;
};
inline u32 swizzled_address(u32 linear) { return linear ^ ((linear >> 7 & 7) << 4); }
// Calls of(shared memory, global memory or null past the tensor's ends) with each 16 bytes'
// elements.
template <class Of>
void each_element(const BoxCopy& c, Of of) {
  const TensorBox& m = c.map;
  u32 line = 0;
  for (unsigned i3 = 0; i3 < m.box[3]; ++i3)
    for (unsigned i2 = 0; i2 < m.box[2]; ++i2)
      for (unsigned i1 = 0; i1 < m.box[1]; ++i1, ++line)
        for (unsigned i0 = 0; i0 < m.box[0]; ++i0) {
          const long long at[4] = {c.at[0] + (long long)i0, c.at[1] + (long long)i1,
                                   c.at[2] + (long long)i2, c.at[3] + (long long)i3};
          bool is_inside = true;
          for (int d = 0; d < 4; ++d)
            is_inside &= at[d] >= 0 && at[d] < static_cast<long long>(m.dims[d]);
          const u32 address = c.shared + line * m.box[0] * m.element_bytes + i0 * m.element_bytes;
          char* shared = current_machine->shared_data(
              m.is_swizzled ? swizzled_address(address) : address, m.element_bytes, 1);
          char* global = m.data + at[0] * m.element_bytes;
          for (int d = 1; d < 4; ++d) global += at[d] * static_cast<long long>(m.strides[d - 1]);
          of(shared, is_inside ? global : nullptr, m.element_bytes);
        }
}
inline BoxCopy box_copy(const void* map, int c0, int c1, int c2, int c3, u32 shared, u32 barrier) {
  BoxCopy copy{*static_cast<const TensorBox*>(map), {c0, c1, c2, c3}, shared, barrier};
  if (copy.map.mark != kTensorBoxMark) fail("a tensor copy by what is not a tensor map");
  if (copy.map.is_swizzled && shared % 128 != 0)
    fail("a tensor copy with a swizzle needs shared memory aligned to 128 bytes");
  return copy;
}
inline void
cp_async_bulk_tensor_4d_shared_cluster_global_tile_mbarrier_complete_tx_bytes_L2_cache_hint(
    u32 to, const void* map, int c0, int c1, int c2, int c3, u32 barrier, u64) {
  const BoxCopy copy = box_copy(map, c0, c1, c2, c3, to, barrier);
  current_machine->arrive_later(barrier, &copy, sizeof copy, [](const void* what) {
    const BoxCopy& c = *static_cast<const BoxCopy*>(what);
    each_element(c, [](char* shared, const char* global, unsigned bytes) {
      for (unsigned i = 0; i < bytes; ++i) shared[i] = global != nullptr ? global[i] : char(0);
    });
    const unsigned* box = c.map.box;
    complete_bytes(c.barrier, box[0] * box[1] * box[2] * box[3] * c.map.element_bytes);
  });
}
inline void cp_async_bulk_tensor_4d_global_shared_cta_tile_bulk_group(const void* map, int c0,
                                                                      int c1, int c2, int c3,
                                                                      u32 from) {
  const BoxCopy copy = box_copy(map, c0, c1, c2, c3, from, 0);
  current_machine->leave_later(&copy, sizeof copy, [](const void* what) {
    each_element(*static_cast<const BoxCopy*>(what),
                 [](const char* shared, char* global, unsigned bytes) {
                   for (unsigned i = 0; global != nullptr && i < bytes; ++i) global[i] = shared[i];
                 });
  });
}
inline void prefetch_tensormap(const void*) {}

}  // namespace tegula::emulated::ptx
