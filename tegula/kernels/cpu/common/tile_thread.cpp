#include "tegula/kernels/cpu/common/tile_thread.h"

#include <new>

#include "tegula/base/algorithm.h"

namespace tegula::kernel {

using tile::Extent;
using tile::Home;
using tile::Kind;
using tile::MicroOp;
using tile::Op;
using tile::Phase;
using tile::Slot;

namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kUniformBytes = kBlock * 8;
constexpr int64_t kRowSlotBytes = kMaxTileRows * 8;
constexpr int64_t kKeptBytes = kAlign;

constexpr int64_t align(int64_t n) { return (n + kAlign - 1) & -kAlign; }

bool is_plain(DType t) { return t == DType::kF32 || t == DType::kF64 || t == DType::kI64; }

}  // namespace

// Offsets of registers are in bytes per element, so a part is as large as their sum.
TileLayout::TileLayout(const TileGeometry& g) {
  const tile::Schedule& s = *g.schedule;
  size_t n = s.uniform.size();
  for (const Phase& phase : s.phases) n += phase.row.size() + phase.body.size();
  n_steps = static_cast<int>(n);
  pointers = align(static_cast<int64_t>(s.slots.size() * sizeof(void*)));
  flags = align(static_cast<int64_t>(s.slots.size()));
  steps = align(static_cast<int64_t>(n * sizeof(TileStep)));
  rows = s.n_row_slots * kRowSlotBytes;
  lanes = s.n_reductions * kLanesBytes;
  tile = align(s.tile_bytes * g.tile_elements);
  longs = align(s.long_bytes * g.long_elements);
  shared = align(s.n_uniform_slots * kUniformBytes);
  const int64_t sum = kKeptBytes + 2 * pointers + flags + steps + rows + lanes + tile + longs;
  // Two threads never share a cache line, nor the pair that the prefetcher fetches.
  per_thread = (sum + 2 * kAlign - 1) & -(2 * kAlign);
}

int64_t most_bytes_below(const tile::Program& p, const TileGeometry& g, int n_threads) {
  TileGeometry most = g;
  int64_t bytes = 0;
  for (const tile::Schedule* s : {p.resident.get(), p.streamed.get()}) {
    most.schedule = s;
    const bool is_resident = s == p.resident.get();
    most_elements_below(g, *s, is_resident, most.tile_elements, most.long_elements);
    bytes = std::max(bytes, TileLayout(most).total(n_threads));
  }
  return bytes;
}

TileLaunch::TileLaunch(const tile::Program& p, const TileGeometry& geometry, void* workspace)
    : program(p),
      g(geometry),
      schedule(*geometry.schedule),
      isa(isa_table()),
      layout(geometry),
      shared(static_cast<char*>(workspace)),
      threads(shared + layout.shared) {
  for (const Phase& phase : schedule.phases)
    if (!phase.body.empty()) last_body = phase.body;
  // A result may be computed in its output's memory if no input that lies there is used later; such
  // an input is the very same view, so that each element is read before it is written.
  for (size_t at = 0; at < last_body.size(); ++at) {
    const int o = last_body[at].early_output;
    if (o < 0) continue;
    const TileView& out = output(o);
    bool ok = true;
    for (size_t k = 0; k < program.inputs.size(); ++k) {
      const TileView& in = g.views[k];
      const bool overlaps =
          in.data + in.low < out.data + out.high && out.data + out.low < in.data + in.high;
      ok &= !overlaps || schedule.last_use[k] <= static_cast<int>(at);
    }
    may_write_early[o] = ok;
  }
}

void TileThread::reset(const TileLaunch& l, int n_threads) {
  for (int t = 0; t < n_threads; ++t)
    reinterpret_cast<Kept*>(l.threads + t * l.layout.per_thread)->is_ready = false;
}

