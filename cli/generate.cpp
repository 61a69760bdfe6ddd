#include <cstdio>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/process.h"
#include "tegula/io/json.h"
#include "tegula/io/text_data.h"
#include "tegula/serve/generator.h"

namespace tegula::cli {

namespace {
constexpr std::string_view kBetweenSamples = "---------------\n";

struct Options {
  std::string model, prompt, prompts, dtype = "f32", tune = "off", tune_cache, overflow = "slide";
  std::string mode, device = "cpu";  // mode empty: exact on the CPU, fast on a GPU
  std::vector<std::string> stop;
  int64_t max_tokens = 200, samples = 1, batch = 1, chunk = 0;
  SamplerConfig sampler{0.8, 0, 1.0, 0};
  int threads = 0;
  bool ignore_eos = false, no_cache = false, json = false;
};

// The prompt is printed with the first token: an error before it stands alone.
struct Stream {
  const std::string* prompt;  // null: nothing is printed
  bool has_begun = false;
  std::string text;

  void print(std::string_view piece) {
    if (!prompt) return;
    if (!has_begun) print_text(*prompt);
    has_begun = true;
    print_text(piece);
    std::fflush(stdout);
  }
  // Before the prompt.
  void print_line(std::string_view line) const {
    if (prompt) print_text(line);
  }
};

const char* name_of(Ended ended) {
  switch (ended) {
    case Ended::kMaxTokens:
      return "max_tokens";
    case Ended::kStopText:
      return "stop";
    case Ended::kEndOfText:
      return "end_of_text";
    case Ended::kContext:
      return "context";
    case Ended::kEnough:
      return "reader";
  }
  return "";
}

Json to_json(const Stream& stream, const GenerateStats& stats, const Generator& g) {
  const double decode_s = stats.decode_ms / 1e3;
  return Json::object({{"text", stream.text},
                       {"prompt_tokens", stats.prompt_tokens},
                       {"new_tokens", stats.new_tokens},
                       {"ended", name_of(stats.ended)},
                       {"load_ms", stats.load_ms},
                       {"prefill_ms", stats.prefill_ms},
                       {"decode_ms", stats.decode_ms},
                       {"tokens_per_s", static_cast<double>(stats.new_tokens) / decode_s},
                       {"peak_bytes", g.peak_bytes()}});
}

GenerateEnd end_of(const Options& o) {
  GenerateEnd end;
  end.overflow = o.overflow == "stop" ? Overflow::kStop : Overflow::kSlide;
  end.stop = o.stop;
  end.at_end_of_text = !o.ignore_eos;
  end.is_enough = is_output_lost;
  return end;
}

Status prepare(Generator& g, const Options& o) {
  RunnerOptions r{.threads = o.threads, .batch = o.batch, .chunk = o.chunk, .caches = !o.no_cache};
  const bool is_fast = o.mode.empty() ? o.device == "cuda" : o.mode == "fast";
  r.mode = is_fast ? Mode::kFast : Mode::kExact;
  if (o.device == "cuda") r.device = TEGULA_TRY(open_device());
  r.tune = {TEGULA_TRY(parse_tune_mode(o.tune)), o.tune_cache};
  TEGULA_TRY(g.prepare(r));
  for (const std::string& each : g.notes) print_note(each);
  return {};
}

TextRequest request_of(std::string_view prompt, const Options& o, Stream& stream) {
  const auto emit = [](void* context, std::string_view piece) {
    auto& s = *static_cast<Stream*>(context);
    s.text += piece;
    s.print(piece);
  };
  return {prompt, o.max_tokens, o.sampler, emit, &stream};
}

Status run(const Options& o) {
  const std::string prompt = o.prompt == "-" ? TEGULA_TRY(read_text(o.prompt)) : o.prompt;
  const auto g = TEGULA_TRY(Generator::open(o.model, parse_dtype(o.dtype).value_or(DType::kF32)));
  note_on_model(o.model);
  const GenerateEnd end = end_of(o);
  const std::string note = TEGULA_TRY(g->check(prompt, o.max_tokens, end.overflow));
  if (!note.empty()) print_note(note);
  TEGULA_TRY(prepare(*g, o));
  Json::Array samples;
  for (int64_t i = 0; i < o.samples; ++i) {
    Stream stream{o.json ? nullptr : &prompt};
    GenerateStats stats;
    TextRequest request = request_of(prompt, o, stream);
    request.sampler.seed += static_cast<uint64_t>(i);
    if (i > 0) stream.print_line(kBetweenSamples);
    TEGULA_TRY(g->generate(request, stats, end));
    stream.print("\n");
    samples.push_back(to_json(stream, stats, *g));
    if (stats.ended == Ended::kEnough) break;
  }
  if (!o.json) return {};
  const Json all = o.samples == 1 ? samples[0] : Json::object({{"samples", std::move(samples)}});
  std::printf("%s\n", all.dump().c_str());
  return {};
}

// A prompt a line; the last one may lack its end.
std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t n = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, n));
    text.remove_prefix(std::min(n + 1, text.size()));
  }
  return lines;
}

