// SPDX-License-Identifier: Apache-2.0
// Runs a command on the CPUs next to a GPU: ./bind_near_gpu 0 ./train. Only CPUs that this process may use are taken. Without a
// command it prints them; without a GPU the command runs on all of them.
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <gigabar/topology.hpp>

// The CPUs of the node that this process may use; none when the machine does not say which node it is.
cpu_set_t cpus_of(const gigabar::Topology& topology, int numa_node, const cpu_set_t& allowed) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const int index = topology.find_numa_node(numa_node);
  if (index < 0) return cpus;
  for (const int cpu : topology.numa_nodes[static_cast<std::size_t>(index)].cpus) {
    if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &cpus);
  }
  return cpus;
}

int main(int count, char** words) {
  const std::size_t gpu = count > 1 ? std::strtoul(words[1], nullptr, 10) : 0;
  const auto topology = gigabar::discover_topology(gigabar::Machine::here());
  if (!topology) return std::puts(topology.message().c_str()), 1;
  if (gpu >= topology->gpus.size() && !topology->gpus.empty()) {
    return std::printf("there is no GPU %zu; this machine has %zu\n", gpu, topology->gpus.size()), 1;
  }
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::perror("sched_getaffinity"), 1;

  const int node = topology->gpus.empty() ? -1 : topology->gpus[gpu].numa_node;
  const cpu_set_t near = cpus_of(*topology, node, allowed);
  if (CPU_COUNT(&near) == 0) {
    std::printf("not bound: %s\n", topology->gpus.empty() ? "no GPU here" : "no CPU of this process is on the GPU's NUMA node");
  } else {
    if (sched_setaffinity(0, sizeof near, &near) != 0) return std::perror("sched_setaffinity"), 1;
    std::printf("GPU %zu: NUMA node %d, %d CPUs\n", gpu, node, CPU_COUNT(&near));
  }
  if (count < 3) return 0;
  std::fflush(stdout);
  execvp(words[2], words + 2);  // returns only when it fails
  return std::perror(words[2]), 1;
}
