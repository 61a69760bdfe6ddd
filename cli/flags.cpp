// Commands and flags by CLI11; and what flags accept, in words that say it: CLI11's own messages
// print 300 digits of the largest double.
#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/printable.h"
#include "tegula/base/amounts.h"
#include "tegula/base/memory.h"
#include "tegula/base/text.h"

namespace tegula::cli {

const Flag& Flag::type_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

const Flag& Flag::required(bool is_required) const {
  option_->required(is_required);
  return *this;
}

const Flag& Flag::needs(Flag other) const {
  option_->needs(other.option_);
  return *this;
}

const Flag& Flag::excludes(Flag other) const {
  option_->excludes(other.option_);
  return *this;
}

const Flag& Flag::default_str(const std::string& text) const {
  option_->default_str(text);
  return *this;
}

const Flag& Flag::default_val(const std::string& text) const {
  option_->default_val(text);
  return *this;
}

const Flag& Flag::show_default() const {
  option_->capture_default_str();
  return *this;
}

const Flag& Flag::keep_all() const {
  option_->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->expected(1);
  return *this;
}

const Flag& Flag::split_at(char separator) const {
  option_->delimiter(separator);
  return *this;
}

const Flag& Flag::set_each(Action* action) const {
  option_->each(
      [call = std::shared_ptr<Action>(action)](const std::string& text) { call->run(text); });
  return *this;
}

const Flag& Flag::refuse_empty() const {
  option_->transform(CLI::Validator(  // before all other checks
      [](std::string& text) {
        return std::string(text.empty() ? "its value is empty: is a variable of the shell not set?"
                                        : "");
      },
      "", ""));
  return *this;
}

std::string Flag::name() const { return option_->get_name(); }

std::string Flag::long_name() const {
  const std::vector<std::string>& names = option_->get_lnames();
  return names.empty() ? "" : names[0];
}

std::string Flag::doc() const { return option_->get_description(); }
std::string Flag::type() const { return option_->get_type_name(); }
bool Flag::takes_value() const { return option_->get_items_expected_max() > 0; }
bool Flag::needs_value() const { return option_->get_expected_min() > 0; }
bool Flag::is_given() const { return option_->count() > 0; }
std::string Flag::value() const { return is_given() ? option_->results().back() : ""; }

const Flag& whole(const Flag& flag, int64_t low, int64_t high) {
  const auto read = [low, high](std::string& text) -> std::string {
    const auto n = read_count(text, low, high);
    if (!n.ok()) return printable(n.error().message);
    text = cat(*n);  // 64k: 64000
    return "";
  };
  flag.option_->transform(CLI::Validator(read, "", ""))->type_name("N")->capture_default_str();
  return flag;
}

const Flag& real(const Flag& flag, double low, double high) {
  const auto read = [low, high](std::string& text) -> std::string {
    const auto x = read_amount(text, low, high);
    if (!x.ok()) return printable(x.error().message);
    text = printed("%.17g", *x);  // 15T: 1.5e13
    return "";
  };
  flag.option_->transform(CLI::Validator(read, "", ""))->type_name("X")->capture_default_str();
  return flag;
}

const Flag& one_of(const Flag& flag, const std::vector<std::string>& names) {
  const std::string list = joined(names, "|");
  const auto check = [names, list](const std::string& text) -> std::string {
    for (const std::string& n : names)
      if (n == text) return "";
    return printable(cat("must be one of ", list, ", not '", text, "'"));
  };
  flag.option_->check(CLI::Validator(check, "", ""))->type_name(list)->capture_default_str();
  return flag;
}

Command Command::add_command(const std::string& name, const std::string& doc) const {
  return Command(app_->add_subcommand(name, doc));
}

Flag Command::add_option(const std::string& name, std::string& value,
                         const std::string& doc) const {
  return Flag(app_->add_option(name, value, doc));
}

Flag Command::add_option(const std::string& name, int& value, const std::string& doc) const {
  return Flag(app_->add_option(name, value, doc));
}

Flag Command::add_option(const std::string& name, int64_t& value, const std::string& doc) const {
  return Flag(app_->add_option(name, value, doc));
}

Flag Command::add_option(const std::string& name, uint64_t& value, const std::string& doc) const {
  return Flag(app_->add_option(name, value, doc));
}

Flag Command::add_option(const std::string& name, double& value, const std::string& doc) const {
  return Flag(app_->add_option(name, value, doc));
}

Flag Command::add_option(const std::string& name, std::vector<std::string>& value,
                         const std::string& doc) const {
  return Flag(app_->add_option(name, value, doc));
}

Flag Command::add_option(const std::string& name, std::vector<int64_t>& value,
                         const std::string& doc) const {
  return Flag(app_->add_option(name, value, doc));
}

Flag Command::add_option(const std::string& name, std::vector<double>& value,
                         const std::string& doc) const {
  return Flag(app_->add_option(name, value, doc));
}

Flag Command::add_option(const std::string& name, const std::string& doc) const {
  return Flag(app_->add_option(name, doc));
}

Flag Command::add_flag(const std::string& name, bool& value, const std::string& doc) const {
  return Flag(app_->add_flag(name, value, doc));
}

Flag Command::add_action(const std::string& name, Action* action, const std::string& doc) const {
  return Flag(app_->add_option_function<std::string>(
      name, [call = std::shared_ptr<Action>(action)](const std::string& text) { call->run(text); },
      doc));
}

void Command::set_callback(Action* action, bool is_check) const {
  const auto run = [call = std::shared_ptr<Action>(action)] { call->run(""); };
  is_check ? app_->parse_complete_callback(run) : app_->final_callback(run);
}

void Command::require_command() const { app_->require_subcommand(1); }
void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::take_last() const {
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

Flag Command::flag(const std::string& name) const { return Flag(app_->get_option(name)); }

Flag Command::find_flag(const std::string& name) const {
  return Flag(app_->get_option_no_throw(name));
}

std::vector<Flag> Command::flags() const {
  std::vector<Flag> all;
  for (CLI::Option* o : app_->get_options({})) all.emplace_back(o);
  return all;
}

std::vector<Flag> Command::given() const {
  std::vector<Flag> all;
  for (CLI::Option* o : app_->parse_order()) all.emplace_back(o);
  return all;
}

std::vector<Command> Command::commands() const {
  std::vector<Command> all;
  for (CLI::App* sub : app_->get_subcommands({})) all.emplace_back(sub);
  return all;
}

Command Command::find_command(const std::string& name) const {
  for (const Command& c : commands())
    if (c.name() == name) return c;
  return {};
}

Command Command::parent() const { return Command(app_->get_parent()); }
std::string Command::name() const { return app_->get_name(); }

std::string Command::full_name() const {
  if (!parent()) return "";
  const std::string above = parent().full_name();
  return above.empty() ? name() : cat(above, " ", name());
}

void usage_error(const std::string& message) {
  // CLI11's exception ends at a NUL.
  throw CLI::ValidationError(printable(message), CLI::ExitCodes::ValidationError);
}

Command make_tool(const std::string& name, const std::string& doc, const std::string& version) {
  static CLI::App app(doc, name);
  app.set_version_flag("--version", version);
  return Command(&app);
}

namespace {
CLI::App& named_by(CLI::App& app) {
  const auto named = app.get_subcommands();
  return named.empty() ? app : named_by(*named.front());
}
}  // namespace

Parsed parse(const Command& tool, const std::vector<std::string>& arguments) {
  CLI::App& app = *tool.app_;
  std::vector<std::string> words;  // the last one first
  for (const std::string& word : arguments) {
    // After "--out=" the parser would take the next word for the value.
    const bool is_empty = word.starts_with("--") && word.ends_with('=');
    words.insert(words.begin(), is_empty ? word.substr(0, word.size() - 1) : word);
    if (is_empty) words.insert(words.begin(), "");
  }
  try {
    app.parse(words);
    return {};
  } catch (const CLI::ParseError& e) {
    CLI::App& cmd = named_by(app);
    Parsed p{Parsed::kWrong, Command(&cmd), e.what(), cmd.remaining()};
    if (p.extras.empty()) p.extras = app.remaining(true);
    const auto type = static_cast<CLI::ExitCodes>(e.get_exit_code());
    if (type == CLI::ExitCodes::Success && p.extras.empty()) {  // --help, --version
      app.exit(e);
      return {Parsed::kShown};
    }
    if ((type == CLI::ExitCodes::RequiredError || type == CLI::ExitCodes::Success) &&
        !p.command.commands().empty())
      p.kind = Parsed::kNoCommand;
    else if (!p.extras.empty())  // before what is missing or wrong: it may be the same, misspelt
      p.kind = Parsed::kExtras;
    else if (type == CLI::ExitCodes::ArgumentMismatch)
      p.kind = Parsed::kNoValue;
    return p;
  }
}

}  // namespace tegula::cli
