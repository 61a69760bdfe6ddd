// The keys that any family's config.json may have, and what each family does with those it knows.
#include "tegula/models/config_keys.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/models/common/config_json.h"
#include "tegula/models/common/names.h"
#include "tegula/models/common/rope_config.h"

namespace tegula {

namespace {

struct FreeKeys {
  std::string_view keys, why;
};

// Keys that change no logits, in the words of `transformers` 4 and 5.
constexpr FreeKeys kFree[] = {
    {"architectures auto_map transformers_version transformers.js_config _name_or_path "
     "name_or_path _commit_hash extra_files extra_config_files unsloth_version unsloth_fixed "
     "transformers_weights model_name",
     "names of classes, files and versions"},
    {"bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id mask_token_id "
     "decoder_start_token_id tokenizer_class prefix model_max_length",
     "tokens of texts: generate asks for the end of one, weights do not"},
    {"use_cache cache_implementation return_dict return_dict_in_generate use_return_dict "
     "output_attentions output_hidden_states output_scores output_router_logits output_past "
     "torchscript",
     "what a call returns or keeps"},
    {"attn_implementation _attn_implementation _attn_implementation_autoset "
     "_attn_implementation_internal _experts_implementation _experts_implementation_internal "
     "use_flash_attn use_flash_attention use_flash_attention_2 _flash_attn_2_enabled "
     "gradient_checkpointing chunk_size_feed_forward use_bfloat16 tf_legacy_loss device_map "
     "distributed_config base_model_tp_plan base_model_pp_plan base_model_ep_plan",
     "how another program computes the same sums"},
    {"initializer_range initializer_factor _num_labels num_labels id2label label2id problem_type "
     "classifier_dropout hidden_dropout finetuning_task task_specific_params is_decoder",
     "of weights that are made anew, or of other heads than a language model's"},
    {"max_length min_length max_new_tokens do_sample early_stopping num_beams num_beam_groups "
     "diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty "
     "no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences "
     "remove_invalid_values exponential_decay_length_penalty suppress_tokens "
     "begin_suppress_tokens forced_bos_token_id forced_eos_token_id",
     "how transformers draws tokens: generate has flags of its own"},
};

// Keys that would change the mathematics of every family.
constexpr FixedKey kCommonFixed[] = {
    {"quantization_config", "null"},         {"is_causal", "true|null"},
    {"is_encoder_decoder", "false|null"},    {"tie_encoder_decoder", "false|null"},
    {"cross_attention_hidden_size", "null"}, {"pruned_heads", "{}|null"},
    {"per_layer_config", "null|{}"},         {"attention_chunk_size", "null|0"},
    {"num_nextn_predict_layers", "null|0"},  {"fusion_config", "null"},
};

// Where RoPE turns whole heads, in the spellings of `transformers` 4 and 5.
constexpr FixedKey kRotaryFixed[] = {
    {"rope_parameters.partial_rotary_factor", "1.0|1|null"},
    {"rope_scaling.partial_rotary_factor", "1.0|1|null"},
    {"partial_rotary_factor", "1.0|1|null"},
};
// Where layers with a window turn in another way: it has a base alone.
constexpr FixedKey kLocalFixed[] = {
    {"rope_parameters.sliding_attention.rope_type", R"("default"|null)"},
    {"rope_parameters.sliding_attention.type", R"("default"|null)"},
    {"rope_parameters.full_attention.truncate", "true|null"},
    {"rope_scaling.truncate", "true|null"},
};

// Keys of models that tegula does not build: a file that says them is of one of those.
constexpr std::string_view kForeign =
    "alibi use_alibi position_embedding_type qk_layernorm use_qk_norm qk_norm clip_qkv "
    "no_rope_layers rotary rotary_dim rope_local_base_freq rope_interleave parallel_attn "
    "use_parallel_residual new_decoder_architecture multi_query word_embed_proj_dim "
    "n_routed_experts n_shared_experts num_shared_experts moe_intermediate_size "
    "shared_expert_intermediate_size first_k_dense_replace decoder_sparse_step mlp_only_layers "
    "kv_lora_rank q_lora_rank num_kv_shared_layers attention_out_bias o_proj_bias add_bias_linear "
    "add_qkv_bias use_mrope use_logn_attn use_dynamic_ntk scale_depth dim_model_base "
    "attention_sink_size attn_temperature_tuning norm_topk_prob swiglu_limit text_config "
    "vision_config chain_hidden_post_norm hidden_act hidden_activation mamba_d_state "
    "original_max_position_embeddings";
// Here 1 changes nothing.
constexpr std::string_view kForeignFactors =
    "logit_scale logits_scaling attention_multiplier embedding_multiplier residual_multiplier "
    "scale_emb rotary_pct rotary_emb_fraction rope_ratio partial_rotary_factor rope_theta "
    "rotary_emb_base routed_scaling_factor logits_mup_width_multiplier";

template <class F>
void each_word(std::string_view words, F&& f) {
  any_word(words, [&](std::string_view word) {
    f(word);
    return false;
  });
}

bool has_word(std::string_view words, std::string_view word) {
  return any_word(words, [&](std::string_view w) { return w == word; });
}

struct Use {
  KeyUse use;
  std::string_view what;
};
using Known = std::map<std::string, Use, std::less<>>;

void add(Known& known, std::string_view keys, KeyUse use, std::string_view what) {
  each_word(keys, [&](std::string_view key) { known.try_emplace(std::string(key), use, what); });
}

Known known_keys(const ModelDef& model) {
  Known known;
  add(known, "model_type", KeyUse::kFixed, model.hf_type);
  for (const Field& f : model.fields)
    for (const std::string_view keys : {f.keys, f.also})
      add(known, keys, f.setting->is_of_training ? KeyUse::kTraining : KeyUse::kComputed,
          f.setting->name);
  const bool is_by_layer = has_setting(model, setting::kLocalTheta);
  if (has_setting(model, setting::kRopeScaling))
    for (const char* object :
         {is_by_layer ? "rope_parameters.full_attention." : "rope_parameters.", "rope_scaling."})
      each_word(kRopeMembers, [&](std::string_view member) {
        add(known, cat(object, member), KeyUse::kComputed, "RoPE's scaling");
      });
  for (const auto& list : fixed_keys(model))
    for (const FixedKey& f : list) add(known, f.key, KeyUse::kFixed, f.values);
  add(known, "dtype torch_dtype", KeyUse::kFree,
      "how weights were kept: the file says so of each, and --dtype what is computed with");
  add(known, model.free, KeyUse::kFree, "transformers' class of the family reads it nowhere here");
  for (const FreeKeys& f : kFree) add(known, f.keys, KeyUse::kFree, f.why);
  return known;
}

std::string_view top_of(std::string_view key) { return key.substr(0, key.find('.')); }

// Keys that change other models, and of which: a family's name, or "".
using Others = std::map<std::string, std::string, std::less<>>;
Others other_keys(const Known& known) {
  Others others;
  const auto is_known = [&](std::string_view key) {
    const auto at = known.lower_bound(key);
    return at != known.end() && top_of(at->first) == key;
  };
  const auto add_other = [&](std::string_view key, std::string_view family) {
    if (key.empty() || is_known(key)) return;
    std::string& who = others[std::string(key)];
    if (!family.empty() && !has_word(who, family)) who += cat(who.empty() ? "" : " ", family);
  };
  for (const ModelDef* m : all_models()) {
    for (const Field& f : m->fields)
      for (const std::string_view keys : {f.keys, f.also})
        each_word(keys, [&](std::string_view key) { add_other(top_of(key), m->hf_type); });
    for (const auto& list : fixed_keys(*m))
      for (const FixedKey& f : list) add_other(top_of(f.key), m->hf_type);
  }
  for (const std::string_view words : {kForeign, kForeignFactors})
    each_word(words, [&](std::string_view key) { add_other(key, ""); });
  return others;
}

// Whether a key of other models says that this one has nothing of the kind.
bool is_no(std::string_view key, const Json& value) {
  if (value.is_null() || value == Json(false) || value == Json(Json::Object()) ||
      value == Json(Json::Array()))
    return true;
  if (!value.is_number()) return false;
  const double number = value.number(0);
  return number == 0 || (number == 1 && has_word(kForeignFactors, key));
}

struct Walk {
  const std::string& path;
  const ModelDef& model;
  Known known = known_keys(model);
  std::vector<std::string> unread;
  std::optional<Others> others_;  // most files have no key to look up there

