#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace graft {

namespace {

constexpr double kPieceBytes = 8.0 * 1024 * 1024;  // a copy of about a millisecond
constexpr std::int32_t kMinPieceTokens = 16;
constexpr std::int32_t kCutTokens = 64;  // at least so many go when a step needs cells

std::int32_t piece_tokens(double bytes_per_cell, std::int32_t n_block_tokens) {
  std::int32_t n = n_block_tokens;
  while (n > kMinPieceTokens && n * bytes_per_cell > kPieceBytes) n = (n + 1) / 2;
  return n;
}

PrefixCacheOptions completed(PrefixCacheOptions options, const Engine& engine) {
  if (options.max_hot_cells == 0) options.max_hot_cells = engine.cells().n_cells() / 4;
  options.max_hot_cells = std::min(options.max_hot_cells, engine.cells().n_cells());
  if (options.enabled && options.max_warm_bytes > 0 && !engine.can_restore()) {
    log_info("prefix cache: without host memory, which this model's attention does not allow");
    options.max_warm_bytes = 0;
  }
  return options;
}

}  // namespace

PrefixCache::PrefixCache(Engine& engine, const PrefixCacheOptions& options)
    : engine_(engine),
      options_(completed(options, engine)),
      n_piece_tokens_(piece_tokens(engine.bytes_per_cell(), options.n_block_tokens)),
      index_(options.half_life),
      warm_(options.n_block_tokens, options_.max_warm_bytes) {}

PrefixCache::~PrefixCache() { clear(); }

PrefixMatch PrefixCache::find(const PrefixPath& path) const {
  if (!options_.enabled) return {};
  const HotMatch hot = index_.find(path);
  PrefixMatch match{hot.n_tokens, hot.holder, 0, 0};
  const std::int32_t n_block = options_.n_block_tokens;
  const std::int32_t n_warm = warm_.find(path) * n_block;
  // A block that begins hot is restored as a whole; that must be worth the copy.
  if (n_warm >= hot.n_tokens + std::max(n_block / 2, 1)) {
    match.n_hot = hot.n_tokens / n_block * n_block;
    match.n_warm_blocks = n_warm / n_block;
  }
  match.n_tokens = std::max(match.n_hot, n_warm * (match.n_warm_blocks > 0 ? 1 : 0));
  return match.n_tokens < options_.min_tokens ? PrefixMatch{} : match;
}

std::int32_t PrefixCache::n_idle(const PrefixMatch& match) const {
  if (match.n_hot == 0) return 0;
  return match.n_hot - engine_.cells().n_held_live(match.holder, 0, match.n_hot);
}

// Another request's attach() may have taken the match away since it was found.
bool PrefixCache::share_hot(const PrefixPath& path, std::int32_t sequence) {
  const HotMatch hot = index_.find(path);
  if (hot.n_tokens < path.n_tokens()) return false;
  engine_.share_cells(hot.holder, sequence, 0, path.n_tokens());
  index_.touch(path);
  if (engine_.has_window(sequence, path.n_tokens())) return true;
  // libllama has reused cells that had left the window of the holder's last token.
  engine_.truncate_sequence(sequence, 0);
  cut(hot.holder, index_.leaf(hot.holder).begin);
  return false;
}

std::int32_t PrefixCache::attach(const PrefixPath& path, const PrefixMatch& match,
                                 std::int32_t sequence) {
  if (match.n_hot > 0 && !share_hot(path.first(match.n_hot), sequence)) {
    ++stats_.n_misses;
    return 0;
  }
  if (match.n_warm_blocks > 0) {
    Restore restore{warm_.use(path, match.n_warm_blocks), 0, 0};
    restore.block = static_cast<std::size_t>(match.n_hot / options_.n_block_tokens);
    restores_[sequence] = std::move(restore);
  }
  stats_.n_hit_tokens += match.n_tokens;
  ++(match.n_tokens == 0        ? stats_.n_misses
     : match.n_warm_blocks == 0 ? stats_.n_hot_hits
                                : stats_.n_warm_hits);
  return match.n_hot;
}

std::int32_t PrefixCache::n_freed_by(const HotLeaf& leaf) const {
  return leaf.end - leaf.begin - engine_.cells().n_held_live(leaf.holder, leaf.begin, leaf.end);
}

// The leaf of least value among the tenants that must give way.
std::optional<HotLeaf> PrefixCache::cheapest(std::string_view grower, std::int32_t extra,
                                             bool must_free) const {
  std::optional<HotLeaf> best;
  for (const HotLeaf& leaf : index_.leaves()) {
    if (best && leaf.value >= best->value) continue;
    if (!index_.shares().is_at_share(leaf.tenant, grower, extra)) continue;
    if (must_free && n_freed_by(leaf) == 0) continue;
    best = leaf;
  }
  return best;
}

void PrefixCache::cut(std::int32_t holder, std::int32_t n_tokens) {
  const std::int32_t n_kept = index_.cut(holder, n_tokens);
  if (n_kept == 0) {
    engine_.release_sequence(holder);
  } else {
    engine_.truncate_sequence(holder, n_kept);
  }
  if (save_ && save_->holder == holder) save_.reset();
  ++stats_.n_hot_evictions;
}

