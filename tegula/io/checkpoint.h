// Checkpoints: directories that are complete or not there, whatever happens while they are saved.
//
// Layout of an output directory DIR:
//   DIR/checkpoints/step-000100/   model.safetensors, config.json, …, optimizer.safetensors,
//                                  trainer_state.json, manifest.json (names, sizes, SHA-256)
//   DIR/latest                     link to checkpoints/step-…, replaced atomically
//   DIR/best                       the same, to the one that keep_best() named last
//   DIR/model.safetensors, …       links to latest/…, so that DIR itself loads as a model; not
//                                  for what only a resume needs (optimizer…, trainer_state.json)
// A save writes into DIR/checkpoints/.tmp-…, syncs every file and the directory, renames it to
// step-N (step-N.1, … if that exists), syncs, then replaces `latest`. So after kill -9 or a power
// cut at any moment latest_good() is the old checkpoint or the new one, and the new one for sure
// once publish() has returned. Afterwards the last two and the best stay and older ones are
// removed; what dead writers left is removed when the next writer begins. One writer at a time
// holds DIR's lock: a run for all its life. Errors: kIo for a full disk and the like (the old
// checkpoints stay); kInvalidArgument for a DIR that is in use, holds files of other origin under
// these names, or has no checkpoint; a file that is missing, truncated or altered is named with its
// expected and actual hash. Cost: one pass of writing and hashing; verifying reads every byte once
// (1.5–2 GB/s).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/io/file.h"
#include "tegula/io/manifest.h"
#include "tegula/io/safetensors.h"
#include "tegula/io/shared_safetensors.h"

namespace tegula {

inline constexpr std::string_view kModelFile = "model.safetensors";
inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
inline constexpr std::string_view kTrainerStateFile = "trainer_state.json";
inline constexpr std::string_view kManifestFile = "manifest.json";

// Creates DIR and says whether checkpoints, with files of these names besides, may be saved there;
// for asking before a long run.
Status prepare_checkpoints(const std::string& dir, std::span<const std::string> files = {});
// Creates DIR; nobody else may save there while the lock lives.
Result<FileLock> lock_checkpoints(const std::string& dir);
// In a copy of a run that followed its links (cp -rL, zip, scp -r) or kept them as text, makes what
// stands under their names links again. Under DIR's lock, and only where DIR is known as a run's
// (run_directory.h).
Status restore_links(const std::string& dir);

// One save: begin, add every file, publish. Dropped before publish(), it leaves no trace.
class CheckpointWriter {
 public:
  // Under DIR's lock, taken for this save or held by the caller.
  static Result<CheckpointWriter> begin(const std::string& dir, int64_t step);
  static Result<CheckpointWriter> begin(const std::string& dir, int64_t step, const FileLock& held);
  CheckpointWriter(CheckpointWriter&& other) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;
  ~CheckpointWriter();

  Status add_tensors(std::string_view name, std::span<const NamedTensor> tensors,
                     const Metadata& metadata = default_metadata());
  Status add_file(std::string_view name, std::string_view bytes);

  // A file that others write into, too: where it lies until it is published, and how errors show
  // it. take() hashes and adds it when all are done.
  struct Shared {
    std::string path, shown_path;
  };
  Result<Shared> share(std::string_view name, const SharedSafetensors& file);
  Status take(std::string_view name);

  struct Published {
    std::string path;  // DIR/checkpoints/step-…
    uint64_t n_bytes = 0;
    std::string warning;  // not empty when an old checkpoint could not be removed
  };
  Result<Published> publish();

 private:
  struct Entry {
    std::string name;
    OutputFile::Digest digest;
  };
  CheckpointWriter(std::string dir, int64_t step) : dir_(std::move(dir)), step_(step) {}
  Status make_temporary(const FileLock& lock);
  Status check_new(std::string_view name) const;
  Result<OutputFile> create(std::string_view name);
  Status finish(std::string_view name, OutputFile& file);
  Status link_from_root();
  std::string remove_old(std::string_view previous);

  std::string dir_;
  int64_t step_;
  std::string name_;              // step-…, as it will be published
  std::string temporary_;         // the directory being written; empty once published
  std::optional<FileLock> lock_;  // empty: the caller holds it
  std::vector<Entry> entries_;
};

// The checkpoint with the lowest validation loss, which stays however old it is.
struct BestCheckpoint {
  std::string path;  // DIR/checkpoints/step-…
  int64_t step = 0;
  double val_loss = 0;
};
// Names a published checkpoint as the best one. Under DIR's lock.
Status keep_best(const std::string& dir, const BestCheckpoint& best);
// Empty: none was named, or it is gone.
std::optional<BestCheckpoint> best_checkpoint(const std::string& dir);

struct GoodCheckpoint {
  std::string path;
  int64_t step = 0;
  // One line for each newer checkpoint that failed to verify.
  std::vector<std::string> rejected;
};

// The checkpoint that `latest` names if it verifies, else the newest other one that does.
Result<GoodCheckpoint> latest_good(const std::string& dir, Check check = Check::kHashes);
// Checks one checkpoint directory against its manifest; its step.
Result<int64_t> verify_checkpoint(const std::string& checkpoint);
// Where to load a model from: DIR's latest good checkpoint, a checkpoint directory (verified), or
// any other directory with a config.json (taken as it is). With kAllButTensors in the time of its
// small files: who reads the tensors calls verify_model_tensors() then.
Result<std::string> resolve_model_directory(const std::string& path, Check check = Check::kHashes);
// The content of model.safetensors, where there is a manifest that says what it must be.
Status verify_model_tensors(const std::string& directory);

}  // namespace tegula
