// SPDX-License-Identifier: Apache-2.0
// The first process of a guest (see README.md): loads the modules, makes the RDMA devices, mounts the host's file system below a
// throw-away layer, runs the command, leaves its exit code in the job folder and ends the guest.
//
// With state=1 on the kernel's command line it stops before the host's file system comes in, so that the guest's state can be
// saved; woken from it, it goes on there.
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOB "/run/gigabar-vm"

enum {
  kExitPort = 0xf4,         // isa-debug-exit: a byte written here ends QEMU
  kReadyPort = 0xe9,        // isa-debugcon: a byte written here says that the state can be saved
  kFirmwareSelect = 0x510,  // fw_cfg: which entry is read
  kFirmwareData = 0x511,    // fw_cfg: its next byte
  kFirmwareDirectory = 0x19,
  kFirmwareNameBytes = 56,
  kMaxArguments = 4095,
};

static int kernel_log = -1;
static char parameters[4096];  // the kernel's command line

static void say(const char* format, ...) {
  char line[512] = "<5>gigabar-vm: ";
  const size_t used = strlen(line);
  va_list values;
  va_start(values, format);
  vsnprintf(line + used, sizeof line - used, format, values);
  va_end(values);
  if (kernel_log >= 0 && write(kernel_log, line, strlen(line)) < 0) return;  // nowhere left to say it
}

static void end_guest(void) {
  sync();
  if (ioperm(kExitPort, 1, 1) == 0) outb(0, kExitPort);
  reboot(RB_AUTOBOOT);
  for (;;) pause();
}

static void fail(const char* operation, const char* object) {
  say("%s %s: %s", operation, object, strerror(errno));
  end_guest();
}

static double uptime_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// The value of `name=` on the kernel's command line, or `otherwise`. The text stays valid.
static const char* parameter(const char* name, const char* otherwise) {
  const size_t name_bytes = strlen(name);
  for (const char* at = parameters; (at = strstr(at, name)) != NULL; at += name_bytes) {
    if ((at != parameters && at[-1] != ' ') || at[name_bytes] != '=') continue;
    const char* value = at + name_bytes + 1;
    return strndup(value, strcspn(value, " \n"));
  }
  return otherwise;
}

// The whole file with a zero byte behind it, or null. The caller owns it; nothing is freed in a process that lives this shortly.
static char* read_file(const char* path, size_t* bytes) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  size_t room = 65536, used = 0;
  char* text = malloc(room + 1);
  ssize_t got = 0;
  while (text != NULL && (got = read(file, text + used, room - used)) > 0) {
    used += (size_t)got;
    if (used == room) text = realloc(text, (room *= 2) + 1);
  }
  close(file);
  if (text == NULL) return NULL;
  text[used] = 0;
  if (bytes != NULL) *bytes = used;
  return text;
}

static void write_file(const char* path, const char* text) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0 || write(file, text, strlen(text)) < 0) say("write %s: %s", path, strerror(errno));
  if (file >= 0) close(file);
}

static void load_module(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  // ENODEV: a checksum unit that this CPU does not have.
  if (file < 0 || (syscall(SYS_finit_module, file, "", 0) != 0 && errno != EEXIST && errno != ENODEV)) {
    say("module %s: %s", path, strerror(errno));
  }
  if (file >= 0) close(file);
}

// Loads the modules that /modules/LIST names, one per line, in that order.
static void load_modules(const char* list) {
  char path[256];
  snprintf(path, sizeof path, "/modules/%s", list);
  char *next = NULL, *text = read_file(path, NULL);
  if (text == NULL) fail("read", path);
  for (char* name = strtok_r(text, "\n", &next); name != NULL; name = strtok_r(NULL, "\n", &next)) {
    snprintf(path, sizeof path, "/modules/%s", name);
    load_module(path);
  }
}

static unsigned read_big_endian(int bytes) {
  unsigned value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | inb(kFirmwareData);
  return value;
}

// The text that QEMU's command line gives with -fw_cfg name=NAME. Asked of the device, so it is no part of a saved state.
static int read_firmware_text(const char* name, char* text, unsigned room_bytes) {
  if (ioperm(kFirmwareSelect, 2, 1) != 0) return -1;
  outw(kFirmwareDirectory, kFirmwareSelect);
  for (unsigned left = read_big_endian(4); left > 0; --left) {
    const unsigned bytes = read_big_endian(4), selector = read_big_endian(2);
    char entry[kFirmwareNameBytes + 1] = {0};
    read_big_endian(2);  // reserved
    for (int i = 0; i < kFirmwareNameBytes; ++i) entry[i] = (char)inb(kFirmwareData);
    if (strcmp(entry, name) != 0) continue;
    unsigned used = 0;
    outw((unsigned short)selector, kFirmwareSelect);
    while (used < bytes && used < room_bytes - 1) text[used++] = (char)inb(kFirmwareData);
    text[used] = 0;
    return 0;
  }
  return -1;
}

