/* SPDX-License-Identifier: Apache-2.0 */
/* How fast one process sends to another over one TCP connection, by four ways: send(), MSG_ZEROCOPY, io_uring's send, and its send
   without a copy. The receiver copies into 16 MiB of memory, as a rank receives into its segment. For bench/tcp_in_turns.py.
   usage: tcp_send_ways send|zerocopy|io_uring|io_uring_zerocopy ADDRESS PIECE_BYTES SECONDS PORT
   prints MB/s, CPU seconds of the sender for each 10^9 bytes, and how much of what was to go without a copy the kernel copied, in
   percent. ADDRESS is of this machine; with "-" before the way the program only receives, with "+" it only sends.
   Compiled with -DWITH_IO_URING it needs liburing. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "samples.h"
#ifdef WITH_IO_URING
#include <liburing.h>
/* Newer than some liburing. */
#ifndef IORING_SEND_ZC_REPORT_USAGE
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)
#endif
#endif

#define MEMORY_BYTES (16U << 20)
#define DEPTH 8
#define DEADLINE_S 60

static char* memory;
static uint16_t port;
static uint64_t uncopied_sends, copied_sends; /* of those that were to go without a copy */

static double now_s(void) { return now_us() / 1e6; }

static double cpu_s(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void check(int is_right, const char* what) {
  if (is_right) return;
  perror(what);
  exit(1);
}

static int open_socket(struct sockaddr_in* address, const char* text) {
  const int made = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  check(made >= 0 && setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0, "socket");
  setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
  check(inet_pton(AF_INET, text, &address->sin_addr) == 1, "ADDRESS");
  return made;
}

/* The first byte says that the receiver is there; what it received is told at the end, so that nothing is counted that is still on
   its way. */
static void receive(const char* text) {
  struct sockaddr_in address;
  const int listener = open_socket(&address, text);
  check(bind(listener, (struct sockaddr*)&address, sizeof address) == 0 && listen(listener, 1) == 0, "listen");
  const int peer = accept(listener, NULL, NULL);
  check(peer >= 0, "accept");
  uint64_t total = 0;
  for (size_t at = 0;;) {
    const ssize_t got = recv(peer, memory + at, MEMORY_BYTES - at, 0);
    check(got >= 0, "recv");
    if (got == 0) break;
    total += (uint64_t)got;
    at = (at + (size_t)got) % MEMORY_BYTES;
  }
  check(send(peer, &total, sizeof total, MSG_NOSIGNAL) == sizeof total, "send");
}

static void send_whole(int socket, const char* bytes, size_t count, int flags) {
  while (count > 0) {
    const ssize_t sent = send(socket, bytes, count, MSG_NOSIGNAL | flags);
    check(sent > 0, "send");
    bytes += sent;
    count -= (size_t)sent;
    if (flags != 0) ++uncopied_sends;
  }
}

/* What the kernel says of sends without a copy: that it is done with so many, and whether it copied them after all. */
static void reap(int socket, uint64_t* done, uint64_t until) {
  while (*done < until) {
    char control[128];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(socket, &message, MSG_ERRQUEUE) < 0) {
      check(errno == EAGAIN, "recvmsg");
      struct pollfd ready = {socket, 0, 0};
      check(poll(&ready, 1, 1000 * DEADLINE_S) > 0, "poll");
      continue;
    }
    const struct sock_extended_err* const said = (const struct sock_extended_err*)CMSG_DATA(CMSG_FIRSTHDR(&message));
    const uint64_t count = (uint64_t)said->ee_data - said->ee_info + 1;
    *done += count;
    if ((said->ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) copied_sends += count;
  }
}

static void send_by_calls(int socket, size_t piece_bytes, double end_s, int is_zerocopy) {
  const int yes = 1;
  if (is_zerocopy) check(setsockopt(socket, SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof yes) == 0, "SO_ZEROCOPY");
  uint64_t done = 0;
  for (size_t at = 0; now_s() < end_s; at = (at + piece_bytes) % MEMORY_BYTES) {
    send_whole(socket, memory + at, piece_bytes, is_zerocopy ? MSG_ZEROCOPY : 0);
    if (uncopied_sends >= DEPTH) reap(socket, &done, uncopied_sends - DEPTH);
  }
  reap(socket, &done, uncopied_sends);
}

#ifdef WITH_IO_URING
static void take(struct io_uring* ring, unsigned* under_way, unsigned* unfinished) {
  struct io_uring_cqe* done;
  check(io_uring_wait_cqe(ring, &done) == 0, "io_uring_wait_cqe");
  if ((done->flags & IORING_CQE_F_NOTIF) != 0) {
    --*unfinished;
    copied_sends += ((uint32_t)done->res & IORING_NOTIF_USAGE_ZC_COPIED) != 0;
  } else {
    errno = -done->res;
    check(done->res > 0, "io_uring's send");
    --*under_way;
    if ((done->flags & IORING_CQE_F_MORE) != 0) ++*unfinished;
  }
  io_uring_cqe_seen(ring, done);
}

static void send_by_ring(int socket, size_t piece_bytes, double end_s, int is_zerocopy) {
  struct io_uring ring;
  check(io_uring_queue_init(4 * DEPTH, &ring, 0) == 0, "io_uring_queue_init");
  unsigned under_way = 0, unfinished = 0;
  for (size_t at = 0; now_s() < end_s; at = (at + piece_bytes) % MEMORY_BYTES) {
    struct io_uring_sqe* const entry = io_uring_get_sqe(&ring);
    const int flags = MSG_NOSIGNAL | MSG_WAITALL;
    if (is_zerocopy) {
      io_uring_prep_send_zc(entry, socket, memory + at, piece_bytes, flags, 0);
      entry->ioprio |= IORING_SEND_ZC_REPORT_USAGE;
      ++uncopied_sends;
    } else {
      io_uring_prep_send(entry, socket, memory + at, piece_bytes, flags);
    }
    check(io_uring_submit_and_wait(&ring, 1) == 1, "io_uring_submit_and_wait");
    ++under_way; /* one: of several the kernel may send parts in any order */
    while (under_way > 0 || unfinished > DEPTH) take(&ring, &under_way, &unfinished);
  }
  while (unfinished > 0) take(&ring, &under_way, &unfinished);
}
#endif

static void send_by(const char* way, int socket, size_t piece_bytes, double end_s) {
  const int is_zerocopy = strstr(way, "zerocopy") != NULL;
#ifdef WITH_IO_URING
  if (strncmp(way, "io_uring", 8) == 0) return send_by_ring(socket, piece_bytes, end_s, is_zerocopy);
#endif
  check(strcmp(way, "send") == 0 || strcmp(way, "zerocopy") == 0, "this program was compiled without io_uring");
  send_by_calls(socket, piece_bytes, end_s, is_zerocopy);
}

static void measure(const char* way, const char* text, size_t piece_bytes, double seconds) {
  struct sockaddr_in address;
  int peer = -1;
  for (const double last_s = now_s() + DEADLINE_S / 2;; usleep(1000)) {
    peer = open_socket(&address, text);
    if (connect(peer, (struct sockaddr*)&address, sizeof address) == 0) break;
    check(errno == ECONNREFUSED && now_s() < last_s, "connect");
    close(peer);
  }
  const double begin_s = now_s(), begin_cpu_s = cpu_s();
  send_by(way, peer, piece_bytes, begin_s + seconds);
  check(shutdown(peer, SHUT_WR) == 0, "shutdown");
  uint64_t total = 0;
  check(recv(peer, &total, sizeof total, MSG_WAITALL) == sizeof total, "recv");
  const double copied_percent = uncopied_sends == 0 ? 0 : 100.0 * (double)copied_sends / (double)uncopied_sends;
  printf("%.1f %.3f %.1f\n", (double)total / 1e6 / (now_s() - begin_s), (cpu_s() - begin_cpu_s) / ((double)total / 1e9),
         copied_percent);
}

int main(int count, char** words) {
  const long piece_bytes = count == 6 ? atol(words[3]) : 0;
  const double seconds = count == 6 ? atof(words[4]) : 0;
  port = count == 6 ? (uint16_t)atoi(words[5]) : 0;
  if (piece_bytes <= 0 || MEMORY_BYTES % piece_bytes != 0 || seconds <= 0 || seconds > DEADLINE_S / 2 || port == 0) {
    fprintf(stderr, "usage: tcp_send_ways [-|+]WAY ADDRESS PIECE_BYTES SECONDS PORT; pieces divide 16 MiB\n");
    return 2;
  }
  memory = malloc(MEMORY_BYTES);
  check(memory != NULL, "malloc");
  memset(memory, 1, MEMORY_BYTES);
  alarm(DEADLINE_S);
  const char* const way = words[1];
  if (*way == '-') return receive(words[2]), 0;
  if (*way == '+') return measure(way + 1, words[2], (size_t)piece_bytes, seconds), 0;
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    receive(words[2]);
    return 0;
  }
  measure(way, words[2], (size_t)piece_bytes, seconds);
  int status = 0;
  check(waitpid(child, &status, 0) == child && status == 0, "the receiver");
  return 0;
}
