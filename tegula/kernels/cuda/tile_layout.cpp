#include "tegula/kernels/cuda/tile_layout.h"

#include <cstdlib>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/tile_phases.h"

namespace tegula::cuda {

namespace {

using tile::Extent;
using tile::Program;

constexpr int64_t kMostPosition = int64_t{1} << 30;  // of an int, with room for a grid's stride
constexpr int kMostVector = 8;
constexpr int kBodyWords = 64;       // registers that the values of a thread's elements may take
constexpr int kKeptWords = 96;       // and those that are kept across reductions
constexpr int kUnrolledWork = 3000;  // instructions of an unrolled row
constexpr int64_t kLongRow = 4096;   // a block takes such a row,
constexpr int64_t kFewRowsLength = 512;   // and one of these if there are too few rows
constexpr int kFewThreads = 512;          // to give each multiprocessor so many threads
constexpr int64_t kRoomBytes = 32 << 10;  // of shared memory
constexpr int64_t kPrologueRoomBytes = 8 << 10;
constexpr int64_t kBlocksPerMultiprocessor = 32;
constexpr int kColumnWords = 160;  // registers of what is kept and of sums of columns
constexpr int kAheadWords = 40;    // and, beside both, of what the next row has

struct MergedDim {
  int64_t extent = 1;
  std::vector<int64_t> stride;  // per operand
};

struct OperandRef {
  const TensorRef* tensor;
  Extent extent;
};

class Caller {
 public:
  Caller(const Program& p, const tile::Space& space, const Target& target, int block)
      : p_(p), space_(space), target_(target), block_(block) {}

  TileCall run(std::vector<OperandRef> operands) {
    operands_ = std::move(operands);
    TileLayout& l = call_.layout;
    l.is_rows = p_.n_inner > 0;
    outer_ = merged(0, p_.rank - p_.n_inner);
    inner_ = merged(p_.rank - p_.n_inner, p_.rank);
    if (!l.is_rows) std::swap(inner_, outer_);
    if (inner_.empty()) inner_.push_back({1, std::vector<int64_t>(operands_.size(), 0)});
    l.n_outer = static_cast<int>(outer_.size()), l.n_inner = static_cast<int>(inner_.size());
    l.is_wide = needs_wide();
    l.n_columns =
        static_cast<int>(std::count_if(operands_.begin(), operands_.end(), [](const OperandRef& o) {
          return o.extent == Extent::kColumn;
        }));
    l.is_columns = l.n_columns > 0 && tile_phases(p_, true).phases.size() == 1;
    if (l.is_columns) {
      columns();
    } else {
      l.is_rows ? rows() : elements();
      if (l.is_rows) block_of_rows();
    }
    add_params();
    return std::move(call_);
  }

  bool fits() const { return fits_; }

 private:
  std::vector<MergedDim> merged(int begin, int end) const {
    std::vector<MergedDim> dims;
    for (int d = begin; d < end; ++d) {
      MergedDim dim{space_.shape[d], {}};
      if (dim.extent == 1) continue;
      for (const OperandRef& o : operands_) {
        const bool moves =
            o.extent == Extent::kFull || (o.extent == Extent::kRow && d < p_.rank - p_.n_inner);
        dim.stride.push_back(moves ? o.tensor->stride[d] : 0);
      }
      bool continues = !dims.empty();
      for (size_t k = 0; continues && k < operands_.size(); ++k)
        continues = dims.back().stride[k] == dim.stride[k] * dim.extent;
      if (continues) {
        dim.extent *= dims.back().extent;
        dims.back() = std::move(dim);
      } else {
        dims.push_back(std::move(dim));
      }
    }
    return dims;
  }

  // Positions are within a row; their beginnings are found in 64 bits anyway.
  bool needs_wide() const {
    int64_t n = 1;
    std::vector<int64_t> reach(operands_.size(), 0);
    for (const MergedDim& d : inner_) {
      n *= d.extent;
      for (size_t k = 0; k < reach.size(); ++k) reach[k] += std::abs(d.stride[k]) * d.extent;
    }
    return n > kMostPosition ||
           std::any_of(reach.begin(), reach.end(), [](int64_t r) { return r > kMostPosition; });
  }

