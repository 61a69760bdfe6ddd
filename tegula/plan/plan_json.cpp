#include "tegula/plan/plan_json.h"

#include <bit>
#include <map>
#include <optional>

#include "tegula/base/algorithm.h"
#include "tegula/io/json.h"
#include "tegula/io/sha256.h"
#include "tegula/ir/opdef.h"
#include "tegula/kernels/order.h"
#include "tegula/kernels/registry.h"
#include "tegula/plan/verify.h"
#include "tegula/tile/program.h"

namespace tegula {

namespace {

constexpr std::string_view kFormat = "tegula.plan";
constexpr int64_t kMostBytes = int64_t{1} << 42;  // of a slot; sums of a million fit in 63 bits
constexpr int64_t kMostItems = int64_t{1} << 20;
constexpr int64_t kMostIndex = INT32_MAX;

Json id_json(ValueId v) { return v == kNone ? Json(-1) : Json(static_cast<int64_t>(v)); }

// A list of its arguments. (An initializer list would copy each, and trips a warning of GCC 12.)
template <class... T>
Json list(T&&... items) {
  Json::Array out;
  out.reserve(sizeof...(items));
  (out.emplace_back(std::forward<T>(items)), ...);
  return out;
}

class Writer {
 public:
  Json plan(const Plan& p) {
    Json::Array symbols, slots, steps;
    for (size_t s = 0; s < p.symbols.size(); ++s) {
      const LeastExtent least = s < p.least.size() ? p.least[s] : LeastExtent();
      symbols.push_back(list(p.symbols[s].name, p.symbols[s].bound, least.extent, least.why));
    }
    for (const Slot& s : p.slots)
      slots.push_back(list(static_cast<int>(s.kind), s.bytes, s.offset, s.param, s.first_step,
                           s.last_step, s.name, static_cast<int>(s.phase), s.is_workspace));
    for (const Step& s : p.steps) steps.push_back(step(s));
    return Json::object({{"name", p.name},
                         {"symbols", std::move(symbols)},
                         {"arena_bytes", p.arena_bytes},
                         {"lower_bound_bytes", p.lower_bound_bytes},
                         {"param_bytes", p.param_bytes},
                         {"params", ports(p.params)},
                         {"results", ports(p.results)},
                         {"slots", std::move(slots)},
                         {"steps", std::move(steps)}});
  }
  // Each text once, in the order of first use.
  Json programs() && { return std::move(programs_); }

 private:
  static Json dim(const Dim& d) {
    if (d.is_const()) return d.offset;
    return list(d.offset, d.scale, d.symbol);
  }
  static Json tensor(const PlanTensor& t) {
    Json::Array dims, strides;
    for (int d = 0; d < t.type.shape.rank(); ++d)
      dims.push_back(dim(t.type.shape[d])), strides.push_back(t.stride[d]);
    return list(t.slot, t.byte_offset, dtype_name(t.type.dtype), std::move(dims),
                std::move(strides), id_json(t.value), id_json(t.holds));
  }
  static Json tensors(const std::vector<PlanTensor>& all) { return json_list(all, tensor); }
  static Json ports(const std::vector<Plan::Port>& all) {
    return json_list(all, [](const Plan::Port& p) {
      return list(p.name, static_cast<int>(p.role), p.donated_to, tensor(p.tensor));
    });
  }
  // Kinds that JSON does not tell apart are wrapped; floats are their bits.
  static Json attr(const AttrValue& v) {
    if (const auto* b = v.get_if<bool>()) return *b;
    if (const auto* i = v.get_if<int64_t>()) return *i;
    if (const auto* s = v.get_if<std::string>()) return *s;
    if (const auto* t = v.get_if<DType>()) return Json::object({{"dtype", dtype_name(*t)}});
    if (const auto* f = v.get_if<double>())
      return Json::object({{"float_bits", std::bit_cast<int64_t>(*f)}, {"float", *f}});
    if (const auto* ints = v.get_if<std::vector<int64_t>>())
      return Json::Array(ints->begin(), ints->end());
    return Json::object({{"dims", json_list(v.get<std::vector<Dim>>(), dim)}});
  }
  Json step(const Step& s) {
    Json attrs = Json::object(), out = Json::object({{"op", s.op->name}});
    for (const auto& [name, value] : s.attrs) attrs.set(name, attr(value));
    if (s.kernel) out.set("kernel", s.kernel->name);
    if (!s.order.empty()) out.set("order", s.order);
    if (!(s.tuning == Tuning{})) {
      out.set("tuning", Json::Array(std::begin(s.tuning.knob), std::end(s.tuning.knob)));
    }
    if (s.attrs.size() > 0) out.set("attrs", std::move(attrs));
    out.set("in", tensors(s.in)), out.set("out", tensors(s.out));
    if (s.workspace >= 0) out.set("workspace", s.workspace);
    if (s.starts >= 0) out.set("starts", s.starts);
    if (s.ends >= 0) out.set("ends", s.ends);
    if (s.program) out.set("program", program(*s.program));
    Json::Array regions;
    for (const auto& r : s.regions) regions.push_back(plan(*r));
    if (!regions.empty()) out.set("regions", std::move(regions));
    out.set("flops", s.flops), out.set("bytes", s.bytes);
    out.set("phase", static_cast<int>(s.phase));
    if (!s.scope.empty()) out.set("scope", s.scope);
    return out;
  }
  int64_t program(const tile::Program& p) {
    const auto [it, is_new] =
        known_.emplace(tile::to_text(p), static_cast<int64_t>(programs_.size()));
    if (is_new) programs_.push_back(it->first);
    return it->second;
  }