Json to_json(std::span<const Stream> streams, std::span<const GenerateStats> stats,
             const BatchStats& all, const Generator& g) {
  Json::Array texts, each;
  int64_t tokens = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    texts.emplace_back(streams[i].text);
    each.push_back(Json::object({{"prompt_tokens", stats[i].prompt_tokens},
                                 {"new_tokens", stats[i].new_tokens},
                                 {"ended", name_of(stats[i].ended)}}));
    tokens += stats[i].new_tokens;
  }
  const double seconds = (all.prefill_ms + all.decode_ms) / 1e3;
  return Json::object({{"texts", std::move(texts)},
                       {"each", std::move(each)},
                       {"decode_steps", all.decode_steps},
                       {"load_ms", all.load_ms},
                       {"prefill_ms", all.prefill_ms},
                       {"decode_ms", all.decode_ms},
                       {"tokens_per_s", static_cast<double>(tokens) / seconds},
                       {"peak_bytes", g.peak_bytes()}});
}

// Notes of all lines, or the error of the first that is no prompt.
Result<std::vector<std::string>> check_lines(Generator& g, std::span<const std::string> prompts,
                                             const Options& o, Overflow overflow) {
  std::vector<std::string> notes;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string where = cat("line ", i + 1, " of '", o.prompts, "': ");
    Result<std::string> note = g.check(prompts[i], o.max_tokens, overflow);
    if (!note.ok()) {
      Error e = std::move(note).error();
      e.message = where + e.message;
      return e;
    }
    if (!note->empty()) notes.push_back(where + *note);
  }
  return notes;
}

Status run_all(const Options& o) {
  const auto prompts = lines_of(TEGULA_TRY(read_text(o.prompts)));
  if (prompts.empty())
    return invalid_argument(cat("'", o.prompts, "' is empty: give it a prompt a line"));
  const auto g = TEGULA_TRY(Generator::open(o.model, parse_dtype(o.dtype).value_or(DType::kF32)));
  note_on_model(o.model);
  const GenerateEnd end = end_of(o);
  for (const std::string& note : TEGULA_TRY(check_lines(*g, prompts, o, end.overflow)))
    print_note(note);
  std::vector<Stream> streams(prompts.size(), Stream{nullptr});
  std::vector<TextRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i)
    requests.push_back(request_of(prompts[i], o, streams[i]));
  TEGULA_TRY(prepare(*g, o));
  std::vector<GenerateStats> stats(prompts.size());
  BatchStats all;
  TEGULA_TRY(g->generate(requests, stats, all, end));
  if (o.json) {
    std::printf("%s\n", to_json(streams, stats, all, *g).dump().c_str());
    return {};
  }
  for (size_t i = 0; i < prompts.size(); ++i)
    print_text(cat(i > 0 ? kBetweenSamples : "", prompts[i], streams[i].text, "\n"));
  return {};
}