  bool is_aligned(size_t k, int n) const {
    const int64_t size = size_bytes(operands_[k].tensor->dtype);
    const int64_t bytes = std::min<int64_t>(16, size * n);
    bool is =
        reinterpret_cast<uintptr_t>(operands_[k].tensor->data) % static_cast<size_t>(bytes) == 0;
    for (size_t d = 0; d + 1 < inner_.size(); ++d) is &= inner_[d].stride[k] * size % bytes == 0;
    return is;
  }

  // Sets what a thread takes at once along the innermost dim, and how each operand gives it.
  void vectors(bool ends_whole) {
    TileLayout& l = call_.layout;
    const TilePhases phases = tile_phases(p_, true);
    const MergedDim& last = inner_.back();
    int least_bytes = 8, n = kMostVector;
    for (size_t k = 0; k < operands_.size(); ++k)
      if (operands_[k].extent == Extent::kFull && last.stride[k] == 1)
        least_bytes = std::min(least_bytes, size_bytes(operands_[k].tensor->dtype));
    n = std::min(n, 16 / least_bytes);
    const int words = phases.live_words + l.n_columns;
    while (n > 1 && (n * words > kBodyWords || n * phases.work > kUnrolledWork)) n /= 2;
    if (ends_whole)
      while (last.extent % n != 0) n /= 2;
    l.vector = n;
    for (size_t k = 0; k < operands_.size(); ++k) {
      const int64_t stride = last.stride[k];
      const Extent extent = operands_[k].extent;
      // An output of stride 0 has one element along the dim.
      const bool is_same = stride == 0 && k < p_.inputs.size();
      const bool is_one = extent == Extent::kUniform || extent == Extent::kColumn;
      l.access.push_back(is_one                            ? TileAccess::kOne
                         : extent == Extent::kRow          ? TileAccess::kRow
                         : is_same                         ? TileAccess::kSame
                         : stride == 1 && is_aligned(k, n) ? TileAccess::kVector
                                                           : TileAccess::kStrided);
    }
  }

  void elements() {
    TileLayout& l = call_.layout;
    vectors(inner_.size() > 1);
    if (inner_.size() > 1)
      for (size_t k = 0; k < operands_.size(); ++k) {
        size_t first = 0;
        while (first < k && !have_same_strides(first, k)) ++first;
        l.like.push_back(static_cast<uint8_t>(first));
      }
    if (block_ > 0) {
      l.n_threads = block_, call_.n_blocks = 1;
      return;
    }
    const int64_t n = l.vector;
    const int64_t per_block = int64_t{l.n_threads} * n;
    const int64_t most = kBlocksPerMultiprocessor * std::max(target_.multiprocessors, 1);
    call_.n_blocks = std::min((space_.n_rows + per_block - 1) / per_block, most);
  }

  bool have_same_strides(size_t j, size_t k) const {
    return call_.layout.access[j] == call_.layout.access[k] &&
           std::all_of(inner_.begin(), inner_.end(),
                       [&](const MergedDim& d) { return d.stride[j] == d.stride[k]; });
  }

  void columns() {
    TileLayout& l = call_.layout;
    vectors(true);
    l.rows_per_block = 8, l.n_threads = 32 * l.rows_per_block;
    call_.n_parts = parts_of(l.rows_per_block);
    const int64_t wide = int64_t{32} * l.vector;
    column_blocks_ = (space_.row_len + wide - 1) / wide;
    call_.n_blocks = call_.n_parts * column_blocks_;
  }
  int64_t parts_of(int rows_per_block) const {
    const int64_t most = rows_per_block > 1 ? kMostColumnParts / 2 : kMostColumnParts;
    return std::min(most, (space_.n_rows + rows_per_block - 1) / rows_per_block);
  }

