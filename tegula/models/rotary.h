// How a layer turns queries and keys: RoPE's base, how much of a head, and what a model that reads
// longer texts than it was trained on at first does to the angles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/models/config.h"

namespace tegula {

struct Rotary {
  double theta = 0;              // 0: nothing is turned
  int64_t dims = 0;              // the first elements of a head; the others stay
  double scale = 1;              // of what is turned
  std::vector<double> divisors;  // of each pair's angle; none: 1
};

// The configuration's, for texts of up to `longest` tokens: LongRoPE chooses by that.
//
// linear: every angle is divided by a factor. dynamic: none, up to the context. llama3: those of
// pairs that turn less than `low` times in the trained context, of none that turns more than
// `high` times, of those between in part. yarn: by the pair's index between two bounds. longrope:
// by a list, of two. [Chen et al. 2023; Dubey et al. 2024; Peng et al. 2023; Ding et al. 2024]
Rotary rotary_of(const ModelConfig& config, int64_t longest);
Rotary rotary_of_all(const ModelConfig& config, int64_t layer, int64_t longest);
// Up to so many tokens that a text may reach, LongRoPE's short list is for it, beyond them the long
// one; 0: there is one list for all that the context holds.
int64_t short_context(const ModelConfig& config);
// "texts that may reach 5000 tokens, and 4096 were trained at first: …": what LongRoPE chose for
// them; "": it is none.
std::string note_on_rotary(const ModelConfig& config, int64_t longest);

namespace setting {
// The object that says how angles are scaled, as JSON: common/rope_config.h reads and writes it.
inline constexpr Setting kRopeScaling = Setting::text("rope_scaling", "", "", "");
// The share of a head's elements that is turned.
inline constexpr Setting kRotaryShare =
    Setting::number("partial_rotary_factor", "rotary-share",
                    "Share of a head's elements that positions turn", Range::kPositive);
// The base of layers with a window, where it is another one.
inline constexpr Setting kLocalTheta =
    Setting::number("rope_local_base_freq", "", "", Range::kPositive);
// The context that was trained at first, where it stands beside the object.
inline constexpr Setting kTrainedContext =
    Setting::size("original_max_position_embeddings", "", "", 1, 1 << 28);
}  // namespace setting

}  // namespace tegula
