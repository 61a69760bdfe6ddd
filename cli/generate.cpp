#include <cstdio>

#include "cli/command.h"
#include "cli/process.h"
#include "cli/texts.h"
#include "tegula/base/amounts.h"
#include "tegula/base/range.h"
#include "tegula/base/text.h"
#include "tegula/io/text_data.h"

namespace tegula::cli {

namespace {
constexpr std::string_view kBetweenSamples = "---------------\n";

struct Options : TextOptions {
  std::string prompt, prompts, messages, overflow = "slide";
  int64_t max_tokens = 200, samples = 1, log_probabilities = 0;
  bool no_cache = false, json = false, is_chat = false, wants_scores = false;
};

// A text or a chat that is to be continued.
struct Task {
  std::string prompt;  // as it is printed
  std::vector<int32_t> ids;
  LineSettings settings;
  bool is_turn = false;
  std::vector<TokenScore> scores = {};
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

Json to_json(std::span<const TokenScore> scores, const Tokenizer& tokenizer) {
  const auto one = [&](int32_t token, float log_probability) {
    return Json::object({{"id", token},
                         {"text", tokenizer.token(token)},
                         {"log_probability", static_cast<double>(log_probability)}});
  };
  Json::Array all;
  for (const TokenScore& s : scores) {
    Json score = one(s.token, s.log_probability);
    Json::Array best;
    for (const auto& [token, log_probability] : s.best) best.push_back(one(token, log_probability));
    score.set("best", std::move(best));
    all.push_back(std::move(score));
  }
  return all;
}

Json to_json(const Stream& stream, const Task& task, const GenerateStats& stats, const Generator& g,
             const Options& o, int64_t cache_bytes) {
  const double decode_s = stats.decode_ms / 1e3;
  Json all = Json::object({{"text", stream.text},
                           {"prompt_tokens", stats.prompt_tokens},
                           {"new_tokens", stats.new_tokens},
                           {"ended", name_of(stats.ended)},
                           {"load_ms", stats.load_ms},
                           {"prefill_ms", stats.prefill_ms},
                           {"decode_ms", stats.decode_ms},
                           {"tokens_per_s", static_cast<double>(stats.new_tokens) / decode_s},
                           {"cache_bytes", cache_bytes},
                           {"peak_bytes", g.peak_bytes()}});
  if (o.wants_scores) all.set("log_probabilities", to_json(task.scores, g.tokenizer()));
  return all;
}

GenerateEnd end_of(const Options& o, const ChatPrompts* chat) {
  GenerateEnd end;
  end.overflow = o.overflow == "stop" ? Overflow::kStop : Overflow::kSlide;
  end.at_end_of_text = !o.ignore_eos;
  end.is_enough = is_output_lost;
  if (chat != nullptr) end.at_tokens = chat->end_of_turn();
  return end;
}

TextRequest request_of(Task& task, const Options& o, Stream& stream) {
  const auto emit = [](void* context, std::string_view piece) {
    auto& s = *static_cast<Stream*>(context);
    s.text += piece;
    s.print(piece);
  };
  TextRequest r{task.prompt, task.settings.max_tokens, task.settings.sampler, emit, &stream};
  r.ids = task.ids, r.stop = &task.settings.stop, r.is_turn = task.is_turn;
  r.n_best = o.log_probabilities, r.scores = o.wants_scores ? &task.scores : nullptr;
  task.scores.clear();
  return r;
}

// The task of a chat; nothing is printed before the answer.
Result<Task> turn(const Json& chat, const ChatPrompts& prompts, LineSettings settings) {
  return Task{"", TEGULA_TRY(prompts.ids(chat)), std::move(settings), true};
}

Json with_system(const Options& o, const std::string& prompt) {
  Json::Array all;
  if (!o.system.empty()) all.push_back(Json::object({{"role", "system"}, {"content", o.system}}));
  all.push_back(Json::object({{"role", "user"}, {"content", prompt}}));
  return all;
}

// Checks the task before any work: a note for people, or "".
Result<std::string> check(Generator& g, const Task& task, Overflow overflow) {
  TEGULA_TRY(check_bias(task.settings.sampler, g));
  if (task.ids.empty()) return g.check(task.prompt, task.settings.max_tokens, overflow);
  return g.check(task.ids, task.settings.max_tokens, overflow);
}

Result<Task> task_of(const Options& o, const ChatPrompts* chat) {
  const LineSettings settings{o.sampler, o.stop, o.max_tokens};
  if (!o.messages.empty()) {
    const Json messages = TEGULA_TRY(Json::parse(TEGULA_TRY(read_text(o.messages)), o.messages));
    return turn(messages, *chat, settings);
  }
  const std::string prompt = o.prompt == "-" ? TEGULA_TRY(read_text(o.prompt)) : o.prompt;
  if (o.is_chat) return turn(with_system(o, prompt), *chat, settings);
  return Task{prompt, {}, settings};
}

Result<std::unique_ptr<ChatPrompts>> open_chat_if(const Generator& g, const Options& o,
                                                  bool is_needed) {
  if (!is_needed) return std::unique_ptr<ChatPrompts>();
  return std::make_unique<ChatPrompts>(TEGULA_TRY(open_chat(g, o)));
}

Result<int64_t> prepare(Generator& g, const Options& o) {
  return prepare(g, o, {.caches = !o.no_cache, .has_lse = o.wants_scores}, false);
}

Status run(const Options& o) {
  const auto g = TEGULA_TRY(open_model(o));
  const auto chat = TEGULA_TRY(open_chat_if(*g, o, o.is_chat || !o.messages.empty()));
  Task task = TEGULA_TRY(task_of(o, chat.get()));
  const GenerateEnd end = end_of(o, chat.get());
  const std::string note = TEGULA_TRY(check(*g, task, end.overflow));
  if (!note.empty()) print_note(note);
  const int64_t cache_bytes = TEGULA_TRY(prepare(*g, o));
  Json::Array samples;
  for (int64_t i = 0; i < o.samples; ++i) {
    Stream stream{o.json ? nullptr : &task.prompt};
    GenerateStats stats;
    TextRequest request = request_of(task, o, stream);
    request.sampler.seed += static_cast<uint64_t>(i);
    if (i > 0) stream.print_line(kBetweenSamples);
    TEGULA_TRY(g->generate(request, stats, end));
    stream.print("\n");
    samples.push_back(to_json(stream, task, stats, *g, o, cache_bytes));
    if (stats.ended == Ended::kEnough) break;
  }
  if (!o.json) return {};
  const Json all = o.samples == 1 ? samples[0] : Json::object({{"samples", std::move(samples)}});
  print_line(all);
  return {};
}

// A line of JSONL: {"prompt": …} or {"messages": […]}, and settings instead of the flags'.
Result<Task> task_of_line(const std::string& line, const Options& o, const ChatPrompts* chat) {
  const Json json = TEGULA_TRY(Json::parse(line, "the line"));
  LineSettings settings{o.sampler, o.stop, o.max_tokens};
  Json messages = Json::object();
  const Json* prompt = nullptr;
  if (json.as<Json::Object>() == nullptr) return invalid_argument("it is no JSON object");
  for (const auto& [key, value] : *json.as<Json::Object>()) {
    if (key == "prompt")
      prompt = &value;
    else if (key == "messages" || key == "tools" || key == "documents")
      messages.set(key, value);
    else if (!TEGULA_TRY(read_setting(key, value, settings)))
      return invalid_argument(cat("unknown key \"", key,
                                  "\": it may have prompt or messages, tools, ",
                                  "documents, and settings, as max_tokens or top_p"));
  }
  const auto* text = prompt != nullptr ? prompt->as<std::string>() : nullptr;
  const bool is_chat = messages.find("messages") != nullptr;
  if (is_chat == (text != nullptr) || (!is_chat && messages != Json::object()))
    return invalid_argument("it must have either \"prompt\", a text, or \"messages\", a list");
  if (!is_chat && !o.is_chat) return Task{*text, {}, std::move(settings)};
  return turn(is_chat ? messages : with_system(o, *text), *chat, std::move(settings));
}

bool are_jsonl(const Options& o) { return o.prompts.ends_with(".jsonl"); }

Json to_json(std::span<const Stream> streams, std::span<const Task> tasks,
             std::span<const GenerateStats> stats, const BatchStats& all, const Generator& g,
             const Options& o, int64_t cache_bytes) {
  Json::Array texts, each;
  int64_t tokens = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    texts.emplace_back(streams[i].text);
    Json one = Json::object({{"prompt_tokens", stats[i].prompt_tokens},
                             {"new_tokens", stats[i].new_tokens},
                             {"ended", name_of(stats[i].ended)}});
    if (o.wants_scores) one.set("log_probabilities", to_json(tasks[i].scores, g.tokenizer()));
    each.push_back(std::move(one));
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
                       {"cache_bytes", cache_bytes},
                       {"peak_bytes", g.peak_bytes()}});
}

// The tasks of all lines and their notes, or the error of the first that is none.
Result<std::vector<Task>> tasks_of(Generator& g, std::span<const std::string> lines,
                                   const Options& o, const ChatPrompts* chat, Overflow overflow) {
  std::vector<Task> tasks;
  std::vector<std::string> notes;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string where = cat("line ", i + 1, " of '", o.prompts, "'");
    const auto read = [&]() -> Status {
      tasks.push_back(are_jsonl(o) ? TEGULA_TRY(task_of_line(lines[i], o, chat))
                      : o.is_chat  ? TEGULA_TRY(turn(with_system(o, lines[i]), *chat,
                                                     {o.sampler, o.stop, o.max_tokens}))
                                   : Task{lines[i], {}, {o.sampler, o.stop, o.max_tokens}});
      if (const std::string note = TEGULA_TRY(check(g, tasks.back(), overflow)); !note.empty())
        notes.push_back(cat(where, ": ", note));
      return {};
    };
    TEGULA_TRY(named(where, read()));
  }
  for (const std::string& note : notes) print_note(note);
  return tasks;
}

