// Each piece of tegula/kernels/cuda/ptx alone, on the device: the kernels of ptx_probe.cu against
// what the host computes. Products are of small whole numbers, so that every sum is exact.
// Without a GPU they are compiled, no more.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <sstream>

#include "tegula/base/half.h"
#include "tegula/kernels/cuda/driver.h"
#include "tegula/kernels/cuda/nvrtc.h"

namespace tegula::cuda {
namespace {

Status open_device() {
  static const Status status = []() -> Status {
    const Driver* d = TEGULA_TRY(Driver::get());
    int device = 0;
    void* context = nullptr;
    TEGULA_TRY(d->check(d->device(&device, 0), "cuDeviceGet"));
    TEGULA_TRY(d->check(d->primary_context(&context, device), "cuDevicePrimaryCtxRetain"));
    return d->check(d->set_context(context), "cuCtxSetCurrent");
  }();
  return status;
}

// Elements on the device; read back by host().
template <class T>
class Buffer {
 public:
  explicit Buffer(std::vector<T> host) : host_(std::move(host)) {
    EXPECT_EQ(driver().allocate(&data_, bytes()), 0);
    EXPECT_EQ(driver().copy(data_, host_.data(), bytes()), 0);
  }
  explicit Buffer(size_t n) : Buffer(std::vector<T>(n)) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { driver().release(data_); }
  void* data() const { return data_; }
  const std::vector<T>& host() {
    EXPECT_EQ(driver().copy(host_.data(), data_, bytes()), 0);
    return host_;
  }

 private:
  static const Driver& driver() { return **Driver::get(); }
  size_t bytes() const { return host_.size() * sizeof(T); }
  std::vector<T> host_;
  void* data_ = nullptr;
};

const Result<Compiled>& compiled(const std::vector<std::string>& defines, const std::string& arch) {
  static std::map<std::string, Result<Compiled>> all;
  std::string key = arch;
  for (const std::string& d : defines) key += " " + d;
  if (const auto found = all.find(key); found != all.end()) return found->second;
  constexpr const char* kPath = "tests/kernels/cuda/ptx_probe.cu";
  std::ifstream file(kPath);
  std::ostringstream text;
  text << file.rdbuf();
  Result<Compiled> c = io_error(cat("cannot read ", kPath, ": run in the repository's root"));
  if (file) c = compile_text(kPath, text.str(), defines, arch);
  return all.emplace(key, std::move(c)).first->second;
}

class CudaPtx : public ::testing::Test {
 protected:
  // Whether there is a device that runs the kernels of ptx_probe.cu; skips the test if not.
  bool open(const std::vector<std::string>& defines, bool is_hopper = true) {
    const Status opened = open_device();
    const int capability = opened.ok() ? *current_capability() : 0;
    std::vector<std::string> all = defines;
    all.push_back(cat("TEGULA_PROBE_HOPPER=", int{is_hopper}));
    const Result<Compiled>& c = compiled(all, is_hopper          ? "sm_90a"
                                              : capability == 90 ? "sm_90"
                                                                 : "sm_80");
    if (!c.ok() && c.error().code == Code::kUnsupported)
      skip_ = c.error().message;
    else if (!c.ok())
      ADD_FAILURE() << c.error().message;
    else if (!opened.ok())
      skip_ = "compiled, not run: " + opened.error().message;
    else if (is_hopper && capability != 90)
      skip_ = cat("compiled, not run: the device has capability ", capability);
    else
      module_.emplace(std::move(Module::load(c->cubin).value()));
    return module_.has_value();
  }
  void TearDown() override {
    if (!skip_.empty()) GTEST_SKIP() << skip_;
  }

  template <class... Args>
  void launch(const std::string& name, int blocks, int threads, int smem_bytes, Args... args) {
    const Driver& d = **Driver::get();
    const auto f = module_->function(name.c_str(), smem_bytes);
    ASSERT_TRUE(f.ok()) << f.error().message;
    void* arguments[] = {&args...};
    ASSERT_EQ(d.launch(*f, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1,
                       1, static_cast<unsigned>(smem_bytes), nullptr, arguments, nullptr),
              0)
        << name;
    ASSERT_EQ(d.stream_wait(nullptr), 0) << name;
  }

