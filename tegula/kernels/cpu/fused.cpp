// Runs a tile program: an interpreter over tiles that stay in L1, one vector loop per instruction.
//
// Registers of plain dtype (f32, f64, i64) may be the operands' own memory: a load that is
// contiguous over the tile costs nothing, and a result to be stored there is computed in place.
#include <algorithm>
#include <cstring>

#include "tegula/kernels/cpu/common/tile_geometry.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/cpu/isa/tile_vm.h"

namespace tegula::kernel {

namespace {

using tile::Extent;
using tile::Home;
using tile::Kind;
using tile::MicroOp;
using tile::Op;
using tile::Phase;
using tile::Program;
using tile::Schedule;
using tile::Slot;

constexpr int64_t kAlign = 64;
constexpr int64_t kUniformBytes = kBlock * 8;
constexpr int64_t kRowSlotBytes = kMaxTileRows * 8;
constexpr int64_t kLanesBytes = kBlock * 8;
// A task is worth waking a thread for.
constexpr int64_t kTaskElements = 16 << 10;

constexpr int64_t align(int64_t n) { return (n + kAlign - 1) & -kAlign; }

// Bytes of the parts of a workspace. Offsets of registers are in bytes per element, so a part is
// as large as the sum of its registers.
struct Layout {
  int64_t pointers, rows, lanes, tile, longs;
  int64_t shared, per_thread;

  explicit Layout(const TileGeometry& g) {
    const Schedule& s = *g.schedule;
    pointers = align(static_cast<int64_t>(s.slots.size() * sizeof(void*)));
    rows = s.n_row_slots * kRowSlotBytes;
    lanes = s.n_reductions * kLanesBytes;
    tile = align(s.tile_bytes * g.tile_elements);
    longs = align(s.long_bytes * g.long_elements);
    shared = align(s.n_uniform_slots * kUniformBytes);
    // Two threads never share a cache line, nor the pair that the prefetcher fetches.
    per_thread = (2 * pointers + rows + lanes + tile + longs + 2 * kAlign - 1) & -(2 * kAlign);
  }
  int64_t total(int n_threads) const { return shared + n_threads * per_thread; }
};

// What all threads of a launch share.
struct Launch {
  const KernelCall& call;
  const Program& program;
  const TileGeometry& g;
  const Schedule& schedule;
  const IsaTable& isa;
  const Layout layout;
  const size_t last_body;
  bool may_write_early[tile::kMaxOperands] = {};  // by output

  Launch(const KernelCall& c, const TileGeometry& geometry)
      : call(c),
        program(*c.program),
        g(geometry),
        schedule(*geometry.schedule),
        isa(isa_table()),
        layout(geometry),
        last_body(find_last_body()) {
    find_early_outputs();
  }
  const TileView& input(int64_t k) const { return g.views[k]; }
  const TileView& output(int64_t k) const {
    return g.views[static_cast<size_t>(k) + program.inputs.size()];
  }

