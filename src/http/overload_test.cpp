// More load than there is room for: clear refusals, no growth, and the others answered.
#include <gtest/gtest.h>

#include <ctime>

#include <fcntl.h>
#include <sys/resource.h>

#include <vector>

#include "base/testing/sanitized.h"
#include "http/testing/server_fixture.h"

namespace graft {
namespace {

using std::chrono::milliseconds;

class OverloadTest : public ServerFixture {
 protected:
  struct Counts {
    int n_ok = 0;
    int n_refused = 0;
  };

  // All send before anyone reads. Refusals say when to come again; nothing else is answered.
  Counts round(int n_clients, const std::string& body) {
    std::vector<RawClient> clients;
    for (int i = 0; i < n_clients; ++i) {
      clients.push_back(client());
      EXPECT_TRUE(clients.back().send(post_request(kChat, body)));
    }
    Counts counts;
    for (RawClient& one : clients) {
      const RawResponse response = one.read_response();
      EXPECT_TRUE(response.complete);
      if (response.status == 200) {
        ++counts.n_ok;
      } else {
        EXPECT_EQ(response.status, 429) << response.body;
        EXPECT_NE(response.head.find("\r\nretry-after: "), std::string::npos) << response.head;
        ++counts.n_refused;
      }
    }
    return counts;
  }
};

TEST_F(OverloadTest, TenTimesTheRoomIs429WithoutGrowth) {
  constexpr int kRoom = 16;
  api::Script script;
  script.max_running = kRoom;
  script.step = milliseconds(50);
  generation_.set_script(script);
  start();
  const std::string bodies[] = {kPlainBody, kStreamBody};
  for (const std::string& body : bodies) {
    const Counts counts = round(10 * kRoom, body);
    EXPECT_GE(counts.n_ok, kRoom);
    EXPECT_GT(counts.n_refused, 2 * kRoom);
  }
  EXPECT_TRUE(generation_.wait_until_idle());
  EXPECT_TRUE(wait_for_connections(0));
  const std::size_t before = resident_bytes();
  for (int i = 0; i < 8; ++i) round(10 * kRoom, bodies[i % 2]);
  EXPECT_TRUE(wait_for_connections(0));
  if (!kSanitized) {
    EXPECT_LT(resident_bytes(), before + (std::size_t{16} << 20));
  }
}

TEST_F(OverloadTest, AFullPrepareQueueRefusesAndRecovers) {
  options_.max_queued_preparations = 2;
  options_.n_prepare_threads = 1;
  start();
  // Parsing this takes a while, so the queue behind it fills.
  const std::string heavy = R"({"prompt":[0)" + [] {
    std::string values;
    for (int i = 0; i < 300'000 / kSlowness; ++i) values += ",1";
    return values;
  }() + "]}";
  std::vector<RawClient> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(client());
    ASSERT_TRUE(clients.back().send(post_request("/v1/completions", heavy)));
  }
  int n_refused = 0;
  for (RawClient& one : clients) {
    const RawResponse response = one.read_response();
    EXPECT_TRUE(response.status == 429 || response.status == 400) << response.status;
    if (response.status == 429) ++n_refused;
  }
  EXPECT_GT(n_refused, 0);
  RawClient after = client();
  ASSERT_TRUE(after.send(post_request(kChat, kPlainBody)));
  EXPECT_EQ(after.read_response().status, 200);
}

// Takes descriptors until there are none.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int highest = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    held_.push_back(highest);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(highest) + 64;
    setrlimit(RLIMIT_NOFILE, &tight);
    int fd = 0;
    while ((fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) held_.push_back(fd);
  }
  ~NoDescriptors() {
    release(held_.size());
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

  void release(std::size_t n) {
    for (; n > 0 && !held_.empty(); --n) {
      ::close(held_.back());
      held_.pop_back();
    }
  }

 private:
  rlimit before_{};
  std::vector<int> held_;
};

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

TEST_F(OverloadTest, WithoutDescriptorsAcceptingWaitsAndGoesOn) {
  start();
  NoDescriptors none;
  none.release(1);
  RawClient waiting = client();  // takes the last one: the server has none to accept with
  ASSERT_TRUE(waiting.connected());
  ASSERT_TRUE(waiting.send(get_request("/health")));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(server_->n_connections(), 0U);
  EXPECT_LT(cpu_seconds() - before, 0.2);  // it does not spin
  none.release(8);
  EXPECT_EQ(waiting.read_response().status, 200);
}

TEST_F(OverloadTest, TheDescriptorLimitIsRaisedAtTheStart) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(before.rlim_max, 256);
  setrlimit(RLIMIT_NOFILE, &low);
  start();
  rlimit after{};
  getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace graft
