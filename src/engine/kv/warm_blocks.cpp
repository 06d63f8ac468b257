#include "engine/kv/warm_blocks.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace graft {

namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ULL + (hash << 6U) + (hash >> 2U);
  hash *= 0xFF51AFD7ED558CCDULL;
  return hash ^ (hash >> 32U);
}

// Roles of the positions [begin, end), counted from `begin`.
std::vector<RoleRun> roles_within(const PrefixPath& path, std::int32_t begin, std::int32_t end) {
  std::vector<RoleRun> runs;
  for (std::int32_t at = begin; at < end; at = path.role_end(at)) {
    runs.push_back({at - begin, path.roles[path.role_at(at)].role});
  }
  return runs;
}

}  // namespace

std::uint64_t WarmBytes::size() const {
  std::uint64_t n = 0;
  for (const Piece& piece : pieces) n += piece.bytes.size();
  return n;
}

struct WarmBlocks::Block {
  std::uint64_t hash = 0;
  Block* parent = nullptr;
  std::int32_t n_children = 0;
  std::int32_t number = 0;  // from the start of the path
  std::string root;         // of first blocks; the others have it from their parents
  std::string tenant;
  std::vector<TokenId> tokens;
  std::vector<RoleRun> roles;  // begins counted from the block's
  std::shared_ptr<const WarmBytes> bytes;
  std::int64_t used_at = 0;

  std::int64_t n_bytes() const {
    return static_cast<std::int64_t>(bytes->size() + tokens.size() * sizeof(TokenId) +
                                     sizeof(Block));
  }
  bool has_role(std::string_view role) const {
    return std::any_of(roles.begin(), roles.end(),
                       [&](const RoleRun& run) { return run.role == role; });
  }
};

WarmBlocks::WarmBlocks(std::int32_t n_block_tokens, std::uint64_t max_bytes)
    : n_block_tokens_(n_block_tokens), max_bytes_(max_bytes) {
  GRAFT_CHECK(n_block_tokens >= 1);
}

WarmBlocks::~WarmBlocks() = default;

namespace {

std::uint64_t chained_hash(std::uint64_t before, std::string_view root,
                           std::span<const TokenId> tokens, const std::vector<RoleRun>& roles) {
  std::uint64_t hash = before != 0 ? before : std::hash<std::string_view>()(root);
  for (const TokenId token : tokens) hash = mix(hash, static_cast<std::uint32_t>(token));
  for (const RoleRun& run : roles) {
    hash = mix(hash, static_cast<std::uint32_t>(run.begin));
    hash = mix(hash, std::hash<std::string>()(run.role));
  }
  return hash | 1U;  // 0 means: nothing before
}

}  // namespace

// The known blocks of the path, in order.
std::vector<WarmBlocks::Block*> WarmBlocks::chain(const PrefixPath& path) const {
  std::vector<Block*> known;
  Block* parent = nullptr;
  for (std::int32_t end = n_block_tokens_; end <= path.n_tokens(); end += n_block_tokens_) {
    const std::int32_t begin = end - n_block_tokens_;
    const auto tokens = path.tokens.subspan(static_cast<std::size_t>(begin),
                                            static_cast<std::size_t>(n_block_tokens_));
    const std::vector<RoleRun> roles = roles_within(path, begin, end);
    const std::uint64_t before = parent == nullptr ? 0 : parent->hash;
    const auto bucket = blocks_.find(chained_hash(before, path.root, tokens, roles));
    if (bucket == blocks_.end()) break;
    const auto same = [&](const std::unique_ptr<Block>& block) {
      return block->parent == parent && (parent != nullptr || block->root == path.root) &&
             std::equal(tokens.begin(), tokens.end(), block->tokens.begin()) &&
             block->roles == roles;
    };
    const auto found = std::find_if(bucket->second.begin(), bucket->second.end(), same);
    if (found == bucket->second.end()) break;
    parent = found->get();
    known.push_back(parent);
  }
  return known;
}

std::int32_t WarmBlocks::find(const PrefixPath& path) const {
  return blocks_.empty() ? 0 : static_cast<std::int32_t>(chain(path).size());
}

std::vector<std::shared_ptr<const WarmBytes>> WarmBlocks::use(const PrefixPath& path,
                                                              std::int32_t n_blocks) {
  const std::vector<Block*> known = chain(path.first(n_blocks * n_block_tokens_));
  GRAFT_CHECK(static_cast<std::int32_t>(known.size()) == n_blocks);
  ++now_;
  std::vector<std::shared_ptr<const WarmBytes>> bytes;
  for (Block* block : known) {
    block->used_at = now_;
    bytes.push_back(block->bytes);
  }
  return bytes;
}

