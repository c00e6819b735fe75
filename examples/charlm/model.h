/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - the character language model: pure arithmetic, no I/O.
 *
 * The last `context` bytes, each turned into `embed` numbers, go through two
 * hidden layers (ReLU) and a linear one into a softmax over the 256 bytes: the
 * probability of the next byte.  Same inputs, same bits.
 *
 * Life: model_new, then any number of forward, backward and update; model_free.
 * The parameters belong to the model; the gradients are the caller's memory.
 */
#ifndef CHARLM_MODEL_H
#define CHARLM_MODEL_H

#include <stddef.h>
#include <stdint.h>

#define MODEL_BYTES	256u	/* what is predicted: one byte */

/* In the order in which a forward pass needs them. */
#define MODEL_PARAM_TABLE(X) \
	X(EMBED, "embed") \
	X(W1, "hidden1.weight") \
	X(B1, "hidden1.bias") \
	X(W2, "hidden2.weight") \
	X(B2, "hidden2.bias") \
	X(W3, "output.weight") \
	X(B3, "output.bias")

enum model_param {
#define X(e, name) MODEL_##e,
	MODEL_PARAM_TABLE(X)
#undef X
	MODEL_PARAMS
};

struct model_shape {
	size_t context;		/* bytes that the model sees */
	size_t embed;		/* numbers for each of them */
	size_t hidden1, hidden2;
	size_t batch;		/* most windows in one pass */
};

/* What Adam remembers. */
struct model_moments {
	float *mean, *square;	/* of the gradients; owned */
};

struct model {
	struct model_shape shape;
	float *param[MODEL_PARAMS];	/* owned */
	float *grad[MODEL_PARAMS];	/* borrowed until model_free; set by the caller */
	struct model_moments moments[MODEL_PARAMS];
	float *input, *hidden1, *hidden2, *output;	/* owned; of the last forward pass */
	float *d_input, *d_hidden1, *d_hidden2;		/* owned; by backward */
	const uint8_t *const *windows;	/* borrowed from forward to backward */
	size_t windows_n;
	void *memory;			/* owned: all of the above */
};

/* Called around the layers; what overlaps training with communication. */
struct model_hooks {
	void (*need)(void *ctx, enum model_param p);	/* about to use this parameter */
	void (*ready)(void *ctx, enum model_param p);	/* its gradient is complete */
	void *ctx;
};

/* -1: no memory.  Parameters and moments are zero. */
int model_new(struct model *m, const struct model_shape *shape);
void model_free(struct model *m);

/* Random parameters; the same for the same seed. */
void model_randomize(struct model *m, uint64_t seed);

size_t model_count(const struct model_shape *shape, enum model_param p);
size_t model_count_all(const struct model_shape *shape);
const char *model_param_name(enum model_param p);

/*
 * Each of the n windows is `context` bytes and the one that follows.  Returns the
 * mean loss (nats per byte); leaves the probabilities in output, n rows.
 */
float model_forward(struct model *m, const uint8_t *const windows[], size_t n,
		    const struct model_hooks *hooks);

/* Gradients of the last forward pass's mean loss, last layer first. */
void model_backward(struct model *m, const struct model_hooks *hooks);

/* One step of Adam on one parameter with this gradient; step counts from 1. */
void model_update(struct model *m, enum model_param p, const float *grad, uint32_t step,
		  float rate);

/* 64 bits that tell all parameters of one model from another's. */
uint64_t model_hash(const struct model *m);

/* The small random generator that everything here uses (splitmix64). */
uint64_t model_random(uint64_t *state);

#endif
