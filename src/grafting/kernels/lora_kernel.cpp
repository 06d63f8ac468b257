#include "grafting/kernels/lora_kernel.h"

#include <algorithm>

#include "grafting/kernels/lora_tiles.h"
#include "modules/residency/row_codec.h"

namespace graft {
namespace {

constexpr std::int64_t kTileColumns = 32;     // unit of splitting y between threads
constexpr std::int64_t kChunkColumns = 1024;  // of B at a time, so that it stays in cache

// How early factors are fetched: longer than memory needs, short enough for the first-level cache.
constexpr std::int64_t kAheadBytes = std::int64_t{9} * 1024;

std::int64_t div_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// Floats from one item's t to the next.
std::int64_t t_stride(const ResidentTerm& term) {
  return div_up(term.rank, kTileRanks) * kTileRanks;
}

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Deals a list of units of known cost to threads: a thread gets the units that start within its
// share of the total cost, so every unit has exactly one owner and nobody needs to communicate.
class Shares {
 public:
  Shares(std::int64_t total_cost, int ith, int nth)
      : begin_(total_cost * ith / nth), end_(total_cost * (ith + 1) / nth) {}

  // This thread's part of the next `n_units` units.
  Range next(std::int64_t n_units, std::int64_t unit_cost) {
    const Range mine{unit_at(begin_, n_units, unit_cost), unit_at(end_, n_units, unit_cost)};
    position_ += n_units * unit_cost;
    return mine;
  }

 private:
  // First unit that starts at or behind `cost`.
  std::int64_t unit_at(std::int64_t cost, std::int64_t n_units, std::int64_t unit_cost) const {
    return std::clamp<std::int64_t>(div_up(std::max<std::int64_t>(cost - position_, 0), unit_cost),
                                    0, n_units);
  }