  Json::Array programs_;
  std::map<std::string, int64_t> known_;
};

// Reads with a sticky error: what is missing or wrong gives zeros, and the first complaint stays.
class Reader {
 public:
  const std::optional<std::string>& error() const { return error_; }

  void programs(const Json* list) {
    for (const Json& text : items(list, "programs")) {
      auto p = tile::parse(string(&text, "a tile program"));
      if (!p.ok()) return fail(p.error().message);
      programs_.push_back(std::make_shared<const tile::Program>(std::move(*p)));
    }
  }

  // Before the plan, whose regions share it.
  void target(const Json* j) {
    if (!j) return fail("the target is missing");
    Target& t = target_;
    t.name = string(j->find("name"), "the target's name");
    const std::string device = string(j->find("device"), "the device");
    if (device != "cpu" && device != "cuda") return fail(cat("there is no device ", device));
    t.device = device == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda;
    t.n_threads = small(j->find("n_threads"), 1, 4096, "n_threads");
    const std::string isa = string(j->find("isa"), "the instruction set");
    const Isa* known =
        std::find_if(std::begin(kIsas), std::end(kIsas), [&](Isa i) { return isa_name(i) == isa; });
    if (known == std::end(kIsas)) return fail(cat("there is no instruction set ", isa));
    t.isa = *known;
    const auto& caches = items(j->find("caches"), "caches", CacheSizes::kLevels);
    for (size_t i = 0; i < caches.size(); ++i)
      t.caches.bytes[i] = integer(&caches[i], 0, kMostBytes, "a cache");
    t.capability = small(j->find("capability"), 0, 999, "the capability");
    t.multiprocessors = small(j->find("multiprocessors"), 0, 1 << 20, "multiprocessors");
    t.smem_bytes = integer(j->find("smem_bytes"), 0, kMostBytes, "smem_bytes");
    t.l2_bytes = integer(j->find("l2_bytes"), 0, kMostBytes, "l2_bytes");
    t.memory_bytes = integer(j->find("memory_bytes"), 0, kMostBytes, "memory_bytes");
    t.f32_flops_per_s = number(j->find("f32_flops_per_s"), "f32_flops_per_s");
    t.bf16_flops_per_s = number(j->find("bf16_flops_per_s"), "bf16_flops_per_s");
    t.bytes_per_s = number(j->find("bytes_per_s"), "bytes_per_s");
    t.flops_efficiency = number(j->find("flops_efficiency"), "flops_efficiency");
    t.bytes_efficiency = number(j->find("bytes_efficiency"), "bytes_efficiency");
    const Json* link = j->find("link");
    if (!link) return;
    const auto* brings = link->find_as<bool>("brings");
    if (!brings) return fail("the link does not say whether it brings");
    t.brings = *brings;
    t.link_s = number(link->find("seconds"), "a link's seconds");
    t.link_bytes_per_s = number(link->find("bytes_per_s"), "a link's rate");
  }

