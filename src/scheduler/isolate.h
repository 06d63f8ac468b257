// run_isolated: computes many things at once, and when that fails, in two halves, and so on, until
// the one at fault is alone. With one culprit among n it takes about 2 log2(n) extra runs. Sound
// only because no item's result depends on its company.
#pragma once

#include <span>

namespace graft {

// run(items) computes all of `items` and returns true, or has no effect and returns false; give_up
// gets the items that fail alone. False if any run failed.
template <typename Item, typename Run, typename GiveUp>
bool run_isolated(std::span<const Item> items, const Run& run, const GiveUp& give_up) {
  if (items.empty() || run(items)) return true;
  if (items.size() == 1) {
    give_up(items.front());
    return false;
  }
  const std::size_t half = items.size() / 2;
  run_isolated(items.first(half), run, give_up);
  run_isolated(items.subspan(half), run, give_up);
  return false;
}

}  // namespace graft
