// WarmBlocks: cached prefixes in host memory (the warm tier): the bytes of whole blocks of
// positions, each found by a hash chained over all that is before it and then compared. A block
// knows the block before it, so a beginning that many prefixes share is there once.
//
// Bounded in bytes: what was used least recently goes first, last blocks before those they build
// on, and among tenants those that use more than their share (TenantShares).
//
// Belongs to the engine thread; the bytes of a block are immutable and live as long as somebody
// holds them. Invariants (check_invariants): a block's parent is present and counts its children;
// bytes are those of the blocks and within the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/kv/prefix_path.h"
#include "engine/kv/tenant_shares.h"

namespace graft {

// The saved cells of one block, in pieces that are restored one by one.
struct WarmBytes {
  struct Piece {
    std::int32_t n_tokens = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Piece> pieces;

  std::uint64_t size() const;
};

class WarmBlocks {
 public:
  // Requires: n_block_tokens >= 1.
  WarmBlocks(std::int32_t n_block_tokens, std::uint64_t max_bytes);
  ~WarmBlocks();
  WarmBlocks(const WarmBlocks&) = delete;
  WarmBlocks& operator=(const WarmBlocks&) = delete;

  std::int32_t n_block_tokens() const { return n_block_tokens_; }
  // How many blocks from the start of `path` are known.
  std::int32_t find(const PrefixPath& path) const;
  // The first `n_blocks` of `path`, which count as used. Requires: find(path) >= n_blocks.
  std::vector<std::shared_ptr<const WarmBytes>> use(const PrefixPath& path, std::int32_t n_blocks);
  // Adds the block behind the ones that find(path) knows; false when it does not fit even after
  // others have gone. Requires: the path has that block.
  bool add(const PrefixPath& path, std::shared_ptr<const WarmBytes> bytes);
  // Forgets every block with a token of that role, and what builds on it.
  void drop_role(std::string_view role);

  std::uint64_t n_bytes() const { return static_cast<std::uint64_t>(shares_.total()); }
  std::size_t n_blocks() const { return n_blocks_; }
  std::int64_t n_evictions() const { return n_evictions_; }
  const TenantShares& shares() const { return shares_; }

  void check_invariants() const;

 private:
  struct Block;
  using Bucket = std::vector<std::unique_ptr<Block>>;

  std::vector<Block*> chain(const PrefixPath& path) const;
  Block* find_victim(std::uint64_t n_bytes, std::string_view tenant, const Block* kept) const;
  bool make_room(std::uint64_t n_bytes, std::string_view tenant, const Block* kept);
  void remove(Block* block);

  std::int32_t n_block_tokens_;
  std::uint64_t max_bytes_;
  std::unordered_map<std::uint64_t, Bucket> blocks_;  // by chained hash
  std::size_t n_blocks_ = 0;
  std::int64_t n_evictions_ = 0;
  std::int64_t now_ = 0;
  TenantShares shares_;  // in bytes
};

}  // namespace graft
