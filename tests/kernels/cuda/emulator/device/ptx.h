// PTX instructions as functions: name and operands are the instruction's, dots and colons become
// underscores, results come first. rewrite.cpp turns asm statements into calls of these; what is
// not here fails when it is reached, with its name.
#pragma once

namespace tegula::emulated::ptx {

using u16 = unsigned short;
using u32 = unsigned;
using u64 = unsigned long long;

inline float from_bf16(u32 bits) { return __builtin_bit_cast(float, bits << 16); }
inline float from_f16(u32 bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<u16>(bits)));
}
inline u32 to_f16(float x) { return __builtin_bit_cast(u16, static_cast<_Float16>(x)); }
inline u32 to_bf16(float x) {
  const u32 bits = __builtin_bit_cast(u32, x);
  if (x != x) return 0x7fff;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float flushed(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.f, x) : x;
}

// Conversions.
inline void cvt_rn_bf16x2_f32(auto& to, float high, float low) {
  to = to_bf16(high) << 16 | to_bf16(low);
}
inline void cvt_rn_f16x2_f32(auto& to, float high, float low) {
  to = to_f16(high) << 16 | to_f16(low);
}
inline void cvt_f32_f16(auto& to, u16 bits) { to = from_f16(bits); }
inline void cvt_rn_f16_f32(auto& to, float x) { to = static_cast<u16>(to_f16(x)); }
inline void cvt_rn_bf16_f32(auto& to, float x) { to = static_cast<u16>(to_bf16(x)); }

// e4m3: sign, four bits of exponent (bias 7), three of mantissa; 0x7f is NaN, 448 the largest.
inline float from_e4m3(u32 bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15), mantissa = static_cast<int>(bits & 7);
  float x = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                          : __builtin_ldexpf(static_cast<float>(8 + mantissa), exponent - 10);
  if ((bits & 0x7f) == 0x7f) x = __builtin_nanf("");
  return (bits & 0x80) != 0 ? -x : x;
}
inline u32 to_e4m3(float x) {
  if (x != x) return 0x7f;
  const u32 sign = __builtin_signbit(x) ? 0x80 : 0;
  const float size = __builtin_fabsf(x);
  if (size >= 448.f) return sign | 0x7e;
  // The largest code that is not above, then the nearer of it and the next, the even one of two.
  u32 code = 0;
  for (u32 step = 64; step != 0; step /= 2)
    if (code + step < 0x7f && from_e4m3(code + step) <= size) code += step;
  const float below = size - from_e4m3(code), above = from_e4m3(code + 1) - size;
  if (code < 0x7e && (above < below || (above == below && (code & 1) != 0))) ++code;
  return sign | code;
}
inline void cvt_rn_satfinite_e4m3x2_f32(auto& to, float high, float low) {
  to = static_cast<u16>(to_e4m3(high) << 8 | to_e4m3(low));
}
inline void cvt_rn_f16x2_e4m3x2(auto& to, u16 both) {
  to = to_f16(from_e4m3(both >> 8)) << 16 | to_f16(from_e4m3(both & 0xff));
}
inline void mov_b32(u16& low, u16& high, u32 both) {
  low = static_cast<u16>(both), high = static_cast<u16>(both >> 16);
}
inline void mov_b32(auto& both, u16 low, u16 high) { both = u32(high) << 16 | low; }

// Arithmetic.
inline void ex2_approx_ftz_f32(auto& to, float x) { to = flushed(__builtin_exp2f(flushed(x))); }
inline void rcp_approx_ftz_f32(auto& to, float x) { to = flushed(1.f / flushed(x)); }
inline void lg2_approx_ftz_f32(auto& to, float x) { to = __builtin_log2f(flushed(x)); }
inline void tanh_approx_f32(auto& to, float x) { to = __builtin_tanhf(x); }
inline void fma_rn_f32(auto& to, float a, float b, float c) { to = __builtin_fmaf(a, b, c); }
template <class From, class To>
inline u32 fma_of_pairs(u32 a, u32 b, u32 c, From from, To to) {
  const auto at = [&](u32 shift) {
    // The product of 16-bit numbers is exact in f64, and one rounding of the sum is harmless.
    const double sum = double(from(a >> shift & 0xffff)) * double(from(b >> shift & 0xffff)) +
                       double(from(c >> shift & 0xffff));
    return to(static_cast<float>(sum)) << shift;
  };
  return at(16) | at(0);
}
inline void fma_rn_bf16x2(auto& to, u32 a, u32 b, u32 c) {
  to = fma_of_pairs(a, b, c, from_bf16, to_bf16);
}
inline void fma_rn_f16x2(auto& to, u32 a, u32 b, u32 c) {
  to = fma_of_pairs(a, b, c, from_f16, to_f16);
}
inline void xor_b32(auto& to, u32 a, u32 b) { to = a ^ b; }
inline void and_b32(auto& to, u32 a, u32 b) { to = a & b; }
inline void setp_ne_b32(bool& to, u32 a, u32 b) { to = a != b; }
inline void setp_eq_b32(bool& to, u32 a, u32 b) { to = a == b; }
inline void selp_u32(auto& to, u32 a, u32 b, bool p) { to = p ? a : b; }
inline void selp_b32(auto& to, u32 a, u32 b, bool p) { to = p ? a : b; }

