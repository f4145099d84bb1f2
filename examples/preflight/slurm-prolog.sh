#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's prolog: no job starts on a node that is not fit.
#
# In slurm.conf:  Prolog=/etc/slurm/prolog.d/*   PrologFlags=Alloc   PrologEpilogTimeout=120
# slurmd runs it as root, without a search path. A status other than 0 drains the node and requeues the job; so has a node that is not
# fit. Where preflight cannot run the job starts: a wrong line below would drain every node. The reason is in the system's log, since a
# prolog must not call Slurm's commands.
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# What the jobs of this cluster need of a node, and the file in which node_exporter looks for metrics: its folder has to exist. Empty:
# none is written.
require=${GIGABAR_REQUIRE:-gpus>=1}
textfile=${GIGABAR_TEXTFILE:-}

# Slurm names the GPUs of the job; the node is looked at as a whole.
unset CUDA_VISIBLE_DEVICES

answer=$(gigabar preflight --format nhc --budget 20 --require "$require" ${textfile:+--textfile "$textfile"} 2>&1) && exit 0
logger -p daemon.err -t gigabar-prolog "job ${SLURM_JOB_ID:-?}: $answer"
case $answer in
*"unfit: "* | *"unknown: "*) exit 1 ;; # unknown: with --strict
esac
exit 0
