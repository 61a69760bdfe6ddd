#include "tegula/runtime/rank_group.h"

#include <cstring>
#include <map>
#include <thread>

#include "tegula/base/amounts.h"
#include "tegula/base/round.h"
#include "tegula/comm/mover.h"
#include "tegula/ir/hash.h"
#include "tegula/kernels/moves.h"
#include "tegula/runtime/rank.h"

namespace tegula {

namespace {
constexpr int64_t kLine = 64;
// Collectives in the background that a group's ranks may have, over all their plans.
constexpr int64_t kMostErrands = 1 << 12;

uint64_t mix_shape(uint64_t h, const TensorRef& t) {
  h = mix(h, static_cast<uint64_t>(t.dtype));
  for (int d = 0; d < t.rank; ++d) h = mix(h, static_cast<uint64_t>(t.shape[d]));
  return h;
}
}  // namespace

// A rank's words to the others of a group; its tensors' addresses are offsets in the segment.
struct RankGroup::Slot {
  TensorRef in, out;
  uint64_t workspace = 0;
  uint64_t hash = 0;  // of the call

  static int64_t bytes_of(size_t n) { return static_cast<int64_t>(n * sizeof(Slot)); }
};

// Where a group meets; slots follow. Number 0 is the foreground's, where each rank posts once a
// meeting. The others are errands': each rank posts once a round and takes once a round, in any
// order; it posts again only when all have taken, so counts of all rounds say enough.
struct RankGroup::Board {
  Tally posted, taken;
  static int64_t bytes_of(size_t n) {
    return round_up(static_cast<int64_t>(sizeof(Board)) + Slot::bytes_of(n), kLine);
  }
  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
};

// One group of an axis, with its boards in the segment's flows.
struct RankGroup::Meeting {
  Segment* segment = nullptr;
  std::vector<int64_t> ranks;
  uint8_t* boards = nullptr;

  static int64_t bytes_of(size_t n) { return (1 + kMostErrands) * Board::bytes_of(n); }
  // The errands of a group of n: its own and, along a pipeline, those of each two of its ranks.
  static int64_t bytes_with_pairs(std::string_view axis, int64_t n) {
    const int64_t n_pairs = axis == kPipelineAxis ? n * (n - 1) / 2 : 0;
    return bytes_of(static_cast<size_t>(n)) + n_pairs * bytes_of(2);
  }
  size_t size() const { return ranks.size(); }
  Board& foreground() const { return *reinterpret_cast<Board*>(boards); }
  Board& of_errand(int number) const {
    TEGULA_CHECK(number < kMostErrands, "errand ", number, " of at most ", kMostErrands);
    return *reinterpret_cast<Board*>(boards + (1 + number) * Board::bytes_of(size()));
  }
  // Rank number `index` of the group is there; others see its slot, if it is given, before that.
  void add(Tally& tally, size_t index, const Slot* shown = nullptr) const {
    segment->add(tally, ranks, index, shown, shown ? Slot::bytes_of(1) : 0);
  }
};

// A rank's moves, as fetches from where the others' tensors lie.
struct RankGroup::Batch : Transfer {
  std::vector<Fetch> fetches;
  void set(std::span<const Move> moves, const Meeting& m, const Slot* slots) {
    fetches.clear();
    for (const Move& move : moves) {
      const auto giver = static_cast<size_t>(move.giver);
      const Slot& s = slots[giver];
      const uint64_t shown =
          move.of == Move::kWorkspace
              ? s.workspace
              : reinterpret_cast<uintptr_t>(move.of == Move::kResult ? s.out.data : s.in.data);
      fetches.push_back({m.ranks[giver], shown + static_cast<uint64_t>(move.from), move.bytes,
                         move.stride, move.count, move.to, move.to_stride});
    }
  }
  bool is_ready() override { return true; }
  bool list(std::span<const Fetch>& all) override {
    all = fetches;
    return true;
  }
  void is_there() override {}
};

struct RankGroup::Member final : Peers {
  struct Place {
    const Meeting* meeting = nullptr;
    size_t index = 0;
    std::vector<Shown> seen;
    uint64_t round = 0;  // how often it met there
  };
  Batch batch;                                          // of the foreground
  std::map<std::string, Mover::Use, std::less<>> uses;  // of links, by call

