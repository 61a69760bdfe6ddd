// Tegula as a library: one header that brings what a program of maths needs and stays the
// interface.
//
//   Builder, Var            ir/builder.h      a function under construction; its values
//   the vocabulary          ops/*.h           maths, layers, losses, attention, control flow
//   grad, pullback, …       ops/autodiff.h    derivatives, written into the same builder
//   compile                 runtime/compile.h a function -> a plan, through the passes
//   Rank                    runtime/rank.h    threads, memory and counts of one participant
//   Session, Store          runtime/session.h a plan -> results; weights by name
//   Eager                   runtime/eager.h   a builder that computes each op when it is called
//   interpret               ir/interpret.h    the references, slowly and in f64: what is meant
//
// Errors are values (base/result.h): a builder keeps its first one and finish() returns it. Link
// tegula::tegula, which find_package(tegula) defines; examples/xor is a project of its own. What
// trains whole models and generates text has headers of its own below tegula/models, train and
// serve.
//
// <memory> and <thread> come with it: modules and plans are shared, and each rank of a group runs
// on a thread that the program starts.
#pragma once

#include <thread>

#include "tegula/base/memory.h"
#include "tegula/base/philox.h"
#include "tegula/base/thread_pool.h"
#include "tegula/ir/builder.h"
#include "tegula/ir/interpret.h"
#include "tegula/ops/arrange.h"
#include "tegula/ops/attention.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/collective.h"
#include "tegula/ops/control.h"
#include "tegula/ops/conv.h"
#include "tegula/ops/cumulative.h"
#include "tegula/ops/dynamic_slice.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/layers.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/ops/math.h"
#include "tegula/ops/norm.h"
#include "tegula/ops/quantise.h"
#include "tegula/ops/rope.h"
#include "tegula/ops/sorting.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/eager.h"
#include "tegula/runtime/rank.h"
#include "tegula/runtime/session.h"
