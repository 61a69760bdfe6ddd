#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>

#include "cli/command.h"
#include "cli/process.h"
#include "cli/texts.h"
#include "tegula/io/text_data.h"

namespace tegula::cli {

namespace {
constexpr const char* kHelp =
    "/reset begins a new conversation, /exit ends (so does the end of input), /help shows this.\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on with the next; \"\"\" begins and ends "
    "a message of several.\n";

struct Options : TextOptions {
  Options() { chunk = 512; }  // a plan for all of a long context would take gigabytes
  int64_t max_tokens = 0, context = 0;
};

std::atomic<bool> interrupted{false};

// Ctrl-C ends an answer; where none is made, or at once again, it ends the conversation.
void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int number) {
    if (interrupted.exchange(true)) ::_exit(128 + number);
  };
  ::sigaction(SIGINT, &action, nullptr);  // a read that waits ends, too: without SA_RESTART
}

// A line of standard input without its end; false: there is none.
bool read_line(std::string& line) {
  line.clear();
  int c = 0;
  while ((c = std::getchar()) != EOF && c != '\n') line += static_cast<char>(c);
  if (line.ends_with('\r')) line.pop_back();
  return c != EOF || !line.empty();
}

// A message: a line, lines that end in \, or what stands between two """.
bool read_message(std::string& message, bool shows) {
  const auto show = [&](const char* text) {
    if (shows) std::fputs(text, stderr);
  };
  constexpr std::string_view kQuotes = "\"\"\"";
  show("> ");
  if (!read_line(message)) return false;
  std::string line;
  if (message.starts_with(kQuotes)) {
    message.erase(0, kQuotes.size());
    while (!message.ends_with(kQuotes)) {
      show("... ");
      if (!read_line(line)) return true;
      message += '\n' + line;
    }
    message.resize(message.size() - kQuotes.size());
    return true;
  }
  while (message.ends_with('\\')) {
    message.back() = '\n';
    show("... ");
    if (!read_line(line)) return true;
    message += line;
  }
  return true;
}

Json message_of(const char* role, std::string_view content) {
  return Json::object({{"role", role}, {"content", content}});
}

int64_t context_of(const Generator& g, const Options& o) {
  return o.context > 0 ? std::min(o.context, g.config().max_seqlen) : g.config().max_seqlen;
}

// The answer to the messages, printed as it comes.
Result<std::string> answer(Generator& g, const ChatPrompts& chat, const Json::Array& messages,
                           const Options& o, const GenerateEnd& end) {
  const std::vector<int32_t> ids = TEGULA_TRY(chat.ids(Json(messages)));
  const auto n = static_cast<int64_t>(ids.size()), context = context_of(g, o);
  if (n > context)
    return invalid_argument(cat("the conversation has ", n, " tokens and its context is ", context,
                                ": /reset begins a new one"));
  std::string text;
  const auto emit = [](void* to, std::string_view piece) {
    *static_cast<std::string*>(to) += piece;
    print_text(piece);
    std::fflush(stdout);
  };
  TextRequest request{"",
                      o.max_tokens > 0 ? std::min(o.max_tokens, context - n + 1) : context - n + 1,
                      o.sampler, emit, &text};
  request.ids = ids, request.is_turn = true;
  GenerateStats stats;
  BatchStats all;
  TEGULA_TRY(g.generate({&request, 1}, {&stats, 1}, all, end));
  print_text("\n");
  std::fflush(stdout);
  const auto rate = [](int64_t tokens, double ms) {
    return static_cast<int64_t>(static_cast<double>(tokens) * 1e3 / std::max(ms, 1e-3));
  };
  if (interrupted.exchange(false)) print_note("the answer was stopped");
  const bool is_full = stats.ended == Ended::kContext || n + stats.new_tokens > context;
  print_note(cat(n, " tokens, ", stats.kept_tokens, " of them in the cache, read at ",
                 rate(n - stats.kept_tokens, all.prefill_ms), " a second; ", stats.new_tokens,
                 " new at ", rate(stats.new_tokens, all.decode_ms), " a second",
                 is_full ? "; the context is full: /reset begins a new conversation" : ""));
  return text;
}

Status run(const Options& o) {
  const auto g = TEGULA_TRY(open_model(o));
  const ChatPrompts chat = TEGULA_TRY(open_chat(*g, o));
  if (o.context > g->config().max_seqlen)
    return invalid_argument(
        cat("--context ", o.context, ": the model's is ", g->config().max_seqlen));
  TEGULA_TRY(prepare(*g, o, {.longest = context_of(*g, o)}, true));
  GenerateEnd end{.overflow = Overflow::kStop,
                  .stop = o.stop,
                  .at_end_of_text = !o.ignore_eos,
                  .is_enough = [] { return is_output_lost() || interrupted; },
                  .at_tokens = chat.end_of_turn()};
  const bool is_terminal = ::isatty(STDIN_FILENO) != 0;
  if (is_terminal) std::fputs(kHelp, stderr);
  catch_interrupts();
  Json::Array begin, messages;
  if (!o.system.empty()) begin.push_back(message_of("system", o.system));
  messages = begin;
  for (std::string message; !is_output_lost() && read_message(message, is_terminal);) {
    message = plain_text(std::move(message));
    if (message.empty()) continue;
    if (message == "/exit") break;
    if (message == "/help") {
      std::fputs(kHelp, stderr);
    } else if (message == "/reset") {
      messages = begin;
      print_note("a new conversation");
    } else {
      messages.push_back(message_of("user", message));
      auto text = answer(*g, chat, messages, o, end);
      if (text.ok()) {
        messages.push_back(message_of("assistant", *text));
        continue;
      }
      if (!is_terminal) return text.error();
      report(text.error());
      messages.pop_back();
    }
  }
  return {};
}
}  // namespace

void add_chat(const Command& app, int& exit_code) {
  const auto cmd = app.add_command("chat", "Talk with a model that has a chat template");
  static Options o;
  cmd.take_last();
  add_model(cmd, o);
  add_chat_flags(cmd, o);
  whole(cmd.add_option("--max-tokens", o.max_tokens,
                       "How long an answer may be; 0: as the context allows"),
        0);
  whole(cmd.add_option(
            "--context", o.context,
            "Tokens of a conversation, for which there is a cache; 0: the model's context"),
        0);
  add_sampling(cmd, o);
  cmd.callback([&exit_code, cmd] {
    check_together(cmd, o);
    const Status st = run(o);
    exit_code = !st.ok() ? report(st.error()) : interrupted ? 128 + SIGINT : kDone;
  });
}

}  // namespace tegula::cli
