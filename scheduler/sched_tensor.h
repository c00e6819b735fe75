/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched_tensor.h - a job's tensors: declared, compared between ranks, given back.
 *
 * sched_tensor.c finds and keeps them, sched_declare.c carries the two requests out.  Comes with
 * sched.h, which has the structs.
 */
#ifndef TALLY_SCHED_TENSOR_H
#define TALLY_SCHED_TENSOR_H

#include "scheduler/sched.h"

void tensor_declare(struct sched *s, struct sched_node *n, const struct msg_declare *m);
void tensor_undeclare(struct sched *s, struct sched_node *n, const struct msg_ids *m);
void tensor_withdraw(struct sched *s, struct sched_job *j, struct sched_req *q);
/* tensor_text() says what a request waits for. */
void tensor_text(const struct sched *s, struct text *x, const struct sched_job *j,
		 const struct sched_req *q);
void tensor_expire(struct sched *s, struct sched_job *j, struct sched_req *q);
void tensor_free(struct sched *s, struct sched_job *j, struct sched_tensor *t);
/* Fails the requests that name it, but UNDECLARE, which has what it wants; then frees it. */
void tensor_purge(struct sched *s, struct sched_job *j, struct sched_tensor *t, int code,
		  const char *text);
void tensor_lose(struct sched *s, struct sched_job *j, uint32_t rank);	/* it is lost */
/* Puts what is complete into the log; kind is SQ_DECLARE or SQ_UNDECLARE. */
void tensor_issue(struct sched *s, struct sched_job *j, enum sched_req_kind kind);
struct sched_tensor *tensor_by_name(const struct sched_job *j, const char *name);
struct sched_tensor *tensor_by_id(const struct sched_job *j, uint32_t id);
struct sched_tensor *tensor_new(struct sched *s, struct sched_job *j, const struct msg_tensor *m);
bool tensor_wants_set(struct sched *s, const struct sched_job *j, struct sched_tensor *t);
void tensor_drop_set(struct sched *s, struct sched_tensor *t);
void tensor_set_id(struct sched_job *j, struct sched_tensor *t, uint32_t id);
bool tensor_equal(const struct sched_tensor *t, const struct msg_tensor *m);
/* Does a DECLARE mean by it what the job does? */
bool tensor_means(const struct sched_tensor *t, const struct msg_tensor *m);
/* All ranks agree on it. */
void tensor_drop_meaning(struct sched *s, struct sched_job *j, struct sched_tensor *t);
uint64_t tensor_bytes(const struct sched_tensor *t);

#endif
