// Models and their checkpoints: config.json and the weights, in Hugging Face form.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tegula/base/box.h"
#include "tegula/base/memory.h"
#include "tegula/base/thread_pool.h"
#include "tegula/io/weight_files.h"
#include "tegula/models/model.h"
#include "tegula/models/model_files.h"
#include "tegula/text/tokenizer.h"

namespace tegula {

// config.json as `transformers` (4 and 5) reads and writes it. A family's fields say which keys it
// has and what an absent one means; config_keys.h says what becomes of the others. Errors name the
// file and the key: kInvalidArgument for wrong types, values out of range, two spellings that
// contradict, and sizes that do not fit together or whose products no machine could hold;
// kUnsupported for other model types and for what would change the mathematics; kIo.
std::string model_config_json(const ModelConfig& config, DType dtype);
// That of a model which was made from another one's: `base` as it is, keys that nothing here reads
// too, but for what `config` and the dtype of the weights say otherwise.
Result<std::string> derived_config_json(const ModelConfig& config, DType dtype,
                                        const TextFile& base);
Result<ModelConfig> parse_model_config(std::string_view text, const std::string& path);
Result<ModelConfig> load_model_config(const ModelFiles& files);

// The weights of a model in model.safetensors or its shards, mapped: opening takes the time of
// their headers. Errors name the tensor: missing, misshapen, not of floating point, with a NaN or
// an infinity, or one that the model has no place for. What exporters add without a meaning of its
// own passes: buffers of masks and angles, a tied head that equals the embedding, zero biases of a
// GPT-2 without biases. Values are checked when they are first read: by copy(), and for what is
// used where it lies by check().
class ModelWeights {
 public:
  struct Weight {
    std::string name;
    std::vector<int64_t> shape;
  };
  static Result<std::shared_ptr<ModelWeights>> open(WeightFiles files, const ModelConfig& config,
                                                    const std::vector<Weight>& weights);
  // The box of a weight where it lies, as long as this lives; null data: it must be copied, since
  // the file has another dtype, or the weight in several tensors, or the box in several pieces.
  TensorRef mapped(std::string_view name, const Box& box, DType dtype) const;
  // The box, row-major, in the dtype of `to`.
  Status copy(std::string_view name, const Box& box, const TensorRef& to) const;
  // The one tensor that is the weight, if it is read by rows (blocks, say); null: mapped() or
  // copy() is all there is.
  const StoredTensor* stored(std::string_view name) const;
  // The dtype of a file's tensor; f32 if it is blocks.
  DType stored_dtype(std::string_view name) const;
  // All values that are in a file's own dtype, and scales of blocks, on all threads.
  Status check(ThreadPool& pool) const;

 private:
  struct Part {  // a tensor of the file; of a weight with several, an index of its first dim
    std::string name;
    WeightFiles::Found from;
  };
  explicit ModelWeights(WeightFiles files) : files_(std::move(files)) {}
  WeightFiles files_;
  std::map<std::string, std::vector<Part>, std::less<>> parts_;
};

// Whether the scales of all blocks are numbers, on all threads.
Status check_blocks(const StoredTensor& stored, ThreadPool& pool);

// The weights of the model that these files have: all of model_weights(), but for a head that they
// may lack and do (TensorNames::optional).
Result<std::vector<WeightSpec>> stored_weights(const WeightFiles& files, const ModelConfig& config);

// Copies every weight of the model that is stored to where `place` says, in the dtype of that.
template <class F>
Status load_model_weights(const ModelFiles& files, const ModelConfig& config, F&& place);
Status read_weights(WeightFiles files, const ModelConfig& config,
                    const std::vector<std::pair<std::string, TensorRef>>& into);

// The tokenizer beside the model. Errors: it has ids that the model has no row for. One with fewer
// is fine, since models are padded: `note` then says so.
Result<Tokenizer> load_model_tokenizer(const ModelFiles& files, const ModelConfig& config,
                                       std::string& note);

// The names of the `n` tensors that a weight consists of, or its own.
std::vector<std::string> checkpoint_part_names(const ModelConfig& config, const std::string& name,
                                               int64_t n);
// The tensors of a checkpoint that a weight (or its gradient) consists of: itself, but Mixtral
// keeps every expert's matrix alone ("….experts.3.w1.weight") where the model has one tensor
// [n_experts, …] ("….experts.w1.weight").
std::vector<std::pair<std::string, TensorRef>> checkpoint_parts(const ModelConfig& config,
                                                                const std::string& name,
                                                                const TensorRef& t);
// The tensors of model.safetensors: the weights (Mixtral's one by one for every expert), and what
// the family's format wants besides (GPT-2 without biases gets zero biases). `zeros` must outlive
// the use.
std::vector<std::pair<std::string, TensorRef>> checkpoint_tensors(
    const ModelConfig& config, const std::vector<std::pair<std::string, TensorRef>>& weights,
    std::vector<std::vector<float>>& zeros);

template <class F>
Status load_model_weights(const ModelFiles& files, const ModelConfig& config, F&& place) {
  std::vector<std::pair<std::string, TensorRef>> into;
  WeightFiles from = TEGULA_TRY(files.weights());
  for (const WeightSpec& w : TEGULA_TRY(stored_weights(from, config)))
    into.emplace_back(w.name, TEGULA_TRY(place(w)));
  return read_weights(std::move(from), config, into);
}

}  // namespace tegula