// Memory. Threads take turns, so order and caches need nothing.
template <class T>
inline char* shared(u32 address) {
  return current_machine->shared_data(address, sizeof(T), sizeof(T));
}
inline void st_shared_b32(u32 to, u32 x) { *reinterpret_cast<u32*>(shared<u32>(to)) = x; }
inline void ld_shared_b32(auto& x, u32 from) { x = *reinterpret_cast<u32*>(shared<u32>(from)); }
inline void st_global_b32(auto* to, u32 x) { *reinterpret_cast<u32*>(to) = x; }
inline void st_global_b16(auto* to, u16 x) { *reinterpret_cast<u16*>(to) = x; }
inline void st_global_v4_f32(auto* to, float a, float b, float c, float d) {
  *reinterpret_cast<float4*>(to) = {a, b, c, d};
}
inline void red_global_add_v4_f32(auto* to, float a, float b, float c, float d) {
  float4& sum = *reinterpret_cast<float4*>(to);
  sum = {sum.x + a, sum.y + b, sum.z + c, sum.w + d};
}
inline void ld_global_nc_L1_no_allocate_v4_u32(auto& x, auto& y, auto& z, auto& w,
                                               const void* from) {
  current_machine->load(from, 16);
  const uint4 words = *static_cast<const uint4*>(from);
  x = words.x, y = words.y, z = words.z, w = words.w;
}
inline void ld_global_nc_L1_no_allocate_v2_u32(auto& x, auto& y, const void* from) {
  current_machine->load(from, 8);
  const uint2 words = *static_cast<const uint2*>(from);
  x = words.x, y = words.y;
}
inline void ld_acquire_gpu_global_u32(auto& x, const u32* from) {
  current_machine->pause();
  x = *from;
}
inline void st_relaxed_gpu_global_u32(u32* to, u32 x) { *to = x; }
EMULATED_UNSEEN inline void ld_relaxed_cta_shared_cta_u32(auto& x, u32 from) {
  current_machine->pause();
  x = *reinterpret_cast<u32*>(shared<u32>(from));
}
EMULATED_UNSEEN inline void st_relaxed_cta_shared_cta_u32(u32 to, u32 x) {
  *reinterpret_cast<u32*>(shared<u32>(to)) = x;
}
inline void st_release_gpu_global_u32(u32* to, u32 x) { *to = x; }
inline void atom_add_acq_rel_gpu_global_u32(auto& before, u32* at, u32 x) {
  before = *at, *at += x;
}
inline void red_release_gpu_global_add_u32(u32* at, u32 x) { *at += x; }
inline void prefetch_global_L2(const void*) {}
inline void fence_acq_rel_gpu() {}
inline void fence_proxy_async() {}
inline void fence_proxy_async_shared_cta() {}
inline void griddepcontrol_wait() { current_machine->await_launch(); }
inline void griddepcontrol_launch_dependents() {}

// Copies in the background.
inline void cp_async_cg_shared_global(u32 to, const void* from, int size, u32 bytes) {
  if (size != 16 || bytes > 16) fail("cp.async.cg copies 16 bytes");
  if (reinterpret_cast<u64>(from) % 16 != 0) fail("cp.async reads from an unaligned address");
  current_machine->copy_later(current_machine->shared_data(to, 16, 16), from, bytes);
}
inline void cp_async_cg_shared_global_L2_cache_hint(u32 to, const void* from, int size, u32 bytes,
                                                    u64) {
  cp_async_cg_shared_global(to, from, size, bytes);
}
inline void cp_async_commit_group() { current_machine->end_copies(); }
inline void cp_async_wait_group(u32 n_left) { current_machine->await_copies(n_left); }
inline void cp_async_wait_all() {
  current_machine->end_copies();
  current_machine->await_copies(0);
}

// Barriers.
inline void bar_sync(u32 id, u32 n_threads) {
  if (id > 15) fail("there are 16 barriers");
  current_machine->sync(id, n_threads, true);
}
inline void bar_arrive(u32 id, u32 n_threads) {
  if (id > 15) fail("there are 16 barriers");
  current_machine->sync(id, n_threads, false);
}
// The first lane; of the whole warp, as it is used.
inline void elect_sync(bool& is_one, u32 lanes) {
  if (lanes != 0xffffffffu) fail("elect.sync of a part of a warp");
  is_one = lane() == 0;
}
inline void setmaxnreg_dec_sync_aligned_u32(int) {}
inline void setmaxnreg_inc_sync_aligned_u32(int) {}

}  // namespace tegula::emulated::ptx
