// PrefixCache: keys and values of beginnings that requests may share, in two tiers. Hot: cells of
// the engine's memory, held by sequence numbers that never compute (PrefixIndex). Warm: host bytes
// (WarmBlocks), filled when a hot prefix must go and is worth it, copied back when it is wanted.
//
// Live requests never wait for cached cells: make_room() frees as many as a step needs, down to the
// last cached one. Copies happen in pieces, for about `copy_budget` per step in all.
//
// It takes sequence numbers and paths, never requests. Belongs to the engine thread; borrows the
// engine. check_invariants() compares index, holders and the engine's account of cells.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/kv/prefix_index.h"
#include "engine/kv/prefix_path.h"
#include "engine/kv/warm_blocks.h"

namespace graft {

struct PrefixCacheOptions {
  bool enabled = true;
  std::int32_t max_hot_cells = 0;                         // 0 = a quarter of the engine's
  std::uint64_t max_warm_bytes = std::uint64_t{1} << 30;  // 0 = no warm tier
  std::int32_t n_block_tokens = 256;                      // of the warm tier
  std::int32_t min_tokens = 16;                           // less is not worth its bookkeeping
  double min_save_gain = 10;                              // recompute time over copy time
  double half_life = 256;                                 // see PrefixIndex
  std::chrono::microseconds copy_budget{2000};            // per step
};

// What of a path is cached: first hot tokens, then whole blocks that must be copied back.
struct PrefixMatch {
  std::int32_t n_hot = 0;
  std::int32_t holder = -1;        // of the hot ones
  std::int32_t n_warm_blocks = 0;  // from the path's start; 0 = nothing to restore
  std::int32_t n_tokens = 0;       // in all
};

struct RestoreProgress {
  enum Kind : std::uint8_t {
    kGoing,
    kOver,    // the sequence may compute; perhaps less was restored than promised
    kBroken,  // its cells must be released
  };
  Kind kind = kOver;
  std::int32_t n_tokens = 0;  // more in the sequence than before the call
};

struct PrefixCacheStats {
  std::int64_t n_hot_hits = 0;   // requests that took hot tokens
  std::int64_t n_warm_hits = 0;  // requests that took warm ones (perhaps hot ones too)
  std::int64_t n_misses = 0;     // requests that looked and took none
  std::int64_t n_hot_evictions = 0;
  std::int64_t n_warm_evictions = 0;
  std::int64_t n_hot_cells = 0;
  std::int64_t n_hot_bytes = 0;
  std::int64_t n_warm_bytes = 0;
  std::int64_t n_hit_tokens = 0;
};

class PrefixCache {
 public:
  PrefixCache(Engine& engine, const PrefixCacheOptions& options);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  bool enabled() const { return options_.enabled; }

  // What is cached of `path`. No effect.
  PrefixMatch find(const PrefixPath& path) const;
  // Of the hot tokens of a match, how many lie in cells that no live sequence holds.
  std::int32_t n_idle(const PrefixMatch& match) const;
  // Gives an empty live sequence the hot tokens of a match, and begins to restore the warm ones:
  // call restore() in every step until it says that it is over. Returns the tokens that it has now:
  // the match's hot ones, or none when they are no longer whole.
  std::int32_t attach(const PrefixPath& path, const PrefixMatch& match, std::int32_t sequence);
  // Makes what `sequence` holds findable. Requires: it holds the whole path.
  void insert(const PrefixPath& path, std::int32_t sequence);
  // Entries with that role go when what it depends on is gone (see drop_unloaded).
  void add_dependency(const std::string& role, std::weak_ptr<const void> dependency);
  void drop_unloaded();

  // Evicts until `n_cells` are free or nothing is cached in cells that could be.
  void make_room(std::int32_t n_cells);

  // Call once per step before restore() and save().
  void begin_copies();
  bool is_restoring(std::int32_t sequence) const { return restores_.count(sequence) > 0; }
  // Goes on restoring, but not into the last `n_reserved` cells that are free or could be.
  RestoreProgress restore(std::int32_t sequence, std::int32_t n_reserved);
  void cancel_restore(std::int32_t sequence) { restores_.erase(sequence); }
  // Moves what is above the hot tier's limit to the warm one, or lets it go.
  void save();
  bool has_work() const;
  // What computing tokens costs, to judge what is worth saving.
  void note_prefill(std::int32_t n_tokens, double ms);

  void clear();
  PrefixCacheStats stats() const;
  void check_invariants() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Restore {
    std::vector<std::shared_ptr<const WarmBytes>> blocks;
    std::size_t block = 0;
    std::size_t piece = 0;
  };
  struct Save {
    std::int32_t holder = -1;
    OwnedPath path;
    std::shared_ptr<WarmBytes> block;  // in the making: the one behind n_known tokens
    std::int32_t n_known = 0;
    std::int32_t n_in_block = 0;
  };

  bool share_hot(const PrefixPath& path, std::int32_t sequence);
  std::optional<HotLeaf> cheapest(std::string_view grower, std::int32_t extra,
                                  bool must_free) const;
  std::int32_t n_freed_by(const HotLeaf& leaf) const;
  void cut(std::int32_t holder, std::int32_t n_tokens);
  bool shrink_for(std::string_view tenant, std::int32_t n_new);
  std::int32_t holder_for(const HotMatch& match, std::string_view tenant);
  bool is_saved(const PrefixPath& path) const;
  bool is_worth_saving(const PrefixPath& path) const;
  bool save_piece();
  bool finish_block();
  bool may_copy() const;
  static void learn(double& average, double value);
  void note_copy(std::int32_t n_tokens, Clock::time_point begin);

  Engine& engine_;
  PrefixCacheOptions options_;
  std::int32_t n_piece_tokens_;
  PrefixIndex index_;
  WarmBlocks warm_;
  std::map<std::int32_t, Restore> restores_;  // by sequence
  std::optional<Save> save_;
  std::unordered_map<std::string, std::vector<std::weak_ptr<const void>>> dependencies_;  // by role
  PrefixCacheStats stats_;
  Clock::time_point copy_deadline_;
  bool has_copied_ = false;  // in this step: one piece is always allowed
  double prefill_ms_ = 0;    // per token; 0 = not yet measured
  double copy_ms_ = 0;
};

}  // namespace graft