  Mover::Use& use_of_call() {
    const std::string_view name = waiter.state->call;
    const auto known = uses.find(name);
    return known != uses.end() ? known->second : uses[std::string(name)];
  }
  std::vector<Move> moves;
  Segment* segment = nullptr;
  Mover* mover = nullptr;
  const Mesh* mesh = nullptr;
  int64_t rank = 0;
  Waiter waiter;
  uint64_t call = 0;          // hash of the op that was begun last
  std::vector<Place> places;  // per axis
  std::vector<Place> pairs;   // along the pipeline: with each of its ranks
  std::map<std::pair<const Meeting*, int>, std::unique_ptr<Posted>> errands;

  Place& place(std::string_view axis) {
    const int a = mesh->find(axis);
    TEGULA_CHECK(a >= 0, "the mesh ", to_text(*mesh), " has no axis ", axis);
    return places[a];
  }

  TensorRef as_shown(TensorRef t) const {
    TEGULA_CHECK(segment->can_show(t.data), "rank ", rank,
                 " shows memory that others cannot see: ", waiter.state->call);
    t.data = reinterpret_cast<void*>(segment->offset_of(t.data));
    return t;
  }
  void show(Slot& slot, const TensorRef& in, const TensorRef& out) const {
    slot.in = as_shown(in), slot.out = as_shown(out);
    slot.hash = mix_shape(mix_shape(call, in), out);
  }
  TensorRef reached(TensorRef t) const {
    t.data = segment->at(reinterpret_cast<uintptr_t>(t.data));
    return t;
  }
  // The words of all. Empty: one of them is at another call, which fails the run.
  Met read(const Slot* slots, const Meeting& m, size_t index, std::vector<Shown>& seen) const {
    for (size_t i = 0; i < seen.size(); ++i) {
      if (slots[i].hash != slots[index].hash) {
        segment->fail(rank, internal_error(differing(m.ranks[i], slots[i], slots[index])));
        return {};
      }
      seen[i] = {reached(slots[i].in), reached(slots[i].out),
                 &segment->state(m.ranks[i]).sent_bytes};
    }
    return {seen, index};
  }
  std::string differing(int64_t other, const Slot& its, const Slot& mine) const {
    const auto said = [&](int64_t r, const Slot& s) {
      const RankState& state = segment->state(r);
      return cat("rank ", r, " is at call ", state.calls, ", ", state.call, ", of ", s.in.numel(),
                 " ", dtype_name(s.in.dtype));
    };
    return cat("ranks of ", to_text(*mesh), " do not do the same: ", said(rank, mine), "; ",
               said(other, its), ": run one build with one configuration");
  }

  void begin(std::string_view op, std::string_view axis, std::string_view plan,
             size_t step) override {
    call = mix(hash_of(op), hash_of(axis));
    segment->note_call(rank, op, axis, plan, step);
  }
  Met meet(std::string_view axis, const TensorRef& in, const TensorRef& out) override {
    Place& p = place(axis);
    Slot* slots = p.meeting->foreground().slots();
    show(slots[p.index], in, out);
    if (!meet_at(p, &slots[p.index])) return {};
    return read(slots, *p.meeting, p.index, p.seen);
  }
  bool meet(std::string_view axis) override { return meet_at(place(axis), nullptr); }
  bool meet_at(Place& p, const Slot* shown) const {
    Tally& met = p.meeting->foreground().posted;
    p.meeting->add(met, p.index, shown);
    return met.wait_for(++p.round * p.meeting->size(), waiter);
  }
  bool has_failed() const override { return tegula::has_failed(waiter); }
  bool brings() const override { return segment->brings(); }
  void exchange(const KernelCall& call, const CollectiveMoves& how) override {
    Place& p = place(call.attrs->str("axis"));
    Slot* slots = p.meeting->foreground().slots();
    show(slots[p.index], call.in[0], call.out[0]);
    slots[p.index].workspace = segment->offset_of(call.workspace);
    if (!meet_at(p, &slots[p.index]) || read(slots, *p.meeting, p.index, p.seen).all.empty())
      return;
    const auto index = static_cast<int64_t>(p.index);
    const int n_rounds = how.n_rounds ? how.n_rounds(call) : 1;
    for (int round = 0; round < n_rounds; ++round) {
      moves.clear();
      how.list(call, index, round, moves);
      batch.set(moves, *p.meeting, slots);
      if (!bring()) return;
      if (how.finish) how.finish(call, index, round);
      if (!meet_at(p, nullptr)) return;
    }
  }
  // The batch. Where nothing is awaited, by this thread.
  bool bring() {
    if (batch.fetches.empty()) return true;
    if (brings()) {
      mover->begin(batch);
      return mover->wait(batch, waiter, &use_of_call());
    }
    for (const Fetch& f : batch.fetches) mover->copy(f, rank);
    return true;
  }
  Errand& errand(std::string_view axis, int number) override {
    return errand_of(place(axis), number);
  }
  Errand& errand_with(std::string_view axis, int64_t other, int number) override {
    TEGULA_CHECK(axis == kPipelineAxis, "ranks along ", axis, " meet all at once");
    return errand_of(pairs.at(static_cast<size_t>(other)), number);
  }
  Errand& errand_of(const Place& p, int number);
};

// One rank's side of a board; it takes what the moves say when all have posted.
struct RankGroup::Posted final : Errand, Batch {
  Member* member = nullptr;
  const Meeting* meeting = nullptr;
  Board* board = nullptr;
  size_t place = 0;
  std::vector<Shown> seen;
  uint64_t round = 0;  // how often this rank has posted
  std::span<const Move> moves;
  Mover::Use* use = nullptr;

