/* SPDX-License-Identifier: Apache-2.0 */
/*
 * double.h - a CUDA and an NCCL made of host memory, for tests on machines without GPUs.
 *
 * A stream is a thread that does one thing after another, after odd pauses; device memory
 * is any memory; members of an NCCL group are processes that meet in shared memory and add
 * up in the order of members.  What the real ones forbid is an error here: copies between
 * a device and host memory that was not registered, words in such memory, members that
 * do not call the same collectives in the same order, or that are on one GPU of one host
 * (NCCL_HOSTID).  A collective's first use, of each type, is under way until nothing else is on the
 * process's streams, as where its kernel needs larger stacks than those before.
 *
 * Environment: DOUBLE_GPUS=name,name,... are the devices (g0 ... g15); empty: there is none;
 * no-driver: not even a driver.  DOUBLE_STALLS: NCCL's groups never come about.
 * DOUBLE_WRITABLE: memory that is mapped read-only cannot be registered.
 * DOUBLE_DIES: a group's second process ends when it comes to the meeting.
 * DOUBLE_APART: no GPU reaches another one's memory.
 */
#ifndef TALLY_TESTS_GPU_DOUBLE_H
#define TALLY_TESTS_GPU_DOUBLE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* Puts fn(arg) on the stream; arg is freed after it. */
cudaError_t double_put(cudaStream_t s, void (*fn)(void *), void *arg);

/* Nothing is on the process's streams, but perhaps on one. */
bool double_idle(cudaStream_t but);

/* This process's next collective fails, and the group hangs as a real one does. */
__attribute__((visibility("default"))) void double_nccl_fails(void);
/* Its groups' other members see at once that it is gone, before anybody else does. */
__attribute__((visibility("default"))) void double_nccl_dies(void);

void double_nap(void);			/* a moment's sleep, of whoever polls */

#endif
