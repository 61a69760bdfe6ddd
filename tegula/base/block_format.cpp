#include "tegula/base/block_format.h"

#include <bit>
#include <cstring>

#include "tegula/base/half.h"
#include "tegula/base/result.h"

namespace tegula {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are little endian");

// Values of a few bits: `run` bytes hold the lowest bits of as many values, then the next bits of
// the values behind these, until the bytes are used up; then comes the next run.
struct Plane {
  int at, run, bits;
};

using Scales = void(const uint8_t* block, BlockValues& to);
struct Form {
  BlockLayout layout;
  Plane low, high;  // q = low + (high << low.bits) - zero; high.bits 0: there is none
  int zero;
  Scales* scales;
};

float half_at(const uint8_t* p) {
  f16 h;
  std::memcpy(&h.bits, p, sizeof h.bits);
  return static_cast<float>(h);
}
int nibble(const uint8_t* p, int i) { return p[i / 2] >> (i % 2 * 4) & 15; }

void one_scale(const uint8_t* block, BlockValues& to) { to.scale[0] = half_at(block); }
void scale_and_min(const uint8_t* block, BlockValues& to) {
  to.scale[0] = half_at(block);
  to.min[0] = half_at(block + 2);
}
void q2_scales(const uint8_t* block, BlockValues& to) {
  const float d = half_at(block + 80), d_min = half_at(block + 82);
  for (int i = 0; i < 16; ++i) {
    to.scale[i] = d * static_cast<float>(block[i] & 15);
    to.min[i] = -(d_min * static_cast<float>(block[i] >> 4));
  }
}
// 8 bytes have the low 4 bits of scales 0 … 7, then 8 … 15; 4 have the others by fours.
void q3_scales(const uint8_t* block, BlockValues& to) {
  const uint8_t* low = block + 96;
  const float d = half_at(block + 108);
  for (int i = 0; i < 16; ++i) {
    const int s = (low[i % 8] >> (i / 8 * 4) & 15) | (low[8 + i % 4] >> (i / 4 * 2) & 3) << 4;
    to.scale[i] = d * static_cast<float>(s - 32);
  }
}
// 4 bytes of scales 0 … 3, 4 of mins 0 … 3, each with the two high bits of number 4 … 7 on top; 4
// with the low bits of those.
void k_scales(const uint8_t* block, BlockValues& to) {
  const float d = half_at(block), d_min = half_at(block + 2);
  const uint8_t* s = block + 4;
  for (int i = 0; i < 4; ++i) {
    to.scale[i] = d * static_cast<float>(s[i] & 63);
    to.min[i] = -(d_min * static_cast<float>(s[4 + i] & 63));
    to.scale[4 + i] = d * static_cast<float>((s[8 + i] & 15) | s[i] >> 6 << 4);
    to.min[4 + i] = -(d_min * static_cast<float>(s[8 + i] >> 4 | s[4 + i] >> 6 << 4));
  }
}
void q6_scales(const uint8_t* block, BlockValues& to) {
  const float d = half_at(block + 208);
  for (int i = 0; i < 16; ++i)
    to.scale[i] = d * static_cast<float>(static_cast<int8_t>(block[192 + i]));
}
// The values that 4 bits of an IQ4 format stand for.
constexpr int8_t kIq4[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                           1,    13,   25,  38,  53,  69,  89,  113};
void look_up(BlockValues& to, int n) {
  for (int i = 0; i < n; ++i) to.q[i] = kIq4[to.q[i]];
}
void iq4_nl(const uint8_t* block, BlockValues& to) {
  one_scale(block, to);
  look_up(to, 32);
}
void iq4_xs(const uint8_t* block, BlockValues& to) {
  const float d = half_at(block);
  for (int i = 0; i < 8; ++i) {
    const int s = nibble(block + 4, i) | (block[2 + i / 4] >> (i % 4 * 2) & 3) << 4;
    to.scale[i] = d * static_cast<float>(s - 32);
  }
  look_up(to, 256);
}

constexpr Form kForms[kBlockFormats] = {
    {{"Q8_0", 32, 34, 32, false, {0, -1}}, {2, 32, 8}, {}, 0, one_scale},
    {{"Q4_0", 32, 18, 32, false, {0, -1}}, {2, 16, 4}, {}, 8, one_scale},
    {{"Q4_1", 32, 20, 32, true, {0, 2}}, {4, 16, 4}, {}, 0, scale_and_min},
    {{"Q5_0", 32, 22, 32, false, {0, -1}}, {6, 16, 4}, {2, 1, 1}, 16, one_scale},
    {{"Q5_1", 32, 24, 32, true, {0, 2}}, {8, 16, 4}, {4, 1, 1}, 0, scale_and_min},
    {{"Q2_K", 256, 84, 16, true, {80, 82}}, {16, 32, 2}, {}, 0, q2_scales},
    {{"Q3_K", 256, 110, 16, false, {108, -1}}, {32, 32, 2}, {0, 32, 1}, 4, q3_scales},
    {{"Q4_K", 256, 144, 32, true, {0, 2}}, {16, 32, 4}, {}, 0, k_scales},
    {{"Q5_K", 256, 176, 32, true, {0, 2}}, {48, 32, 4}, {16, 32, 1}, 0, k_scales},
    {{"Q6_K", 256, 210, 16, false, {208, -1}}, {0, 64, 4}, {128, 32, 2}, 32, q6_scales},
    {{"IQ4_NL", 32, 18, 32, false, {0, -1}}, {2, 16, 4}, {}, 0, iq4_nl},
    {{"IQ4_XS", 256, 136, 32, false, {0, -1}}, {8, 16, 4}, {}, 0, iq4_xs}};

const Form& form_of(BlockFormat format) { return kForms[static_cast<size_t>(format)]; }

void add_plane(const Plane& plane, const uint8_t* block, int n, int up, int8_t* q) {
  const uint8_t* from = block + plane.at;
  const int mask = (1 << plane.bits) - 1;
  for (int done = 0; done < n; from += plane.run)
    for (int shift = 0; shift < 8; shift += plane.bits, done += plane.run)
      for (int i = 0; i < plane.run; ++i)
        q[done + i] = static_cast<int8_t>(q[done + i] + ((from[i] >> shift & mask) << up));
}

}  // namespace

