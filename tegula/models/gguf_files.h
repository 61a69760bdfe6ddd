// GgufFiles: a GGUF file as a model's files, under the names and in the forms of Hugging Face.
#pragma once

#include "tegula/io/gguf.h"
#include "tegula/models/model_files.h"

namespace tegula {

class GgufFiles : public ModelFiles {
 public:
  // Errors: those of GgufFile, and of an architecture that is not known.
  static Result<std::shared_ptr<const GgufFiles>> open(const std::string& path);

  const std::string& path() const override { return file_->path(); }
  Result<TextFile> config() const override;
  // Blocks and what lies in another order are read by rows (io/stored_tensor.h).
  Result<WeightFiles> weights() const override;
  Status verify_weights() const override { return {}; }  // it has no hashes
  Result<Tokenizer> tokenizer() const override;
  Result<TextFile> generation() const override;
  Result<TextFile> chat_template() const override;
  Result<TextFile> special_tokens() const override;
  Result<std::vector<TextFile>> companions() const override;
  const GgufFile* gguf() const override { return file_.get(); }

 private:
  explicit GgufFiles(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {}
  std::shared_ptr<const GgufFile> file_;
};

}  // namespace tegula
