// DeviceCall: a kernel's call where a rank is more than its threads.
#pragma once

#include "tegula/kernels/kernel.h"

namespace tegula {

class Peers;

// The arguments that a launch is given where a rank is more than its threads: of a device's kernel
// (data and workspace lie on the device), and of a collective's.
struct DeviceCall : KernelCall {
  Peers* peers = nullptr;  // the other ranks (kernels/peers.h); null: there are none
};

}  // namespace tegula
