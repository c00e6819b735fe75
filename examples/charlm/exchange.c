// SPDX-License-Identifier: Apache-2.0
/*
 * Attach, allocate, declare; then rounds of start (returns at once) and finish
 * (waits).  A result is read where it lies, without a copy.
 */
#include "examples/charlm/exchange.h"

#include <string.h>

int exchange_open(struct exchange *x)
{
	int r;

	*x = (struct exchange){ .doing = "joining the job", .rank = -1 };
	r = tally_attach(NULL, &x->session);
	if (r < 0)
		return r;
	x->rank = tally_rank(x->session);
	x->world = tally_world_size(x->session);
	return 0;
}

static int allocate(struct exchange *x, const tally_tensor_desc *desc)
{
	x->doing = "allocating memory";
	for (int i = 0; i < EXCHANGE_TENSORS; i++) {
		size_t bytes = desc[i].count * tally_dtype_size(desc[i].dtype);
		int r = tally_alloc(x->session, bytes, &x->memory[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

int exchange_declare(struct exchange *x, struct model *m)
{
	tally_tensor_desc desc[EXCHANGE_TENSORS] = {
		[EXCHANGE_LOSS] = { .name = "loss", .dtype = TALLY_FLOAT32, .count = 1,
				    .priority = EXCHANGE_TENSORS },
		[EXCHANGE_HASH] = { .name = "hash", .dtype = TALLY_INT64, .count = 1 },
		[EXCHANGE_DIFFER] = { .name = "differ", .dtype = TALLY_INT64, .count = 1 },
	};
	int r;

	for (int p = 0; p < MODEL_PARAMS; p++)
		desc[p] = (tally_tensor_desc){
			.name = model_param_name((enum model_param)p),
			.dtype = TALLY_FLOAT32,
			.count = model_count(&m->shape, (enum model_param)p),
			.priority = MODEL_PARAMS - p,
		};
	r = allocate(x, desc);
	if (r < 0)
		return r;
	for (int p = 0; p < MODEL_PARAMS; p++)
		m->grad[p] = x->memory[p];
	x->doing = "declaring the tensors";
	return tally_declare(x->session, desc, EXCHANGE_TENSORS, x->tensor);
}

void exchange_close(struct exchange *x)
{
	tally_detach(x->session);
	*x = (struct exchange){ 0 };
}

void exchange_explain(const struct exchange *x, int code, FILE *to)
{
	fprintf(to, "charlm: ");
	if (x->rank >= 0)
		fprintf(to, "rank %d: ", x->rank);
	fprintf(to, "%s: %s (%s)\n", x->doing,
		x->session ? tally_error_text(x->session) : tally_error_help(code),
		tally_error_name(code));
	if (code == TALLY_EAGENT)
		fprintf(to, "charlm: start it with: tally local --agents 2 --servers 1 --ranks 4"
			    " -- charlm\n");
}

static int wait_for(struct exchange *x, int i)
{
	tally_ticket k = x->ticket[i];

	x->ticket[i] = 0;
	return tally_wait(x->session, k, -1);
}

int exchange_broadcast(struct exchange *x, struct model *m)
{
	int r;

	x->doing = "broadcasting the parameters";
	for (int p = 0; p < MODEL_PARAMS; p++) {
		r = tally_broadcast(x->session, x->tensor[p], m->param[p], m->param[p], 0,
				    &x->ticket[p]);
		if (r < 0)
			return r;
	}
	for (int p = 0; p < MODEL_PARAMS; p++) {
		r = wait_for(x, p);
		if (r < 0)
			return r;
	}
	return 0;
}

static int start(struct exchange *x, int i, tally_op op)
{
	tally_push_pull_options opt = { .op = op };

	return tally_push_pull(x->session, x->tensor[i], x->memory[i], NULL, &opt,
			       &x->ticket[i]);
}

int exchange_start(struct exchange *x, enum model_param p)
{
	x->doing = "pushing a gradient";
	return start(x, (int)p, TALLY_MEAN);
}

int exchange_finish(struct exchange *x, enum model_param p, const float **mean)
{
	int r;

	*mean = NULL;
	if (!x->ticket[p])
		return 0;
	x->doing = "waiting for a gradient";
	r = wait_for(x, (int)p);
	if (r == 0)
		*mean = tally_result(x->session, x->tensor[p]);
	return r;
}

int exchange_start_loss(struct exchange *x, float loss)
{
	x->doing = "pushing the loss";
	memcpy(x->memory[EXCHANGE_LOSS], &loss, sizeof(loss));
	return start(x, EXCHANGE_LOSS, TALLY_MEAN);
}

int exchange_finish_loss(struct exchange *x, float *mean)
{
	int r;

	if (!x->ticket[EXCHANGE_LOSS])
		return 0;
	x->doing = "waiting for the loss";
	r = wait_for(x, EXCHANGE_LOSS);
	if (r == 0)
		memcpy(mean, tally_result(x->session, x->tensor[EXCHANGE_LOSS]), sizeof(*mean));
	return r;
}

/* Rank 0's value goes to everybody; then the ranks that hold another are counted. */
int exchange_same(struct exchange *x, uint64_t value, bool *same)
{
	int64_t *hash = x->memory[EXCHANGE_HASH], *differ = x->memory[EXCHANGE_DIFFER];
	int64_t mine = (int64_t)value;
	int r;

	x->doing = "comparing the ranks";
	*hash = mine;
	r = tally_broadcast(x->session, x->tensor[EXCHANGE_HASH], hash, hash, 0,
			    &x->ticket[EXCHANGE_HASH]);
	if (r == 0)
		r = wait_for(x, EXCHANGE_HASH);
	if (r < 0)
		return r;
	*differ = *hash != mine;
	r = start(x, EXCHANGE_DIFFER, TALLY_SUM);
	if (r == 0)
		r = wait_for(x, EXCHANGE_DIFFER);
	if (r < 0)
		return r;
	*same = *(const int64_t *)tally_result(x->session, x->tensor[EXCHANGE_DIFFER]) == 0;
	return 0;
}
