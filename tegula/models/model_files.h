// ModelFiles: all that the files of one model say, whatever form they have.
//
// Forms, each a subclass that open() chooses: a training run's --out, which stands for its latest
// good checkpoint; one checkpoint, which its manifest verifies; a directory as Hugging Face lays it
// out; a GGUF file. Whoever needs a model takes a ModelFiles, never a path apart. Nothing is read
// before it is asked for. Errors name the file: kIo for one that is missing; kInvalidArgument for a
// path that is no model, and for a file that its manifest does not know; those of the readers of
// each part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/base/result.h"
#include "tegula/io/manifest.h"

namespace tegula {

class GgufFile;
class Tokenizer;
class WeightFiles;

// A small file: what errors about it name, and what it says.
struct TextFile {
  std::string path, text;
  friend bool operator==(const TextFile&, const TextFile&) = default;
};

class ModelFiles {
 public:
  // kAllButTensors takes the time of the small files: who reads weights calls verify_weights().
  static Result<std::shared_ptr<const ModelFiles>> open(const std::string& path,
                                                        Check check = Check::kHashes);
  virtual ~ModelFiles() = default;

  // The directory or file; of a run that of its checkpoint.
  virtual const std::string& path() const = 0;
  // JSON with the keys of config.json; of a model of images and text, those of its text alone, as
  // weights() has the weights.
  virtual Result<TextFile> config() const = 0;
  // The tensors, mapped, each in the type that it is stored in.
  virtual Result<WeightFiles> weights() const = 0;
  // Whether their bytes are those that were saved, where that is known.
  virtual Status verify_weights() const = 0;
  virtual Result<Tokenizer> tokenizer() const = 0;
  // JSON with the keys of generation_config.json; "{}" where nothing is said.
  virtual Result<TextFile> generation() const = 0;
  // The Jinja template that makes one prompt of a chat's messages; "": there is none.
  virtual Result<TextFile> chat_template() const = 0;
  // JSON: the texts of special tokens that templates ask for, {"bos_token": "<s>", …}.
  virtual Result<TextFile> special_tokens() const { return TextFile{path(), "{}"}; }
  // A small file that some kinds of models have besides, by its name in the directory
  // ("1_Pooling/config.json"); its text is "" where there is none.
  virtual Result<TextFile> other(std::string_view name) const {
    return TextFile{std::string(name), ""};
  }
  // The files that a model that is trained from this one keeps beside its configuration and
  // weights: how its texts are made and read. Paths are names in a directory.
  virtual Result<std::vector<TextFile>> companions() const = 0;
  // The GGUF file that it is; null: it is another form.
  virtual const GgufFile* gguf() const { return nullptr; }

  // For people: parts of the model that are not read; "": there are none.
  virtual std::string note() const { return ""; }

  // The ids that generation(), or else config(), calls the end of a text: any number of them.
  Result<std::vector<int64_t>> end_of_text() const;
};

}  // namespace tegula
