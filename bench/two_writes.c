/* SPDX-License-Identifier: Apache-2.0 */
/* Latency of an RDMA write and a second one of 8 bytes behind it, as a notification that is a word is: both by one call of
   ibv_post_send(), inline, with nothing above libibverbs. Two processes, one at each of two devices of this machine, which look at
   the memory that the second write goes into. For bench/perftest.py. usage: two_writes DEVICE DEVICE BYTES ROUNDS; prints the least
   and the median, us one way. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "samples.h"

#define WARM_UP 100
#define DEADLINE_S 30
#define DATA_OFFSET 4096
#define MEMORY_BYTES 16384
#define MOST_BYTES 4096
#define MOST_ROUNDS (1L << 24)
#define DEPTH 64

/* What the other process must know; in memory of both, with `is_ready` last. */
struct address {
  union ibv_gid gid;
  uint32_t pair, key;
  uint64_t memory;
  volatile int is_ready;
};

struct end {
  struct ibv_qp* pair;
  struct ibv_cq* queue;
  struct ibv_mr* region;
  uint8_t* memory;
  int gid_index;
  unsigned inline_bytes;
};

static void fail(const char* what, const char* why) {
  fprintf(stderr, "two_writes: %s%s%s\n", what, *why != '\0' ? ": " : "", why);
  exit(1);
}

static void check(int is_right, const char* what) {
  if (!is_right) fail(what, strerror(errno));
}

/* What libibverbs returns: 0, or a code that some of its drivers negate. */
static void check_code(int code, const char* what) {
  if (code != 0) fail(what, strerror(abs(code)));
}

static void say_and_exit(const char* text) { _exit(write(2, text, strlen(text)) < 0 ? 2 : 1); }

/* Of the time, or of the other process, which has said why it ended unless a signal ended it. */
static void on_signal(int number) {
  int status = 0;
  if (number == SIGALRM) say_and_exit("two_writes: no end in time\n");
  if (waitpid(-1, &status, WNOHANG) > 0 && WIFSIGNALED(status)) say_and_exit("two_writes: a signal ended the other process\n");
  _exit(1);
}

static long number_of(const char* word, long most) {
  char* end;
  const long number = strtol(word, &end, 10);
  if (*end != '\0' || number < 1 || number > most) fail("usage: two_writes DEVICE DEVICE BYTES ROUNDS, of at most 4096 bytes", "");
  return number;
}

static struct ibv_context* open_device(const char* name) {
  int count = 0;
  struct ibv_device** const all = ibv_get_device_list(&count);
  struct ibv_context* context = NULL;
  for (int i = 0; i < count; ++i) {
    if (strcmp(ibv_get_device_name(all[i]), name) == 0) context = ibv_open_device(all[i]);
  }
  check(context != NULL, name);
  return context;
}

/* Of IPv4. */
static int find_gid(struct ibv_context* context, union ibv_gid* gid) {
  struct ibv_port_attr port;
  check_code(ibv_query_port(context, 1, &port), "ibv_query_port");
  for (int i = port.gid_tbl_len - 1; i >= 0; --i) {
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (ibv_query_gid(context, 1, i, gid) == 0 && memcmp(gid->raw, mapped, sizeof mapped) == 0) return i;
  }
  fail("no IPv4 address in the table of GIDs", ibv_get_device_name(context->device));
  return -1;
}

static void open_end(struct end* end, const char* device, struct address* own) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  struct ibv_context* const context = open_device(device);
  struct ibv_pd* const domain = ibv_alloc_pd(context);
  check(domain != NULL, "ibv_alloc_pd");
  end->gid_index = find_gid(context, &own->gid);
  end->memory = aligned_alloc(MEMORY_BYTES, MEMORY_BYTES);
  check(end->memory != NULL, "aligned_alloc");
  memset(end->memory, 0, MEMORY_BYTES);
  end->region = ibv_reg_mr(domain, end->memory, MEMORY_BYTES, access);
  check(end->region != NULL, "ibv_reg_mr");
  end->queue = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
  check(end->queue != NULL, "ibv_create_cq");
  end->inline_bytes = 64;
  struct ibv_qp_init_attr wanted = {
      .send_cq = end->queue, .recv_cq = end->queue, .qp_type = IBV_QPT_RC, .cap = {2 * DEPTH, 1, 1, 1, end->inline_bytes}};
  end->pair = ibv_create_qp(domain, &wanted);
  check(end->pair != NULL, "ibv_create_qp");
  own->pair = end->pair->qp_num;
  own->key = end->region->rkey;
  own->memory = (uintptr_t)end->memory;
  __sync_synchronize();
  own->is_ready = 1;
}