  uint64_t all_of_round() const { return round * seen.size(); }
  int64_t index() const override { return static_cast<int64_t>(place); }
  void post(const TensorRef& in, const TensorRef& out, std::span<const Move> needs) override {
    Slot& slot = board->slots()[place];
    member->show(slot, in, out);
    ++round;
    if (!use) use = &member->use_of_call();
    moves = needs;
    fetches.reserve(needs.size());
    member->mover->begin(*this);
    meeting->add(board->posted, place, &slot);
    if (board->posted.load() < all_of_round()) return;
    for (const int64_t r : meeting->ranks) member->segment->ring_for(r);
  }
  bool wait() override { return member->mover->wait(*this, member->waiter, use); }
  bool end() override { return board->taken.wait_for(all_of_round(), member->waiter); }

  bool is_ready() override { return board->posted.load() >= all_of_round(); }
  bool list(std::span<const Fetch>& all) override {
    if (member->read(board->slots(), *meeting, place, seen).all.empty()) return false;
    set(moves, *meeting, board->slots());
    all = fetches;
    return true;
  }
  void is_there() override { meeting->add(board->taken, place); }
};

Errand& RankGroup::Member::errand_of(const Place& p, int number) {
  std::unique_ptr<Posted>& errand = errands[{p.meeting, number}];
  if (errand) return *errand;
  errand = std::make_unique<Posted>();
  errand->member = this, errand->meeting = p.meeting, errand->board = &p.meeting->of_errand(number);
  errand->place = p.index, errand->taker = rank, errand->seen.resize(p.meeting->size());
  return *errand;
}

int64_t RankGroup::flow_bytes(const Mesh& mesh) {
  int64_t bytes = 0;
  for (const MeshAxis& a : mesh.axes)
    bytes += mesh.n_ranks() / a.size * Meeting::bytes_with_pairs(a.name, a.size);
  return bytes;
}

RankGroup::RankGroup(Mesh mesh)
    : mesh_(std::move(mesh)),
      threads_(Segment::of_threads(mesh_.n_ranks(), flow_bytes(mesh_))),
      segment_(threads_.get()) {
  make_members();
}

RankGroup::RankGroup(Mesh mesh, Segment& segment) : mesh_(std::move(mesh)), segment_(&segment) {
  TEGULA_CHECK(segment.n_ranks() == mesh_.n_ranks() && segment.flow_bytes() >= flow_bytes(mesh_),
               "a segment of ", segment.n_ranks(), " ranks for ", to_text(mesh_));
  make_members();
}

// Groups in the order of their first ranks, so that all processes lay them out alike.
void RankGroup::make_members() {
  mover_ = std::make_unique<Mover>(*segment_);
  std::map<std::pair<size_t, int64_t>, const Meeting*> of_group;  // by axis and first rank
  std::map<std::pair<int64_t, int64_t>, const Meeting*> of_pair;  // of a pipeline
  uint8_t* at = segment_->flows();
  const auto meeting_of = [&](std::vector<int64_t> ranks) {
    const size_t n = ranks.size();
    Meeting& m = *meetings_.emplace_back(std::make_unique<Meeting>());
    m.segment = segment_, m.ranks = std::move(ranks), m.boards = at;
    at += Meeting::bytes_of(n);
    return &m;
  };
  for (int64_t r = 0; r < mesh_.n_ranks(); ++r) {
    auto member = std::make_unique<Member>();
    member->segment = segment_, member->mover = mover_.get(), member->mesh = &mesh_,
    member->rank = member->batch.taker = r;
    member->waiter = segment_->waiter(r);
    for (size_t a = 0; a < mesh_.axes.size(); ++a) {
      auto ranks = mesh_.group(r, a);
      const size_t n = ranks.size();
      const Meeting*& meeting = of_group[{a, ranks[0]}];
      for (size_t i = 0; i < n && mesh_.axes[a].name == kPipelineAxis; ++i) {
        const int64_t other = ranks[i], first = std::min(r, other), last = std::max(r, other);
        Member::Place& pair = member->pairs.emplace_back();
        if (other == r) continue;
        const Meeting*& two = of_pair[{first, last}];
        if (!two) two = meeting_of({first, last});
        pair = {two, r == first ? size_t{0} : size_t{1}, {}};
      }
      if (!meeting) meeting = meeting_of(std::move(ranks));
      member->places.push_back(
          {meeting, static_cast<size_t>(mesh_.at(r)[a]), std::vector<Shown>(n)});
    }
    if (segment_->is_own(r)) members_.push_back(std::move(member));
  }
}
RankGroup::~RankGroup() = default;

Peers& RankGroup::peers(int64_t rank) { return *members_[rank - first_rank()]; }

void RankGroup::join(Rank& rank, int64_t number) {
  rank.peers = &peers(number);
  rank.memory.take_from(segment_->area(number));
}

void RankGroup::describe_links(Target& target) const {
  target.brings = brings();
  const LinkSpeed& link = segment_->link();
  if (link.is_slowed()) target.link_s = link.latency_s, target.link_bytes_per_s = link.bytes_per_s;
}

std::vector<LinkUse> RankGroup::link_uses(int64_t rank) const {
  std::vector<LinkUse> all;
  for (const auto& [call, use] : members_[rank - first_rank()]->uses)
    all.push_back({call, use.link_s, use.waited_s, use.times});
  return all;
}

Status RankGroup::agree(int64_t rank, std::string_view what, uint64_t number) {
  Member& own = *members_[rank - first_rank()];
  Status differs;
  for (size_t a = 0; a < mesh_.axes.size() && differs.ok(); ++a) {
    const std::string& axis = mesh_.axes[a].name;
    if (axis == kPipelineAxis) continue;
    Member::Place& place = own.places[a];
    const Meeting& m = *place.meeting;
    Slot* slots = m.foreground().slots();
    slots[place.index].hash = number;
    if (!own.meet_at(place, &slots[place.index])) return io_error("another rank failed");
    for (size_t i = 0; i < m.size() && differs.ok(); ++i)
      if (const uint64_t other = slots[i].hash; other != number)
        differs = internal_error(cat("ranks ", rank, " and ", m.ranks[i], " of ", to_text(mesh_),
                                     " have other ", what, " (hashes ", number, " and ", other,
                                     "): run one build with one configuration"));
    // Nobody's number goes before all have read it.
    if (!own.meet(axis)) return io_error("another rank failed");
  }
  return differs;
}

Status RankGroup::run_all(Status (*fn)(void*, int64_t), void* context) {
  std::vector<std::thread> threads;
  begin();
  const auto run_one = [&](int64_t r) {
    const Status st = fn(context, r);
    if (!st.ok()) segment_->fail(r, st.error());
  };
  const int64_t first = first_rank();
  for (int64_t r = first + 1; r < first + n_own(); ++r) threads.emplace_back(run_one, r);
  run_one(first);
  for (std::thread& t : threads) t.join();
  mover_->drain();
  auto failed = segment_->failure();
  if (!failed) return {};
  if (failed->rank < 0) return std::move(failed->error);
  return named(cat("rank ", failed->rank), std::move(failed->error));
}

// Threads of one process begin anew after a failure; processes end.
void RankGroup::begin() {
  if (!threads_) return;
  segment_->reset();
  for (const auto& m : meetings_) m->foreground().posted.count = 0;
  for (const auto& m : members_) {
    for (Member::Place& p : m->places) p.round = 0;
    for (const auto& [key, errand] : m->errands) {
      errand->round = 0, errand->board->posted.count = errand->board->taken.count = 0;
      errand->forget();
    }
    m->batch.forget();
  }
}

}  // namespace tegula