void PrefixCache::make_room(std::int32_t n_cells) {
  while (engine_.cells().n_free() < n_cells && engine_.cells().n_idle() > 0) {
    std::optional<HotLeaf> victim = cheapest({}, 0, true);
    if (victim) {
      const std::int32_t n_needed = n_cells - engine_.cells().n_free();
      cut(victim->holder, std::max(victim->begin, victim->end - std::max(n_needed, kCutTokens)));
      continue;
    }
    // Idle cells lie below leaves that live requests use, or belong to tenants within their share.
    victim.reset();
    for (const HotLeaf& leaf : index_.leaves()) {
      const bool frees = n_freed_by(leaf) > 0;
      const bool victim_frees = victim && n_freed_by(*victim) > 0;
      if (victim && victim_frees && !frees) continue;
      if (!victim || frees != victim_frees || leaf.value < victim->value) victim = leaf;
    }
    GRAFT_CHECK(victim.has_value());
    cut(victim->holder, victim->begin);
  }
}

// Lets go of leaves until `n_new` cells more are within the limit, or twice that where a warm tier
// waits: save() brings them below it in the next steps, copied. False when the tenant has no right
// to that much.
bool PrefixCache::shrink_for(std::string_view tenant, std::int32_t n_new) {
  const std::int32_t slack = options_.max_warm_bytes > 0 ? options_.max_hot_cells : 0;
  while (index_.n_cells() + n_new > options_.max_hot_cells + slack) {
    const std::optional<HotLeaf> victim = cheapest(tenant, n_new, false);
    if (!victim) return false;
    cut(victim->holder, victim->begin);
  }
  return true;
}

// The holder that may stand for a path which goes on behind `match`; -1 = there is none.
std::int32_t PrefixCache::holder_for(const HotMatch& match, std::string_view tenant) {
  if (match.ends_leaf) return match.holder;
  if (const auto holder = engine_.acquire_holder()) return *holder;
  const std::optional<HotLeaf> victim = cheapest(tenant, 1, false);
  if (!victim || victim->holder == match.holder) return -1;
  cut(victim->holder, victim->begin);
  return engine_.acquire_holder().value_or(-1);
}

void PrefixCache::insert(const PrefixPath& whole, std::int32_t sequence) {
  if (!options_.enabled) return;
  const PrefixPath path = whole.first(std::min(whole.n_tokens(), options_.max_hot_cells));
  const std::int32_t n_new = path.n_tokens() - index_.find(path).n_tokens;
  if (n_new < options_.min_tokens) return;
  if (!shrink_for(path.tenant, n_new)) return;
  const std::int32_t holder = holder_for(index_.find(path), path.tenant);
  if (holder < 0) return;
  const HotMatch match = index_.find(path);  // evictions may have shortened it
  if (index_.has_holder(holder) != match.ends_leaf) {
    if (!index_.has_holder(holder)) engine_.release_sequence(holder);
    return;
  }
  std::int32_t n_held = match.n_tokens;
  if (engine_.has_sliding_window()) {
    // A sequence keeps its last positions alone for certain: what two of them keep may have a hole.
    if (match.ends_leaf) engine_.truncate_sequence(holder, 0);
    n_held = 0;
  } else if (!match.ends_leaf && match.n_tokens > 0) {
    engine_.share_cells(match.holder, holder, 0, match.n_tokens);
  }
  engine_.share_cells(sequence, holder, n_held, path.n_tokens());
  index_.insert(path, holder);
}

void PrefixCache::add_dependency(const std::string& role, std::weak_ptr<const void> dependency) {
  auto& known = dependencies_[role];
  const auto same = [&](const std::weak_ptr<const void>& other) {
    return !other.owner_before(dependency) && !dependency.owner_before(other);
  };
  if (std::none_of(known.begin(), known.end(), same)) known.push_back(std::move(dependency));
}

void PrefixCache::drop_unloaded() {
  for (auto entry = dependencies_.begin(); entry != dependencies_.end();) {
    const auto& all = entry->second;
    if (std::none_of(all.begin(), all.end(), [](const auto& one) { return one.expired(); })) {
      ++entry;
      continue;
    }
    while (const auto found = index_.find_role(entry->first)) {
      const auto [holder, begin] = *found;
      cut(holder, std::max(begin, index_.leaf(holder).begin));
    }
    warm_.drop_role(entry->first);
    entry = dependencies_.erase(entry);
  }
}

bool PrefixCache::has_work() const {
  return save_.has_value() || !restores_.empty() || index_.n_cells() > options_.max_hot_cells;
}

void PrefixCache::learn(double& average, double value) {
  constexpr double kRate = 0.1;
  average = average == 0 ? value : average + kRate * (value - average);
}

void PrefixCache::note_prefill(std::int32_t n_tokens, double ms) {
  if (n_tokens > 0) learn(prefill_ms_, ms / n_tokens);
}

void PrefixCache::clear() {
  save_.reset();
  restores_.clear();
  for (const HotLeaf& leaf : index_.leaves()) {
    std::int32_t n_kept = leaf.end;
    while (n_kept > 0) n_kept = index_.cut(leaf.holder, index_.leaf(leaf.holder).begin);
    engine_.release_sequence(leaf.holder);
  }
}

PrefixCacheStats PrefixCache::stats() const {
  PrefixCacheStats stats = stats_;
  stats.n_warm_evictions = warm_.n_evictions();
  stats.n_hot_cells = index_.n_cells();
  stats.n_hot_bytes =
      static_cast<std::int64_t>(engine_.bytes_per_cell() * static_cast<double>(stats.n_hot_cells));
  stats.n_warm_bytes = static_cast<std::int64_t>(warm_.n_bytes());
  return stats;
}

void PrefixCache::check_invariants() const {
  index_.check_invariants();
  warm_.check_invariants();
  for (const HotLeaf& leaf : index_.leaves()) {
    GRAFT_CHECK(engine_.cells().length(leaf.holder) == leaf.end);
  }
}

}  // namespace graft
