// FiniteHunt: where the numbers of a run stop being finite.
//
//   if (!std::isfinite(loss)) {
//     FiniteHunt hunt(session);            // watches the session as long as it lives
//     (void)session.run(extents);          // the same inputs: the same numbers
//     hunt.found().text();
//   }
//
// A check of what a run gives costs next to nothing; the hunt is made after it failed. It reads
// every result of every step on the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/base/tensor.h"
#include "tegula/ir/module.h"

namespace tegula {

class Session;

// Found in a run: the step whose results were the first to hold a NaN, and the step that was the
// first to make an infinite number out of finite ones. An infinity that is meant (a mask) is none.
struct NotFinite {
  struct Place {
    std::string op;     // "dot (tegula/models/gpt2.cpp:33)"; "": there is none
    std::string scope;  // "layers.3.attn"
    DType dtype = DType::kF32;
    size_t step = 0;
    std::string text() const;  // "op dot (tegula/models/gpt2.cpp:33) in layers.3.attn"
  };
  Place nan, infinite;
  // A weight that was not finite when the run began; "": none.
  std::string weight;

  bool is_found() const { return !nan.op.empty() || !infinite.op.empty() || !weight.empty(); }
  // The place that was first: what comes later follows from it. Null: there is none.
  const Place* origin() const;
  // "the weight layers.0.attn.q is not finite"; "the first NaN came from op …, the first infinite
  // value before it from op …"; "" where nothing is found.
  std::string text() const;
};

class FiniteHunt {
 public:
  // The weights and the state are looked at here. One hunt for a session at a time.
  explicit FiniteHunt(Session& session);
  ~FiniteHunt();
  FiniteHunt(const FiniteHunt&) = delete;
  FiniteHunt& operator=(const FiniteHunt&) = delete;

  const NotFinite& found() const { return found_; }

 private:
  void look(const Session& session, size_t step);
  Session& session_;
  NotFinite found_;
  std::vector<ValueId> bad_;  // values with numbers that are not finite
  std::vector<uint8_t> from_device_;
};

// Whether all numbers of a tensor on the host are finite. Cost: one read; f32, bf16 and f16 that
// lie without gaps without a branch.
bool are_finite(const TensorRef& t);

}  // namespace tegula