  std::optional<Module> module_;
  std::string skip_;
};

std::vector<float> whole_numbers(size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::uniform_int_distribution<int> draw(-3, 3);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(draw(rng));
  return x;
}
template <class T>
auto bits_of(const std::vector<float>& x) {
  std::vector<decltype(T().bits)> out;
  for (const float v : x) out.push_back(T(v).bits);
  return out;
}
std::vector<uint16_t> numbered(size_t n) {
  std::vector<uint16_t> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<uint16_t>(i * 7 + 1);
  return x;
}

template <class T>
void check_types(const std::vector<float>& in, const std::vector<uint32_t>& packed,
                 const std::vector<float>& again, const std::vector<uint32_t>& zero) {
  for (size_t i = 0; i < 32; ++i) {
    const T low(in[2 * i]), high(in[2 * i + 1]);
    EXPECT_EQ(packed[i], low.bits | static_cast<uint32_t>(high.bits) << 16) << in[2 * i];
    EXPECT_EQ(again[2 * i], static_cast<float>(low));
    EXPECT_EQ(again[2 * i + 1], static_cast<float>(high));
    const auto is_zero = [](uint32_t half) { return (half & 0x7fff) == 0; };
    EXPECT_EQ(is_zero(zero[i] & 0xffff), std::isfinite(static_cast<float>(low)));
    EXPECT_EQ(is_zero(zero[i] >> 16), std::isfinite(static_cast<float>(high)));
  }
}

TEST_F(CudaPtx, Types) {
  for (const bool is_f16 : {false, true}) {
    if (!open({cat("TEGULA_F16=", int{is_f16})}, false)) return;
    std::vector<float> in = {0.F,    -0.F,  1.F,       1.F / 3, 65519.F, 65520.F,
                             -1e30F, 3e38F, HUGE_VALF, -2.5F,   1e-7F,   -126.F};
    for (int i = 0; in.size() < 64; ++i)
      in.push_back(std::ldexp(1.F + 0.37F * static_cast<float>(i % 5), i % 40 - 20));
    Buffer<float> x(in), again(64), exp2(32);
    Buffer<uint32_t> packed(32), zero(32);
    launch("probe_types", 1, 32, 0, x.data(), packed.data(), again.data(), exp2.data(),
           zero.data());
    if (is_f16)
      check_types<f16>(in, packed.host(), again.host(), zero.host());
    else
      check_types<bf16>(in, packed.host(), again.host(), zero.host());
    for (size_t i = 0; i < 32; ++i) {
      const double want = std::exp2(static_cast<double>(in[i]));
      if (want > 1.2e-38 && want < 3e38) EXPECT_NEAR(exp2.host()[i], want, want * 2.4e-7) << in[i];
    }
  }
}

TEST_F(CudaPtx, Mma) {
  for (const bool is_f16 : {false, true}) {
    if (!open({cat("TEGULA_F16=", int{is_f16})}, false)) return;
    const auto a = whole_numbers(16 * 16, 1), b = whole_numbers(16 * 8, 2);
    Buffer<uint16_t> a_on(is_f16 ? bits_of<f16>(a) : bits_of<bf16>(a));
    Buffer<uint16_t> b_on(is_f16 ? bits_of<f16>(b) : bits_of<bf16>(b));
    Buffer<float> d(16 * 8);
    launch("probe_mma", 1, 32, 0, a_on.data(), b_on.data(), d.data());
    for (size_t m = 0; m < 16; ++m)
      for (size_t n = 0; n < 8; ++n) {
        float want = 0;
        for (size_t k = 0; k < 16; ++k) want += a[m * 16 + k] * b[k * 8 + n];
        EXPECT_EQ(d.host()[m * 8 + n], want) << m << " " << n;
      }
  }
}

uint32_t pair_of(const std::vector<uint16_t>& rows, size_t row, size_t column) {
  return rows[row * 8 + column] | static_cast<uint32_t>(rows[row * 8 + column + 1]) << 16;
}
uint32_t pair_across(const std::vector<uint16_t>& rows, size_t row, size_t column) {
  return rows[row * 8 + column] | static_cast<uint32_t>(rows[(row + 1) * 8 + column]) << 16;
}

TEST_F(CudaPtx, Ldmatrix) {
  if (!open({}, false)) return;
  const auto rows = numbered(32 * 8);
  Buffer<uint16_t> in(rows);
  Buffer<uint32_t> plain(4 * 32), transposed(4 * 32), moved(32);
  launch("probe_ldmatrix", 1, 32, 0, in.data(), plain.data(), transposed.data(), moved.data());
  for (size_t i = 0; i < 4; ++i)
    for (size_t lane = 0; lane < 32; ++lane) {
      const size_t row = 8 * i + lane / 4, column = 2 * (lane % 4);
      EXPECT_EQ(plain.host()[i * 32 + lane], pair_of(rows, row, column));
      EXPECT_EQ(transposed.host()[i * 32 + lane], pair_across(rows, 8 * i + column, lane / 4));
      if (i == 0) EXPECT_EQ(moved.host()[lane], pair_across(rows, column, lane / 4));
    }
}

TEST_F(CudaPtx, CpAsync) {
  if (!open({}, false)) return;
  std::vector<char> in(1024);
  std::vector<int> bytes(32);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<char>(i * 5 + 3);
  for (size_t i = 0; i < 32; ++i) bytes[i] = static_cast<int>(i % 9) * 2;
  Buffer<char> from(in), to(1024);
  Buffer<int> n(bytes);
  launch("probe_cp_async", 1, 32, 0, from.data(), n.data(), to.data());
  for (size_t i = 0; i < 1024; ++i)
    EXPECT_EQ(to.host()[i], static_cast<int>(i % 16) < bytes[i % 512 / 16] ? in[i] : 0) << i;
}

TEST_F(CudaPtx, NamedBarriers) {
  if (!open({}, false)) return;
  Buffer<int> out(1);
  launch("probe_named_barrier", 1, 64, 0, 100, out.data());
  EXPECT_EQ(out.host()[0], 5050);
}

TEST_F(CudaPtx, GlobalAdd) {
  if (!open({})) return;
  Buffer<float> out(4);
  launch("probe_global_add", 7, 64, 0, out.data());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(out.host()[i], 7.F * 64 * static_cast<float>(i + 1));
}

TEST_F(CudaPtx, Mbarrier) {
  if (!open({})) return;
  constexpr int kRounds = 50;
  Buffer<int> out(32 * kRounds);
  launch("probe_mbarrier", 1, 64, 0, kRounds, out.data());
  for (size_t i = 0; i < 32 * kRounds; ++i) EXPECT_EQ(out.host()[i], static_cast<int>(i ^ 1));
}

TEST_F(CudaPtx, TensorCopies) {
  if (!open({})) return;
  constexpr int64_t kColumns = 72, kRows = 21, kHeads = 3, kBatch = 2, kRow = 80;
  const auto in = numbered(kBatch * kHeads * kRows * kRow);
  Buffer<uint16_t> from(in), again(in.size()), box(16 * 64);
  std::vector<char> line(256);
  for (size_t i = 0; i < line.size(); ++i) line[i] = static_cast<char>(i * 3 + 1);
  Buffer<char> straight(line), straight_out(256);
  const auto map_of = [&](void* data) {
    return *tensor_map_bf16(data, {kColumns, kRows, kHeads, kBatch},
                            {kRow, kRow * kRows, kRow * kRows * kHeads}, 16);
  };
  // The box reaches past the last row and the last column.
  const int column = 16, row = 9, head = 2, batch = 1;
  launch("probe_tma", 1, 32, 0, map_of(from.data()), map_of(again.data()), column, row, head, batch,
         box.data(), straight.data(), 208, straight_out.data());
  std::vector<uint16_t> want(in.size());
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 64; ++c) {
      const bool inside = row + r < kRows && column + c < kColumns;
      const auto at =
          static_cast<size_t>(((batch * kHeads + head) * kRows + row + r) * kRow + column + c);
      EXPECT_EQ(box.host()[static_cast<size_t>(r * 64 + c)], inside ? in[at] : 0) << r << " " << c;
      if (inside) want[at] = in[at];
    }
  EXPECT_EQ(again.host(), want);
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(straight_out.host()[i], i < 208 ? line[i] : 0) << i;
}

TEST_F(CudaPtx, BulkStoresAndAdditions) {
  if (!open({})) return;
  constexpr size_t kBlocks = 9;
  const std::vector<float> in = whole_numbers(128 * kBlocks, 3);
  Buffer<float> from(in), stored(in.size()), added(128), seen(kBlocks);
  launch("probe_bulk_out", kBlocks, 32, 0, from.data(), stored.data(), added.data(), seen.data());
  std::vector<float> sums(128), last;
  for (size_t i = 0; i < in.size(); ++i) sums[i % 128] += in[i];
  for (size_t b = 0; b < kBlocks; ++b) last.push_back(in[128 * b + 127]);
  EXPECT_EQ(stored.host(), in);
  EXPECT_EQ(added.host(), sums);
  EXPECT_EQ(seen.host(), last);
}

TEST_F(CudaPtx, Stmatrix) {
  if (!open({})) return;
  const auto rows = numbered(32 * 8);
  std::vector<uint32_t> fragments(4 * 32);
  for (size_t i = 0; i < 4; ++i)
    for (size_t lane = 0; lane < 32; ++lane)
      fragments[4 * lane + i] = pair_of(rows, 8 * i + lane / 4, 2 * (lane % 4));
  Buffer<uint32_t> in(fragments);
  Buffer<uint16_t> out(32 * 8);
  launch("probe_stmatrix", 1, 32, 0, in.data(), out.data());
  EXPECT_EQ(out.host(), rows);
}

// The meaning of `mode` for the operands: ptx_probe.cu.
void check_product(const std::vector<float>& got, const std::vector<float>& a,
                   const std::vector<float>& b, size_t width, size_t depth, bool a_mn, bool b_mn) {
  for (size_t m = 0; m < 64; ++m)
    for (size_t n = 0; n < width; ++n) {
      float want = 0;
      for (size_t k = 0; k < depth; ++k)
        want += (a_mn ? a[k * 64 + m] : a[m * depth + k]) *
                (b_mn ? b[k * width + n] : b[n * depth + k]);
      ASSERT_EQ(got[m * width + n], want) << m << " " << n;
    }
}

TEST_F(CudaPtx, Wgmma) {
  for (const bool is_f16 : {false, true}) {
    if (!open({cat("TEGULA_F16=", int{is_f16})})) return;
    for (const size_t width : {64, 80, 96, 112, 128, 192, 256})
      for (int mode = 0; mode < 4; ++mode) {
        // An MN-major operand comes in whole boxes of 64 columns.
        if ((mode == 1 || mode == 2) && width % 64 != 0) continue;
        SCOPED_TRACE(cat("width ", width, " mode ", mode));
        const auto a = whole_numbers(64 * 64, 3), b = whole_numbers(64 * width, 4);
        Buffer<uint16_t> a_on(is_f16 ? bits_of<f16>(a) : bits_of<bf16>(a));
        Buffer<uint16_t> b_on(is_f16 ? bits_of<f16>(b) : bits_of<bf16>(b));
        Buffer<float> d(64 * width);
        launch(cat("probe_wgmma_", width, "_", mode), 1, 128, 128 * static_cast<int>(64 + width),
               a_on.data(), b_on.data(), d.data());
        check_product(d.host(), a, b, width, 64, mode == 1, mode == 1 || mode == 2);
      }
  }
}

TEST_F(CudaPtx, WgmmaOfE4m3) {
  if (!open({"TEGULA_F8=1"})) return;
  for (const size_t width : {64, 96, 128})
    for (const int mode : {0, 1}) {
      SCOPED_TRACE(cat("width ", width, " mode ", mode));
      const auto a = whole_numbers(64 * 128, 5), b = whole_numbers(128 * width, 6);
      Buffer<uint8_t> a_on(bits_of<f8e4m3>(a)), b_on(bits_of<f8e4m3>(b));
      Buffer<float> d(64 * width);
      launch(cat("probe_wgmma_", width, "_", mode), 1, 128, 128 * static_cast<int>(64 + width),
             a_on.data(), b_on.data(), d.data());
      check_product(d.host(), a, b, width, 128, false, false);
    }
  std::vector<float> in;
  for (int i = 0; i < 128; ++i)
    in.push_back(std::ldexp(i % 2 ? -1.F - 0.07F * static_cast<float>(i) / 9 : 1.19F, i / 5 - 14));
  in[0] = 448, in[1] = 1e9F, in[2] = -463.F, in[3] = 0;
  Buffer<float> x(in), again(128);
  Buffer<uint32_t> packed(32);
  launch("probe_f8", 1, 32, 0, x.data(), packed.data(), again.data());
  for (size_t i = 0; i < 128; ++i)
    EXPECT_EQ(again.host()[i], static_cast<float>(f8e4m3(in[i]))) << in[i];
}

TEST_F(CudaPtx, Registers) {
  if (!open({})) return;
  std::vector<float> in(256);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 17) - 8;
  Buffer<float> x(in), out(128);
  launch("probe_registers", 1, 256, 0, x.data(), out.data());
  for (size_t lane = 0; lane < 128; ++lane) {
    std::vector<float> v(160);
    for (size_t i = 0; i < 160; ++i) v[i] = in[(i + lane + 128) % 256];
    for (int round = 0; round < 8; ++round)
      for (size_t i = 0; i < 160; ++i) v[i] = std::fma(v[i], 0.5F, v[(i + 1) % 160]);
    float sum = 0;
    for (const float f : v) sum += f;
    EXPECT_EQ(out.host()[lane], sum) << lane;
  }
}

TEST_F(CudaPtx, DependentLaunch) {
  if (!open({})) return;
  constexpr int kBlocks = 40;
  Buffer<int> box(kBlocks), sum(kBlocks);
  const Driver& d = **Driver::get();
  const auto first = module_->function("probe_first_grid", 0);
  const auto second = module_->function("probe_second_grid", 0);
  ASSERT_TRUE(first.ok() && second.ok());
  void *b = box.data(), *s = sum.data();
  const int n = kBlocks;
  const Grid grid{{kBlocks, 1, 1}};
  const Grid early{{kBlocks, 1, 1}, {1, 1, 1}, 0, true};
  ASSERT_TRUE(d.start(*first, grid, nullptr, "first", b).ok());
  ASSERT_TRUE(d.start(*second, early, nullptr, "second", b, n, s).ok());
  ASSERT_EQ(d.stream_wait(nullptr), 0);
  for (const int x : sum.host()) EXPECT_EQ(x, kBlocks * (kBlocks + 1) / 2);
}

}  // namespace
}  // namespace tegula::cuda