  void rows() {
    TileLayout& l = call_.layout;
    const MergedDim& last = inner_.back();
    int64_t along = 0, across = 0;  // bytes an element
    for (size_t k = 0; k < operands_.size(); ++k) {
      const OperandRef& o = operands_[k];
      const int64_t stride = last.stride[k], bytes = size_bytes(o.tensor->dtype);
      bool is_same = k < p_.inputs.size();
      for (const MergedDim& d : inner_) is_same &= d.stride[k] == 0;
      const bool is_one = o.extent == Extent::kUniform || o.extent == Extent::kColumn;
      l.access.push_back(is_one                     ? TileAccess::kOne
                         : o.extent == Extent::kRow ? TileAccess::kRow
                         : is_same                  ? TileAccess::kSame
                         : stride == 1              ? TileAccess::kVector
                                                    : TileAccess::kStrided);
      if (o.extent != Extent::kFull || stride == 0) continue;
      if (stride == 1) along += bytes;
      if (stride != 1 && !outer_.empty() && outer_.back().stride[k] == 1) across += bytes;
    }
    l.is_across = across > along && l.n_columns == 0;
  }

  void block_of_rows() {
    TileLayout& l = call_.layout;
    const TilePhases phases = tile_phases(p_, true);
    l.vector = kMostVector;
    while (l.vector > 1 && l.vector * (phases.live_words + l.n_columns) > kBodyWords) l.vector /= 2;
    keep_in(l, phases, 16);
    const bool are_few =
        space_.n_rows * 16 < int64_t{kFewThreads} * std::max(target_.multiprocessors, 1);
    const bool is_long = l.keep == TileKeep::kStreamed || space_.row_len > kLongRow;
    const bool has_room = l.n_columns == 0 || fits_columns(l, phases);
    if (block_ > 0)
      fits_ = !l.is_across && (block_per_row(block_, true) || block_per_row(block_, false));
    else if (!l.is_across &&
             (is_long || !has_room || (are_few && space_.row_len >= kFewRowsLength)))
      block_per_row();
    l.rows_per_block = l.is_block() ? 1 : l.is_across ? 16 : 8;
    l.n_threads = l.threads_per_row * l.rows_per_block;
    call_.n_blocks = (space_.n_rows + l.rows_per_block - 1) / l.rows_per_block;
    if (l.n_columns == 0) return;
    call_.n_blocks = call_.n_parts = parts_of(l.rows_per_block);
    fits_ = fits_columns(l, phases);
  }
  // Sums of columns are in registers, in steps that the text knows.
  bool fits_columns(const TileLayout& l, const TilePhases& phases) const {
    const int kept = l.keep == TileKeep::kRegisters ? phases.kept_words : 0;
    return l.row_steps > 0 && l.row_steps * (kept + l.n_columns) <= column_words(l.threads_per_row);
  }
  static int column_words(int threads) {
    return threads == 16 ? kColumnWords : std::min(kColumnWords, 65536 / threads * 5 / 8);
  }

  void keep_in(TileLayout& l, const TilePhases& phases, int threads) const {
    l.threads_per_row = threads;
    l.keep = TileKeep::kNothing;
    const int64_t steps = rounded_steps((space_.row_len + threads - 1) / threads);
    if (l.n_columns > 0) {
      l.row_steps = steps <= kColumnWords ? static_cast<int>(steps) : 0;
      l.is_whole = space_.row_len == steps * threads;
    }
    if (phases.kept.empty()) return;
    // A block's threads share 64 K registers.
    const int most_words = threads == 16 ? kKeptWords : 65536 / threads / 4;
    const bool fits =
        steps > 0 && steps * phases.kept_words <= most_words &&
        steps * phases.work <= kUnrolledWork &&
        (l.n_columns == 0 || steps * (phases.kept_words + l.n_columns) <= column_words(threads));
    l.keep = fits ? TileKeep::kRegisters : TileKeep::kStreamed;
    if (l.n_columns > 0) return;
    l.row_steps = fits ? static_cast<int>(steps) : 0;
    l.is_whole = fits && space_.row_len == steps * threads;
  }

