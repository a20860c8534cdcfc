// Reports that are sent around name nobody, however the name got into them.
#include "probe/names.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "probe/page.h"
#include "scratch.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;

class NamesTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    test::write_file(scratch_.path() / path, text);
  }
  std::string cleaned(const std::string& text, std::map<std::string, std::string> variables = {}) const {
    return redacted(text, Box(scratch_.path(), std::move(variables), {}, {}));
  }
  const fs::path& root() const { return scratch_.path(); }

 private:
  test::Scratch scratch_;
};

TEST_F(NamesTest, HomesBecomeTildes) {
  const std::map<std::string, std::string> ada = {{"HOME", "/data/ada/"}};
  EXPECT_EQ(cleaned("/data/ada/cuda:/data/ada and /data/adam", ada), "~/cuda:~ and /data/adam");
  EXPECT_EQ(cleaned("/home/bob/x /home/bob. '/Users/eve/y' /nfs/home/bob/z"),
            "~/x ~ '~/y' /nfs/home/<user>/z");
  EXPECT_EQ(cleaned("/root /root/x /opt/root/y"), "~ ~/x /opt/root/y");
  EXPECT_EQ(cleaned("/opt/x", {{"HOME", "/opt"}}), "/opt/x") << "no home of anyone's";
  fs::create_directories(root() / "volume1/people");
  fs::create_directories(root() / "home");
  test::write_file(root() / "volume1/people/al/file", "");
  fs::create_directory_symlink("/volume1/people/al", root() / "home/al");
  EXPECT_EQ(cleaned("/volume1/people/al/venv", {{"HOME", "/home/al"}}), "~/venv") << "where HOME leads to";
}

TEST_F(NamesTest, UsersInPathsAndElsewhere) {
  const std::map<std::string, std::string> ada = {{"USER", "ada"}};
  EXPECT_EQ(cleaned("/mnt/scratch/ada/v /mnt/ada-scratch /mnt/ada_venv /nfs/ada2/x by ADA, adapter", ada),
            "/mnt/scratch/<user>/v /mnt/<user>-scratch /mnt/<user>_venv /nfs/<user>2/x by <user>, adapter");
  EXPECT_EQ(cleaned("/u/x a u b", {{"LOGNAME", "u"}}), "/<user>/x a u b")
      << "one letter is a name in a path only";
  EXPECT_EQ(cleaned("torch 2.10 /srv/torch/x", {{"USER", "torch"}}), "torch 2.10 /srv/torch/x")
      << "thousands of containers have this user";
}

TEST_F(NamesTest, UsersWhomNoVariableNames) {
  write("etc/passwd",
        "root:x:0:0::/root:/bin/sh\nbabbage:x:1001:1001:Charles B.:/srv/people/cb:/bin/sh\n"
        "sshd:x:109:1::/run/sshd:/bin/false\nhopper::1002:1002::/srv/people/gh:\n");
  EXPECT_EQ(cleaned("/srv/people/cb/venv /mnt/babbage/x /srv/people/gh/x /mnt/hopper /run/sshd"),
            "~/venv /mnt/<user>/x ~/x /mnt/<user> /run/sshd");
}

TEST_F(NamesTest, HostsAndTheirDomains) {
  write("proc/sys/kernel/hostname", "turing.lab.example.org\n");
  EXPECT_EQ(cleaned("/mnt/turing/x turing.lab.example.org:/export //TURING01/y files.lab.example.org"),
            "/mnt/<host>/x <host>:/export //<host>01/y files.<host>");
  write("proc/sys/kernel/hostname", "turing\n");
  EXPECT_EQ(cleaned("/net/turing.lab.example.org/x, turing."), "/net/<host>/x, <host>.");
  write("proc/sys/kernel/hostname", "gpu12\n");
  EXPECT_EQ(cleaned("gpu12 gpu123 /mnt/gpu12/x"), "<host> gpu123 /mnt/<host>/x");
}

TEST_F(NamesTest, IdentifiersOfGpus) {
  EXPECT_EQ(without_uuids("GPU-01234567-89ab-cdef-0123-456789abcdef,GPU-0123abcd;MIG-01234567-89ab x GPU-x"),
            "GPU-<uuid>,GPU-<uuid>;MIG-<uuid> x GPU-x");
}

}  // namespace
}  // namespace arb::probe
