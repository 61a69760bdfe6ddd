// Launches of attention, whose tensors may be padded first (describe/attention_padded.h).
#pragma once

#include "tegula/kernels/cuda/describe/attention_padded.h"
#include "tegula/kernels/cuda/plugin/attention_count.h"
#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

// Copies what needs it: operands there, or results back.
Status copy_padded(const PaddedOperands& which, const PaddedCall& padded, const DeviceCall& call,
                   const Stream& to, bool is_back);

template <const PaddedOperands& kWhich, Status (*kLaunch)(const DeviceCall&, const Stream&)>
Status launch_padded(const DeviceCall& call, const Stream& to) {
  TEGULA_TRY(count_attention(call, &kWhich == &kBackwardOperands));
  if (!has_padded(kWhich, call.in, call.out)) return kLaunch(call, to);
  const PaddedCall p = padded(kWhich, call.in, call.out, static_cast<char*>(call.workspace));
  DeviceCall inner = call;
  inner.in = p.in, inner.out = p.out;
  inner.workspace = static_cast<char*>(call.workspace) + p.workspace_bytes;
  TEGULA_TRY(copy_padded(kWhich, p, call, to, false));
  TEGULA_TRY(kLaunch(inner, to));
  return copy_padded(kWhich, p, call, to, true);
}

}  // namespace tegula::cuda
