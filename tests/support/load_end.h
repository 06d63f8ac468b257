// LoadEnd: hears how one load ended, for a test that waits for it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "base/queue.h"
#include "modules/store/module_store.h"

namespace graft {

class LoadEnd final : public LoadWaiter {
 public:
  void on_loaded(const Loaded& loaded) override { EXPECT_TRUE(end_.push(loaded)); }
  // An error after two minutes.
  Loaded wait() {
    auto loaded = end_.pop_for(std::chrono::seconds(120));
    return loaded ? std::move(*loaded) : Loaded(internal_error("the load did not end"));
  }

 private:
  Queue<Loaded> end_{1};
};

}  // namespace graft