 private:
  size_t find_last_body() const {
    size_t last = 0;
    for (size_t k = 0; k < schedule.phases.size(); ++k)
      if (!schedule.phases[k].body.empty()) last = k;
    return last;
  }
  // A result may be computed in its output's memory if no input that lies there is used later; such
  // an input is the very same view, so that each element is read before it is written.
  void find_early_outputs() {
    const auto& body = schedule.phases[last_body].body;
    for (size_t at = 0; at < body.size(); ++at) {
      const int o = body[at].early_output;
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
};

// The rows and columns of a tile (or of one chunk of a row).
struct Box {
  int64_t row = 0, rows = 1, col = 0, cols = 0;
  int64_t pitch = 0;
};

class Thread {
 public:
  Thread(const Launch& l, char* shared, char* own) : l_(l), g_(l.g) {
    const Layout& y = l.layout;
    now_ = reinterpret_cast<char**>(own), own += y.pointers;
    home_ = reinterpret_cast<char**>(own), own += y.pointers;
    char* rows = own;
    own += y.rows, lanes_ = own;
    own += y.lanes;
    char* tile = own;
    own += y.tile;
    char* longs = own;
    const auto& slots = l.schedule.slots;
    for (size_t k = 0; k < slots.size(); ++k) {
      const Slot& s = slots[k];
      switch (s.home) {
        case Home::kUniform:
          home_[k] = shared + s.offset * kUniformBytes;
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
    }
  }

  void uniform() {
    Box box;
    for (const MicroOp& m : l_.schedule.uniform) step(m, box, false, false);
  }

  void elementwise_tile(int64_t index) {
    const int64_t per_group = g_.tiles_per_row_group();
    Box box;
    box.row = index / per_group * g_.tile_rows;
    box.rows = std::min(g_.tile_rows, g_.n_rows - box.row);
    box.col = index % per_group * g_.tile_cols;
    box.cols = std::min(g_.tile_cols, g_.row_len - box.col);
    box.pitch = box.cols;
    const Phase& phase = l_.schedule.phases[0];
    for (const MicroOp& m : phase.body) step(m, box, true, true);
    math_ += box.rows * box.cols * l_.schedule.full_flops;
    executed_ += round_to_block(box.rows * box.cols) * phase.body_flops;
  }

  void row_tile(int64_t index) {
    Box box;
    box.row = index * g_.tile_rows;
    box.rows = std::min(g_.tile_rows, g_.n_rows - box.row);
    for (const Phase& phase : l_.schedule.phases) {
      for (const MicroOp& m : phase.row) step(m, box, true, true);
      executed_ += box.rows * phase.row_flops;
      if (phase.body.empty()) continue;
      int64_t col = 0;
      do {  // once even for rows without elements, whose reductions have values too
        box.col = col;
        box.cols = std::min(g_.tile_cols, g_.row_len - col);
        box.pitch = round_to_block(box.cols);
        if (g_.long_elements > 0) move_long(col);
        const bool is_first = col == 0;
        col += g_.tile_cols;
        for (const MicroOp& m : phase.body) step(m, box, is_first, col >= g_.row_len);
        executed_ += box.rows * box.pitch * phase.body_flops;
      } while (col < g_.row_len);
    }
    math_ += box.rows * (l_.schedule.row_flops + g_.row_len * l_.schedule.full_flops);
  }

  int64_t math() const { return math_; }
  int64_t executed() const { return executed_; }

 private:
  void move_long(int64_t col) {
    const auto& slots = l_.schedule.slots;
    for (size_t k = 0; k < slots.size(); ++k)
      if (slots[k].home == Home::kLong) now_[k] = home_[k] + col * slots[k].size_bytes;
  }

  void step(const MicroOp& m, const Box& box, bool is_first, bool is_last) {
    switch (tile::op_info(m.op).kind) {
      case Kind::kMemory:
        return m.op == Op::kLoad ? load(m, box) : store(m, box);
      case Kind::kGenerator:
        return generate(m, box);
      case Kind::kReduce:
        return reduce(m, box, is_first, is_last);
      default:
        return compute(m, box);
    }
  }

  // The operand's own memory, if the tile is one run of it and the dtype is its class's.
  char* memory(const TileView& v, const Box& box) const {
    const bool is_plain =
        v.dtype == DType::kF32 || v.dtype == DType::kF64 || v.dtype == DType::kI64;
    if (!is_plain || g_.n_inner > 1 || (g_.n_inner == 1 && v.inner_stride[0] != 1)) return nullptr;
    if (box.pitch != box.cols || (box.rows * box.cols) % kBlock != 0) return nullptr;
    if (box.rows > 1 && !(v.is_dense && box.cols == g_.row_len)) return nullptr;
    const int64_t at =
        v.is_dense ? box.row * g_.row_len + box.col : row_offset(v, box.row) + box.col;
    return v.data + at * size_bytes(v.dtype);
  }

  int64_t row_offset(const TileView& v, int64_t row) const {
    if (g_.n_outer == 1) return row * v.outer_stride[0];
    int64_t o = 0;
    for (int d = g_.n_outer - 1; d >= 0; --d, row /= g_.outer[d + 1])
      o += row % g_.outer[d] * v.outer_stride[d];
    return o;
  }
  int64_t col_offset(const TileView& v, int64_t col) const {
    if (g_.n_inner == 1) return col * v.inner_stride[0];
    int64_t o = 0;
    for (int d = g_.n_inner - 1; d >= 0; --d, col /= g_.inner[d + 1])
      o += col % g_.inner[d] * v.inner_stride[d];
    return o;
  }

  // Calls copy for each part of the box that the operand's strides describe: a run of rows along
  // the last outer dim by a run of columns along the last inner dim.
  void for_parts(const TileView& v, const Box& box, char* reg, int size,
                 void (*copy)(const TileCopy&)) {
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
  void for_row_parts(const TileView& v, const Box& box, char* reg, int size,
                     void (*copy)(const TileCopy&)) {
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

  void load(const MicroOp& m, const Box& box) {
    const TileView& v = l_.input(m.imm);
    const int size = l_.schedule.slots[m.dst].size_bytes;
    char*& reg = now_[m.dst];
    if (m.extent == Extent::kFull) {
      char* direct = m.may_point ? memory(v, box) : nullptr;
      reg = direct ? direct : home_[m.dst];
      if (!direct) for_parts(v, box, reg, size, l_.isa.tile_load);
    } else if (m.extent == Extent::kRow) {
      for_row_parts(v, box, reg, size, l_.isa.tile_load);
    } else {
      TileCopy one;
      one.tensor = v.data, one.dtype = v.dtype, one.col_stride = 0;
      one.reg = reg, one.cols = kBlock;
      l_.isa.tile_load(one);
    }
  }

  void store(const MicroOp& m, const Box& box) {
    const TileView& v = l_.output(m.imm);
    char* reg = now_[m.src[0]];
    const int size = l_.schedule.slots[m.src[0]].size_bytes;
    if (m.extent == Extent::kRow) return for_row_parts(v, box, reg, size, l_.isa.tile_store);
    if (memory(v, box) != reg) for_parts(v, box, reg, size, l_.isa.tile_store);
  }

  char* destination(const MicroOp& m, const Box& box) {
    char* reg = home_[m.dst];
    const Slot& slot = l_.schedule.slots[m.dst];
    if (slot.home == Home::kLong) return now_[m.dst];
    if (m.early_output >= 0 && l_.may_write_early[m.early_output])
      if (char* direct = memory(l_.output(m.early_output), box)) reg = direct;
    return now_[m.dst] = reg;
  }

  TileOp shape(const MicroOp& m, const Box& box) {
    TileOp o;
    o.op = m.op, o.dtype = m.dtype, o.src_dtype = m.src_dtype, o.imm = m.imm, o.value = m.value;
    bool has_row = false;
    for (int k = 0; k < 3; ++k) {
      if (m.src[k] == tile::kNoValue) continue;
      has_row |= m.src_extent[k] == Extent::kRow;
      o.src[k].data = now_[m.src[k]];
      o.src[k].is_vector = m.src_extent[k] == m.extent;
    }
    if (m.extent == Extent::kFull && (has_row || m.reduction >= 0)) {
      o.rows = box.rows, o.n = o.pitch = box.pitch;
      for (int k = 0; k < 3; ++k)
        o.src[k].row_step =
            m.src_extent[k] == Extent::kFull ? box.pitch : m.src_extent[k] == Extent::kRow;
    } else {
      o.n = m.extent == Extent::kFull  ? round_to_block(box.rows * box.pitch)
            : m.extent == Extent::kRow ? round_to_block(box.rows)
                                       : kBlock;
    }
    return o;
  }

  void compute(const MicroOp& m, const Box& box) {
    TileOp o = shape(m, box);
    o.dst = destination(m, box);  // after the sources: it may take the register of one
    l_.isa.tile_op(o);
  }

  void reduce(const MicroOp& m, const Box& box, bool is_first, bool is_last) {
    TileOp o = shape(m, box);
    o.n = box.cols;
    o.dst = now_[m.dst];
    o.lanes = lanes_ + m.reduction * kLanesBytes;
    o.is_first = is_first, o.is_last = is_last;
    l_.isa.tile_op(o);
  }

  void generate(const MicroOp& m, const Box& box) {
    TileOp o = shape(m, box);
    const bool has_index = m.op == Op::kRandomUniform && m.src[1] != tile::kNoValue;
    if (m.op != Op::kConstant && !has_index) {
      o.linear = box.row * g_.row_len + box.col;
      o.linear_step = g_.row_len;
      // Row by row, unless the tile is whole rows without gaps.
      if (box.pitch != g_.row_len) o.rows = box.rows, o.n = o.pitch = box.pitch;
      if (m.op == Op::kIota) {
        o.iota_extent = std::max<int64_t>(g_.space.shape[m.imm], 1);
        for (int64_t d = m.imm + 1; d < g_.space.rank; ++d)
          o.iota_weight *= std::max<int64_t>(g_.space.shape[d], 1);
      }
    }
    o.dst = destination(m, box);
    l_.isa.tile_op(o);
  }

  const Launch& l_;
  const TileGeometry& g_;
  char** now_;   // where each register is at present
  char** home_;  // its own memory
  char* lanes_;
  int64_t math_ = 0, executed_ = 0;
};

bool supports(const KernelQuery& q) {
  return q.program && q.program->resident && tile_geometry(*q.program, q.in, q.out).ok();
}

int64_t workspace_bytes(const KernelQuery& q) {
  const auto g = tile_geometry(*q.program, q.in, q.out);
  return g.ok() ? Layout(*g).total(q.n_threads) : 0;
}

void launch(const KernelCall& call) {
  TEGULA_CHECK(call.program, "fused: no program");
  const auto geometry = tile_geometry(*call.program, call.in, call.out);
  TEGULA_CHECK(geometry.ok(), geometry.ok() ? "" : geometry.error().message);
  const TileGeometry& g = *geometry;
  if (g.n_rows == 0) return;
  const Launch l(call, g);
  char* shared = static_cast<char*>(call.workspace);
  char* own = shared + l.layout.shared;
  const auto thread = [&](int t) { return Thread(l, shared, own + t * l.layout.per_thread); };
  // In the pool, because that is where denormals are flushed.
  if (!l.schedule.uniform.empty())
    call.pool->parallel_for(1, [&](int64_t, int) { thread(0).uniform(); });
  call.counters->add(l.schedule.uniform_flops, l.schedule.uniform_flops);

  const int64_t n_tiles = g.n_tiles();
  const int64_t tile_elements =
      std::max<int64_t>(g.tile_rows * (g.is_elementwise ? g.tile_cols : g.row_len), 1);
  const int64_t tiles_per_task = std::max<int64_t>(1, kTaskElements / tile_elements);
  call.pool->parallel_for((n_tiles + tiles_per_task - 1) / tiles_per_task,
                          [&](int64_t task, int t) {
                            Thread me = thread(t);
                            const int64_t end = std::min(n_tiles, (task + 1) * tiles_per_task);
                            for (int64_t k = task * tiles_per_task; k < end; ++k)
                              g.is_elementwise ? me.elementwise_tile(k) : me.row_tile(k);
                            call.counters->add(me.math(), me.executed());
                          });
}

}  // namespace

extern constinit const KernelDef fused{
    .name = "fused",
    .op = "fused",
    .order = "lane16",
    .doc =
        "Tile programs: fused elementwise ops and row reductions, interpreted over L1-sized tiles",
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = launch,
};

}  // namespace tegula::kernel
