// The border between http/ and api/: a request as bytes, an answer as bytes, and the Exchange that
// makes an answer over time. http/ knows nothing of what the bytes mean.
//
// An Exchange is used by one connection strand at a time. When more output may be there, it calls
// the connection's Waker, from any thread; the strand then calls poll().
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace graft::api {

using Header = std::pair<std::string, std::string>;

struct HttpRequest {
  std::string method;           // as sent: "GET", "POST"
  std::string target;           // path and query, as sent
  std::vector<Header> headers;  // names in lower case
  std::string body;
  // It has waited for modules; what is unknown now stays unknown.
  bool modules_awaited = false;
  // It was complete; the reader of its bytes says when.
  std::chrono::steady_clock::time_point received_at = std::chrono::steady_clock::now();

  // The first header of that name, or "". Requires: `name` in lower case.
  std::string_view header(std::string_view name) const {
    for (const Header& entry : headers) {
      if (entry.first == name) return entry.second;
    }
    return {};
  }
};

// A body that says it is something else than JSON is not guessed at; a browser could send it
// without asking.
bool is_json_body(const HttpRequest& request);

// A whole answer; or, in Output, the head of one whose body follows in pieces.
struct HttpResponse {
  int status = 200;
  std::vector<Header> headers;  // without length, transfer and connection headers
  std::string body;
  bool close = false;  // the connection ends after this answer
};

class Waker {
 public:
  virtual ~Waker() = default;
  virtual void wake() = 0;  // any thread; never blocks; may come late or for nothing
};

// What poll() found. The first output that holds anything holds either `whole` or `head`.
struct Output {
  std::unique_ptr<HttpResponse> whole;  // the complete answer; nothing follows
  std::unique_ptr<HttpResponse> head;   // status and headers of a streamed answer
  std::string bytes;                    // next piece of the streamed body
  bool end = false;                     // the streamed body is complete
  bool broken = false;                  // give up: reset the connection
  std::unique_ptr<HttpRequest> again;   // nothing was said yet: answer this request anew
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Takes what is ready. `idle`: nothing was sent for a while and the peer should hear something.
  virtual Output poll(bool idle) = 0;
  // The client is gone: stop the work. poll() is not called again.
  virtual void abandon() = 0;
  // The server stops: end the answer with an error at the next poll().
  virtual void shut_down() = 0;
};

using Answer = std::variant<HttpResponse, std::shared_ptr<Exchange>>;

}  // namespace graft::api
