/* SPDX-License-Identifier: Apache-2.0 */
/* Latency of one TCP connection over loopback, with nothing above it: two processes, the socket options of the transport tcp, and
   both ends ask the socket without a pause, as ranks that wait for each other do. For bench/tcp_in_turns.py.
   usage: tcp_ping_pong BYTES ROUNDS; prints the mean and the median, us one way. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "samples.h"

#define WARM_UP 100
#define DEADLINE_S 60

static void check(int is_right, const char* what) {
  if (is_right) return;
  perror(what);
  exit(1);
}

static void set_options(int socket) {
  const struct {
    int level, name, value;
  } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 5},
                 {IPPROTO_TCP, TCP_KEEPINTVL, 5}, {IPPROTO_TCP, TCP_KEEPCNT, 3}, {IPPROTO_TCP, TCP_USER_TIMEOUT, 20000}};
  for (size_t i = 0; i < sizeof options / sizeof options[0]; ++i) {
    check(setsockopt(socket, options[i].level, options[i].name, &options[i].value, sizeof(int)) == 0, "setsockopt");
  }
}

static void send_all(int socket, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t sent = send(socket, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    check(sent >= 0 || errno == EAGAIN, "send");
    if (sent < 0) continue;
    bytes += sent;
    count -= (size_t)sent;
  }
}

static void receive_all(int socket, char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t got = recv(socket, bytes, count, MSG_DONTWAIT);
    check(got > 0 || (got < 0 && errno == EAGAIN), "recv");
    if (got < 0) continue;
    bytes += got;
    count -= (size_t)got;
  }
}

int main(int argc, char** argv) {
  const long bytes = argc == 3 ? atol(argv[1]) : 0, rounds = argc == 3 ? atol(argv[2]) : 0;
  if (bytes <= 0 || bytes > 1 << 30 || rounds <= 0 || rounds > 1 << 24) {
    fprintf(stderr, "usage: tcp_ping_pong BYTES ROUNDS\n");
    return 2;
  }
  char* const buffer = calloc(1, (size_t)bytes);
  double* const samples = malloc(sizeof(double) * (size_t)rounds);
  check(buffer != NULL && samples != NULL, "malloc");
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  check(listener >= 0 && bind(listener, (struct sockaddr*)&address, length) == 0 && listen(listener, 1) == 0, "listen");
  check(getsockname(listener, (struct sockaddr*)&address, &length) == 0, "getsockname");
  const pid_t parent = getpid(), child = fork();
  check(child >= 0, "fork");
  alarm(DEADLINE_S);
  if (child == 0) {
    check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent, "fork");
    const int peer = socket(AF_INET, SOCK_STREAM, 0);
    check(peer >= 0 && connect(peer, (struct sockaddr*)&address, length) == 0, "connect");
    set_options(peer);
    for (long round = 0; round < rounds + WARM_UP; ++round) {
      receive_all(peer, buffer, (size_t)bytes);
      send_all(peer, buffer, (size_t)bytes);
    }
    return 0;
  }
  const int peer = accept(listener, NULL, NULL);
  check(peer >= 0, "accept");
  set_options(peer);
  double sum = 0;
  for (long round = -WARM_UP; round < rounds; ++round) {
    const double begin = now_us();
    send_all(peer, buffer, (size_t)bytes);
    receive_all(peer, buffer, (size_t)bytes);
    const double sample = (now_us() - begin) / 2;
    if (round < 0) continue;
    samples[round] = sample;
    sum += sample;
  }
  int status = 0;
  check(waitpid(child, &status, 0) == child && status == 0, "the other process");
  printf("%.3f %.3f\n", sum / (double)rounds, median_of(samples, (size_t)rounds));
  return 0;
}
