// GraphIndex: what Graft needs to know of one built compute graph: its inputs, the sites it has,
// its attention nodes and where its rows drop to the output rows. Built once per graph build on the
// thread that builds graphs; reading it costs nothing per step.
//
// Facts about llama.cpp's graphs that this relies on: inputs are leaves found by name
// (`inp_tokens`, `inp_pos`, `out_ids`) or copies of them on a device; rows drop behind a GET_ROWS
// on `out_ids`; the result of the last norm is named `result_norm`; a cache is written by SET_ROWS
// into a view of the cache tensor and read by FLASH_ATTN_EXT through views of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grafting/site_table.h"

struct ggml_tensor;

namespace graft {

enum class RowSpace : std::uint8_t { kTokens, kOutputs };

struct SiteNode {
  ggml_tensor* node = nullptr;
  std::int32_t site = -1;
  std::int32_t position = 0;  // in the node list
  RowSpace rows = RowSpace::kTokens;
  bool rows_proven = true;  // its row count is that of its row space; else modules must not act
};

// An attention node that Graft can compute itself.
struct AttentionNode {
  ggml_tensor* node = nullptr;
  const ggml_tensor* q = nullptr;
  const ggml_tensor* k = nullptr;  // as cached (before a cast to F16)
  const ggml_tensor* v = nullptr;
  const ggml_tensor* mask = nullptr;
  const ggml_tensor* sinks = nullptr;
  std::int32_t table = -1;       // which position table its cells belong to
  std::int32_t mask_index = -1;  // which of GraphIndex::masks
};

// Cells written by this graph: table[idxs[row]] = position of row.
struct CacheWrite {
  const ggml_tensor* idxs = nullptr;   // I64 [n_tokens]
  const ggml_tensor* cache = nullptr;  // identity of the position table across graph builds
  std::int64_t n_cells = 0;
};

// The states that the head turns into logits: F32 [n_values, n_rows], one row per row of its space.
struct FinalState {
  ggml_tensor* node = nullptr;  // null when the graph has none that is proven
  RowSpace rows = RowSpace::kOutputs;
};

struct MaskUse {
  const ggml_tensor* mask = nullptr;  // F16 [n_kv, n_tokens]
  std::int32_t table = -1;
};

struct GraphIndex {
  const ggml_tensor* tokens = nullptr;     // I32 [n_tokens], null in graphs without tokens
  const ggml_tensor* positions = nullptr;  // I32 [n_tokens], null in graphs without positions
  const ggml_tensor* out_ids = nullptr;    // I32 [n_outputs]
  std::vector<SiteNode> sites;
  std::vector<AttentionNode> attention;
  std::vector<CacheWrite> writes;
  std::vector<MaskUse> masks;
  FinalState final_state;
  std::unordered_set<const ggml_tensor*> casts;  // of caches; not needed when attention is ours
  std::int32_t n_foreign_attention = 0;
  std::string foreign_reason;  // of the last foreign attention node

  std::int64_t n_tokens() const;   // rows of the batch; 0 when the graph does not tell
  std::int64_t n_outputs() const;  // n_tokens without a GET_ROWS on out_ids
};

// Builds indexes; remembers which weight tensor is which site, so that later builds hash pointers
// instead of names. One per context.
class GraphIndexer {
 public:
  // Adds new sites to `table` as long as it is not frozen; afterwards unknown weights are no sites.
  void build(std::span<ggml_tensor* const> nodes, GraphIndex& index);
  void freeze() { frozen_ = true; }
  const SiteTable& sites() const { return sites_; }

 private:
  struct Scan;
  std::int32_t site_of(const ggml_tensor* node);
  void add_site(ggml_tensor* node, std::int32_t position, const Scan& scan, GraphIndex& index);
  void refuse_scaled_weights(const ggml_tensor* node);

  SiteTable sites_;
  std::unordered_map<const ggml_tensor*, std::int32_t> by_weight_[3];  // per SiteOp
  bool frozen_ = false;
};

}  // namespace graft
