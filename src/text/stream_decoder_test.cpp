#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace graft {
namespace {

using Strings = std::vector<std::string>;

const std::string kFffd = "\xEF\xBF\xBD";

StreamDecoder decoder(const Strings& stops) {
  auto result = StreamDecoder::create(stops);
  EXPECT_TRUE(result);
  return std::move(result).value();
}

TEST(StreamDecoder, NamesTheStopStringAndKeepsItIfAsked) {
  for (const bool keeps : {false, true}) {
    StreamDecoder d = StreamDecoder::create({"end", "xyz"}, keeps).value();
    EXPECT_EQ(d.push("a e"), "a ");
    EXPECT_EQ(d.stop_string(), "");
    EXPECT_EQ(d.push("nding"), keeps ? "end" : "");
    EXPECT_TRUE(d.stopped());
    EXPECT_EQ(d.stop_string(), "end");
    EXPECT_EQ(d.push("more"), "");
  }
}

std::string decode_all(const Strings& pieces, const Strings& stops = {}) {
  StreamDecoder d = decoder(stops);
  std::string text;
  for (const std::string& piece : pieces) {
    text += d.push(piece);
  }
  return text + d.finish();
}

// Reference for repair: decides each position by looking at the whole text.
std::size_t valid_length(const std::string& s, std::size_t at, bool& complete) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned lead = byte(at);
  const std::size_t want = lead < 0x80   ? 1
                           : lead < 0xC2 ? 0
                           : lead < 0xE0 ? 2
                           : lead < 0xF0 ? 3
                           : lead < 0xF5 ? 4
                                         : 0;
  std::size_t n = want == 0 ? 0 : 1;
  while (n > 0 && n < want && at + n < s.size() && (byte(at + n) & 0xC0) == 0x80) {
    const unsigned second = byte(at + 1);
    if (n == 1 && ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))) {
      break;
    }
    ++n;
  }
  complete = n == want && want > 0;
  return std::max<std::size_t>(n, 1);
}

std::string repaired(const std::string& s) {
  std::string out;
  for (std::size_t at = 0; at < s.size();) {
    bool complete = false;
    const std::size_t n = valid_length(s, at, complete);
    out += complete ? s.substr(at, n) : kFffd;
    at += n;
  }
  return out;
}

// Reference for stopping: the first end at which any stop string ends.
std::string cut(const std::string& text, const Strings& stops, bool& stopped) {
  stopped = false;
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) {
      stopped = true;
      return text.substr(0, end - longest);
    }
  }
  return text;
}

TEST(StreamDecoderTest, PlainTextComesOutAtOnce) {
  StreamDecoder d = decoder({});
  EXPECT_EQ(d.push("Hello"), "Hello");
  EXPECT_EQ(d.push(", world"), ", world");
  EXPECT_EQ(d.finish(), "");
  EXPECT_FALSE(d.stopped());
}

TEST(StreamDecoderTest, CharacterOverSeveralTokensComesOutWhole) {
  StreamDecoder d = decoder({});
  EXPECT_EQ(d.push("a\xF0"), "a");
  EXPECT_EQ(d.push("\x9F\x98"), "");
  EXPECT_EQ(d.push("\x80"), "\xF0\x9F\x98\x80");
}

TEST(StreamDecoderTest, UnfinishedCharacterBecomesOneReplacement) {
  StreamDecoder d = decoder({});
  EXPECT_EQ(d.push("a\xF0\x9F\x98"), "a");
  EXPECT_EQ(d.finish(), kFffd);
  EXPECT_EQ(d.finish(), "");
}

TEST(StreamDecoderTest, BrokenBytesAreReplaced) {
  EXPECT_EQ(decode_all({"a\xFF"
                        "b"}),
            "a" + kFffd + "b");
  EXPECT_EQ(decode_all({"\xE2\x82"
                        "A"}),
            kFffd + "A");
  EXPECT_EQ(decode_all({"\xC0\xAF"}), kFffd + kFffd);              // overlong
  EXPECT_EQ(decode_all({"\xED\xA0\x80"}), kFffd + kFffd + kFffd);  // surrogate
  EXPECT_EQ(decode_all({"\xF4\x90\x80\x80"}), kFffd + kFffd + kFffd + kFffd);
  EXPECT_EQ(decode_all({"\xE2", "\xE2", "\x82\xAC"}), kFffd + "\xE2\x82\xAC");
  EXPECT_EQ(decode_all({std::string("a\0b", 3)}), std::string("a\0b", 3));
}

TEST(StreamDecoderTest, StopStringAcrossTokens) {
  StreamDecoder d = decoder({"\nUser:"});
  EXPECT_EQ(d.push("Yes.\nUs"), "Yes.");
  EXPECT_EQ(d.push("er"), "");
  EXPECT_EQ(d.push(": no"), "");
  EXPECT_TRUE(d.stopped());
  EXPECT_EQ(d.push("more"), "");
  EXPECT_EQ(d.finish(), "");
}

