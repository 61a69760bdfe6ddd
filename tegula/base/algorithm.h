// The algorithms on iterators: <algorithm> without its ranges and parallel policies, which take
// three times as long to parse.
#pragma once

#if __has_include(<bits/stl_algo.h>)  // libstdc++
#include <bits/stl_algo.h>
#else
#include <algorithm>
#endif
