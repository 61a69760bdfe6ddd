// Kernels on tensors that span more than 2^31 elements: the bits of dense ones.
#include <sys/mman.h>

#include <memory>

#include "tests/kernels/strided.h"

namespace tegula {
namespace {
using testing::Rng;
using testing::Tensor;

constexpr int64_t kSpan = 3 * (int64_t{1} << 31) + 12345;

// A tensor that along dim `dim` spans some more than kSpan elements, in memory that only exists
// where it is written.
class Sparse {
 public:
  Sparse(const Tensor& dense, int dim) : ref_(dense.ref()) {
    const int64_t stride = kSpan / (ref_.shape[dim] - 1) + 1;
    ref_.stride[dim] = stride;
    bytes_ =
        static_cast<size_t>((stride * ref_.shape[dim] + dense.numel()) * size_bytes(ref_.dtype));
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ref_.data = at == MAP_FAILED ? nullptr : at;
    for (int64_t i = 0; ref_.data != nullptr && i < dense.numel(); ++i)
      store_element(ref_, offset(i), dense.at(i));
  }
  ~Sparse() {
    if (ref_.data) munmap(ref_.data, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  const TensorRef& ref() const { return ref_; }
  double at(int64_t i) const { return load_element(ref_, offset(i)); }

 private:
  int64_t offset(int64_t i) const {
    int64_t off = 0;
    for (int d = ref_.rank - 1; d >= 0; --d)
      off += i % ref_.shape[d] * ref_.stride[d], i /= ref_.shape[d];
    return off;
  }
  TensorRef ref_;
  size_t bytes_;
};

TEST(FarOffsets, Attention) {
  Rng rng(7);
  for (int64_t sq : {int64_t{1}, int64_t{70}}) {
    // q, k, v, o, lse, do, dq, dk, dv
    const int64_t rows[] = {sq, 90, 90, sq, 4, sq, sq, 90, 90};
    std::vector<std::unique_ptr<Tensor>> dense;
    std::vector<std::unique_ptr<Sparse>> sparse;
    for (size_t i = 0; i < 9; ++i) {
      const int64_t heads = rows[i] == 90 ? 2 : 4;
      dense.push_back(std::make_unique<Tensor>(
          DType::kF32,
          i == 4 ? std::vector<int64_t>{2, 4, sq} : std::vector<int64_t>{2, rows[i], heads, 24}));
      dense[i]->fill_random(rng);
      sparse.push_back(std::make_unique<Sparse>(*dense[i], 0));
      if (sparse[i]->ref().data == nullptr) GTEST_SKIP() << "no room for so many addresses";
    }
    const Attrs attrs{{"scale", 0.2}, {"is_causal", true}};
    const auto run = [&](auto& t) {
      std::vector<TensorRef> r;
      for (const auto& x : t) r.push_back(x->ref());
      testing::run_kernel(*find_kernel("attention_flash"), attrs, {r.data(), 3}, {&r[3], 2}, 2);
      testing::run_kernel(*find_kernel("attention_bwd_flash"), attrs, {r.data(), 6}, {&r[6], 3}, 2);
    };
    run(dense), run(sparse);
    for (size_t i = 3; i < 9; ++i)
      for (int64_t j = 0; j < dense[i]->numel(); ++j)
        ASSERT_EQ(sparse[i]->at(j), dense[i]->at(j)) << "tensor " << i << " at " << j;
  }
}

// Few rows and many, and every operand's every dim as the far one: batch entries, rows, columns and
// the contracted dim.
TEST(FarOffsets, Dot) {
  Rng rng(8);
  int far_operands_of_packed = 0;
  const Attrs attrs{{"dims", std::string("b m k, b k n -> b m n")}};
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t m : {3, 40}) {
      const std::vector<int64_t> shapes[] = {{2, m, 10}, {2, 10, 70}, {2, m, 70}};
      const Tensor dense[] = {Tensor(dtype, shapes[0]), Tensor(dtype, shapes[1]),
                              Tensor(dtype, shapes[2])};
      for (size_t i = 0; i < 2; ++i) const_cast<Tensor&>(dense[i]).fill_random(rng);
      for (const KernelDef* def : cpu_kernels()) {
        const TensorRef in[] = {dense[0].ref(), dense[1].ref()};
        const TensorRef out[] = {dense[2].ref()};
        if (def->op != "dot" || !def->supports({.attrs = &attrs, .in = in, .out = out})) continue;
        testing::run_kernel(*def, attrs, in, out, 2);
        for (int operand = 0; operand < 3; ++operand)
          for (int dim = 0; dim < 3; ++dim) {
            const Sparse far(dense[operand], dim);
            if (far.ref().data == nullptr) GTEST_SKIP() << "no room for so many addresses";
            const Tensor near_out(dtype, shapes[2]);
            TensorRef all[] = {dense[0].ref(), dense[1].ref(), near_out.ref()};
            all[operand] = far.ref();
            const KernelQuery q{.attrs = &attrs, .in = {all, 2}, .out = {all + 2, 1}};
            if (!def->supports(q)) continue;
            testing::run_kernel(*def, attrs, q.in, q.out, 2);
            far_operands_of_packed += def->name == "dot_packed";
            for (int64_t j = 0; j < near_out.numel(); ++j)
              ASSERT_EQ(operand == 2 ? far.at(j) : near_out.at(j), dense[2].at(j))
                  << def->name << " " << dtype_name(dtype) << " operand " << operand << " dim "
                  << dim << " m " << m << " at " << j;
          }
      }
    }
  EXPECT_EQ(far_operands_of_packed, 2 * 2 * 9);
}

}  // namespace
}  // namespace tegula
