// All that an emulated cubin (a shared library made of a kernel's text) and the emulated driver
// know of each other. Read by both sides; plain types, so that it needs no header.
#pragma once

namespace tegula::emulated {

inline constexpr unsigned kMachineAbi = 5;
inline constexpr unsigned kWarpSize = 32;

// CUDA's uint3 and dim3.
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// The facts that a thread of a running block may know.
struct Thread {
  Dim3 thread_index, block_index, block_dim, grid_dim;
};

// The data that the driver writes into a tensor map: a box of a tensor of 4 dims, fastest first.
inline constexpr unsigned long long kTensorBoxMark = 0x7e6u << 20 | 0xb0c5;
struct TensorBox {
  unsigned long long mark;
  char* data;
  unsigned long long dims[4], strides[3];  // elements; bytes, of the dims but the first
  unsigned box[4], element_bytes;
  bool is_swizzled;  // 16-byte pieces of 128-byte lines
};

// Given the slots of all lanes that have met (of the others: null), in the turn of the last.
using Join = void (*)(void* const (&slots)[kWarpSize], unsigned lanes);

// The services of the driver for the running thread.
struct Machine {
  // At barrier `id` (0 is __syncthreads) of `n_threads` threads (0: of the whole block): counts,
  // and with `waits` goes on when all have come.
  void (*sync)(unsigned id, unsigned n_threads, bool waits);
  // Waits until all lanes of `lanes` that have not ended are here, with the same `join`, which the
  // last runs. `slot` holds what a lane brings and takes.
  void (*meet)(unsigned lanes, const char* what, Join join, void* slot);
  // Fails the launch with this message; does not return.
  void (*fail)(const char* message);
  // Lets other threads run: called by what may be read again and again until it changes.
  void (*pause)();
  // 32-bit addresses of shared memory, checked: of something in it, and where `bytes` at one lie.
  unsigned (*shared_address)(const void* data);
  char* (*shared_data)(unsigned address, unsigned bytes, unsigned alignment);
  char* (*dynamic_shared)();
  // 16 bytes at a shared address: `bytes` of them from `data`, then zeros; written when the group
  // of copies that it belongs to is waited for, no sooner.
  void (*copy_later)(char* to, const void* from, unsigned bytes);
  void (*end_copies)();                   // ends this thread's group of copies
  void (*await_copies)(unsigned n_left);  // does all but the last groups
  // A wait in a loop has got on.
  void (*get_on)();
  // For a cubin that checks for races: an access; what takes and gives order by its address, as
  // atomics and volatile accesses do; the two apart.
  void (*access)(const void* data, unsigned bytes, bool writes);
  void (*order)(const void* data);
  void (*release)(const void* data);
  void (*acquire)(const void* data);
  // `act` on a copy of `what` when barrier `key` is next asked about (land), or when the group of
  // this thread that it belongs to is waited for.
  void (*arrive_later)(unsigned key, const void* what, unsigned bytes, void (*act)(const void*));
  void (*land)(unsigned key);
  void (*leave_later)(const void* what, unsigned bytes, void (*act)(const void*));
  void (*end_bulk_group)();
  void (*await_bulk)(unsigned n_left);
  // This thread waits for the launch before; and loads, maybe before it has (FAKE_CUDA_EARLY).
  void (*await_launch)();
  void (*load)(const void* data, unsigned bytes);
};

struct Kernel {
  const char* name;
  unsigned max_threads;  // of __launch_bounds__; 0: none are given
  unsigned n_arguments;
  const unsigned* argument_bytes;
  void (*run)(void* const* arguments);  // as one thread
};

// The symbol tegula_emulated_cubin.
struct Cubin {
  unsigned abi;
  const Thread** thread;    // the running one; set at each switch
  const Machine** machine;  // set on loading
  const Kernel* kernels;
  unsigned n_kernels;
  const void* (*touch)();  // the address of something among its static shared memory
  bool checks_races;
  bool flushes;  // denormal numbers, compiled with --ftz=true
};

}  // namespace tegula::emulated
