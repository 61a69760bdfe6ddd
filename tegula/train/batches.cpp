#include "tegula/train/batches.h"

#include <charconv>

#include "tegula/base/text.h"

namespace tegula {

namespace {

bool is_between(char c) { return c == ' ' || c == '\t' || c == ',' || c == '\r'; }

// The numbers of one line, added to `out`; false: something else stands at `at`.
bool read_numbers(std::string_view line, std::vector<int64_t>& out, std::string_view& at) {
  while (true) {
    while (!line.empty() && is_between(line.front())) line.remove_prefix(1);
    if (line.empty()) return true;
    int64_t n = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), n);
    const auto length = static_cast<size_t>(end - line.data());
    at = line.substr(0, std::min<size_t>(line.size(), 20));
    if (error != std::errc() || (length < line.size() && !is_between(line[length]))) return false;
    out.push_back(n);
    line.remove_prefix(length);
  }
}

}  // namespace

Result<BatchOrder> parse_batches(std::string_view text, std::string_view path,
                                 const BatchShape& shape) {
  BatchOrder order{shape.batch, {}};
  const int64_t most = shape.n_tokens - shape.seqlen - 1;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take_until('\n', text);
    if (line.starts_with('#')) continue;
    const auto where = [&] { return cat("--batches ", path, ":", number, ": "); };
    const size_t before = order.places.size();
    std::string_view at;
    if (!read_numbers(line, order.places, at))
      return invalid_argument(cat(where(), "\"", at, "\" is no whole number: a line has the ",
                                  "places of a batch's sequences, as 0 1024 2048"));
    const auto n = static_cast<int64_t>(order.places.size() - before);
    if (n == 0) continue;
    if (n != shape.batch)
      return invalid_argument(cat(where(), n, n == 1 ? " place" : " places", ", and a batch has ",
                                  shape.batch, ": write one for each sequence, or give --batch ",
                                  n));
    for (size_t i = before; i < order.places.size(); ++i)
      if (order.places[i] < 0 || order.places[i] > most)
        return invalid_argument(cat(where(), "place ", order.places[i], ": the training split has ",
                                    shape.n_tokens, " tokens, so sequences of ", shape.seqlen,
                                    " and their last target begin at 0 to ", most));
  }
  const int64_t n = order.n_batches();
  if (n / shape.accumulate >= shape.steps) return order;
  return invalid_argument(cat(
      "--batches ", path, " has ", n, n == 1 ? " batch" : " batches", ", and --steps ", shape.steps,
      shape.accumulate > 1 ? cat(" of --accumulate ", shape.accumulate) : std::string(), " takes ",
      shape.accumulate > 1 ? "that many times as many" : "one each", ": give at most --steps ",
      n / shape.accumulate));
}

}  // namespace tegula
