// A fuzz target: a function that takes any bytes. It must not crash, hang or grow without end, and
// what it accepts must keep its promises: a broken one ends the process with TEGULA_CHECK.
//
// A file NAME.cpp of this folder defines `constinit const Target NAME_target`; its seeds lie in
// seeds/NAME/. libfuzzer.cpp makes a libFuzzer binary of it, seeds_test.cpp replays the seeds.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "tegula/base/result.h"
#include "tegula/base/str.h"

namespace tegula::fuzz {

struct Target {
  std::string_view name;
  bool (*run)(std::string_view input);  // whether the input was accepted
};

// Every target of this folder; generated from the file names, for seeds_test.cpp.
std::span<const Target* const> all_targets();

// A folder of this process in memory, for readers that want a path; gone when the process ends
// well.
inline const std::string& scratch() {
  struct Folder {
    // The six letters that mkdtemp replaces.
    std::string path = cat(std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp",
                           "/tegula-fuzz-", std::string(6, 'X'));
    Folder() { TEGULA_CHECK(mkdtemp(path.data()) != nullptr); }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

// A file with these bytes. Without the syncing of the library's own files, which fuzzing would wait
// for.
inline void put(const std::string& path, std::string_view bytes) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  TEGULA_CHECK(f != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), f) == bytes.size());
  TEGULA_CHECK(std::fclose(f) == 0);
}

}  // namespace tegula::fuzz