const BlockLayout& layout_of(BlockFormat format) { return form_of(format).layout; }

bool find_block_format(std::string_view name, BlockFormat& found) {
  for (int i = 0; i < kBlockFormats; ++i)
    if (kForms[i].layout.name == name) return found = static_cast<BlockFormat>(i), true;
  return false;
}

void unpack_block(BlockFormat format, const uint8_t* block, BlockValues& to) {
  const Form& form = form_of(format);
  const BlockLayout& layout = form.layout;
  std::memset(to.q, -form.zero, static_cast<size_t>(layout.n_values));
  if (!layout.has_min)
    std::memset(to.min, 0, sizeof(float) * static_cast<size_t>(layout.n_values / layout.n_group));
  add_plane(form.low, block, layout.n_values, 0, to.q);
  if (form.high.bits > 0) add_plane(form.high, block, layout.n_values, form.low.bits, to.q);
  form.scales(block, to);
}

void dequantise_blocks(BlockFormat format, const uint8_t* row, int64_t n, float* to) {
  const BlockLayout& layout = layout_of(format);
  TEGULA_CHECK(n % layout.n_values == 0, n, " values are no blocks of ", layout.name);
  BlockValues values;
  for (; n > 0; n -= layout.n_values, row += layout.n_bytes) {
    unpack_block(format, row, values);
    for (int i = 0; i < layout.n_values; i += layout.n_group) {
      const float scale = values.scale[i / layout.n_group], min = values.min[i / layout.n_group];
      for (int j = 0; j < layout.n_group; ++j) {
        const float w = scale * static_cast<float>(values.q[i + j]);
        to[j] = layout.has_min ? w + min : w;
      }
      to += layout.n_group;
    }
  }
}

}  // namespace tegula