TileThread::TileThread(const TileLaunch& l, int thread) : l_(l), g_(l.g) {
  const TileLayout& y = l.layout;
  char* own = l.threads + thread * y.per_thread;
  kept_ = reinterpret_cast<Kept*>(own), own += kKeptBytes;
  now_ = reinterpret_cast<char**>(own), own += y.pointers;
  home_ = reinterpret_cast<char**>(own), own += y.pointers;
  repeats_ = reinterpret_cast<bool*>(own), own += y.flags;
  steps_ = reinterpret_cast<TileStep*>(own), own += y.steps;
  char* rows = own;
  own += y.rows;
  lanes_ = own, own += y.lanes;
  char* tile = own;
  own += y.tile;
  char* longs = own;
  n_steps_ = y.n_steps;
  if (kept_->is_ready) return;
  const auto& slots = l.schedule.slots;
  for (size_t k = 0; k < slots.size(); ++k) {
    const Slot& s = slots[k];
    switch (s.home) {
      case Home::kUniform:
        home_[k] = l.shared + s.offset * kUniformBytes;
        break;
      case Home::kRow:
        home_[k] = rows + s.offset * kRowSlotBytes;
        break;
      case Home::kTile:
        home_[k] = tile + s.offset * g_.tile_elements;
        break;
      case Home::kLong:
        home_[k] = longs + s.offset * g_.long_elements;
        break;
    }
    now_[k] = home_[k];
    repeats_[k] = false;
  }
  make_steps();
}

void TileThread::make_steps() {
  n_steps_ = 0;
  add_steps(l_.schedule.uniform);
  for (const Phase& phase : l_.schedule.phases) {
    add_steps(phase.row);
    add_steps(phase.body);
  }
  kept_->is_ready = true;
  kept_->rows = kept_->cols = -1;
}

void TileThread::add_steps(std::span<const MicroOp> code) {
  for (const MicroOp& m : code) {
    TileStep& s = *new (&steps_[n_steps_++]) TileStep;
    s.micro = &m;
    s.n_src = 0;
    s.fn = nullptr;
    TileOp& o = s.op;
    o.op = m.op, o.dtype = m.dtype, o.src_dtype = m.src_dtype, o.imm = m.imm, o.value = m.value;
    for (int k = 0; k < tile::kMaxSources && m.src[k] != tile::kNoValue; ++k) {
      ++s.n_src;
      if (m.src_extent[k] != m.extent) o.scalars |= 1u << k;
    }
    if (m.reduction >= 0) o.lanes = lanes_ + m.reduction * kLanesBytes;
    if (m.op == Op::kIota) {
      o.iota_extent = std::max<int64_t>(g_.space.shape[m.imm], 1);
      const int64_t inner = m.extent == Extent::kRow ? l_.program.n_inner : 0;  // counted in rows
      for (int64_t d = m.imm + 1; d < g_.space.rank - inner; ++d)
        o.iota_weight *= std::max<int64_t>(g_.space.shape[d], 1);
    }
    s.fetches = tile::class_of(m.dtype) == tile::Class::kF32 && m.extent == Extent::kFull &&
                m.reduction < 0 && s.n_src > 0 && m.op != Op::kStore;
    if (tile::op_info(m.op).kind != Kind::kMemory) l_.isa.tile_lookup({&m, o.scalars, &s.fn});
  }
}

// Tells steps what they need to know of the tile's size; the same for most tiles of a launch.
void TileThread::shape_steps(const Box& box) {
  if (kept_->rows == box.rows && kept_->cols == box.cols) return;
  kept_->rows = box.rows, kept_->cols = box.cols;
  for (int k = 0; k < n_steps_; ++k) shape(steps_[k], box);
}

