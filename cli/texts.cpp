#include "cli/texts.h"

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/process.h"
#include "tegula/base/amounts.h"
#include "tegula/io/file.h"

namespace tegula::cli {

namespace {
constexpr int64_t kManyBytes = int64_t{1} << 30;

struct RealSetting {
  const char* name;
  double SamplerConfig::*value;
  double low, high;
  const char* doc;
  bool is_of_chance;  // of no use where the likeliest token is taken
};
constexpr RealSetting kReals[] = {
    {"temperature", &SamplerConfig::temperature, 0, kUnlimited, "0: always the likeliest token",
     false},
    {"top-p", &SamplerConfig::top_p, 0, 1, "Among the likeliest that reach probability P", true},
    {"min-p", &SamplerConfig::min_p, 0, 1,
     "Among those that are P times as likely as the likeliest", true},
    {"typical-p", &SamplerConfig::typical_p, 0, 1,
     "Among the most typical that reach probability P", true},
    {"repetition-penalty", &SamplerConfig::repetition_penalty, 0.01, 100,
     "Divide logits of tokens that prompt or text have; 1: do not", false},
    {"frequency-penalty", &SamplerConfig::frequency_penalty, -100, 100,
     "Take it off a logit for each time that the text has the token", false},
    {"presence-penalty", &SamplerConfig::presence_penalty, -100, 100,
     "Take it off the logits of tokens that the text has", false}};

std::string key_of(std::string_view flag) {
  std::string key(flag);
  for (char& c : key)
    if (c == '-') c = '_';
  return key;
}

Result<std::pair<int32_t, double>> read_bias(std::string_view id, std::string_view value) {
  const int64_t token = TEGULA_TRY(read_count(id, 0, INT32_MAX));
  return std::pair<int32_t, double>(static_cast<int32_t>(token),
                                    TEGULA_TRY(read_amount(value, -1e9, 1e9)));
}

// NAME=VALUE: the value as JSON (false, 3, "text"), or else a text.
Result<Json> variables_of(const std::vector<std::string>& arguments) {
  Json all = Json::object();
  for (const std::string& each : arguments) {
    const size_t at = each.find('=');
    if (at == 0 || at == each.npos)
      return invalid_argument(cat("--template-arg '", each, "' is not NAME=VALUE"));
    const std::string text = each.substr(at + 1);
    auto value = Json::parse(text, "--template-arg");
    all.set(each.substr(0, at), value.ok() ? std::move(*value) : Json(text));
  }
  return all;
}
}  // namespace

void add_model(const Command& cmd, TextOptions& o) {
  cmd.add_option("--model", o.model, "Directory of the model").required().type_name("DIR");
  whole(cmd.add_option("--prefill-chunk", o.chunk,
                       "Read prompts so many tokens at a time; 0: all, with windows 512"),
        0);
  one_of(cmd.add_option("--mode", o.mode,
                        "exact: long sums in 8 fixed parts; fast: in one. exact, on a GPU fast"),
         {"exact", "fast"});
  one_of(cmd.add_option("--dtype", o.dtype,
                        "Of weights, activations and the cache; of blocks on a GPU bf16"),
         {"f32", "bf16", "f16"});
  one_of(cmd.add_option("--activations", o.activations,
                        "Of products with weights in blocks: int8, summed exactly, or f32. int8"),
         {"int8", "f32"});
  one_of(cmd.add_option("--cache-dtype", o.cache_dtype,
                        "Of keys and values in the cache; default: --dtype"),
         {"f32", "bf16", "f16"});
  one_of(cmd.add_option("--device", o.device, "Where the model runs"), {"cpu", "cuda"});
  add_threads(cmd, o.threads);
  add_tuning(cmd, o.tune, o.tune_cache);
  add_superopt(cmd, o.superopt, o.rules);
}

void add_sampling(const Command& cmd, TextOptions& o) {
  cmd.add_option("--stop", o.stop, "End before this text; may be given several times")
      .keep_all()
      .type_name("TEXT");
  cmd.add_flag("--ignore-eos", o.ignore_eos,
               "Go on where the model ends its text (eos_token_id of its files)");
  for (const RealSetting& s : kReals)
    real(cmd.add_option(cat("--", s.name), o.sampler.*s.value, s.doc), s.low, s.high);
  whole(cmd.add_option("--top-k", o.sampler.top_k, "Among the K likeliest; 0: all"), 0);
  whole(cmd.add_option("--seed", o.sampler.seed, "Random seed"), 0, INT64_MAX);
  cmd.add_option("--logit-bias", o.bias,
                 "Add VALUE to the logit of a token; may be given several times")
      .keep_all()
      .type_name("ID=VALUE");
}

std::vector<Flag> add_chat_flags(const Command& cmd, TextOptions& o) {
  return {
      cmd.add_option("--system", o.system, "What the system's message says").type_name("TEXT"),
      cmd.add_option("--chat-template", o.chat_template, "A Jinja template instead of the model's")
          .type_name("FILE"),
      cmd.add_option(
             "--template-arg", o.template_arguments,
             "A variable of the template, as enable_thinking=false; may be given several times")
          .keep_all()
          .type_name("NAME=VALUE")};
}

void check_together(const Command& cmd, TextOptions& o, bool lines_differ) {
  for (const std::string& stop : o.stop)
    if (stop.empty()) usage_error("--stop: an empty text would end it before the first token");
  const auto refuse_chance = [&](const std::string& flag) {
    if (!lines_differ && o.sampler.temperature == 0 && cmd.flag(flag).is_given())
      usage_error(cat(flag,
                      " is of no use at --temperature 0, which takes the likeliest token: leave "
                      "out one of them"));
  };
  for (const char* flag : {"--seed", "--top-k"}) refuse_chance(flag);
  for (const RealSetting& s : kReals)
    if (s.is_of_chance) refuse_chance(cat("--", s.name));
  if (o.tune == "off" && o.superopt == 0 && !o.tune_cache.empty())
    usage_error("--tune-cache is of no use without --tune quick or --tune full");
  o.has_dtype = cmd.flag("--dtype").is_given();
  o.sampler.bias.clear();
  for (const std::string& each : o.bias) {
    const size_t at = std::min(each.find('='), each.size());
    auto bias = read_bias(each.substr(0, at), each.substr(std::min(at + 1, each.size())));
    if (!bias.ok())
      usage_error(cat("--logit-bias '", each, "' is not ID=VALUE: ", bias.error().message));
    o.sampler.bias.push_back(*bias);
  }
  if (const auto variables = variables_of(o.template_arguments); !variables.ok())
    usage_error(variables.error().message);
}

Result<std::unique_ptr<Generator>> open_model(const TextOptions& o) {
  auto g = TEGULA_TRY(Generator::open(o.model, parse_dtype(o.dtype).value_or(DType::kF32)));
  note_on_model(o.model);
  // A GPU computes on no blocks, and is for speed. (A family of f32 alone stays so.)
  if (o.device == "cuda" && !o.has_dtype && TEGULA_TRY(g->is_quantised()))
    (void)g->set_dtype(DType::kBF16);
  TEGULA_TRY(check_bias(o.sampler, *g));
  return g;
}

Status check_bias(const SamplerConfig& sampler, const Generator& g) {
  for (const auto& [token, bias] : sampler.bias)
    if (token >= g.config().vocab_size)
      return invalid_argument(cat("the logit bias of token ", token, ": the model has ",
                                  g.config().vocab_size, " tokens"));
  return {};
}

Result<ChatPrompts> open_chat(const Generator& g, const TextOptions& o) {
  TextFile instead{o.chat_template, ""};
  if (!o.chat_template.empty()) {
    instead.text = TEGULA_TRY(read_file(o.chat_template));
    if (instead.text.empty())
      return invalid_argument(cat("the chat template '", o.chat_template, "' is empty"));
  }
  return ChatPrompts::open(g.files(), g.tokenizer(), instead,
                           TEGULA_TRY(variables_of(o.template_arguments)));
}

Result<int64_t> prepare(Generator& g, const TextOptions& o, RunnerOptions r, bool says_cache) {
  r.threads = o.threads, r.batch = o.batch, r.chunk = o.chunk;
  r.dtype = g.dtype();
  if (!o.cache_dtype.empty()) r.cache_dtype = parse_dtype(o.cache_dtype);
  const bool is_fast = o.mode.empty() ? o.device == "cuda" : o.mode == "fast";
  r.mode = is_fast ? Mode::kFast : Mode::kExact;
  if (o.device == "cuda") r.device = TEGULA_TRY(open_device());
  r.tune = {TEGULA_TRY(parse_tune_mode(o.tune)), o.tune_cache};
  r.superopt_seconds = o.superopt, r.rules = TEGULA_TRY(read_rules(o.rules));
  const int64_t bytes = TEGULA_TRY(g.cache_bytes(r));
  if (says_cache || !o.cache_dtype.empty() || bytes >= kManyBytes)
    print_note(cat("the cache takes ", bytes, " bytes: ", o.batch, " x ",
                   r.longest > 0 ? r.longest : g.longest(), " tokens in ",
                   r.cache_dtype.value_or(r.dtype)));
  r.quantises_activations = o.activations != "f32";
  TEGULA_TRY(g.prepare(r));
  if (!o.activations.empty() && !g.has_blocks())
    return invalid_argument(
        cat("--activations is for weights in blocks, which '", o.model, "' has ",
            r.dtype == DType::kF32 && o.device == "cpu" ? "not"
                                                        : cat("not in ", r.dtype, " on ", o.device),
            ": leave it out"));
  for (const std::string& each : g.notes) print_note(each);
  return bytes;
}

Result<bool> read_setting(const std::string& key, const Json& value, LineSettings& settings) {
  const auto wrong = [&](std::string_view must) {
    return invalid_argument(cat(key, " is ", value.dump(), " and must be ", must));
  };
  const auto count = [&](auto& into) -> Result<bool> {
    const auto* n = value.as<int64_t>();
    if (n == nullptr || *n < 0) return wrong("a whole number from 0 on");
    into = static_cast<std::remove_reference_t<decltype(into)>>(*n);
    return true;
  };
  for (const RealSetting& s : kReals) {
    if (key != key_of(s.name)) continue;
    const double x = value.number(s.low - 1);
    if (!(x >= s.low && x <= s.high)) return wrong(cat("a number from ", s.low, " to ", s.high));
    settings.sampler.*s.value = x;
    return true;
  }
  if (key == "top_k") return count(settings.sampler.top_k);
  if (key == "seed") return count(settings.sampler.seed);
  if (key == "max_tokens") return count(settings.max_tokens);
  if (key == "stop") {
    settings.stop.clear();
    const Json::Array one(1, value);
    for (const Json& each : value.as<Json::Array>() ? *value.as<Json::Array>() : one) {
      if (each.as<std::string>() == nullptr || each.as<std::string>()->empty())
        return wrong("a text that is not empty, or a list of such");
      settings.stop.push_back(*each.as<std::string>());
    }
    return true;
  }
  if (key == "logit_bias") {
    settings.sampler.bias.clear();
    if (value.as<Json::Object>() == nullptr) return wrong("an object of ids and numbers");
    for (const auto& [id, bias] : *value.as<Json::Object>()) {
      auto read = read_bias(id, bias.dump());
      if (!read.ok()) return wrong("an object of ids and numbers");
      settings.sampler.bias.push_back(*read);
    }
    return true;
  }
  return false;
}

}  // namespace tegula::cli
