#include "http/response_text.h"

#include <array>
#include <charconv>
#include <ctime>

namespace graft {
namespace {

const char* reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    default: return "Status";
  }
}

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 40> text{};
  const std::size_t length =
      std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return {text.data(), length};
}

}  // namespace

std::string response_head(const api::HttpResponse& response, BodyFraming framing, bool keep_alive) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " +
                     reason_phrase(response.status) + "\r\ndate: " + http_date() +
                     "\r\nserver: graft/" GRAFT_VERSION "\r\n";
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  if (framing == BodyFraming::kLength) {
    head += "content-length: " + std::to_string(response.body.size()) + "\r\n";
  } else if (framing == BodyFraming::kChunked) {
    head += "transfer-encoding: chunked\r\n";
  }
  head += keep_alive ? "connection: keep-alive\r\n" : "connection: close\r\n";
  return head + "\r\n";
}

void append_chunk(std::string& out, const std::string& bytes) {
  std::array<char, 20> size{};
  const auto result = std::to_chars(size.data(), size.data() + size.size(), bytes.size(), 16);
  out.append(size.data(), result.ptr);
  out += "\r\n";
  out += bytes;
  out += "\r\n";
}

}  // namespace graft