void TileThread::shape(TileStep& s, const Box& box) {
  const MicroOp& m = *s.micro;
  TileOp& o = s.op;
  o.rows = 1;
  const bool is_full = m.extent == Extent::kFull;
  if (m.op == Op::kLoad || m.op == Op::kStore) {
    const TileView& v = m.op == Op::kLoad ? l_.input(m.imm) : l_.output(m.imm);
    s.is_direct = is_full && (m.op == Op::kStore || m.may_point) && is_one_run(v, box);
    if (m.op == Op::kLoad) {
      repeats_[m.dst] = is_full && m.may_point && !s.is_direct && is_repeated_row(v, box);
      s.is_direct |= repeats_[m.dst];
    }
    return;
  }
  s.early = -1;
  if (m.early_output >= 0 && l_.may_write_early[m.early_output] &&
      is_one_run(l_.output(m.early_output), box))
    s.early = m.early_output;
  bool has_row = false;
  for (int k = 0; k < s.n_src; ++k)
    has_row |= m.src_extent[k] == Extent::kRow || repeats_[m.src[k]];
  const bool is_index =
      m.op == Op::kIota || m.op == Op::kIndex || (m.op == Op::kRandomUniform && s.n_src == 1);
  // Row by row where a source has one value per row, for reductions, and for indices unless the
  // tile is whole rows without gaps; else as one run.
  const bool by_row =
      is_full && (has_row || m.reduction >= 0 || (is_index && box.pitch != g_.row_len));
  if (by_row) {
    o.rows = box.rows, o.pitch = box.pitch;
    o.n = m.reduction >= 0 ? box.cols : box.pitch;
  } else {
    o.n = is_full                    ? round_to_block(box.rows * box.pitch)
          : m.extent == Extent::kRow ? round_to_block(box.rows)
                                     : kBlock;
  }
  for (int k = 0; k < s.n_src; ++k)
    o.row_step[k] = repeats_[m.src[k]]                 ? 0
                    : m.src_extent[k] == Extent::kFull ? box.pitch
                                                       : m.src_extent[k] == Extent::kRow;
  if (m.dst != tile::kNoValue) repeats_[m.dst] = false;
}

void TileThread::uniform() {
  Box box;
  const auto n = l_.schedule.uniform.size();
  for (size_t k = 0; k < n; ++k) shape(steps_[k], box);
  run(steps_, n, box, false, false);
}

void TileThread::elementwise_tile(int64_t index) {
  const auto box_of = [&](int64_t i) {
    const int64_t per_group = g_.tiles_per_row_group();
    Box box;
    box.row = i / per_group * g_.tile_rows;
    box.rows = std::min(g_.tile_rows, g_.n_rows - box.row);
    box.col = i % per_group * g_.tile_cols;
    box.cols = std::min(g_.tile_cols, g_.row_len - box.col);
    box.pitch = box.cols;
    return box;
  };
  const Box box = box_of(index);
  shape_steps(box);
  n_ahead_ = 0;
  if (index + 1 < g_.n_tiles()) look_ahead(box_of(index + 1));
  const Phase& phase = l_.schedule.phases[0];
  run(steps_ + l_.schedule.uniform.size(), phase.body.size(), box, true, true);
  math_ += box.rows * box.cols * l_.schedule.full_flops;
  executed_ += round_to_block(box.rows * box.cols) * phase.body_flops;
}

void TileThread::row_tile(int64_t index) {
  Box box;
  box.row = index * g_.tile_rows;
  box.rows = std::min(g_.tile_rows, g_.n_rows - box.row);
  n_ahead_ = 0;
  if (box.row + box.rows < g_.n_rows) {
    Box next = box;
    next.row += box.rows;
    next.rows = std::min(g_.tile_rows, g_.n_rows - next.row);
    next.cols = g_.row_len;
    look_ahead(next);
  }
  TileStep* step = steps_ + l_.schedule.uniform.size();
  for (const Phase& phase : l_.schedule.phases) {
    box.col = 0;
    box.cols = std::min(g_.tile_cols, g_.row_len);
    box.pitch = round_to_block(box.cols);
    shape_steps(box);
    run(step, phase.row.size(), box, true, true);
    step += phase.row.size();
    executed_ += box.rows * phase.row_flops;
    if (phase.body.empty()) continue;
    for (;;) {  // once even for rows without elements, whose reductions have values too
      if (g_.long_elements > 0) move_long(box.col);
      const bool is_last = box.col + box.cols >= g_.row_len;
      run(step, phase.body.size(), box, box.col == 0, is_last);
      executed_ += box.rows * box.pitch * phase.body_flops;
      if (is_last) break;
      box.col += box.cols;
      box.cols = std::min(g_.tile_cols, g_.row_len - box.col);
      box.pitch = round_to_block(box.cols);
      shape_steps(box);
    }
    step += phase.body.size();
  }
  math_ += box.rows * (l_.schedule.row_flops + g_.row_len * l_.schedule.full_flops);
}