Status run_all(const Options& o) {
  const auto lines = split(TEGULA_TRY(read_text(o.prompts)), '\n');
  if (lines.empty())
    return invalid_argument(cat("'", o.prompts, "' is empty: give it a prompt a line"));
  const auto g = TEGULA_TRY(open_model(o));
  const bool has_chat = are_jsonl(o) && any_of(lines, [](const auto& line) {
                          return line.find("\"messages\"") != line.npos;
                        });
  const auto chat = TEGULA_TRY(open_chat_if(*g, o, o.is_chat || has_chat));
  const GenerateEnd end = end_of(o, chat.get());
  std::vector<Task> tasks = TEGULA_TRY(tasks_of(*g, lines, o, chat.get(), end.overflow));
  std::vector<Stream> streams(tasks.size(), Stream{nullptr});
  std::vector<TextRequest> requests;
  for (size_t i = 0; i < tasks.size(); ++i) requests.push_back(request_of(tasks[i], o, streams[i]));
  const int64_t cache_bytes = TEGULA_TRY(prepare(*g, o));
  std::vector<GenerateStats> stats(tasks.size());
  BatchStats all;
  TEGULA_TRY(g->generate(requests, stats, all, end));
  if (o.json) {
    print_line(to_json(streams, tasks, stats, all, *g, o, cache_bytes));
    return {};
  }
  for (size_t i = 0; i < tasks.size(); ++i)
    print_text(cat(i > 0 ? kBetweenSamples : "", tasks[i].prompt, streams[i].text, "\n"));
  return {};
}