// Flags that contradict each other, or of which one leaves another without use.
void check_together(const Command& cmd, const Options& o) {
  const bool has_prompts = cmd.flag("--prompts").is_given();
  if (!cmd.flag("--prompt").is_given() && !has_prompts)
    usage_error("--prompt or --prompts is required");
  if (has_prompts && o.samples > 1)
    usage_error("--samples: with --prompts each line is continued once");
  for (const std::string& stop : o.stop)
    if (stop.empty()) usage_error("--stop: an empty text would end it before the first token");
  if (o.samples > 1 && o.sampler.temperature == 0)
    usage_error("--samples: at --temperature 0 all of them are the same text");
  for (const char* of_chance : {"--seed", "--top-k", "--top-p"})
    if (o.sampler.temperature == 0 && cmd.flag(of_chance).is_given())
      usage_error(cat(of_chance,
                      " is of no use at --temperature 0, which takes the likeliest token: leave "
                      "out one of them"));
  if (o.tune == "off" && !o.tune_cache.empty())
    usage_error("--tune-cache is of no use without --tune quick or --tune full");
}
}  // namespace

void add_generate(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("generate", "Continue a prompt with a trained model");
  static Options o;
  cmd.take_last();
  cmd.add_option("--model", o.model, "Directory of the model").required().type_name("DIR");
  const auto prompt =
      cmd.add_option("--prompt", o.prompt, "Text to continue, or - for standard input");
  const auto prompts = cmd.add_option("--prompts", o.prompts, "A file with a prompt a line, or -")
                           .type_name("FILE")
                           .excludes(prompt);
  whole(cmd.add_option("--batch", o.batch, "How many texts at once, of --prompts"), 1, 4096)
      .needs(prompts);
  whole(cmd.add_option("--prefill-chunk", o.chunk, "Read prompts so many tokens at a time; 0: all"),
        0);
  cmd.add_flag("--no-cache", o.no_cache,
               "Read all of a text again for each token: slower, the same text");
  whole(cmd.add_option("--max-tokens", o.max_tokens, "How many tokens to add"), 0);
  whole(cmd.add_option("--samples", o.samples,
                       "How many continuations, each with a seed one larger than the last"),
        1, 1 << 20);
  cmd.add_option("--stop", o.stop, "End before this text; may be given several times")
      .keep_all()
      .type_name("TEXT");
  cmd.add_flag("--ignore-eos", o.ignore_eos,
               "Go on where the model ends its text (eos_token_id of its files)");
  one_of(cmd.add_option("--overflow", o.overflow,
                        "When the context is full: forget its older half, or end"),
         {"slide", "stop"});
  one_of(cmd.add_option("--mode", o.mode,
                        "exact: long sums in 8 fixed parts; fast: in one. exact, on a GPU fast"),
         {"exact", "fast"});
  real(cmd.add_option("--temperature", o.sampler.temperature, "0: always the likeliest token"), 0);
  whole(cmd.add_option("--top-k", o.sampler.top_k, "Among the K likeliest; 0: all"), 0);
  real(cmd.add_option("--top-p", o.sampler.top_p, "Among the likeliest that reach probability P"),
       0, 1);
  one_of(cmd.add_option("--dtype", o.dtype, "Of weights, activations and the cache"),
         {"f32", "bf16", "f16"});
  whole(cmd.add_option("--seed", o.sampler.seed, "Random seed"), 0, INT64_MAX);
  one_of(cmd.add_option("--device", o.device, "Where the model runs"), {"cpu", "cuda"});
  add_threads(cmd, o.threads);
  add_tuning(cmd, o.tune, o.tune_cache);
  cmd.add_flag("--json", o.json, "Print one JSON object at the end instead of the text");
  cmd.callback([&exit_code, cmd, prompts] {
    check_together(cmd, o);
    const Status st = prompts.is_given() ? run_all(o) : run(o);
    exit_code = st.ok() ? kDone : report(st.error());
  });
}

}  // namespace tegula::cli
