#include "tests/ops/checks.h"

namespace tegula::testing {

Verdict check_types(const Case& c) {
  std::vector<Type> in;  // as the sample gives them: dims may be symbolic
  for (const SampleInput& i : c.sample.in) in.push_back(i.type);
  const OpCall call{c.op, &c.sample.attrs, in, {}, &c.module, c.regions};
  auto out = infer(call);
  if (!c.sample.expect_error.empty()) {
    if (out.ok()) return fail(cat("infer() succeeds, expected: ", c.sample.expect_error));
    const std::string& message = out.error().message;
    if (message.find(c.sample.expect_error) == std::string::npos)
      return fail(cat("infer() says \"", message, "\", expected: ", c.sample.expect_error));
    if (message.rfind(c.op->name, 0) != 0)
      return fail(cat("the message \"", message, "\" does not begin with the op's name"));
    return pass();
  }
  if (!out.ok()) return fail(cat("infer() says ", out.error().message));
  for (size_t r = 0; r < out->size(); ++r)
    if ((*out)[r].shape.numel() != c.out[r].shape.numel())
      return fail(cat("result ", r, " is ", (*out)[r], ", at the bounds ", c.out[r]));
  auto map = dim_map(c.call());
  if (!map.ok()) return fail(cat("dim_map() says ", map.error().message));
  if (map->operands.size() != c.in.size() || map->results.size() != c.out.size())
    return fail(cat("dim_map has ", map->operands.size(), " operands and ", map->results.size(),
                    " results, the call ", c.in.size(), " and ", c.out.size()));
  if (map->combine.size() != map->factors.size())
    return fail("dim_map has no combine for every factor: finish() is missing");
  for (size_t r = 0; r < c.out.size(); ++r) {
    if (!(map->result_shapes[r] == c.out[r].shape))
      return fail(cat("result ", r, " is ", c.out[r], ", dim_map says ", map->result_shapes[r]));
    if (static_cast<int>(map->results[r].size()) != c.out[r].shape.rank())
      return fail(cat("dim_map gives result ", r, " ", map->results[r].size(), " dims"));
  }
  for (size_t k = 0; k < c.in.size(); ++k)
    if (static_cast<int>(map->operands[k].size()) != c.in[k].shape.rank())
      return fail(cat("dim_map gives operand ", k, " ", map->operands[k].size(), " dims"));
  return pass();
}

}  // namespace tegula::testing
