#include "modules/store/confined_files.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace graft {
namespace {

namespace fs = std::filesystem;

// A root with a module, beside a secret that nothing may reach.
class ConfinedFilesTest : public testing::Test {
 protected:
  ConfinedFilesTest() {
    std::string path = (fs::temp_directory_path() / "graft-confined-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    top_ = fs::canonical(path);
    fs::create_directories(top_ / "root/team/task");
    fs::create_directories(top_ / "root-beside");
    write("root/team/task/adapter_config.json", "{}");
    write("root/file.gguf", "GGUF");
    write("secret", "secret");
    write("root-beside/file", "beside");
  }
  ~ConfinedFilesTest() override {
    std::error_code ignored;
    fs::remove_all(top_, ignored);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(top_ / name, std::ios::binary) << text;
  }
  std::string root() const { return (top_ / "root").string(); }
  ConfinedFiles files() const { return ConfinedFiles::open(root()).value(); }

  // What a client gets for a path: the content, or the error's text with the path cut out.
  std::string fetch(const std::string& path) const {
    const ConfinedFiles confined = files();
    const auto relative = confined.relative(path);
    if (!relative) return about(relative.error(), path);
    const auto bytes = confined.read(*relative, 100);
    if (!bytes) return about(bytes.error(), *relative);
    return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
  }
  static std::string about(const Error& error, const std::string& path) {
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    std::string text = error.message;
    const std::size_t at = text.find("'" + path + "'");
    return at == std::string::npos ? text : text.erase(at, path.size() + 2);
  }

  fs::path top_;
};

TEST_F(ConfinedFilesTest, ReadsWhatLiesBeneath) {
  EXPECT_EQ(fetch("file.gguf"), "GGUF");
  EXPECT_EQ(fetch("team/task/adapter_config.json"), "{}");
  EXPECT_EQ(fetch("./team//task/./adapter_config.json"), "{}");
  EXPECT_EQ(fetch(root() + "/file.gguf"), "GGUF");
  EXPECT_EQ(fetch(root() + "//team/task/adapter_config.json"), "{}");
  const ConfinedFiles confined = files();
  EXPECT_EQ(*confined.relative(root() + "/team/task/"), "team/task");
  EXPECT_EQ(confined.kind("team/task"), FileSource::Kind::kDirectory);
  EXPECT_EQ(confined.kind("file.gguf"), FileSource::Kind::kFile);
  EXPECT_EQ(confined.names_in("team", 10)->size(), 1U);
  EXPECT_EQ(confined.names_in("team/task", 10)->at(0), "adapter_config.json");
}

TEST_F(ConfinedFilesTest, TheRootMayBeReachedThroughALink) {
  fs::create_directory_symlink(top_ / "root", top_ / "link");
  const auto confined = ConfinedFiles::open((top_ / "link/").string());
  ASSERT_TRUE(confined);
  for (const fs::path& absolute : {top_ / "link/file.gguf", top_ / "root/file.gguf"}) {
    const auto relative = confined->relative(absolute.string());
    ASSERT_TRUE(relative) << absolute;
    EXPECT_TRUE(confined->read(*relative, 100));
  }
}

// CVE-2024-37032 (Ollama): a name from a request was used as a path, and led out of the folder.
TEST_F(ConfinedFilesTest, Cve202437032EveryEscapeLooksAbsent) {
  fs::create_symlink(top_ / "secret", top_ / "root/link");
  fs::create_symlink("../secret", top_ / "root/relative-link");
  fs::create_symlink("file.gguf", top_ / "root/inner-link");
  fs::create_directory_symlink(top_, top_ / "root/up");
  fs::create_directory_symlink("team", top_ / "root/inner-directory");
  fs::create_symlink("/proc/self/root", top_ / "root/magic");
  ASSERT_EQ(mkfifo((top_ / "root/fifo").c_str(), 0600), 0);
  write("root/locked", "locked");
  fs::permissions(top_ / "root/locked", fs::perms::none);
  const std::string nothing = fetch("nothing");
  EXPECT_EQ(nothing, " does not exist");
  for (const std::string path : {"",
                                 ".",
                                 "/",
                                 "..",
                                 "../secret",
                                 "team/../../secret",
                                 "team/../file.gguf",
                                 "team/..",
                                 "/etc/passwd",
                                 "link",
                                 "relative-link",
                                 "inner-link",
                                 "up/secret",
                                 "up/root/file.gguf",
                                 "inner-directory/task/adapter_config.json",
                                 "magic/etc/passwd",
                                 "fifo",
                                 "file.gguf/x",
                                 "nothing/at/all",
                                 "//etc/passwd",
                                 "~/secret",
                                 "%2e%2e/secret",
                                 "..\\secret"}) {
    EXPECT_EQ(fetch(path), nothing) << path;
  }
  EXPECT_EQ(fetch(top_.string() + "/secret"), nothing);
  EXPECT_EQ(fetch(root()), nothing) << "the root itself is no module";
  EXPECT_EQ(fetch(root() + "-beside/file"), nothing) << "a sibling whose name begins alike";
  EXPECT_EQ(fetch(root() + "/../secret"), nothing);
  EXPECT_EQ(fetch(std::string("file.gguf\0x", 11)).substr(0, 3), "'fi") << "a NUL cuts nothing";
  if (geteuid() != 0) {
    EXPECT_EQ(fetch("locked"), nothing);
  }
  const ConfinedFiles confined = files();
  for (const char* name : {"link", "fifo", "up", "magic", "nothing", "../secret", "/etc"}) {
    EXPECT_EQ(confined.kind(name), FileSource::Kind::kAbsent) << name;
    EXPECT_FALSE(confined.names_in(name, 10)) << name;
    EXPECT_FALSE(confined.signature(name)) << name;
  }
}

TEST_F(ConfinedFilesTest, SocketsAndDevicesAreNotOpened) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = (top_ / "root/socket").string();
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(files().kind("socket"), FileSource::Kind::kAbsent);
  close(fd);
  const auto devices = ConfinedFiles::open("/dev");
  ASSERT_TRUE(devices);
  EXPECT_EQ(devices->kind("zero"), FileSource::Kind::kAbsent);
  EXPECT_FALSE(devices->read("zero", 10));
}

TEST_F(ConfinedFilesTest, OverlongAndDeepPathsAreAbsent) {
  EXPECT_EQ(fetch(std::string(1025, 'a')).substr(0, 2), "'a");
  std::string deep = "team";
  for (int i = 0; i < 20; ++i) deep += "/team";
  EXPECT_EQ(fetch(deep), " does not exist");
  EXPECT_LT(files().relative(std::string(100000, 'a')).error().message.size(), 300U);
  EXPECT_EQ(files().relative("/a\x1b[2J").error().message.find('\x1b'), std::string::npos);
}

TEST_F(ConfinedFilesTest, SizesAreLimited) {
  write("root/large", std::string(101, 'x'));
  const auto read = files().read("large", 100);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("the limit is 100"), std::string::npos);
}

TEST_F(ConfinedFilesTest, SignaturesFollowEveryChange) {
  const ConfinedFiles confined = files();
  const auto of = [&](const char* path) { return confined.signature(path).value(); };
  std::string last = of("team");
  EXPECT_EQ(of("team"), last);
  const auto expect_change = [&](const char* what) {
    const std::string now = of("team");
    EXPECT_NE(now, last) << what;
    last = now;
  };
  write("root/team/task/adapter_config.json", "{\"r\":1}");
  expect_change("other content");
  write("root/team/task/more", "");
  expect_change("a new file");
  fs::remove(top_ / "root/team/task/more");
  expect_change("a file less");
  fs::last_write_time(top_ / "root/team/task/adapter_config.json",
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  expect_change("another time");
  EXPECT_NE(of("file.gguf"), last);
}

}  // namespace
}  // namespace graft
