/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange.h - the Tally side of the training: all that a program needs.
 *
 * One tensor for each parameter of the model, whose gradient lies in the arena,
 * so that nothing is copied on the way out; earlier layers are more urgent,
 * because the next forward pass needs them first.  And two small ones: a mean of
 * losses, and a check that all ranks hold the same thing.
 *
 * Functions return 0 or a negative TALLY_E* code; exchange_explain() then tells.
 */
#ifndef CHARLM_EXCHANGE_H
#define CHARLM_EXCHANGE_H

#include "client/tally.h"
#include "examples/charlm/model.h"

#include <stdbool.h>
#include <stdio.h>

/* The tensors after the model's. */
enum { EXCHANGE_LOSS = MODEL_PARAMS, EXCHANGE_HASH, EXCHANGE_DIFFER, EXCHANGE_TENSORS };

struct exchange {
	tally_session *session;
	tally_tensor *tensor[EXCHANGE_TENSORS];
	tally_ticket ticket[EXCHANGE_TENSORS];	/* 0: no round under way */
	void *memory[EXCHANGE_TENSORS];		/* in the arena */
	const char *doing;			/* for exchange_explain */
	int rank, world;			/* rank -1: not known yet */
};

/* Joins the job.  On failure exchange_explain, then exchange_close. */
int exchange_open(struct exchange *x);

/* Declares the tensors and gives the model its gradients' memory. */
int exchange_declare(struct exchange *x, struct model *m);

void exchange_close(struct exchange *x);
void exchange_explain(const struct exchange *x, int code, FILE *to);

/* Rank 0's parameters on every rank. */
int exchange_broadcast(struct exchange *x, struct model *m);

/* Starts the mean of a gradient over the ranks; finish waits for it.  *mean is
 * NULL when no round was under way, else valid until the next round's finish. */
int exchange_start(struct exchange *x, enum model_param p);
int exchange_finish(struct exchange *x, enum model_param p, const float **mean);

/* The same for a loss: started, and later (or never) asked for. */
int exchange_start_loss(struct exchange *x, float loss);
int exchange_finish_loss(struct exchange *x, float *mean);

/* Whether all ranks hold rank 0's value; every rank gets the same answer. */
int exchange_same(struct exchange *x, uint64_t value, bool *same);

#endif
