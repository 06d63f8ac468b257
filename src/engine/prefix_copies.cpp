// The copies between the two tiers of the prefix cache, piece by piece.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/prefix_cache.h"

namespace graft {

void PrefixCache::begin_copies() {
  copy_deadline_ = Clock::now() + options_.copy_budget;
  has_copied_ = false;
}

// Whether another piece is likely to end before the step's budget does.
bool PrefixCache::may_copy() const {
  const std::chrono::duration<double, std::milli> left = copy_deadline_ - Clock::now();
  return !has_copied_ || left.count() > copy_ms_ * n_piece_tokens_;
}

void PrefixCache::note_copy(std::int32_t n_tokens, Clock::time_point begin) {
  const std::chrono::duration<double, std::milli> time = Clock::now() - begin;
  learn(copy_ms_, time.count() / n_tokens);
  has_copied_ = true;
}

RestoreProgress PrefixCache::restore(std::int32_t sequence, std::int32_t n_reserved) {
  Restore& restore = restores_.at(sequence);
  RestoreProgress progress{RestoreProgress::kGoing, 0};
  bool is_over = false;
  while (!is_over && may_copy()) {
    const WarmBytes& block = *restore.blocks[restore.block];
    const WarmBytes::Piece& piece = block.pieces[restore.piece];
    const Clock::time_point begin = Clock::now();
    make_room(n_reserved + piece.n_tokens);
    if (engine_.cells().n_free() < n_reserved + piece.n_tokens) {
      is_over = true;  // what is there is good; the rest is computed
      break;
    }
    if (const Status done = engine_.restore_cells(sequence, piece.bytes, piece.n_tokens); !done) {
      log_warning("prefix cache: " + done.error().message);
      is_over = true;
      break;
    }
    note_copy(piece.n_tokens, begin);
    progress.n_tokens += piece.n_tokens;
    if (++restore.piece < block.pieces.size()) continue;
    restore.piece = 0;
    is_over = ++restore.block == restore.blocks.size();
  }
  if (!is_over) return progress;
  restores_.erase(sequence);
  const Status finished = engine_.finish_restore(sequence);
  if (!finished) log_warning("prefix cache: " + finished.error().message);
  progress.kind = finished ? RestoreProgress::kOver : RestoreProgress::kBroken;
  return progress;
}

bool PrefixCache::is_saved(const PrefixPath& path) const {
  return warm_.find(path) == path.n_tokens() / options_.n_block_tokens;
}

bool PrefixCache::is_worth_saving(const PrefixPath& path) const {
  if (options_.max_warm_bytes == 0 || is_saved(path)) return false;
  return prefill_ms_ == 0 || copy_ms_ == 0 || prefill_ms_ >= options_.min_save_gain * copy_ms_;
}

void PrefixCache::save() {
  while (has_work() && may_copy()) {
    if (save_) {
      if (save_piece()) continue;
      const Save done = *std::exchange(save_, std::nullopt);
      // A leaf that has grown meanwhile is wanted.
      const HotLeaf leaf = index_.leaf(done.holder);
      if (leaf.end == done.path.view().n_tokens()) cut(leaf.holder, leaf.begin);
      continue;
    }
    if (index_.n_cells() <= options_.max_hot_cells) return;
    const std::optional<HotLeaf> victim = cheapest({}, 0, false);
    GRAFT_CHECK(victim.has_value());
    OwnedPath path = index_.path_of(victim->holder);
    if (is_worth_saving(path.view())) {
      save_ = Save{victim->holder, std::move(path), nullptr, 0, 0};
    } else {
      cut(victim->holder, victim->begin);
    }
  }
}

// Saves the next piece of the leaf's path. False when all is saved or cannot be.
bool PrefixCache::save_piece() {
  Save& save = *save_;
  const PrefixPath path = save.path.view();
  const std::int32_t n_block = options_.n_block_tokens;
  const std::int32_t n_known = warm_.find(path) * n_block;
  if (n_known + n_block > path.n_tokens()) return false;
  if (save.block == nullptr || save.n_known != n_known) {
    save.block = std::make_shared<WarmBytes>();
    save.n_known = n_known;
    save.n_in_block = 0;
  }
  const Clock::time_point begin = Clock::now();
  const std::int32_t from = n_known + save.n_in_block;
  const std::int32_t to = std::min(from + n_piece_tokens_, n_known + n_block);
  auto bytes = engine_.save_cells(save.holder, from, to);
  if (!bytes) {
    log_warning("prefix cache: " + bytes.error().message);
    return false;
  }
  note_copy(to - from, begin);
  save.block->pieces.push_back({to - from, std::move(bytes).value()});
  save.n_in_block += to - from;
  return save.n_in_block < n_block || finish_block();
}

bool PrefixCache::finish_block() {
  return warm_.add(save_->path.view(), std::exchange(save_->block, nullptr));
}

}  // namespace graft
