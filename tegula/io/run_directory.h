// The directory that a training run writes into (--out), and what tells it from others.
//
// A run marks its directory with a file, kRunMarker, before it writes anything else. A directory
// without the mark that holds any name a run would write is somebody else's: writing there would
// destroy it. What stands under these names must also be of the kind that a run makes (a directory,
// a plain file, a link that leads to a checkpoint), so that nothing is ever written through a link
// that leads out of the directory. In a copy of a run, links may have become what they led to.
#pragma once

#include <span>
#include <string>

#include "tegula/base/result.h"

namespace tegula {

inline constexpr std::string_view kRunMarker = ".tegula-run";

// Marked, or not marked (by a version that did not yet, or in a copy without names that begin with
// a dot), but `latest` leads to a checkpoint or is one.
bool is_run_directory(const std::string& dir);

// How a run starts: begin, go on with what is there, or begin in its place.
enum class RunStart { kNew, kResume, kOverwrite };

// Whether a run may write into `dir`, which need not exist. To overwrite, names of other origin are
// no error. Errors: kInvalidArgument naming what is in the way; kIo.
Status check_run_directory(const std::string& dir, RunStart start);

// Creates `dir` and marks it.
Status mark_run_directory(const std::string& dir);

// Removes what stands under the names that a run writes, and under those of `files`: links
// themselves, not what they lead to; of checkpoints/ only step-N and best.json.
Status clear_run_directory(const std::string& dir, std::span<const std::string> files = {});

// Whether a run into `dir` would write over the file `path`, links followed.
bool is_written_by_run(const std::string& dir, const std::string& path);

}  // namespace tegula