void TileThread::move_long(int64_t col) {
  const auto& slots = l_.schedule.slots;
  for (size_t k = 0; k < slots.size(); ++k)
    if (slots[k].home == Home::kLong) now_[k] = home_[k] + col * slots[k].size_bytes;
}

// Notes the memory of the next tile, where it is one run: hardware prefetchers start anew with each
// operand of each tile, so that without this every tile waits for memory.
void TileThread::look_ahead(const Box& next) {
  at_ahead_ = 0;
  const size_t n = l_.program.inputs.size() + l_.program.outputs.size();
  for (size_t k = 0; k < n; ++k) {
    const TileView& v = g_.views[k];
    const bool is_run = next.rows == 1 ? g_.n_inner == 1 && v.inner_stride[0] == 1
                                       : v.is_dense && next.cols == g_.row_len;
    if (is_run)
      ahead_[n_ahead_++] = {address(v, next), next.rows * next.cols * size_bytes(v.dtype)};
  }
}

void TileThread::run(TileStep* steps, size_t n, const Box& box, bool is_first, bool is_last) {
  for (TileStep* s = steps; s != steps + n; ++s) {
    switch (tile::op_info(s->micro->op).kind) {
      case Kind::kMemory:
        s->micro->op == Op::kLoad ? load(*s, box) : store(*s, box);
        break;
      case Kind::kGenerator:
        generate(*s, box);
        break;
      default:
        s->op.is_first = is_first, s->op.is_last = is_last;
        compute(*s, box);
    }
  }
}

// Is the box one run of the operand's memory, in whole blocks, of its class's dtype?
bool TileThread::is_one_run(const TileView& v, const Box& box) const {
  if (!is_plain(v.dtype) || g_.n_inner > 1 || (g_.n_inner == 1 && v.inner_stride[0] != 1))
    return false;
  if (box.pitch != box.cols || (box.rows * box.cols) % kBlock != 0) return false;
  return box.rows == 1 || (v.is_dense && box.cols == g_.row_len);
}

// Is every row of the box the same run of the operand's memory (a weight, a bias)?
bool TileThread::is_repeated_row(const TileView& v, const Box& box) const {
  if (!is_plain(v.dtype) || g_.n_inner != 1 || v.inner_stride[0] != 1) return false;
  for (int d = 0; d < g_.n_outer; ++d)
    if (v.outer_stride[d] != 0) return false;
  return box.pitch == box.cols && box.cols % kBlock == 0;
}

char* TileThread::address(const TileView& v, const Box& box) const {
  const int64_t at =
      v.is_dense ? box.row * g_.row_len + box.col : row_offset(v, box.row) + col_offset(v, box.col);
  return v.data + at * size_bytes(v.dtype);
}

int64_t TileThread::row_offset(const TileView& v, int64_t row) const {
  if (g_.n_outer == 1) return row * v.outer_stride[0];
  int64_t o = 0;
  for (int d = g_.n_outer - 1; d >= 0; --d) {
    o += row % g_.outer[d] * v.outer_stride[d];
    row /= g_.outer[d];
  }
  return o;
}

int64_t TileThread::col_offset(const TileView& v, int64_t col) const {
  if (g_.n_inner == 1) return col * v.inner_stride[0];
  int64_t o = 0;
  for (int d = g_.n_inner - 1; d >= 0; --d) {
    o += col % g_.inner[d] * v.inner_stride[d];
    col /= g_.inner[d];
  }
  return o;
}

