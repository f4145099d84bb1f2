// SPDX-License-Identifier: Apache-2.0
// Messages between two kernels, or a kernel and a CPU, whose every line carries its own number: no fence, no flag.
//
// A ring of 16-byte lines lies in the receiver's memory. The sender stores lines of data and a number; the receiver looks at each
// line until it carries the number that it expects. Lines need no order among each other, so no release stands between data and
// notification. A kernel opens its end of a ring, sends or receives, and closes it.
//
// The number of a line is its lap around the ring, counted from 1. Every line of every lap is written, so a line that is not yet
// written carries the number of the previous lap, or 0. The first line of a piece also says how many bytes of the message follow;
// messages that are longer than half the ring go in several pieces.
//
// The receiver returns credits: the number of lines that it has emptied, a word in the sender's memory, once per quarter of the
// ring. A sender without credit waits, so a slow receiver stops it and no memory grows.
//
// Ordering.
// - A line is one access of 16 bytes (st.relaxed.sys.b128, ld.volatile.b128), or two of 8 bytes that each carry the number
//   (SplitLine). PTX performs each as one, so a line that carries the expected number has the data of that number.
// - Messages of one ring arrive in the order in which they were sent. Two rings have no order.
// - A message orders nothing else. With Order::after_writes at both ends, the receiver also sees everything that the sending scope
//   wrote before. The senders meet at scope.sync(), then the thread of rank 0 executes fence.acq_rel.sys and stores the first line:
//   a release pattern. The receiving thread of rank 0 loads that line by ld.acquire.sys and meets the others at a barrier.
// - A line is overwritten only after it was read: each thread of the receiver compares the numbers that it loaded, all meet at a
//   barrier, and only if each has found its lines does one thread store the credit: by st.relaxed.sys, a CPU by a release. A load
//   that counts is one access that carries this lap's number, so it has this lap's data; had it found what the credit allows to be
//   written, there would be no credit. So a kernel needs no fence, which would take 1 us. The thread of rank 0 of the sender loads
//   the credit by ld.acquire.sys, and meets the others at a barrier before they store.
//
// Source: PTX ISA, "Memory Consistency Model": vector data types, release and acquire patterns, causality order, no-thin-air.
#pragma once

#include "gigabar/device/message_recv.hpp"
#include "gigabar/device/message_reply.hpp"
#include "gigabar/device/message_send.hpp"
