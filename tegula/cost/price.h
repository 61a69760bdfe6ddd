// Price: seconds of work on a device or target. Passes, cuts, searches, plans and the planner of
// clusters read this one; work.h says how a call's seconds are found, collective.h an exchange's.
//
// A target is priced as the row of its chip in the table of devices (devices.cpp), at its own
// peaks. Where they were measured, so were the shares of them (Target's efficiencies), and those
// hold. A target whose rates are not known (this machine before anybody measured it) is priced as
// 1e11 operations and 1e10 bytes a second, so that what is chosen by price does not change from run
// to run.
#pragma once

#include "tegula/cost/collective.h"
#include "tegula/cost/work.h"
#include "tegula/ir/opdef.h"
#include "tegula/kernels/target.h"

namespace tegula {

// A target as a device.
Accelerator device_of(const Target& target);
// An op call as work: its shape as a product's or attention's where it is one, by its dim map.
// Symbolic dims count by their bounds. Without operations and bytes: its own, at constant shapes.
Work work_of(const OpCall& call, double flops, double bytes);
Work work_of(const OpCall& call);

// Operations a second that large products of a dtype sustain, and bytes a second.
double flops_per_s(const Target& target, DType dtype);
double bytes_per_s(const Target& target);
// The same of elementwise operations in a fused loop, which are no multiply-adds and of which some
// are functions that take many instructions but count as one.
double elementwise_flops_per_s(const Target& target);
// Bytes that the target's caches hold, all cores' together: less than this need not go to memory.
int64_t cached_bytes(const Target& target);

// By the roofline alone: the longer of operations and bytes.
double price(const Target& target, DType dtype, double flops, double bytes);
// One call, alone: its launch, too. A view takes none.
double price(const Accelerator& device, const Work& work, Number number);
double price(const Target& target, const Work& work, DType dtype);
// The same of an op alone, every operand read once, every result written once; of a collective, the
// exchange of the rank that sends most.
double price(const Target& target, const OpCall& call);

// The link from one rank to another: the target's own, else its chip's within a node. Ranks of a
// CPU without one are threads that share memory: bytes at a copy's rate, a message is one meeting.
Link link_of(const Target& target);
// A rank's wait for others: α·n_meetings + β·bytes, where bytes are those it sends.
double price_of_exchange(const Target& target, int n_meetings, double sent_bytes);

// Rent of n devices; 0: not known.
double dollars(const Accelerator& device, double n_devices, double seconds);

}  // namespace tegula