  Plan plan(const Json& j) {
    Plan p;
    p.name = string(j.find("name"), "the name");
    for (const Json& s : items(j.find("symbols"), "symbols")) {
      const auto& at = row(s, 4, "a symbol");
      p.symbols.push_back(
          {string(&at[0], "a symbol's name"), integer(&at[1], 0, kMostBytes, "a bound")});
      p.least.push_back({integer(&at[2], 0, kMostBytes, "a least extent"),
                         string(&at[3], "why an extent is the least")});
    }
    symbols_ = p.symbols;
    p.target = target_;
    p.arena_bytes = integer(j.find("arena_bytes"), 0, INT64_MAX / 4, "arena_bytes");
    p.lower_bound_bytes = integer(j.find("lower_bound_bytes"), 0, INT64_MAX, "lower_bound_bytes");
    p.param_bytes = integer(j.find("param_bytes"), 0, INT64_MAX, "param_bytes");
    p.params = ports(j.find("params")), p.results = ports(j.find("results"));
    for (const Json& s : items(j.find("slots"), "slots")) p.slots.push_back(slot(s));
    for (const Json& s : items(j.find("steps"), "steps")) {
      p.steps.push_back(step(s, p));
      if (error_) break;
    }
    return p;
  }

 private:
  void fail(std::string what) {
    if (!error_) error_ = std::move(what);
  }
  int64_t integer(const Json* j, int64_t low, int64_t high, std::string_view what) {
    const int64_t* v = j ? j->as<int64_t>() : nullptr;
    if (v && *v >= low && *v <= high) return *v;
    fail(cat(what, v ? cat(" is ", *v) : " is missing", ": expected a whole number from ", low,
             " to ", high));
    return std::max<int64_t>(low, 0);
  }
  int small(const Json* j, int64_t low, int64_t high, std::string_view what) {
    return static_cast<int>(integer(j, low, high, what));
  }
  double number(const Json* j, std::string_view what) {
    const auto* d = j ? j->as<double>() : nullptr;
    if (d && *d >= 0 && *d <= 1e30) return *d;
    fail(cat(what, ": expected a number from 0 to 1e30"));
    return 0;
  }
  std::string string(const Json* j, std::string_view what) {
    if (const auto* s = j ? j->as<std::string>() : nullptr) return *s;
    fail(cat(what, " is not a string"));
    return "";
  }
  const Json::Array& items(const Json* j, std::string_view what, int64_t most = kMostItems) {
    static const Json::Array kEmpty;
    const auto* a = j ? j->as<Json::Array>() : nullptr;
    if (a && static_cast<int64_t>(a->size()) <= most) return *a;
    fail(cat(what, ": expected a list of at most ", most));
    return kEmpty;
  }
  const Json::Array& row(const Json& j, size_t n, std::string_view what) {
    static const Json::Array kNulls(16);
    const auto* a = j.as<Json::Array>();
    if (a && a->size() == n) return *a;
    fail(cat(what, " is not a list of ", n));
    return kNulls;
  }
  DType dtype(const Json* j) {
    const std::string name = string(j, "a dtype");
    const auto t = parse_dtype(name);
    if (!t) fail(cat("there is no dtype ", name));
    return t.value_or(DType::kF32);
  }
  Dim dim(const Json& j) {
    if (j.as<int64_t>()) return integer(&j, -kMostBytes, kMostBytes, "a dim");
    const auto& at = row(j, 3, "a dim");
    Dim d = integer(&at[0], -kMostBytes, kMostBytes, "a dim's offset");
    const int64_t scale = integer(&at[1], -kMostItems, kMostItems, "a dim's scale");
    const int64_t s =
        integer(&at[2], 0, static_cast<int64_t>(symbols_.size()) - 1, "a dim's symbol");
    if (error_) return 0;
    d.scale = static_cast<int32_t>(scale), d.symbol = static_cast<int32_t>(s);
    d.symbol_bound = symbols_[static_cast<size_t>(s)].bound;
    return d;
  }
  PlanTensor tensor(const Json& j) {
    const auto& at = row(j, 7, "a tensor");
    PlanTensor t;
    t.slot = small(&at[0], 0, kMostItems, "a slot"),
    t.byte_offset = integer(&at[1], -kMostBytes, kMostBytes, "a byte offset");
    t.type.dtype = dtype(&at[2]);
    const auto &dims = items(&at[3], "a shape", kMaxRank), &strides = items(&at[4], "strides");
    if (dims.size() != strides.size()) fail("a tensor has as many strides as dims");
    __int128 n = 1;
    for (size_t d = 0; d < dims.size() && !error_; ++d) {
      t.type.shape.push_back(dim(dims[d]));
      t.stride[d] = integer(&strides[d], -kMostBytes, kMostBytes, "a stride");
      const int64_t size = t.type.shape[static_cast<int>(d)].bound();
      n *= std::max<int64_t>(size, 1);  // the others must have sizes even beside a 0
      if (size < 0 || n > kMostBytes) fail(cat("a tensor of ", t.type.dtype, " is too large"));
    }
    t.value = id(&at[5]), t.holds = id(&at[6]);
    return t;
  }
  ValueId id(const Json* j) {
    const int64_t v = integer(j, -1, kMostIndex, "a value");
    return v < 0 ? kNone : static_cast<ValueId>(v);
  }
  std::vector<PlanTensor> tensors(const Json* j) {
    std::vector<PlanTensor> out;
    for (const Json& t : items(j, "operands and results", 4096)) out.push_back(tensor(t));
    return out;
  }
  std::vector<Plan::Port> ports(const Json* j) {
    std::vector<Plan::Port> out;
    for (const Json& p : items(j, "params and results")) {
      const auto& at = row(p, 4, "a parameter or result");
      out.push_back(
          {string(&at[0], "its name"),
           static_cast<Role>(integer(&at[1], 0, static_cast<int>(Role::kState), "a role")),
           small(&at[2], -1, kMostItems, "donated_to"), tensor(at[3])});
    }
    return out;
  }
  Phase phase(const Json* j) {
    return static_cast<Phase>(integer(j, 0, static_cast<int>(Phase::kUpdate), "a phase"));
  }
  Slot slot(const Json& j) {
    const auto& at = row(j, 9, "a slot");
    Slot s;
    s.kind = static_cast<SlotKind>(integer(&at[0], 0, 1, "a slot's kind"));
    s.bytes = integer(&at[1], 0, kMostBytes, "a slot's bytes");
    s.offset = integer(&at[2], -1, INT64_MAX / 4, "a slot's offset");
    s.param = small(&at[3], -1, kMostItems, "a slot's parameter");
    s.first_step = small(&at[4], 0, kMostItems, "a first step");
    s.last_step = small(&at[5], 0, kMostItems, "a last step");
    s.name = string(&at[6], "a slot's name"), s.phase = phase(&at[7]);
    s.is_workspace = at[8] == Json(true);
    return s;
  }
  AttrValue attr(const Json& j) {
    if (const bool* b = j.as<bool>()) return *b;
    if (const int64_t* i = j.as<int64_t>()) return *i;
    if (const auto* s = j.as<std::string>()) return *s;
    if (const Json* t = j.find("dtype")) return dtype(t);
    if (const Json* f = j.find("float_bits"))
      return std::bit_cast<double>(integer(f, INT64_MIN, INT64_MAX, "a float's bits"));
    if (const Json* list = j.find("dims")) {
      std::vector<Dim> dims;
      for (const Json& d : items(list, "dims", 64)) dims.push_back(dim(d));
      return dims;
    }
    std::vector<int64_t> ints;
    for (const Json& i : items(&j, "an attribute", 4096))
      ints.push_back(integer(&i, INT64_MIN, INT64_MAX, "an attribute's integer"));
    return ints;
  }
  // The name as this build has it.
  std::string_view order(const std::string& name, const Step& s) {
    if (s.kernel && s.kernel->order == name) return s.kernel->order;
    if (!s.kernel)
      for (const OrderDef& o : cpu_orders())
        if (s.op && o.op == s.op->name && o.name == name) return o.name;
    fail(cat("order ", name,
             s.kernel ? cat(" is not kernel ", s.kernel->name, "'s")
                      : std::string(" is none of its op's"),
             ": make the plan again"));
    return {};
  }
  Step step(const Json& j, const Plan& parent) {
    Step s;
    const std::string op = string(j.find("op"), "an op");
    s.op = find_op(op);
    if (!s.op) fail(cat("this build has no op ", op));
    if (const Json* k = j.find("kernel")) {
      const std::string name = string(k, "a kernel");
      s.kernel = find_kernel(name);
      if (!s.kernel) fail(cat("this build has no kernel ", name, ": make the plan again"));
    }
    if (const Json* o = j.find("order")) s.order = order(string(o, "an order"), s);
    if (const Json* tuning = j.find("tuning")) {
      const auto& at = row(*tuning, Tuning::kKnobs, "a tuning");
      for (size_t i = 0; i < Tuning::kKnobs; ++i)
        s.tuning.knob[i] = small(&at[i], 0, kMostIndex, "a tuning's knob");
    }
    if (const Json* attrs = j.find("attrs")) {
      const auto* object = attrs->as<Json::Object>();
      if (!object) fail("attrs is not an object");
      for (size_t i = 0; object && i < object->size(); ++i)
        s.attrs.set((*object)[i].key, attr((*object)[i].value));
    }
    s.in = tensors(j.find("in")), s.out = tensors(j.find("out"));
    if (const Json* w = j.find("workspace")) s.workspace = small(w, 0, kMostItems, "a workspace");
    if (const Json* b = j.find("starts")) s.starts = small(b, 0, kMostItems, "starts");
    if (const Json* b = j.find("ends")) s.ends = small(b, 0, kMostItems, "ends");
    if (const Json* p = j.find("program")) {
      const int64_t last = static_cast<int64_t>(programs_.size()) - 1;
      const auto at = static_cast<size_t>(integer(p, 0, last, "a program"));
      if (at < programs_.size()) s.program = programs_[at];
    }
    if (const Json* regions = j.find("regions"))
      for (const Json& r : items(regions, "regions", 16)) {
        auto region = std::make_shared<Plan>(plan(r));
        symbols_ = parent.symbols;
        s.regions.push_back(std::move(region));
      }
    s.flops = integer(j.find("flops"), 0, INT64_MAX, "flops");
    s.bytes = integer(j.find("bytes"), 0, INT64_MAX, "bytes");
    s.phase = phase(j.find("phase"));
    if (const Json* scope = j.find("scope")) s.scope = string(scope, "the scope");
    return s;
  }