// Says that the state can be saved and waits until the guest was woken from it; the entry then holds the time of day.
static void wait_until_woken(void) {
  char time_text[64];
  if (ioperm(kReadyPort, 1, 1) == 0) outb('R', kReadyPort);
  while (read_firmware_text("opt/gigabar/time", time_text, sizeof time_text) != 0 || time_text[0] == '0') usleep(5000);
  struct timespec now = {0, 0};
  if (sscanf(time_text, "%ld.%ld", &now.tv_sec, &now.tv_nsec) == 2) clock_settime(CLOCK_REALTIME, &now);
}

// Guests woken from one state would otherwise draw the same random numbers.
static void stir_random_numbers(void) {
  struct {
    int bits, bytes;
    char seed[64];
  } entropy = {512, 64, {0}};
  const int seed = open(JOB "/seed", O_RDONLY | O_CLOEXEC), random = open("/dev/urandom", O_RDWR | O_CLOEXEC);
  if (seed >= 0 && random >= 0 && read(seed, entropy.seed, sizeof entropy.seed) == (ssize_t)sizeof entropy.seed) {
    ioctl(random, RNDADDENTROPY, &entropy);
    ioctl(random, RNDRESEEDCRNG);
  }
  close(seed);
  close(random);
}

// Runs a program of the first file system; what it prints comes to the user as a warning. What has to be there afterwards is looked
// for by require_devices().
static void run_tool(char* const arguments[]) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    const int log = open("/network.log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(arguments[0], arguments);
    _exit(127);
  }
  waitpid(child, &status, 0);
}

static void wait_for_network_cards(void) {
  for (int i = 0; i < 500 && (access("/sys/class/net/eth0", F_OK) != 0 || access("/sys/class/net/eth1", F_OK) != 0); ++i) {
    usleep(10000);
  }
}

// Two guests: a card each for rxe and for siw; the two guests' cards are joined outside.
static void describe_cards(FILE* links, FILE* devices, int rank, const char* mtu) {
  wait_for_network_cards();
  fprintf(links, "link set eth1 name iw0\n");
  for (int net = 0; net < 2; ++net) {
    const char* name = net == 0 ? "eth0" : "iw0";
    fprintf(links, "link set %s mtu %s up\naddr add 10.%d.0.%d/24 dev %s\n", name, mtu, 77 + net, rank + 1, name);
  }
  fprintf(devices, "link add rxe0 type rxe netdev eth0\nlink add siw0 type siw netdev iw0\n");
}

// One guest: both ends of a veth pair for rxe and one for siw, in one network namespace (rxe and siw of 6.1 know no other). The
// rules send what goes to one end's address out of the other end, so that frames do cross the pair.
static void describe_pairs(FILE* links, FILE* devices, const char* mtu) {
  static const char* const names[2][2] = {{"eth0", "eth1"}, {"iw0", "iw1"}};
  for (int net = 0; net < 2; ++net) {
    fprintf(links, "link add %s type veth peer name %s\n", names[net][0], names[net][1]);
    for (int end = 0; end < 2; ++end) {
      const char* name = names[net][end];
      fprintf(links, "link set %s mtu %s up\naddr add 10.%d.0.%d/24 dev %s\n", name, mtu, 77 + net, 1 + end, name);
      fprintf(links, "rule add pref 5 iif %s lookup local\n", name);
    }
  }
  for (int net = 0; net < 2; ++net) {
    for (int end = 0; end < 2; ++end) {
      const int own = 1 + end, peer = 2 - end, table = 100 + end;
      fprintf(links, "route add 10.%d.0.%d/32 dev %s src 10.%d.0.%d table %d\n", 77 + net, peer, names[net][end], 77 + net, own,
              table);
      fprintf(links, "rule add pref 10 iif lo to 10.%d.0.%d lookup %d\n", 77 + net, peer, table);
      fprintf(devices, "link add %s%d type %s netdev %s\n", net == 0 ? "rxe" : "siw", end, net == 0 ? "rxe" : "siw",
              names[net][end]);
    }
  }
  fprintf(links, "rule add pref 100 lookup local\nrule del pref 0\n");
}