  Error refuse(std::string_view key, const Json& value, std::string_view why) const {
    return unsupported(cat("'", path, "': tegula does not compute \"", key, "\": ", value.dump(),
                           " of a ", model.hf_type, why));
  }
  const Others& others() {
    if (!others_) others_ = other_keys(known);
    return *others_;
  }
  bool is_parent(const std::string& key) const {
    const auto at = known.lower_bound(key + ".");
    return at != known.end() && at->first.starts_with(key + ".");
  }
  Status members(const Json::Object& object, const std::string& prefix) {
    for (const Json::Member& m : object) {
      const std::string key = prefix + m.key;
      if (known.contains(key)) continue;
      if (is_parent(key)) {
        if (m.value.is_null()) continue;
        const auto* inside = m.value.as<Json::Object>();
        if (inside == nullptr)
          return invalid_argument(
              cat("'", path, "': the key \"", key, "\" is ", m.value.dump(), ", not an object"));
        TEGULA_TRY(members(*inside, key + "."));
      } else if (!prefix.empty()) {
        if (!m.value.is_null()) return refuse(key, m.value, "");
      } else if (const auto other = others().find(key); other != others().end()) {
        if (!is_no(key, m.value))
          return refuse(key, m.value,
                        cat(other->second.empty() ? std::string()
                                                  : cat(" (it is a key of ", other->second, ")"),
                            ": is model_type right? If the model was trained without, remove the "
                            "key"));
      } else {
        unread.push_back(m.key);
      }
    }
    return {};
  }
};

}  // namespace

std::vector<std::span<const FixedKey>> fixed_keys(const ModelDef& model) {
  std::vector<std::span<const FixedKey>> lists = {model.fixed, kCommonFixed};
  if (has_setting(model, setting::kRopeScaling) && !has_setting(model, setting::kRotaryShare))
    lists.emplace_back(kRotaryFixed);
  if (has_setting(model, setting::kLocalTheta)) lists.emplace_back(kLocalFixed);
  return lists;
}

std::string_view use_name(KeyUse use) {
  switch (use) {
    case KeyUse::kComputed:
      return "computed";
    case KeyUse::kTraining:
      return "training";
    case KeyUse::kFixed:
      return "one value";
    case KeyUse::kFree:
      return "ignored";
    case KeyUse::kOther:
      return "refused";
  }
  return "";
}

std::vector<ConfigKey> config_keys(const ModelDef& model) {
  std::vector<ConfigKey> keys;
  const Known known = known_keys(model);
  for (const auto& [name, k] : known)
    keys.push_back(
        {name, k.use, name == "model_type" ? cat('"', k.what, '"') : std::string(k.what)});
  for (const auto& [name, who] : other_keys(known))
    keys.push_back({name, KeyUse::kOther,
                    who.empty() ? "of models that tegula does not build" : cat("of ", who)});
  std::ranges::stable_sort(keys, {}, &ConfigKey::use);
  return keys;
}

bool is_free_key(std::string_view key) {
  return std::ranges::any_of(kFree, [&](const FreeKeys& f) { return has_word(f.keys, key); });
}

Status check_config_keys(const Json& json, const std::string& path, const ModelDef& model) {
  return Walk{path, model}.members(*json.as<Json::Object>(), "");
}

std::string note_on_keys(std::string_view text, const std::string& path) {
  const auto json = Json::parse(text, path);
  if (!json.ok() || json->as<Json::Object>() == nullptr) return "";
  const auto* name = json->find_as<std::string>("model_type");
  const auto models = all_models();
  const auto model = std::ranges::find_if(
      models, [&](const ModelDef* m) { return name != nullptr && m->hf_type == *name; });
  if (model == models.end()) return "";
  Walk walk{path, **model};
  if (!walk.members(*json->as<Json::Object>(), "").ok() || walk.unread.empty()) return "";
  return cat("'", path, "' has keys that neither tegula nor transformers' ", *name,
             " reads: ", joined(walk.unread));
}

}  // namespace tegula