bool WarmBlocks::add(const PrefixPath& path, std::shared_ptr<const WarmBytes> bytes) {
  const std::vector<Block*> known = chain(path);
  const auto number = static_cast<std::int32_t>(known.size());
  const std::int32_t begin = number * n_block_tokens_;
  GRAFT_CHECK(begin + n_block_tokens_ <= path.n_tokens());
  Block* parent = known.empty() ? nullptr : known.back();
  ++now_;
  for (Block* block : known) block->used_at = now_;

  auto block = std::make_unique<Block>();
  const auto tokens = path.tokens.subspan(static_cast<std::size_t>(begin),
                                          static_cast<std::size_t>(n_block_tokens_));
  block->parent = parent;
  block->number = number;
  block->root = parent == nullptr ? std::string(path.root) : std::string();
  block->tenant = path.tenant;
  block->tokens.assign(tokens.begin(), tokens.end());
  block->roles = roles_within(path, begin, begin + n_block_tokens_);
  block->bytes = std::move(bytes);
  block->used_at = now_;
  block->hash = chained_hash(parent == nullptr ? 0 : parent->hash, path.root, tokens, block->roles);
  const auto n_bytes = static_cast<std::uint64_t>(block->n_bytes());
  if (!make_room(n_bytes, path.tenant, parent)) return false;
  if (parent != nullptr) ++parent->n_children;
  shares_.add(path.tenant, block->n_bytes());
  ++n_blocks_;
  const std::uint64_t hash = block->hash;
  blocks_[hash].push_back(std::move(block));
  return true;
}

// Blocks are few (megabytes each), so looking at all of them is cheaper than an order kept.
WarmBlocks::Block* WarmBlocks::find_victim(std::uint64_t n_bytes, std::string_view tenant,
                                           const Block* kept) const {
  const auto extra = static_cast<std::int64_t>(n_bytes);
  Block* victim = nullptr;
  for (const auto& [hash, bucket] : blocks_) {
    for (const auto& block : bucket) {
      if (block->n_children > 0 || block.get() == kept) continue;
      if (!shares_.is_at_share(block->tenant, tenant, extra)) continue;
      if (victim == nullptr || block->used_at < victim->used_at) victim = block.get();
    }
  }
  return victim;
}

bool WarmBlocks::make_room(std::uint64_t n_bytes, std::string_view tenant, const Block* kept) {
  while (this->n_bytes() + n_bytes > max_bytes_) {
    Block* const victim = find_victim(n_bytes, tenant, kept);
    if (victim == nullptr) return false;
    remove(victim);
    ++n_evictions_;
  }
  return true;
}

void WarmBlocks::remove(Block* block) {
  GRAFT_CHECK(block->n_children == 0);
  if (block->parent != nullptr) --block->parent->n_children;
  shares_.add(block->tenant, -block->n_bytes());
  --n_blocks_;
  const auto bucket = blocks_.find(block->hash);
  std::erase_if(bucket->second, [&](const auto& entry) { return entry.get() == block; });
  if (bucket->second.empty()) blocks_.erase(bucket);
}

void WarmBlocks::drop_role(std::string_view role) {
  const auto is_doomed = [&](const Block* block) {
    for (; block != nullptr; block = block->parent) {
      if (block->has_role(role)) return true;
    }
    return false;
  };
  std::vector<Block*> doomed;
  for (const auto& [hash, bucket] : blocks_) {
    for (const auto& block : bucket) {
      if (is_doomed(block.get())) doomed.push_back(block.get());
    }
  }
  std::sort(doomed.begin(), doomed.end(),
            [](const Block* a, const Block* b) { return a->number > b->number; });
  for (Block* block : doomed) remove(block);
}

void WarmBlocks::check_invariants() const {
  std::unordered_map<const Block*, std::int32_t> n_children;
  std::int64_t n_bytes = 0;
  std::size_t n_blocks = 0;
  for (const auto& [hash, bucket] : blocks_) {
    for (const auto& block : bucket) {
      n_children[block.get()] += 0;
      if (block->parent != nullptr) ++n_children[block->parent];
      n_bytes += block->n_bytes();
      ++n_blocks;
      GRAFT_CHECK(block->hash == hash);
    }
  }
  GRAFT_CHECK(n_children.size() == n_blocks && n_blocks == n_blocks_);
  GRAFT_CHECK(n_bytes == shares_.total() && this->n_bytes() <= max_bytes_);
  for (const auto& [block, n] : n_children) GRAFT_CHECK(block->n_children == n);
}

}  // namespace graft