  // A text serves all rows of up to so many steps: else each length would be compiled anew, and the
  // lengths of a run may be its own. 1, 2, 3, 4, 6, 8, 12, ….
  static int64_t rounded_steps(int64_t steps) {
    int64_t power = 1;
    while (power * 2 <= steps) power *= 2;
    return steps <= power ? steps : 2 * steps <= 3 * power ? power / 2 * 3 : power * 2;
  }

  // As many threads as there is work for; sums want room for two chunks of what they read, and
  // where there are too many of them a row stays with 16 threads.
  void block_per_row() {
    const int most = space_.row_len <= 4096 ? 256 : space_.row_len <= 16384 ? 512 : 1024;
    for (int threads = most; threads >= 128; threads /= 2)
      if (block_per_row(threads, true) || block_per_row(threads, false)) return;
  }
  bool block_per_row(int threads, bool is_early) {
    const TilePhases phases = tile_phases(p_, true, is_early);
    TileLayout l = call_.layout;
    l.is_early = is_early;
    keep_in(l, phases, threads);
    if (is_early && l.keep != TileKeep::kRegisters) return false;
    const int words = 65536 / threads / 2;
    const int64_t most = block_ > 0 ? kPrologueRoomBytes : kRoomBytes;
    // The data that each thread of a prologue reads comes at once: nobody else hides its way.
    if (l.row_steps > 0) l.vector = block_ > 0 ? l.row_steps : std::min(l.vector, l.row_steps);
    while (l.vector > 1 &&
           (l.vector * phases.live_words > words || tile_room_bytes(p_, phases, l) > most))
      l.vector /= 2;
    if (tile_room_bytes(p_, phases, l) > most) return false;
    if (l.n_columns > 0 && !fits_columns(l, phases)) return false;
    l.is_ahead = is_ahead(l, phases);
    call_.layout = std::move(l);
    return true;
  }
  // Whether a thread has registers for its part of the next row: all of it is loaded in one body,
  // element by element.
  bool is_ahead(const TileLayout& l, const TilePhases& phases) const {
    if (l.n_columns == 0 || !l.is_early || l.row_steps > l.vector) return false;
    int loads = 0;
    for (const uint16_t v : phases.phases.front().body) {
      if (p_.code[v].op != tile::Op::kLoad) continue;
      const TileAccess access = l.access[static_cast<size_t>(p_.code[v].imm)];
      if (access != TileAccess::kVector && access != TileAccess::kStrided) return false;
      ++loads;
    }
    return l.row_steps * (phases.kept_words + l.n_columns + loads) <= kAheadWords;
  }

  void add(std::string type, std::string name, int64_t value) {
    call_.params.push_back({std::move(type), std::move(name), static_cast<uint64_t>(value)});
  }

  std::string name_of(size_t k) const {
    const size_t n_in = p_.inputs.size();
    return k < n_in ? cat("in", k) : cat("out", k - n_in);
  }

  void add_params() {
    const bool is_rows = call_.layout.is_rows;
    for (size_t k = 0; k < operands_.size(); ++k) {
      const TensorRef& t = *operands_[k].tensor;
      add(cat(k < p_.inputs.size() ? "const " : "", tile_dtype(t.dtype), "::Storage*"), name_of(k),
          static_cast<int64_t>(reinterpret_cast<uintptr_t>(t.data)));
    }
    add("i64", is_rows ? "n_rows" : "n", space_.n_rows);
    if (is_rows) add("i64", "row_len", space_.row_len);
    if (call_.layout.is_columns) add("i64", "column_blocks", column_blocks_);
    add_dims(outer_, "outer");
    add_dims(inner_, "inner");
    for (size_t v = 0; v < p_.code.size(); ++v) {
      if (p_.code[v].op != tile::Op::kIota) continue;
      const auto dim = static_cast<int>(p_.code[v].imm);
      const bool is_outer = dim < p_.rank - p_.n_inner;
      int64_t weight = 1;
      for (int d = dim + 1; d < (is_outer ? p_.rank - p_.n_inner : p_.rank); ++d)
        weight *= std::max<int64_t>(space_.shape[d], 1);
      add("i64", cat("iota", v, "_weight"), weight);
      add("i64", cat("iota", v, "_extent"), std::max<int64_t>(space_.shape[dim], 1));
    }
  }

