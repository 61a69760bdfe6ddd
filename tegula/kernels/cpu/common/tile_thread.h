// One thread's part of a launch of "fused": its registers, and the tiles it runs.
#pragma once

#include "tegula/kernels/cpu/common/tile_geometry.h"
#include "tegula/kernels/cpu/isa/table.h"
#include "tegula/kernels/cpu/isa/tile_vm.h"

namespace tegula::kernel {

// One loop of a phase, ready to run but for the addresses.
struct TileStep {
  TileFn fn;
  const tile::MicroOp* micro;
  TileOp op;
  int n_src;
  bool is_direct;  // a load or store whose register may be the operand's memory on this tile
  int early;       // the output whose memory is dst, or -1
  bool fetches;    // its loop can fetch ahead
};

// Bytes of the parts of a workspace.
struct TileLayout {
  int64_t pointers, flags, steps, rows, lanes, tile, longs;
  int64_t shared, per_thread;
  int n_steps = 0;

  explicit TileLayout(const TileGeometry& g);
  int64_t total(int n_threads) const { return shared + n_threads * per_thread; }
};

// The most that a launch of the same program takes whose space is nowhere larger than `g`'s.
int64_t most_bytes_below(const tile::Program& p, const TileGeometry& g, int n_threads);

// The state that all threads of a launch share.
struct TileLaunch {
  const tile::Program& program;
  const TileGeometry& g;
  const tile::Schedule& schedule;
  const IsaTable& isa;
  const TileLayout layout;
  char* shared;                              // uniform registers
  char* threads;                             // each thread's part
  bool may_write_early[tile::kMaxOperands];  // by output
  std::span<const tile::MicroOp> last_body;

  TileLaunch(const tile::Program& p, const TileGeometry& geometry, void* workspace);
  const TileView& input(int64_t k) const { return g.views[k]; }
  const TileView& output(int64_t k) const {
    return g.views[static_cast<size_t>(k) + program.inputs.size()];
  }
};

// Lives in the workspace between the tasks of one launch; `reset` starts a launch.
class TileThread {
 public:
  static void reset(const TileLaunch& l, int n_threads);
  TileThread(const TileLaunch& l, int thread);

  void uniform();  // the code that runs once, into the shared registers
  void elementwise_tile(int64_t index);
  void row_tile(int64_t index);

  int64_t math_flops() const { return math_; }
  int64_t executed_flops() const { return executed_; }

 private:
  // The rows and columns of a tile (or of one chunk of a row).
  struct Box {
    int64_t row = 0, rows = 1, col = 0, cols = 0;
    int64_t pitch = 0;
  };
  // Kept in the workspace.
  struct Kept {
    bool is_ready;
    int64_t rows, cols;  // of the tile that the steps are shaped for
  };
  struct Ahead {
    const char* p;
    int64_t bytes;
  };

  void make_steps();
  void add_steps(std::span<const tile::MicroOp> code);
  void shape_steps(const Box& box);
  void shape(TileStep& s, const Box& box);
  void move_long(int64_t col);
  void look_ahead(const Box& next);

  void run(TileStep* steps, size_t n, const Box& box, bool is_first, bool is_last);
  void load(TileStep& s, const Box& box);
  void store(TileStep& s, const Box& box);
  void compute(TileStep& s, const Box& box);
  void generate(TileStep& s, const Box& box);

  bool is_one_run(const TileView& v, const Box& box) const;
  bool is_repeated_row(const TileView& v, const Box& box) const;
  char* address(const TileView& v, const Box& box) const;
  int64_t row_offset(const TileView& v, int64_t row) const;
  int64_t col_offset(const TileView& v, int64_t col) const;
  void for_parts(const TileView& v, const Box& box, char* reg, int size,
                 void (*copy)(const TileCopy&)) const;
  void for_row_parts(const TileView& v, const Box& box, char* reg, int size,
                     void (*copy)(const TileCopy&)) const;

  const TileLaunch& l_;
  const TileGeometry& g_;
  Kept* kept_;
  char** now_;     // where each register is at present
  char** home_;    // its own memory
  bool* repeats_;  // is it one row, read for every row of the tile
  TileStep* steps_;
  int n_steps_ = 0;
  char* lanes_;
  Ahead ahead_[tile::kMaxOperands];
  int n_ahead_ = 0, at_ahead_ = 0;
  int64_t math_ = 0, executed_ = 0;
};

}  // namespace tegula::kernel
