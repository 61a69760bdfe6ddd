// Several calls of a kernel as one launch: what host and device both know.
#pragma once

namespace tegula::cuda {

// Calls find room in the 4 KiB that a launch may be passed.
inline constexpr int kJoinedBytes = 4000, kFewestJoined = 2, kMostJoined = 64;

// Within these bounds. Constants, since device code that is compiled at run time has no functions
// of both sides.
template <int kFitting>
inline constexpr int kJoinedOf = (kFitting < kFewestJoined) ? kFewestJoined
                                 : (kFitting > kMostJoined) ? kMostJoined
                                                            : kFitting;

// How many calls of so many bytes each, and 8 for its first block.
template <int kBytes>
inline constexpr int kMostJoinedOf = kJoinedOf<kJoinedBytes / (kBytes + 8)>;

}  // namespace tegula::cuda