  void add_dims(const std::vector<MergedDim>& dims, const char* name) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (d > 0) add("i64", cat(name, d), std::max<int64_t>(dims[d].extent, 1));
      for (size_t k = 0; k < operands_.size(); ++k)
        if (operands_[k].extent != Extent::kUniform && operands_[k].extent != Extent::kColumn &&
            call_.layout.strides_of(k) == k)
          add("i64", cat(name_of(k), "_", name, d), dims[d].stride[k]);
    }
  }

  const Program& p_;
  const tile::Space& space_;
  const Target& target_;
  const int block_;
  std::vector<OperandRef> operands_;
  std::vector<MergedDim> outer_, inner_;
  TileCall call_;
  int64_t column_blocks_ = 0;
  bool fits_ = true;
};

}  // namespace

std::string_view tile_dtype(DType t) {
  switch (t) {
    case DType::kF64:
      return "F64";
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF8E4M3:
      return "E4M3";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kBool:
      return "Bool";
  }
  return "";
}

int64_t tile_room_bytes(const Program& p, const TilePhases& phases, const TileLayout& l) {
  int64_t most = 0;
  for (const TilePhase& phase : phases.phases) {
    int64_t bytes = 0;
    for (const uint16_t v : phase.reduced)
      bytes += tile::class_of(p.code[v].dtype) == tile::Class::kF32 ? 4 : 8;
    most = std::max(most, bytes * l.chunks_at_once() * l.vector * l.threads_per_row);
  }
  return most;
}

std::string TileLayout::key() const {
  std::string s =
      cat("rows ", is_rows, " wide ", is_wide, " dims ", n_outer, "+", n_inner, " vector ", vector,
          " across ", is_across, " threads ", threads_per_row, " rows ", rows_per_block, " keep ",
          static_cast<int>(keep), " steps ", row_steps, is_whole ? " whole" : "",
          is_early ? " early" : "", is_ahead ? " ahead" : "", is_columns ? " columns" : "",
          n_columns > 0 ? cat(" sums ", n_columns) : "", " access ");
  for (const TileAccess a : access) s += static_cast<char>('0' + static_cast<int>(a));
  for (size_t k = 0; k < like.size(); ++k) s += cat(k == 0 ? " like " : ",", int{like[k]});
  return s;
}

Result<TileCall> tile_call(const Program& p, std::span<const TensorRef> in,
                           std::span<const TensorRef> out, const Target& target, int block) {
  const tile::Space space = TEGULA_TRY(tile::space_of(p, in, out));
  std::vector<OperandRef> operands;
  for (size_t k = 0; k < in.size(); ++k) operands.push_back({&in[k], p.inputs[k].extent});
  for (size_t k = 0; k < out.size(); ++k) operands.push_back({&out[k], p.outputs[k].extent});
  Caller caller(p, space, target, block);
  TileCall call = caller.run(std::move(operands));
  if (!caller.fits() && block > 0)
    return unsupported("tile program: a block has no room for its rows");
  if (!caller.fits())
    return unsupported(cat("tile program: rows of ", space.row_len, " elements are too long for ",
                           call.layout.n_columns, " sums of columns beside them"));
  if (call.n_blocks > INT32_MAX)
    return unsupported(
        cat("tile program: ", space.n_rows, " rows are more than a grid has blocks for"));
  return call;
}

}  // namespace tegula::cuda