  std::optional<std::string> error_;
  std::vector<std::shared_ptr<const tile::Program>> programs_;
  std::vector<Symbol> symbols_;  // of the plan being read
  Target target_;
};

}  // namespace

static Json json_of(const Target& t) {
  Json::Array caches(std::begin(t.caches.bytes), std::end(t.caches.bytes));
  Json out = Json::object({{"name", t.name},
                           {"device", t.device == DeviceKind::kCpu ? "cpu" : "cuda"},
                           {"n_threads", t.n_threads},
                           {"isa", isa_name(t.isa)},
                           {"caches", std::move(caches)},
                           {"capability", t.capability},
                           {"multiprocessors", t.multiprocessors},
                           {"smem_bytes", t.smem_bytes},
                           {"l2_bytes", t.l2_bytes},
                           {"memory_bytes", t.memory_bytes},
                           {"f32_flops_per_s", t.f32_flops_per_s},
                           {"bf16_flops_per_s", t.bf16_flops_per_s},
                           {"bytes_per_s", t.bytes_per_s},
                           {"flops_efficiency", t.flops_efficiency},
                           {"bytes_efficiency", t.bytes_efficiency}});
  if (t.brings || t.link_s > 0 || t.link_bytes_per_s > 0)
    out.set("link", Json::object({{"brings", t.brings},
                                  {"seconds", t.link_s},
                                  {"bytes_per_s", t.link_bytes_per_s}}));
  return out;
}

std::string plan_to_json(const Plan& plan) {
  Writer writer;
  Json body = writer.plan(plan);
  body.set("target", json_of(plan.target));
  body.set("programs", std::move(writer).programs());
  const std::string hash = sha256_hex(body.dump());
  Json file = Json::object({{"format", kFormat},
                            {"version", kPlanVersion},
                            {"sha256", hash},
                            {"plan", std::move(body)}});
  return file.dump() + "\n";
}

Result<Plan> plan_from_json(std::string_view text, std::string_view what) {
  const Json file = TEGULA_TRY(Json::parse(text, what));
  auto refuse = [&](const std::string& why) { return invalid_argument(cat(what, ": ", why)); };
  const auto is = [&](std::string_view key, const Json& value) {
    const Json* have = file.find(key);
    return have && *have == value;
  };
  const Json *body = file.find("plan"), *version = file.find("version");
  if (!is("format", Json(kFormat)) || !body || !version)
    return refuse("this is no saved plan: make one with `tegula plan --save FILE`");
  if (!is("version", Json(kPlanVersion)))
    return refuse(cat("the plan has version ", version->dump(), ", this build reads version ",
                      kPlanVersion, ": make the plan again"));
  if (!is("sha256", Json(sha256_hex(body->dump()))))
    return refuse("the plan's text was altered: its SHA-256 is another. Make the plan again");
  Reader reader;
  reader.programs(body->find("programs"));
  reader.target(body->find("target"));
  Plan plan = reader.plan(*body);
  if (reader.error()) return refuse(*reader.error());
  if (auto st = check_totals(plan); !st.ok()) return refuse(st.error().message);
  if (auto st = verify_plan(plan); !st.ok()) return refuse(st.error().message);
  return plan;
}

}  // namespace tegula
