// SPDX-License-Identifier: Apache-2.0
// The shared library as programs find it at run time: its names, its log, and what it does where there is no GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "gdrapi.h"
#include "gigabar/stand_in.h"
#undef gdr_get_info

namespace gigabar::test {
namespace {

void* open_library() { return dlopen(GIGABAR_GDRAPI_LIBRARY, RTLD_NOW | RTLD_LOCAL); }

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

struct ChildEnd {
  int status = -1;  // what the body returned; -1 when it died
  std::string printed;
};

// Runs `body` in a forked child with its standard error in a pipe.
ChildEnd in_child(const std::function<int()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    // No driver, whatever this machine has.
    setenv("GIGABAR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1", 1);
    for (const char* name : {"GIGABAR_STAND_IN", "GIGABAR_LOG", "GIGABAR_MAPPING", "GDRCOPY_ENABLE_LOGGING", "GDRCOPY_LOG_LEVEL"}) {
      unsetenv(name);
    }
    _exit(body());
  }
  close(ends[1]);
  ChildEnd end;
  char chunk[512];
  for (ssize_t count; (count = read(ends[0], chunk, sizeof chunk)) > 0;) end.printed.append(chunk, static_cast<std::size_t>(count));
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) == child && WIFEXITED(status)) end.status = WEXITSTATUS(status);
  return end;
}

TEST(Library, HasTheFunctionsAndNothingElse) {
  void* const library = open_library();
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* name :
       {"gdr_open", "gdr_close", "gdr_pin_buffer", "gdr_pin_buffer_v2", "gdr_unpin_buffer", "gdr_get_callback_flag", "gdr_get_info",
        "gdr_get_info_v2", "gdr_map", "gdr_map_v2", "gdr_unmap", "gdr_copy_to_mapping", "gdr_copy_from_mapping",
        "gdr_runtime_get_version", "gdr_driver_get_version", "gdr_get_attribute", "gdr_get_mapping_type_string",
        "gigabar_stand_in_allocate", "gigabar_stand_in_free"}) {
    EXPECT_NE(dlsym(library, name), nullptr) << name;
  }
  EXPECT_NE(dlsym(library, "gdr_get_info"), dlsym(library, "gdr_get_info_v2")) << "they fill different structures";
  // Functions of the rooms and of the C++ run-time inside: found elsewhere in this process or not at all, never in this library.
  for (const char* name : {"_ZN7gigabar7devicesEv", "_ZN7gigabar17copy_kernelsEv", "_Znwm"}) {
    void* const address = dlsym(library, name);
    Dl_info info{};
    if (address != nullptr && dladdr(address, &info) != 0) {
      EXPECT_EQ(std::string(info.dli_fname).find("libgdrapi"), std::string::npos) << name;
    }
  }
  dlclose(library);
}

TEST(Library, StaysLoadedAfterDlclose) {
  const ChildEnd end = in_child([] {
    void* const library = open_library();
    auto* const get_version = find<decltype(gdr_runtime_get_version)>(library, "gdr_runtime_get_version");
    dlclose(library);
    int major = 0;
    int minor = 0;
    get_version(&major, &minor);  // as a thread that is still inside would
    return major == 2 && minor == 6 ? 0 : 1;
  });
  EXPECT_EQ(end.status, 0);
}

TEST(Library, OpenWithoutGpuGivesNullInSilence) {
  const ChildEnd end = in_child([] {
    auto* const open = find<decltype(gdr_open)>(open_library(), "gdr_open");
    errno = 0;
    if (open() != nullptr) return 1;
    return errno == ENODEV ? 0 : 2;
  });
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.printed, "");
}

TEST(Library, OpenLogsEveryReason) {
  const ChildEnd end = in_child([] {
    setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
    return find<decltype(gdr_open)>(open_library(), "gdr_open")() == nullptr ? 0 : 1;
  });
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.printed.rfind("ERR:  gdr_open: ", 0), 0U) << end.printed;
#if GIGABAR_HAS_CUDA
  EXPECT_NE(end.printed.find("libcuda: library_missing"), std::string::npos) << end.printed;
  EXPECT_NE(end.printed.find("/nonexistent/libcuda.so.1"), std::string::npos) << end.printed;
#else
  EXPECT_NE(end.printed.find("libcuda: not_built"), std::string::npos) << end.printed;
#endif
  EXPECT_EQ(end.printed.back(), '\n');
}

TEST(Library, OpenWithStandInsWorks) {
  const ChildEnd end = in_child([] {
    setenv("GIGABAR_STAND_IN", "1", 1);
    void* const library = open_library();
    gdr_t g = find<decltype(gdr_open)>(library, "gdr_open")();
    if (g == nullptr) return 1;
    char host[4096];
    gdr_mh_t handle = {0};
    const auto address = reinterpret_cast<unsigned long>(host);
    if (find<decltype(gdr_pin_buffer)>(library, "gdr_pin_buffer")(g, address, sizeof host, 0, 0, &handle) != EINVAL) return 2;
    return find<decltype(gdr_close)>(library, "gdr_close")(g);
  });
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.printed, "");
}

// The number of the first line that is not so; 0: all are.
#define GIGABAR_REQUIRE(condition) \
  if (!(condition)) return __LINE__ % 250 + 1

