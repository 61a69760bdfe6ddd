// Shared by the forms of tile kernels: names of values, and the lines that make them.
#pragma once

#include "tegula/kernels/cuda/tile_phases.h"
#include "tegula/kernels/cuda/tile_text.h"

namespace tegula::cuda {

class TileWriter {
 public:
  TileWriter(const tile::Program& p, const TileCall& call);

  // The program and its layout as a comment, what a text includes, a namespace opened, and the
  // struct of parameters in it.
  void params(const char* name_space, const char* name);
  // Those of a kernel, and the head of what a block runs up to the opening brace.
  void head(const char* name_space = "tegula::cuda", const char* name = "Params");
  std::string finish();
  const std::string& text() const { return text_; }
  // Where values of which there is one a launch are counted: a condition "(…)".
  void count_once_where(std::string condition) { once_ = std::move(condition); }
  // Where anything is.
  void count_where(const char* condition) { where_ = cat("if ", condition, " "); }

  // A thread of a block, or of the warp that takes a block's place (persistent_text.h).
  const char* thread() const {
    return layout().n_threads == 32 ? "(threadIdx.x % 32)" : "threadIdx.x";
  }

  // A line, indented by `depth_`.
  template <class... Args>
  void line(const Args&... args) {
    text_.append(2 * static_cast<size_t>(depth_), ' ');
    (append(text_, args), ...);
    text_ += '\n';
  }
  void open() { ++depth_; }
  void close() { --depth_; }

  // `const float v7 = …;` for an instruction that is no store and no reduction. A full load reads
  // what `loads` has brought; positions are those of `linear` and `inner`, below.
  void value(size_t v);
  // Where texts count (count.cuh): what the values written since the last call, and of `reduced`,
  // cost an element, row or launch, each value once, however often it is made; conditions as "(…)".
  void count(const std::string& of_element, const std::string& of_row,
             const std::vector<uint16_t>& reduced = {});
  // The additions of column outputs, for the next count().
  void count_sums(const std::vector<uint16_t>& sums);
  // Arrays of what the full loads of `body` read, U elements, offsets by `offset`.
  void loads(const std::vector<uint16_t>& body, const std::string& guard);
  // Operands that `loads` of `body` would read element by element, as numbers of instructions, and
  // the loop that does: array `name` + v, from where find_row() says.
  std::vector<uint16_t> single_loads(const std::vector<uint16_t>& body) const;
  void load_singles(const std::vector<uint16_t>& single, const char* name,
                    const std::string& guard);
  // Declares what stores fill, and writes it.
  void open_stores(const std::vector<uint16_t>& stores);
  void fill_stores(const std::vector<uint16_t>& stores);
  void write_stores(const std::vector<uint16_t>& stores, const std::string& guard);
  // Coordinates x0, x1, … of the merged inner dims at position `position`.
  void coordinates(const std::string& position);
  // Where row `row` begins in each operand.
  void find_row();
  // A thread's element of its row in step t + u.
  std::string element() const;
  // The offset of operand k at these coordinates, moved by `along` elements along the last.
  std::string offset(size_t k, const std::string& along) const;

  const tile::Instr& at(size_t v) const { return p_.code[v]; }
  const TileLayout& layout() const { return call_.layout; }
  const tile::Program& program() const { return p_; }
  size_t operand_of_store(size_t v) const {
    return p_.inputs.size() + static_cast<size_t>(at(v).imm);
  }
  std::string name_of(size_t k) const;
  bool is_vector(size_t k) const;  // operand k is moved in whole vectors

 private:
  void add_flops(size_t v, tile::Extent of);
  // Are elements neighbours that a thread takes at once?
  bool is_flat() const { return !layout().is_rows || layout().is_columns; }
  std::string arguments(const tile::Instr& i) const;
  std::string constant(const tile::Instr& i) const;
  std::string generated(size_t v) const;

  const tile::Program& p_;
  const TileCall& call_;
  const std::vector<tile::Extent> extent_;
  std::string text_;
  std::vector<bool> was_counted_;
  int pending_[3] = {};  // FLOPs, by tile::Extent
  std::string once_, where_;
  int depth_ = 0;
};

// "float", "double", "i64": of the dtype's class.
std::string_view tile_value_type(DType t);

// U neighbours of an elementwise phase, from x0, x1, … on.
void write_body(TileWriter& w, const TilePhase& phase);
// The same once all is loaded.
void write_loaded_body(TileWriter& w, const TilePhase& phase);
void write_elements(TileWriter& w, const TilePhases& phases);
void write_rows(TileWriter& w, const TilePhases& phases);
void write_columns(TileWriter& w, const TilePhases& phases);
// All of it.
void write_program(TileWriter& w);

}  // namespace tegula::cuda
