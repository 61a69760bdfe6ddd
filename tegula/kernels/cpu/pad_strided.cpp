// pad: the new places are filled, then x is copied between them.
#include "tegula/kernels/cpu/common/pad.h"

namespace tegula::kernel {

namespace {
void launch(const KernelCall& c) {
  const PadCall p(*c.attrs, c.in[0], c.out[0]);
  for (int64_t i = 0; i < p.n_filled(); ++i) fill_strided(&p.value, p.filled(i), *c.pool);
  move_strided(c.in[0], p.copied, *c.pool);
}
}  // namespace

extern constinit const KernelDef pad_strided = {
    .name = "pad_strided",
    .op = "pad",
    .order = "exact",
    .doc = "fills what is new, then copies",
    .supports = [](const KernelQuery&) { return true; },
    .launch = launch,
};

}  // namespace tegula::kernel