int use_stand_in_memory() {
  setenv("GIGABAR_STAND_IN", "2", 1);
  void* const library = open_library();
  auto* const allocate = find<decltype(gigabar_stand_in_allocate)>(library, "gigabar_stand_in_allocate");
  auto* const free = find<decltype(gigabar_stand_in_free)>(library, "gigabar_stand_in_free");
  GIGABAR_REQUIRE(allocate != nullptr && free != nullptr);
  void* memory = nullptr;
  GIGABAR_REQUIRE(allocate(1, 100'000, &memory) == 0 && memory != nullptr);
  const auto address = reinterpret_cast<unsigned long>(memory);
  GIGABAR_REQUIRE(address % GPU_PAGE_SIZE == 0);
  gdr_t g = find<decltype(gdr_open)>(library, "gdr_open")();
  GIGABAR_REQUIRE(g != nullptr);
  gdr_mh_t handle = {0};
  GIGABAR_REQUIRE(find<decltype(gdr_pin_buffer)>(library, "gdr_pin_buffer")(g, address, 100'000, 0, 0, &handle) == 0);
  void* mapped = nullptr;
  GIGABAR_REQUIRE(find<decltype(gdr_map)>(library, "gdr_map")(g, handle, &mapped, 100'000) == 0);
  const char text[] = "through the mapping";
  GIGABAR_REQUIRE(find<decltype(gdr_copy_to_mapping)>(library, "gdr_copy_to_mapping")(handle, mapped, text, sizeof text) == 0);
  GIGABAR_REQUIRE(std::memcmp(memory, text, sizeof text) == 0);
  // Its pages stay as long as they are pinned.
  GIGABAR_REQUIRE(free(memory) == 0);
  char back[sizeof text] = {};
  GIGABAR_REQUIRE(find<decltype(gdr_copy_from_mapping)>(library, "gdr_copy_from_mapping")(handle, back, mapped, sizeof back) == 0);
  GIGABAR_REQUIRE(std::memcmp(back, text, sizeof text) == 0);
  GIGABAR_REQUIRE(free(memory) == EINVAL && free(nullptr) == EINVAL && free(back) == EINVAL);
  GIGABAR_REQUIRE(find<decltype(gdr_close)>(library, "gdr_close")(g) == 0);
  return 0;
}

TEST(Library, PinsStandInMemoryThatItAllocated) {
  const ChildEnd end = in_child(use_stand_in_memory);
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.printed, "");
}

TEST(Library, RefusesStandInMemoryThatCannotBe) {
  const ChildEnd end = in_child([] {
    void* const library = open_library();
    auto* const allocate = find<decltype(gigabar_stand_in_allocate)>(library, "gigabar_stand_in_allocate");
    auto* const free = find<decltype(gigabar_stand_in_free)>(library, "gigabar_stand_in_free");
    GIGABAR_REQUIRE(allocate != nullptr && free != nullptr);
    setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
    void* memory = nullptr;
    GIGABAR_REQUIRE(allocate(0, 4096, &memory) == ENODEV);
    setenv("GIGABAR_STAND_IN", "many", 1);
    GIGABAR_REQUIRE(allocate(0, 4096, &memory) == EINVAL);
    setenv("GIGABAR_STAND_IN", "2", 1);
    GIGABAR_REQUIRE(allocate(2, 4096, &memory) == EINVAL && allocate(-1, 4096, &memory) == EINVAL);
    GIGABAR_REQUIRE(allocate(0, 0, &memory) == EINVAL && allocate(0, 4096, nullptr) == EINVAL);
    GIGABAR_REQUIRE(allocate(0, std::size_t{1} << 60, &memory) == ENOMEM && memory == nullptr);
    GIGABAR_REQUIRE(allocate(0, 4096, &memory) == 0);
    const pid_t child = fork();
    if (child == 0) _exit(free(memory) == EACCES ? 0 : 1);
    int status = 0;
    GIGABAR_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    GIGABAR_REQUIRE(free(memory) == 0);
    return 0;
  });
  EXPECT_EQ(end.status, 0) << end.printed;
  EXPECT_NE(end.printed.find("gigabar_stand_in_allocate: there are no stand-ins; set GIGABAR_STAND_IN=1"), std::string::npos)
      << end.printed;
}

// What a refused call prints with these settings; null: unset.
std::string printed_with(const char* enable, const char* level) {
  const ChildEnd end = in_child([&] {
    if (enable != nullptr) setenv("GDRCOPY_ENABLE_LOGGING", enable, 1);
    if (level != nullptr) setenv("GDRCOPY_LOG_LEVEL", level, 1);
    return find<decltype(gdr_close)>(open_library(), "gdr_close")(nullptr) == EINVAL ? 0 : 1;
  });
  EXPECT_EQ(end.status, 0);
  return end.printed;
}

TEST(Library, LoggingVariables) {
  const std::string line = "ERR:  gdr_close: Invalid argument\n";
  EXPECT_EQ(printed_with(nullptr, nullptr), "");
  EXPECT_EQ(printed_with(nullptr, "1"), "") << "the level alone turns nothing on";
  EXPECT_EQ(printed_with("1", nullptr), line);
  EXPECT_EQ(printed_with("0", nullptr), line) << "any value turns it on";
  EXPECT_EQ(printed_with("", nullptr), line);
  EXPECT_EQ(printed_with("1", "1"), line);
  EXPECT_EQ(printed_with("1", "4"), line);
  EXPECT_EQ(printed_with("1", "5"), "");
  EXPECT_EQ(printed_with("1", "x"), line) << "no number is 0";
}

}  // namespace
}  // namespace gigabar::test
