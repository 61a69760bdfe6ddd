// std::unique_ptr and std::shared_ptr: <memory> without its algorithms, policies and atomics, which
// take as long to parse again.
#pragma once

#if __has_include(<bits/shared_ptr.h>)  // libstdc++
#include <bits/shared_ptr.h>
#include <bits/unique_ptr.h>
#else
#include <memory>
#endif