static void make_network(int rank, int guests) {
  FILE *links = fopen("/links", "w"), *devices = fopen("/devices", "w");
  if (links == NULL || devices == NULL) fail("write", "/links");
  write_file("/proc/sys/net/ipv4/conf/all/rp_filter", "0");
  write_file("/proc/sys/net/ipv4/conf/default/rp_filter", "0");
  write_file("/proc/sys/net/ipv4/conf/all/accept_local", "1");
  write_file("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
  fprintf(links, "link set lo up\n");
  const char* mtu = parameter("mtu", "9000");
  if (guests == 2) {
    describe_cards(links, devices, rank, mtu);
  } else {
    describe_pairs(links, devices, mtu);
  }
  fclose(links);
  fclose(devices);
  run_tool((char*[]){"/bin/ip", "-force", "-batch", "/links", NULL});
  run_tool((char*[]){"/bin/rdma", "-f", "-b", "/devices", NULL});
}

// Without one of its RDMA devices a guest ends: what asks for it could only be skipped.
static void require_devices(int guests) {
  static const char* const names[] = {"rxe0", "siw0", "rxe1", "siw1"};
  char path[256];
  for (int i = 0; i < (guests == 2 ? 2 : 4); ++i) {
    snprintf(path, sizeof path, "/sys/class/infiniband/%s", names[i]);
    if (access(path, F_OK) != 0) fail("find the RDMA device", path);
  }
}

static void mount_or_fail(const char* what, const char* where, const char* type, unsigned long flags, const char* options) {
  if (mount(what, where, type, flags, options) != 0) fail("mount", where);
}

static void mount_kernel_files(void) {
  mkdir("/proc", 0755);
  mkdir("/sys", 0755);
  mkdir("/dev", 0755);
  mount("proc", "/proc", "proc", 0, "");
  mount("sys", "/sys", "sysfs", 0, "");
  mount("dev", "/dev", "devtmpfs", 0, "");
}

// /new: the host's files, read-only below, what is written in memory above; the job folder in it.
static void mount_host_files(void) {
  mkdir("/host", 0755);
  mkdir("/written", 0755);
  mkdir("/new", 0755);
  mount_or_fail("root", "/host", "9p", MS_RDONLY, "trans=virtio,version=9p2000.L,msize=1048576,cache=loose");
  mount_or_fail("written", "/written", "tmpfs", 0, "size=90%");
  mkdir("/written/upper", 0755);
  mkdir("/written/work", 0755);
  mount_or_fail("root", "/new", "overlay", 0, "lowerdir=/host,upperdir=/written/upper,workdir=/written/work");
  mount_or_fail("run", "/new/run", "tmpfs", 0, "mode=755");
  mkdir("/new" JOB, 0755);
  mount_or_fail("job", "/new" JOB, "9p", 0, "trans=virtio,version=9p2000.L,msize=262144,cache=none");
}

static void report_network_log(int rank) {
  size_t bytes = 0;
  char path[256];
  const char* text = read_file("/network.log", &bytes);
  if (text == NULL || bytes == 0) return;
  snprintf(path, sizeof path, "/new" JOB "/network.%d.log", rank);
  write_file(path, text);
}

static void enter_host_files(void) {
  mount("/proc", "/new/proc", NULL, MS_MOVE, NULL);
  mount("/sys", "/new/sys", NULL, MS_MOVE, NULL);
  mount("/dev", "/new/dev", NULL, MS_MOVE, NULL);
  if (chdir("/new") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0) fail("enter", "/new");
  mkdir("/dev/shm", 01777);
  mkdir("/dev/pts", 0755);
  mount("shm", "/dev/shm", "tmpfs", 0, "");
  mount("pts", "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666");
  mount("debugfs", "/sys/kernel/debug", "debugfs", 0, "");
  if (symlink("/proc/self/fd", "/dev/fd") != 0 || symlink("fd/0", "/dev/stdin") != 0 || symlink("fd/1", "/dev/stdout") != 0 ||
      symlink("fd/2", "/dev/stderr") != 0) {
    say("links in /dev: %s", strerror(errno));
  }
}

// modprobe finds the running kernel's modules in the cache.
static void mount_modules(void) {
  char from[512], to[256];
  const char* release = parameter("release", "");
  mkdir("/lib/modules", 0755);
  snprintf(to, sizeof to, "/lib/modules/%s", release);
  mkdir(to, 0755);
  snprintf(from, sizeof from, "%s/lib/modules/%s", parameter("kernel", ""), release);
  if (mount(from, to, NULL, MS_BIND, NULL) != 0) say("bind %s: %s", to, strerror(errno));
}

static void mount_writable_folders(void) {
  char *next = NULL, *text = read_file(JOB "/writable", NULL), tag[16];
  int index = 0;
  for (char* path = text == NULL ? NULL : strtok_r(text, "\n", &next); path != NULL; path = strtok_r(NULL, "\n", &next)) {
    snprintf(tag, sizeof tag, "rw%d", index++);
    mkdir(path, 0755);
    mount_or_fail(tag, path, "9p", 0, "trans=virtio,version=9p2000.L,msize=1048576,cache=mmap");
  }
}

static void load_given_modules(void) {
  char *next = NULL, *text = read_file(JOB "/modules", NULL);
  for (char* path = text == NULL ? NULL : strtok_r(text, "\n", &next); path != NULL; path = strtok_r(NULL, "\n", &next))
    load_module(path);
}

static void raise_limits(void) {
  const struct rlimit memory = {RLIM_INFINITY, RLIM_INFINITY}, descriptors = {65536, 65536};
  setrlimit(RLIMIT_MEMLOCK, &memory);
  setrlimit(RLIMIT_NOFILE, &descriptors);
}

// A port appears a while after its driver was loaded.
static int open_port(const char* path) {
  for (int i = 0; i < 500; ++i) {
    const int port = open(path, O_WRONLY | O_CLOEXEC);
    if (port >= 0) return port;
    usleep(10000);
  }
  fail("open", path);
  return -1;
}

static void set_environment(int rank) {
  char path[256];
  size_t bytes = 0;
  snprintf(path, sizeof path, JOB "/environment.%d", rank);
  char* text = read_file(path, &bytes);
  clearenv();
  for (char* entry = text; entry != NULL && entry < text + bytes; entry += strlen(entry) + 1) putenv(entry);
}

static void run_command(int rank, int output, int errors) {
  static char* arguments[kMaxArguments + 1];
  size_t bytes = 0;
  int count = 0;
  char *text = read_file(JOB "/arguments", &bytes), *folder = read_file(JOB "/folder", NULL);
  setsid();
  set_environment(rank);
  for (char* each = text; each != NULL && each < text + bytes && count < kMaxArguments; each += strlen(each) + 1) {
    arguments[count++] = each;
  }
  dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  if (folder == NULL || chdir(folder) != 0) dprintf(STDERR_FILENO, "guest: the command starts in /: %s\n", strerror(errno));
  if (count > 0) execvp(arguments[0], arguments);
  dprintf(STDERR_FILENO, "guest: cannot run %s: %s\n", count > 0 ? arguments[0] : "nothing", strerror(errno));
  _exit(127);
}

// Waits for the command and for every orphan that ends before it.
static int wait_for(pid_t command) {
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended == command) break;
    if (ended < 0 && errno != EINTR) fail("wait for", "the command");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The name appears only when the content is there.
static void leave_exit_code(int rank, int code) {
  char text[16], path[256], unfinished[256];
  snprintf(text, sizeof text, "%d\n", code);
  snprintf(path, sizeof path, JOB "/exit.%d", rank);
  snprintf(unfinished, sizeof unfinished, JOB "/exit.%d.unfinished", rank);
  write_file(unfinished, text);
  if (rename(unfinished, path) != 0) say("rename %s: %s", unfinished, strerror(errno));
}

int main(void) {
  mount_kernel_files();
  kernel_log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
  const char* text = read_file("/proc/cmdline", NULL);
  snprintf(parameters, sizeof parameters, "%s", text == NULL ? "" : text);
  const int rank = atoi(parameter("rank", "0")), guests = atoi(parameter("guests", "1"));
  const int is_saved = *parameter("state", "") != 0;
  load_modules("devices");
  const pid_t network = fork();  // the longest part, beside the rest
  if (network == 0) {
    load_modules("rdma");
    make_network(rank, guests);
    _exit(0);
  }
  load_modules("files");
  if (is_saved) {
    waitpid(network, NULL, 0);
    wait_until_woken();
  }
  const double woken_s = uptime_s();
  mount_host_files();
  if (!is_saved) waitpid(network, NULL, 0);
  report_network_log(rank);
  require_devices(guests);
  enter_host_files();
  char name[256];
  snprintf(name, sizeof name, "guest%d", rank);
  sethostname(name, strlen(name));
  mount_modules();
  mount_writable_folders();
  load_given_modules();
  raise_limits();
  if (is_saved) stir_random_numbers();
  write_file("/proc/sys/kernel/printk", "5 4 1 7");
  const int output = open_port("/dev/vport0p1"), errors = open_port("/dev/vport0p2");
  say("host's files came in at %.2f s, the command starts at %.2f s", woken_s, uptime_s());
  snprintf(name, sizeof name, JOB "/started.%d", rank);
  write_file(name, "");
  const pid_t command = fork();
  if (command == 0) run_command(rank, output, errors);
  leave_exit_code(rank, wait_for(command));
  end_guest();
}
