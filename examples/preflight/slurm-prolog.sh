#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's prolog: no job starts on a node that is not fit.
#
# In slurm.conf:  Prolog=/etc/slurm/prolog.d/*   PrologFlags=Alloc   PrologEpilogTimeout=120
# slurmd runs it as root. A status other than 0 drains the node and requeues the job. The reason is in the system's log, since a
# prolog must not call Slurm's commands.

# What the jobs of this cluster need of a node, and where node_exporter looks for metrics.
require=${GIGABAR_REQUIRE:-gpus>=1}
textfile=${GIGABAR_TEXTFILE:-/var/lib/node_exporter/textfile/gigabar.prom}

if ! answer=$(gigabar preflight --format nhc --budget 20 --require "$require" --textfile "$textfile" 2>&1); then
  logger -p daemon.err -t gigabar-prolog "job ${SLURM_JOB_ID:-?}: $answer"
  exit 1
fi