  std::int64_t begin_;
  std::int64_t end_;
  std::int64_t position_ = 0;
};

// Shrink units of a work: blocks of kTileRows items by blocks of kTileRanks ranks, ranks innermost.
struct ShrinkUnits {
  explicit ShrinkUnits(const LoraWork& work) {
    const auto n_items = static_cast<std::int64_t>(work.items.size());
    const bool is_lookup = work.term->site.op == SiteOp::kGetRows;
    n_rank_blocks = is_lookup ? 1 : div_up(work.term->rank, kTileRanks);
    n_units = div_up(n_items, kTileRows) * n_rank_blocks;
    // Reading A costs about as much as the arithmetic of four rows.
    unit_cost = (is_lookup ? work.term->rank : work.term->n_in) *
                (4 + std::min<std::int64_t>(n_items, kTileRows));
  }
  std::int64_t n_rank_blocks = 1;
  std::int64_t n_units = 0;
  std::int64_t unit_cost = 1;
};

const std::byte* expert_a(const ResidentTerm& term, std::int32_t expert) {
  return term.a +
         static_cast<std::size_t>(expert) * static_cast<std::size_t>(term.rank) * term.row_bytes_a;
}

const std::byte* expert_b(const ResidentTerm& term, std::int32_t expert) {
  return term.b +
         static_cast<std::size_t>(expert) * static_cast<std::size_t>(term.rank) * term.row_bytes_b;
}

// How many of the first items have the expert of the first one.
std::size_t expert_run(std::span<const LoraItem> items) {
  std::size_t n = 1;
  while (n < items.size() && items[n].expert == items[0].expert) {
    ++n;
  }
  return n;
}

void look_up(const LoraWork& work, std::span<const LoraItem> items, float* t) {
  const ResidentTerm& term = *work.term;
  const auto rank = static_cast<std::size_t>(term.rank);
  const float scale = work.scale * term.scale;
  for (const LoraItem& item : items) {
    const std::span<float> values(t, rank);
    decode_row(term.type_a, term.a + static_cast<std::size_t>(item.x_row) * term.row_bytes_a,
               values);
    for (float& value : values) {
      value *= scale;
    }
    t += t_stride(term);
  }
}

// kAheadBytes in rows of A, to the nearest kTileRanks but never none.
std::int64_t ahead_ranks(const ResidentTerm& term) {
  const auto block_bytes = static_cast<std::int64_t>(term.row_bytes_a) * kTileRanks;
  return std::max<std::int64_t>((kAheadBytes + block_bytes / 2) / block_bytes, 1) * kTileRanks;
}

// kAheadBytes in columns of B.
std::int64_t ahead_columns(const ResidentTerm& term) {
  const auto bytes = static_cast<std::int64_t>(term.row_bytes_b) * term.rank;
  return div_up(kAheadBytes * term.n_out / bytes, kTileColumns) * kTileColumns;
}

// A thread's part of a work in the shrink phase.
struct ShrinkPart {
  const LoraSite* site = nullptr;
  const LoraWork* work = nullptr;
  std::int64_t n_rank_blocks = 1;
  Range units;
  float* t = nullptr;  // of the work's first item
};

std::span<const LoraItem> item_block(const LoraWork& work, std::int64_t block) {
  const auto first = static_cast<std::size_t>(block) * kTileRows;
  return work.items.subspan(first, std::min<std::size_t>(kTileRows, work.items.size() - first));
}

const std::byte* first_read(const ShrinkPart& part) {
  const ResidentTerm& term = *part.work->term;
  const auto rank = static_cast<std::size_t>(part.units.begin % part.n_rank_blocks * kTileRanks);
  const LoraItem& item = item_block(*part.work, part.units.begin / part.n_rank_blocks)[0];
  return term.site.op == SiteOp::kGetRows
             ? term.a + static_cast<std::size_t>(item.x_row) * term.row_bytes_a
             : expert_a(term, item.expert) + rank * term.row_bytes_a;
}

// Ranks [ranks.begin, ranks.end) of up to kTileRows items; t belongs to the first of them.
void shrink_items(const ShrinkPart& part, std::span<const LoraItem> items, Range ranks, float* t,
                  const std::byte* next) {
  const LoraSite& site = *part.site;
  const ResidentTerm& term = *part.work->term;
  const std::size_t skipped = static_cast<std::size_t>(ranks.begin) * term.row_bytes_a;
  while (!items.empty()) {
    const std::size_t n = expert_run(items);
    ShrinkTile tile;
    tile.a = {.type = term.type_a,
              .bytes = expert_a(term, items[0].expert) + skipped,
              .row_bytes = term.row_bytes_a,
              .n_rows = ranks.end - ranks.begin};
    tile.next = n < items.size() ? expert_a(term, items[n].expert) + skipped : next;
    tile.ahead = ahead_ranks(term);
    tile.n_in = term.n_in;
    tile.scale = part.work->scale * term.scale;
    tile.n_rows = static_cast<int>(n);
    for (std::size_t i = 0; i < n; ++i) {
      tile.x[i] = reinterpret_cast<const float*>(site.x + static_cast<std::size_t>(items[i].x_row) *
                                                              site.x_stride_bytes);
      tile.t[i] = t + ranks.begin;
      t += t_stride(term);
    }
    shrink_tile(tile);
    items = items.subspan(n);
  }
}

// `next`: what this thread reads after the part.
void shrink_part(const ShrinkPart& part, const std::byte* next) {
  const ResidentTerm& term = *part.work->term;
  const std::int64_t first_block = part.units.begin / part.n_rank_blocks;
  for (std::int64_t unit = part.units.begin; unit < part.units.end;) {
    const std::int64_t block = unit / part.n_rank_blocks;
    const std::int64_t base = block * part.n_rank_blocks;
    const std::int64_t end = std::min(part.units.end, base + part.n_rank_blocks);
    const auto items = item_block(*part.work, block);
    float* t_block = part.t + block * kTileRows * t_stride(term);
    if (term.site.op == SiteOp::kGetRows) {
      look_up(*part.work, items, t_block);
    } else {
      const Range ranks{(unit - base) * kTileRanks, std::min((end - base) * kTileRanks, term.rank)};
      const bool is_cached = block > first_block && term.n_experts == 1;
      shrink_items(part, items, ranks, t_block, is_cached ? nullptr : next);
    }
    unit = end;
  }
}

// A thread's part of a work in the expand phase.
struct ExpandPart {
  const LoraSite* site = nullptr;
  const LoraWork* work = nullptr;
  Range columns;             // of the term
  const float* t = nullptr;  // of the work's first item
};

// About where a column stands in a row of B.
std::size_t column_bytes(const ResidentTerm& term, std::int64_t column) {
  return term.row_bytes_b * static_cast<std::size_t>(column) / static_cast<std::size_t>(term.n_out);
}

const std::byte* first_read(const ExpandPart& part) {
  const ResidentTerm& term = *part.work->term;
  return expert_b(term, part.work->items[0].expert) + column_bytes(term, part.columns.begin);
}

// Some columns of the part, all items.
void expand_chunk(const ExpandPart& part, Range columns, const std::byte* next) {
  const LoraSite& site = *part.site;
  const ResidentTerm& term = *part.work->term;
  const float* t = part.t;
  std::span<const LoraItem> items = part.work->items;
  for (bool is_cached = false; !items.empty(); is_cached = term.n_experts == 1) {
    const std::size_t n = expert_run(items.first(std::min<std::size_t>(kTileRows, items.size())));
    ExpandTile tile;
    tile.b = {.type = term.type_b,
              .bytes = expert_b(term, items[0].expert),
              .row_bytes = term.row_bytes_b,
              .n_rows = term.rank};
    tile.next = is_cached ? nullptr : next;
    tile.ahead = ahead_columns(term);
    tile.j_begin = columns.begin;
    tile.j_end = columns.end;
    tile.bias = term.bias;
    tile.bias_scale = part.work->scale * term.scale;
    tile.n_rows = static_cast<int>(n);
    for (std::size_t i = 0; i < n; ++i) {
      tile.t[i] = t;
      tile.y[i] = reinterpret_cast<float*>(site.y + static_cast<std::size_t>(items[i].y_row) *
                                                        site.y_stride_bytes) +
                  term.out_offset;
      t += t_stride(term);
    }
    expand_tile(tile);
    items = items.subspan(n);
  }
}

// `next`: what this thread reads after the part.
void expand_part(const ExpandPart& part, const std::byte* next) {
  const ResidentTerm& term = *part.work->term;
  for (std::int64_t j = part.columns.begin; j < part.columns.end; j += kChunkColumns) {
    const std::int64_t end = std::min(j + kChunkColumns, part.columns.end);
    expand_chunk(part, {j, end}, end < part.columns.end ? term.b + column_bytes(term, end) : next);
  }
}

// The columns of a site that its works write, in units of kTileColumns.
struct ExpandUnits {
  explicit ExpandUnits(const LoraSite& site) {
    std::int64_t last = 0;
    for (const LoraWork& work : site.work) {
      const auto n_items = static_cast<std::int64_t>(work.items.size());
      if (n_items == 0) {
        continue;
      }
      const ResidentTerm& term = *work.term;
      first_column = unit_cost == 0 ? term.out_offset : std::min(first_column, term.out_offset);
      last = std::max(last, term.out_offset + term.n_out);
      unit_cost += term.rank * (4 + n_items);
    }
    n_units = div_up(std::max<std::int64_t>(last - first_column, 0), kTileColumns);
  }
  std::int64_t first_column = 0;
  std::int64_t n_units = 0;
  std::int64_t unit_cost = 0;
};

// `columns` of the site, of which the term may cover a part.
ExpandPart expand_part_of(const LoraSite& site, const LoraWork& work, Range columns,
                          const float* t) {
  const ResidentTerm& term = *work.term;
  return {&site,
          &work,
          {std::max<std::int64_t>(columns.begin - term.out_offset, 0),
           std::min(columns.end - term.out_offset, term.n_out)},
          t};
}

// About where a thread begins the expand phase. Requires: some work has items.
const std::byte* first_read_of_expand(std::span<const LoraSite> sites, int ith, int nth) {
  for (const LoraSite& site : sites) {
    for (const LoraWork& work : site.work) {
      if (!work.items.empty()) {
        const std::int64_t column = work.term->n_out * ith / nth;
        return first_read(ExpandPart{&site, &work, {column, work.term->n_out}, nullptr});
      }
    }
  }
  return nullptr;
}

}  // namespace

std::size_t lora_scratch_floats(std::span<const LoraSite> sites) {
  std::size_t n_floats = 0;
  for (const LoraSite& site : sites) {
    for (const LoraWork& work : site.work) {
      n_floats += work.items.size() * static_cast<std::size_t>(t_stride(*work.term));
    }
  }
  return n_floats;
}

void lora_shrink(std::span<const LoraSite> sites, float* scratch, int ith, int nth) {
  std::int64_t total_cost = 0;
  for (const LoraSite& site : sites) {
    for (const LoraWork& work : site.work) {
      const ShrinkUnits units(work);
      total_cost += units.n_units * units.unit_cost;
    }
  }
  Shares shares(total_cost, ith, nth);
  ShrinkPart part;  // found, but done when it is known what follows
  for (const LoraSite& site : sites) {
    for (const LoraWork& work : site.work) {
      const ShrinkUnits units(work);
      const ShrinkPart found{&site, &work, units.n_rank_blocks,
                             shares.next(units.n_units, units.unit_cost), scratch};
      scratch += static_cast<std::int64_t>(work.items.size()) * t_stride(*work.term);
      if (found.units.begin < found.units.end) {
        if (part.work != nullptr) shrink_part(part, first_read(found));
        part = found;
      }
    }
  }
  if (part.work != nullptr) shrink_part(part, first_read_of_expand(sites, ith, nth));
}

void lora_expand(std::span<const LoraSite> sites, const float* scratch, int ith, int nth) {
  std::int64_t total_cost = 0;
  for (const LoraSite& site : sites) {
    const ExpandUnits units(site);
    total_cost += units.n_units * units.unit_cost;
  }
  Shares shares(total_cost, ith, nth);
  ExpandPart part;  // found, but done when it is known what follows
  for (const LoraSite& site : sites) {
    const ExpandUnits units(site);
    if (units.n_units == 0) {
      continue;  // its works have no items and thus no scratch
    }
    const Range mine = shares.next(units.n_units, units.unit_cost);
    const Range columns{units.first_column + mine.begin * kTileColumns,
                        units.first_column + mine.end * kTileColumns};
    for (const LoraWork& work : site.work) {
      const ExpandPart found = expand_part_of(site, work, columns, scratch);
      scratch += static_cast<std::int64_t>(work.items.size()) * t_stride(*work.term);
      if (!work.items.empty() && found.columns.begin < found.columns.end) {
        if (part.work != nullptr) expand_part(part, first_read(found));
        part = found;
      }
    }
  }
  if (part.work != nullptr) expand_part(part, first_read(part));
}

void lora_apply(std::span<const LoraSite> sites, float* scratch, SpinBarrier& barrier, int ith,
                int nth) {
  lora_shrink(sites, scratch, ith, nth);
  barrier.arrive_and_wait(nth);
  lora_expand(sites, scratch, ith, nth);
}

}  // namespace graft
