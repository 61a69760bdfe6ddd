// Commands and their flags. Only flags.cpp includes CLI11, which reads them: its headers are a
// quarter of a megabyte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
class Option;
}  // namespace CLI

namespace tegula::cli {

// A call that is kept: what a command does, what a flag's value is handed to.
struct Action {
  virtual ~Action() = default;
  virtual void run(const std::string& text) = 0;
};

// A handle to a flag; each call that changes the flag returns it, so that calls can be chained.
class Flag {
 public:
  Flag() = default;  // no flag
  explicit Flag(CLI::Option* option) : option_(option) {}
  explicit operator bool() const { return option_ != nullptr; }
  bool operator==(const Flag& other) const = default;

  // The word for its value in --help. "a|b|c" are the words that it takes; FILE and DIR are paths.
  const Flag& type_name(const std::string& name) const;
  const Flag& required(bool is_required = true) const;
  const Flag& needs(Flag other) const;
  const Flag& excludes(Flag other) const;
  // --help shows `text` as the default.
  const Flag& default_str(const std::string& text) const;
  // The variable has this value unless one is given.
  const Flag& default_val(const std::string& text) const;
  // --help shows the value that the variable has now.
  const Flag& show_default() const;
  // It may be given several times, one value each time, and all are kept.
  const Flag& keep_all() const;
  // One value is several, with `separator` in between.
  const Flag& split_at(char separator) const;
  // An empty value is refused: it is an unset variable of a script, and would pass for none.
  const Flag& refuse_empty() const;
  // Calls `f(text)` with each value, once all of the command line is read.
  template <class F>
  const Flag& each(F f) const {
    return set_each(new Holder<F>(f));
  }

  std::string name() const;       // "--n-layers"
  std::string long_name() const;  // "n-layers"; "" for a word without a flag
  std::string doc() const;
  std::string type() const;
  bool takes_value() const;  // or may take one
  bool needs_value() const;
  bool is_given() const;
  std::string value() const;  // the last one given; "" if none was

 private:
  friend class Command;
  friend const Flag& whole(const Flag&, int64_t, int64_t);
  friend const Flag& real(const Flag&, double, double);
  friend const Flag& one_of(const Flag&, const std::vector<std::string>&);
  template <class F>
  struct Holder : Action {
    explicit Holder(F f) : call(f) {}
    void run(const std::string& text) override { call(text); }
    F call;
  };
  const Flag& set_each(Action* action) const;  // takes it over
  CLI::Option* option_ = nullptr;
};

// Flags with their defaults shown, whose errors say what is allowed: whole numbers and finite
// numbers, written as base/amounts.h reads them, one of some names.
inline constexpr int64_t kMany = int64_t{1} << 40;
inline constexpr double kUnlimited = __builtin_huge_val();
const Flag& whole(const Flag& flag, int64_t low, int64_t high = kMany);
const Flag& real(const Flag& flag, double low, double high = kUnlimited);
const Flag& one_of(const Flag& flag, const std::vector<std::string>& names);

struct Parsed;

// A handle to a command: tegula itself, `train`, `bench gemm`.
class Command {
 public:
  Command() = default;  // no command
  explicit Command(CLI::App* app) : app_(app) {}
  explicit operator bool() const { return app_ != nullptr; }

  Command add_command(const std::string& name, const std::string& doc) const;
  Flag add_option(const std::string& name, std::string& value, const std::string& doc) const;
  Flag add_option(const std::string& name, int& value, const std::string& doc) const;
  Flag add_option(const std::string& name, int64_t& value, const std::string& doc) const;
  Flag add_option(const std::string& name, uint64_t& value, const std::string& doc) const;
  Flag add_option(const std::string& name, double& value, const std::string& doc) const;
  Flag add_option(const std::string& name, std::vector<std::string>& value,
                  const std::string& doc) const;
  Flag add_option(const std::string& name, std::vector<int64_t>& value,
                  const std::string& doc) const;
  Flag add_option(const std::string& name, std::vector<double>& value,
                  const std::string& doc) const;
  Flag add_option(const std::string& name, const std::string& doc) const;  // kept, for value()
  Flag add_flag(const std::string& name, bool& value, const std::string& doc) const;
  // An option whose value is handed to `f(text)`.
  template <class F>
  Flag add_option_for(const std::string& name, F f, const std::string& doc) const {
    return add_action(name, new Flag::Holder<F>(f), doc);
  }

  // Sets what the command does, once the command line is read.
  template <class F>
  void callback(F f) const {
    set_callback(new CallHolder<F>(f), false);
  }
  // Sets what is checked before any command does anything.
  template <class F>
  void check(F f) const {
    set_callback(new CallHolder<F>(f), true);
  }
  void require_command() const;
  void footer(const std::string& text) const;
  // The last value of a flag that is given twice counts: for flags that are added from now on.
  void take_last() const;

  Flag flag(const std::string& name) const;       // it must have one of this name
  Flag find_flag(const std::string& name) const;  // or none
  std::vector<Flag> flags() const;
  std::vector<Flag> given() const;  // in the order of the command line
  std::vector<Command> commands() const;
  Command find_command(const std::string& name) const;  // or none
  Command parent() const;                               // or none
  std::string name() const;
  std::string full_name() const;  // "bench train": with the names of the commands above it

 private:
  template <class F>
  struct CallHolder : Action {
    explicit CallHolder(F f) : call(f) {}
    void run(const std::string&) override { call(); }
    F call;
  };
  friend Parsed parse(const Command&, const std::vector<std::string>&);
  Flag add_action(const std::string& name, Action* action, const std::string& doc) const;
  void set_callback(Action* action, bool is_check) const;
  CLI::App* app_ = nullptr;
};

// Ends the reading of the command line: the message is printed, and the tool exits with kUsage.
[[noreturn]] void usage_error(const std::string& message);

// The tool itself, which has the commands; made once.
Command make_tool(const std::string& name, const std::string& doc, const std::string& version);

// How reading the command line ended, if no command ran.
struct Parsed {
  enum Kind { kRan, kShown, kNoCommand, kExtras, kNoValue, kWrong };
  Kind kind = kRan;                 // kShown: --help or --version was printed
  Command command;                  // the innermost that was named
  std::string message;              // CLI11's, or usage_error's
  std::vector<std::string> extras;  // words that nobody wanted
};

// Reads the arguments and runs what they name.
Parsed parse(const Command& tool, const std::vector<std::string>& arguments);

}  // namespace tegula::cli
