/* SPDX-License-Identifier: Apache-2.0 */
/* Latency and bandwidth between two ranks over MPI, as OSU's osu_latency and osu_bw measure them; for bench/perftest.py.
   usage: mpirun -n 2 mpi_ping_pong latency|bw BYTES ROUNDS [WINDOW]; rank 0 prints the median: us one way, or 10^6 bytes per
   second. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "samples.h"

static double latency_us(char* buffer, int bytes, int rank) {
  const double begin = MPI_Wtime();
  if (rank == 0) MPI_Send(buffer, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
  MPI_Recv(buffer, bytes, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1) MPI_Send(buffer, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
  return (MPI_Wtime() - begin) * 1e6 / 2;
}

static double window_mb_per_s(char* buffer, int bytes, int window, int rank, MPI_Request* requests) {
  const double begin = MPI_Wtime();
  char answer[4] = {0};
  for (int i = 0; i < window; ++i) {
    if (rank == 0) MPI_Isend(buffer, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &requests[i]);
    if (rank == 1) MPI_Irecv(buffer, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &requests[i]);
  }
  MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
  if (rank == 0) MPI_Recv(answer, 4, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1) MPI_Send(answer, 4, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
  return (double)bytes * window / (MPI_Wtime() - begin) / 1e6;
}

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int is_latency = count >= 4 && strcmp(words[1], "latency") == 0;
  const int bytes = count >= 4 ? atoi(words[2]) : 0, rounds = count >= 4 ? atoi(words[3]) : 0;
  const int window = count >= 5 ? atoi(words[4]) : 64;
  if (ranks != 2 || bytes <= 0 || rounds <= 0 || window <= 0) {
    if (rank == 0) fprintf(stderr, "usage: mpirun -n 2 mpi_ping_pong latency|bw BYTES ROUNDS [WINDOW]\n");
    MPI_Finalize();
    return 2;
  }
  char* const buffer = calloc(1, (size_t)bytes);
  double* const samples = malloc(sizeof(double) * (size_t)rounds);
  MPI_Request* const requests = malloc(sizeof(MPI_Request) * (size_t)window);
  if (buffer == NULL || samples == NULL || requests == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  const int warm_up = is_latency ? 100 : 1;
  for (int round = -warm_up; round < rounds; ++round) {
    const double sample = is_latency ? latency_us(buffer, bytes, rank) : window_mb_per_s(buffer, bytes, window, rank, requests);
    if (round >= 0) samples[round] = sample;
  }
  if (rank == 0) printf("%.3f\n", median_of(samples, (size_t)rounds));
  free(requests);
  free(samples);
  free(buffer);
  MPI_Finalize();
  return 0;
}