TEST(StreamDecoderTest, HeldTextIsReleasedWhenTheMatchFails) {
  StreamDecoder d = decoder({"aab"});
  EXPECT_EQ(d.push("a"), "");
  EXPECT_EQ(d.push("a"), "");
  EXPECT_EQ(d.push("a"), "a");  // "aa" may still begin the stop string
  EXPECT_EQ(d.push("c"), "aac");
  EXPECT_EQ(d.push("xa"), "x");
  EXPECT_EQ(d.finish(), "a");
  EXPECT_FALSE(d.stopped());
}

TEST(StreamDecoderTest, FirstCompletedStopStringWins) {
  EXPECT_EQ(decode_all({"xabcd"}, {"abcd", "bc"}), "xa");
  EXPECT_EQ(decode_all({"xabc"}, {"bc", "abc"}), "x");
  EXPECT_EQ(decode_all({"xabc"}, {"c", "abc"}), "x");
}

TEST(StreamDecoderTest, MultiByteStopString) {
  StreamDecoder d = decoder({"\xE2\x82\xAC"});
  EXPECT_EQ(d.push("5\xE2\x82"), "5");
  EXPECT_EQ(d.push("\xAC"), "");
  EXPECT_TRUE(d.stopped());
}

TEST(StreamDecoderTest, ReplacementCharacterCanStop) {
  StreamDecoder d = decoder({kFffd});
  EXPECT_EQ(d.push("a\xE2"), "a");
  EXPECT_EQ(d.finish(), "");
  EXPECT_TRUE(d.stopped());
}

TEST(StreamDecoderTest, BadStopStringsAreRefused) {
  EXPECT_FALSE(StreamDecoder::create({""}));
  EXPECT_FALSE(StreamDecoder::create({std::string(257, 'a')}));
  EXPECT_TRUE(StreamDecoder::create({std::string(256, 'a')}));
  EXPECT_FALSE(StreamDecoder::create(Strings(33, "a")));
  EXPECT_TRUE(StreamDecoder::create(Strings(32, "a")));
  EXPECT_FALSE(StreamDecoder::create({"\xE2\x82"}));
  const auto refused = StreamDecoder::create({"ok", ""});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().param, "stop");
}

TEST(StreamDecoderTest, PeriodicStopStringsStayLinear) {
  // A naive matcher compares 256 bytes at each of 2 million positions, for 32 strings.
  Strings stops;
  for (std::size_t i = 0; i < 32; ++i) {
    stops.push_back(std::string(224 + i, 'a') + "b");
  }
  StreamDecoder d = decoder(stops);
  const std::string piece(1000, 'a');
  std::size_t n = 0;
  for (int i = 0; i < 2000; ++i) {
    n += d.push(piece).size();
  }
  EXPECT_EQ(n + d.finish().size(), 2000000U);
}

// Random pieces from an alphabet rich in near misses; every split must give the reference's text,
// and hold back nothing that cannot begin a stop string.
TEST(StreamDecoderTest, RandomTextsMatchTheReference) {
  const Strings alphabet = {"a",    "b",    "ab",   "\xC3",     "\xA9", "\xC3\xA9", "\xF0\x9F",
                            "\x98", "\x80", "\xE2", "\x82\xAC", "\xFF", "",         "ba"};
  const Strings stop_alphabet = {"a", "b", "\xC3\xA9", kFffd, "\xF0\x9F\x98\x80", "\xE2\x82\xAC"};
  std::mt19937 rng(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
  int n_stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    Strings stops(below(4));
    for (std::string& stop : stops) {
      for (std::size_t n = 1 + below(5); n > 0; --n) {
        stop += stop_alphabet[below(stop_alphabet.size())];
      }
    }
    StreamDecoder d = decoder(stops);
    std::string bytes;
    std::string text;
    for (std::size_t n = below(40); n > 0; --n) {
      const std::string& piece = alphabet[below(alphabet.size())];
      bytes += piece;
      text += d.push(piece);
      bool stopped = false;
      // Drop the unfinished character, if any, for the reference of what is certain.
      std::string certain = repaired(bytes + "!");
      certain.pop_back();
      if (!bytes.empty() &&
          repaired(bytes + "\x80\x80\x80") != repaired(bytes) + kFffd + kFffd + kFffd) {
        certain.resize(certain.size() - kFffd.size());
      }
      const std::string expected = cut(certain, stops, stopped);
      ASSERT_EQ(d.stopped(), stopped);
      if (stopped) {
        ASSERT_EQ(text, expected);
        continue;
      }
      std::size_t pending = 0;
      for (const std::string& stop : stops) {
        for (std::size_t k = 1; k < stop.size() && k <= certain.size(); ++k) {
          if (certain.ends_with(stop.substr(0, k))) {
            pending = std::max(pending, k);
          }
        }
      }
      ASSERT_EQ(text, certain.substr(0, certain.size() - pending));
    }
    text += d.finish();
    bool stopped = false;
    ASSERT_EQ(text, cut(repaired(bytes), stops, stopped));
    ASSERT_EQ(d.stopped(), stopped);
    n_stopped += stopped ? 1 : 0;
  }
  EXPECT_GT(n_stopped, 2000);
  EXPECT_LT(n_stopped, 18000);
}

}  // namespace
}  // namespace graft
