// Several calls of a kernel as one launch: what host and device both know.
#pragma once

namespace tegula::cuda {

// Calls find room in the 4 KiB that a launch may be passed.
inline constexpr int kJoinedBytes = 4000, kFewestJoined = 2, kMostJoined = 64;

// How many of so many bytes each, and 8 for its first block. A constant, since device code that is
// compiled at run time has no functions of both sides.
template <int kBytes>
inline constexpr int kMostJoinedOf =
    kJoinedBytes /
            (kBytes + 8)<kFewestJoined ? kFewestJoined : kJoinedBytes / (kBytes + 8)> kMostJoined
        ? kMostJoined
        : kJoinedBytes / (kBytes + 8);

}  // namespace tegula::cuda
