#include "tegula/passes/superopt/program.h"

#include "tegula/base/algorithm.h"
#include "tegula/ir/opdef.h"

namespace tegula::superopt {

Symbol out_index(size_t dim) { return Symbol("$", static_cast<int64_t>(dim)); }
Symbol loop_index(size_t n) { return Symbol("%", static_cast<int64_t>(n)); }

Poly KindAttrs::poly(std::string_view name, const Poly& otherwise) const {
  const auto at = polys.find(name);
  return at == polys.end() || at->second.empty() ? otherwise : at->second[0];
}
std::vector<Poly> KindAttrs::list(std::string_view name) const {
  const auto at = polys.find(name);
  return at == polys.end() ? std::vector<Poly>{} : at->second;
}
std::vector<int64_t> KindAttrs::integers(std::string_view name) const {
  std::vector<int64_t> all;
  for (const Poly& p : list(name)) all.push_back(p.is_const() ? p.constant() : -1);
  return all;
}

const KindDef* find_kind(std::string_view name) {
  for (const KindDef& k : all_kinds())
    if (k.name == name) return &k;
  return nullptr;
}

namespace {
// An elementwise op that no kind speaks of, or a function of a rule: nothing is known of it.
Result<Form> opaque(std::string name, const KindCall& call) {
  Form form;
  form.function = std::move(name);
  form.shape = call.shape(0);
  Form::Read read;
  for (size_t d = 0; d < form.shape.size(); ++d) read.index.emplace_back(out_index(d));
  for (size_t k = 0; k < call.in.size(); ++k) {
    if (call.in[k] != form.shape)
      return invalid_argument(cat(form.function, ": its operands differ in shape"));
    read.operand = static_cast<int>(k);
    form.pieces.push_back({1, {}, {}, {read}});
  }
  return form;
}

bool knows(std::string_view names, std::string_view name) {
  for (size_t at = names.find(name); at != std::string_view::npos; at = names.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' '))
      return true;
  }
  return false;
}
}  // namespace

Result<Form> form_of(std::string_view kind, const KindCall& call) {
  if (kind == "function") return opaque(call.attrs.words.find("name")->second, call);
  std::string_view known;
  const KindDef* def = find_kind(kind);
  if (def) known = def->attrs;
  for (const auto& [name, value] : call.attrs.polys)
    if (!knows(known, name)) return invalid_argument(cat(kind, ": no attribute is named ", name));
  for (const auto& [name, value] : call.attrs.words)
    if (!knows(known, name)) return invalid_argument(cat(kind, ": no attribute is named ", name));
  if (def) return def->form(call);
  const OpDef* op = find_op(kind);
  if (!op || !op->is_elementwise)
    return invalid_argument(cat("'", kind,
                                "' is neither a kind, nor an elementwise op, nor among "
                                "the rule's functions"));
  if (call.in.empty()) return invalid_argument(cat(kind, ": has no operand"));
  return opaque(std::string(kind), call);
}

void Graph::add_input(std::string name, Extents shape) {
  Node node{"input", {}, {}, shape};
  node.attrs.words["name"] = name;
  inputs.push_back({std::move(name), std::move(shape)});
  nodes.push_back(std::move(node));
}

Result<int> Graph::add(std::string kind, std::vector<int> in, KindAttrs attrs) {
  for (size_t n = inputs.size(); n < nodes.size(); ++n)
    if (nodes[n].kind == kind && nodes[n].in == in && nodes[n].attrs == attrs)
      return static_cast<int>(n);
  std::vector<Extents> shapes;
  for (const int i : in) shapes.push_back(nodes[static_cast<size_t>(i)].shape);
  Form form = TEGULA_TRY(form_of(kind, {shapes, attrs}));
  nodes.push_back({std::move(kind), std::move(in), std::move(attrs), std::move(form.shape)});
  return static_cast<int>(nodes.size()) - 1;
}

std::string Graph::text(int node) const {
  const Node& n = nodes[static_cast<size_t>(node)];
  if (n.kind == "input") return n.attrs.words.find("name")->second;
  const bool is_function = n.kind == "function";
  std::string out = cat(is_function ? n.attrs.words.find("name")->second : n.kind, "(");
  std::string_view comma = "";
  for (const int i : n.in) out += cat(comma, text(i)), comma = ", ";
  for (const auto& [name, word] : n.attrs.words)
    if (!is_function) out += cat(comma, name, "=\"", word, "\""), comma = ", ";
  for (const auto& [name, polys] : n.attrs.polys) {
    out += cat(comma, name, "="), comma = ", ";
    if (polys.size() != 1) out += "[";
    for (size_t i = 0; i < polys.size(); ++i) out += cat(i > 0 ? "," : "", polys[i].text());
    if (polys.size() != 1) out += "]";
  }
  return out + ")";
}

}  // namespace tegula::superopt