static void connect_end(const struct end* end, const struct address* peer) {
  while (!peer->is_ready) usleep(100);
  __sync_synchronize();
  struct ibv_qp_attr init = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
  check_code(ibv_modify_qp(end->pair, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
  struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->pair, .min_rnr_timer = 12};
  receive.ah_attr.is_global = 1;
  receive.ah_attr.port_num = 1;
  receive.ah_attr.grh.dgid = peer->gid;
  receive.ah_attr.grh.sgid_index = (uint8_t)end->gid_index;
  receive.ah_attr.grh.hop_limit = 64;
  check_code(ibv_modify_qp(end->pair, &receive,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             "to RTR");
  struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  check_code(
      ibv_modify_qp(end->pair, &send,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
      "to RTS");
}

/* The word is signalled, and its completion taken while this end waits for the other's. */
static void give(const struct end* end, const struct address* peer, uint32_t bytes, uint64_t word) {
  struct ibv_sge pieces[2] = {{(uintptr_t)end->memory + DATA_OFFSET, bytes, end->region->lkey}, {(uintptr_t)&word, sizeof word, 0}};
  struct ibv_send_wr work[2];
  memset(work, 0, sizeof work);
  for (int i = 0; i < 2; ++i) {
    work[i].sg_list = &pieces[i];
    work[i].num_sge = 1;
    work[i].opcode = IBV_WR_RDMA_WRITE;
    work[i].send_flags = (pieces[i].length <= end->inline_bytes ? IBV_SEND_INLINE : 0U) | (i == 1 ? IBV_SEND_SIGNALED : 0U);
    work[i].wr.rdma.remote_addr = peer->memory + (i == 0 ? DATA_OFFSET : 0);
    work[i].wr.rdma.rkey = peer->key;
  }
  work[0].next = &work[1];
  struct ibv_send_wr* refused = NULL;
  check_code(ibv_post_send(end->pair, work, &refused), "ibv_post_send");
}

static void get(const struct end* end, uint64_t word) {
  struct ibv_wc done[4];
  while (*(volatile uint64_t*)end->memory != word) {
    const int count = ibv_poll_cq(end->queue, 4, done);
    if (count < 0) check_code(count, "ibv_poll_cq");
    for (int i = 0; i < count; ++i) {
      if (done[i].status != IBV_WC_SUCCESS) fail("a write", ibv_wc_status_str(done[i].status));
    }
  }
}

static void run_end(int number, const char* device, struct address* addresses, uint32_t bytes, int rounds, double* samples) {
  struct end end;
  struct address* const peer = &addresses[1 - number];
  alarm(DEADLINE_S);
  open_end(&end, device, &addresses[number]);
  connect_end(&end, peer);
  __sync_fetch_and_add(&addresses[number].is_ready, 1);
  while (peer->is_ready != 2) usleep(100);
  for (int round = 0; round < WARM_UP + rounds; ++round) {
    const uint64_t word = (uint64_t)round + 1;
    const double begin = now_us();
    if (number == 0) give(&end, peer, bytes, word);
    get(&end, word);
    if (number == 1) give(&end, peer, bytes, word);
    if (number == 0 && round >= WARM_UP) samples[round - WARM_UP] = (now_us() - begin) / 2;
  }
}

int main(int count, char** words) {
  const uint32_t bytes = (uint32_t)number_of(count == 5 ? words[3] : "", MOST_BYTES);
  const int rounds = (int)number_of(words[4], MOST_ROUNDS);
  struct address* const addresses = mmap(NULL, 2 * sizeof *addresses, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(addresses != MAP_FAILED, "mmap");
  double* const samples = malloc((size_t)rounds * sizeof *samples);
  check(samples != NULL, "malloc");
  signal(SIGCHLD, on_signal);
  signal(SIGALRM, on_signal);
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_end(1, words[2], addresses, bytes, rounds, NULL);
    pause(); /* its queue pair answers as long as the other end may ask */
  }
  run_end(0, words[1], addresses, bytes, rounds, samples);
  signal(SIGCHLD, SIG_DFL);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  const double median = median_of(samples, (size_t)rounds);
  printf("%.3f %.3f\n", samples[0], median);
  return 0;
}