// Calls copy for each part of the box that two strides describe: a run of rows along the last outer
// dim by a run of columns along the last inner dim.
void TileThread::for_parts(const TileView& v, const Box& box, char* reg, int size,
                           void (*copy)(const TileCopy&)) const {
  const int last = g_.n_outer - 1, last_in = g_.n_inner - 1;
  for (int64_t r = 0; r < box.rows;) {
    const int64_t row = box.row + r;
    const int64_t rows =
        last < 0 ? 1 : std::min(box.rows - r, g_.outer[last] - row % g_.outer[last]);
    const int64_t row_at = row_offset(v, row);
    for (int64_t c = 0; c < box.cols;) {
      const int64_t col = box.col + c;
      const int64_t cols =
          last_in < 0 ? 1 : std::min(box.cols - c, g_.inner[last_in] - col % g_.inner[last_in]);
      TileCopy part;
      part.tensor = v.data + (row_at + col_offset(v, col)) * size_bytes(v.dtype);
      part.dtype = v.dtype;
      part.row_stride = last < 0 ? 0 : v.outer_stride[last];
      part.col_stride = last_in < 0 ? 0 : v.inner_stride[last_in];
      part.reg = reg + (r * box.pitch + c) * size;
      part.pitch = box.pitch;
      part.rows = rows, part.cols = cols;
      if (rows > 1 && cols == box.pitch && part.row_stride == cols && part.col_stride == 1)
        part.rows = 1, part.cols = rows * cols;  // one long run
      copy(part);
      c += cols;
    }
    r += rows;
  }
}

// One value per row: a run of rows is a run of elements.
void TileThread::for_row_parts(const TileView& v, const Box& box, char* reg, int size,
                               void (*copy)(const TileCopy&)) const {
  const int last = g_.n_outer - 1;
  for (int64_t r = 0; r < box.rows;) {
    const int64_t row = box.row + r;
    TileCopy part;
    part.cols = last < 0 ? 1 : std::min(box.rows - r, g_.outer[last] - row % g_.outer[last]);
    part.tensor = v.data + row_offset(v, row) * size_bytes(v.dtype);
    part.dtype = v.dtype;
    part.col_stride = last < 0 ? 1 : v.outer_stride[last];
    part.reg = reg + r * size;
    copy(part);
    r += part.cols;
  }
}

void TileThread::load(TileStep& s, const Box& box) {
  const MicroOp& m = *s.micro;
  const TileView& v = l_.input(m.imm);
  const int size = l_.schedule.slots[m.dst].size_bytes;
  if (m.extent == Extent::kFull) {
    if (s.is_direct) {
      now_[m.dst] = address(v, box);
    } else {
      now_[m.dst] = home_[m.dst];
      for_parts(v, box, home_[m.dst], size, l_.isa.tile_load);
    }
  } else if (m.extent == Extent::kRow) {
    for_row_parts(v, box, home_[m.dst], size, l_.isa.tile_load);
  } else {
    TileCopy one;
    one.tensor = v.data, one.dtype = v.dtype, one.col_stride = 0;
    one.reg = home_[m.dst], one.cols = kBlock;
    l_.isa.tile_load(one);
  }
}

void TileThread::store(TileStep& s, const Box& box) {
  const MicroOp& m = *s.micro;
  const TileView& v = l_.output(m.imm);
  char* reg = now_[m.src[0]];
  const int size = l_.schedule.slots[m.src[0]].size_bytes;
  if (m.extent == Extent::kRow) return for_row_parts(v, box, reg, size, l_.isa.tile_store);
  if (s.is_direct && address(v, box) == reg) return;  // computed there
  for_parts(v, box, reg, size, l_.isa.tile_store);
}

void TileThread::compute(TileStep& s, const Box& box) {
  const MicroOp& m = *s.micro;
  TileOp& o = s.op;
  for (int k = 0; k < s.n_src; ++k) o.src[k] = now_[m.src[k]];
  // After the sources: the result may take the register of one.
  if (s.early >= 0) {
    now_[m.dst] = address(l_.output(s.early), box);
  } else if (l_.schedule.slots[m.dst].home == Home::kTile) {
    now_[m.dst] = home_[m.dst];
  }
  o.dst = now_[m.dst];
  o.ahead = nullptr;
  if (s.fetches && at_ahead_ < n_ahead_) {
    Ahead& a = ahead_[at_ahead_];
    o.ahead = a.p;
    const int64_t bytes = o.rows * o.n * 4;
    a.p += bytes, a.bytes -= bytes;
    at_ahead_ += a.bytes <= 0;
  }
  s.fn(o);
}

void TileThread::generate(TileStep& s, const Box& box) {
  const bool is_row = s.micro->extent == Extent::kRow;
  s.op.linear = is_row ? box.row : box.row * g_.row_len + box.col;
  s.op.linear_step = g_.row_len;
  compute(s, box);
}

}  // namespace tegula::kernel