// Flags that contradict each other, or of which one leaves another without use.
void check_flags(const Command& cmd, Options& o, std::span<const Flag> of_chats) {
  const auto is_given = [&](const char* flag) { return cmd.flag(flag).is_given(); };
  const bool has_prompts = is_given("--prompts");
  if (!is_given("--prompt") && !has_prompts && !is_given("--messages"))
    usage_error("--prompt or --prompts is required, or --messages");
  if (has_prompts && o.samples > 1)
    usage_error("--samples: with --prompts each line is continued once");
  check_together(cmd, o, are_jsonl(o));
  if (o.samples > 1 && o.sampler.temperature == 0)
    usage_error("--samples: at --temperature 0 all of them are the same text");
  o.wants_scores = is_given("--logprobs");
  if (o.wants_scores && !o.json) usage_error("--logprobs is of no use without --json");
  if (is_given("--messages") && o.is_chat)
    usage_error("--chat is of no use with --messages, which are a chat");
  for (const Flag& flag : of_chats)
    if (flag.is_given() && !o.is_chat && !is_given("--messages") && !are_jsonl(o))
      usage_error(
          cat(flag.name(), " is of no use without --chat, --messages or --prompts FILE.jsonl"));
  if (is_given("--system") && !o.is_chat && !are_jsonl(o))
    usage_error("--system is of no use with --messages: give them a message of the system");
}
}  // namespace

void add_generate(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("generate", "Continue a prompt with a trained model");
  static Options o;
  static std::vector<Flag> of_chats;
  cmd.take_last();
  add_model(cmd, o);
  const auto prompt =
      cmd.add_option("--prompt", o.prompt, "Text to continue, or - for standard input");
  const auto prompts =
      cmd.add_option("--prompts", o.prompts,
                     "A file with a prompt a line, or -; FILE.jsonl: an object a line")
          .type_name("FILE")
          .excludes(prompt);
  cmd.add_option("--messages", o.messages,
                 "A chat to answer: messages in JSON, or - for standard input")
      .type_name("FILE")
      .excludes(prompt)
      .excludes(prompts);
  cmd.add_flag("--chat", o.is_chat, "Answer the prompt as a message, by the model's chat template");
  of_chats = add_chat_flags(cmd, o);
  whole(cmd.add_option("--batch", o.batch, "How many texts at once, of --prompts"), 1, 4096)
      .needs(prompts);
  cmd.add_flag("--no-cache", o.no_cache,
               "Read all of a text again for each token: slower, the same text");
  whole(cmd.add_option("--max-tokens", o.max_tokens, "How many tokens to add"), 0);
  whole(cmd.add_option("--samples", o.samples,
                       "How many continuations, each with a seed one larger than the last"),
        1, 1 << 20);
  one_of(cmd.add_option("--overflow", o.overflow,
                        "When the context is full: forget its older half, or end"),
         {"slide", "stop"});
  add_sampling(cmd, o);
  whole(cmd.add_option("--logprobs", o.log_probabilities,
                       "With --json: log-probabilities of each token and of the N likeliest"),
        0, 1000);
  cmd.add_flag("--json", o.json, "Print one JSON object at the end instead of the text");
  cmd.callback([&exit_code, cmd, prompts] {
    check_flags(cmd, o, of_chats);
    exit_code = report(prompts.is_given() ? run_all(o) : run(o));
  });
}

}  // namespace tegula::cli
