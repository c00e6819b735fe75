// SPDX-License-Identifier: Apache-2.0
/*
 * Forward: look up the embeddings, three times multiply, add the bias and (but
 * for the last) cut at zero, then softmax.  Backward: softmax and loss together
 * have the gradient p - 1[target]; each layer then gives its weights' gradient
 * (inputs^T * d), its bias' (sum of d) and its inputs' (d * weights^T).  The
 * derivative of ReLU is read off its output.
 *
 * The gradients of a layer are announced as soon as they are complete, so that
 * they travel while the layers before it are still computed; a parameter is
 * asked for just before its first use, so that its update can wait that long.
 */
#include "examples/charlm/model.h"

#include "examples/charlm/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ADAM_MEAN	0.9f
#define ADAM_SQUARE	0.99f
#define ADAM_TINY	1e-8f

const char *model_param_name(enum model_param p)
{
	static const char *const names[MODEL_PARAMS] = {
#define X(e, name) [MODEL_##e] = name,
		MODEL_PARAM_TABLE(X)
#undef X
	};

	return names[p];
}

static size_t inputs(const struct model_shape *s)
{
	return s->context * s->embed;
}

size_t model_count(const struct model_shape *s, enum model_param p)
{
	switch (p) {
	case MODEL_EMBED:
		return MODEL_BYTES * s->embed;
	case MODEL_W1:
		return inputs(s) * s->hidden1;
	case MODEL_B1:
		return s->hidden1;
	case MODEL_W2:
		return s->hidden1 * s->hidden2;
	case MODEL_B2:
		return s->hidden2;
	case MODEL_W3:
		return s->hidden2 * MODEL_BYTES;
	case MODEL_B3:
		return MODEL_BYTES;
	case MODEL_PARAMS:
		break;
	}
	return 0;
}

size_t model_count_all(const struct model_shape *s)
{
	size_t n = 0;

	for (int p = 0; p < MODEL_PARAMS; p++)
		n += model_count(s, (enum model_param)p);
	return n;
}

int model_new(struct model *m, const struct model_shape *s)
{
	size_t row = 2 * (inputs(s) + s->hidden1 + s->hidden2) + MODEL_BYTES;
	float *at;

	*m = (struct model){ .shape = *s };
	at = m->memory = calloc(3 * model_count_all(s) + s->batch * row, sizeof(float));
	if (!at)
		return -1;
	for (int i = 0; i < MODEL_PARAMS; i++) {
		size_t n = model_count(s, (enum model_param)i);

		m->param[i] = at;
		m->moments[i] = (struct model_moments){ at + n, at + 2 * n };
		at += 3 * n;
	}
	m->input = at;
	m->d_input = m->input + s->batch * inputs(s);
	m->hidden1 = m->d_input + s->batch * inputs(s);
	m->d_hidden1 = m->hidden1 + s->batch * s->hidden1;
	m->hidden2 = m->d_hidden1 + s->batch * s->hidden1;
	m->d_hidden2 = m->hidden2 + s->batch * s->hidden2;
	m->output = m->d_hidden2 + s->batch * s->hidden2;
	return 0;
}

void model_free(struct model *m)
{
	free(m->memory);
	*m = (struct model){ 0 };
}

uint64_t model_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Uniform in [-limit, limit). */
static void randomize(float *p, size_t n, float limit, uint64_t *state)
{
	for (size_t i = 0; i < n; i++)
		p[i] = ((float)(model_random(state) >> 40) * 0x1p-23f - 1) * limit;
}

/* Biases stay 0; the last layer starts small, so that the first loss is ln 256. */
void model_randomize(struct model *m, uint64_t seed)
{
	const struct model_shape *s = &m->shape;

	randomize(m->param[MODEL_EMBED], model_count(s, MODEL_EMBED), 1, &seed);
	randomize(m->param[MODEL_W1], model_count(s, MODEL_W1),
		  sqrtf(6 / (float)inputs(s)), &seed);
	randomize(m->param[MODEL_W2], model_count(s, MODEL_W2),
		  sqrtf(6 / (float)s->hidden1), &seed);
	randomize(m->param[MODEL_W3], model_count(s, MODEL_W3),
		  0.1f * sqrtf(6 / (float)s->hidden2), &seed);
}

static void call(void (*hook)(void *, enum model_param), const struct model_hooks *h,
		 enum model_param p)
{
	if (hook)
		hook(h->ctx, p);
}

static void need(const struct model_hooks *h, enum model_param p)
{
	if (h)
		call(h->need, h, p);
}

static void ready(const struct model_hooks *h, enum model_param p)
{
	if (h)
		call(h->ready, h, p);
}

/* y = x * w + b for n rows. */
static void linear(float *y, const float *x, const float *w, const float *b, size_t n, size_t in,
		   size_t out)
{
	for (size_t i = 0; i < n; i++)
		memcpy(y + i * out, b, out * sizeof(*y));
	gemm(y, view_rows(x, in), view_rows(w, out), n, out, in, true);
}

static void relu(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = x[i] > 0 ? x[i] : 0;
}

static void look_up(struct model *m)
{
	const struct model_shape *s = &m->shape;

	for (size_t i = 0; i < m->windows_n; i++)
		for (size_t j = 0; j < s->context; j++)
			memcpy(m->input + (i * s->context + j) * s->embed,
			       m->param[MODEL_EMBED] + m->windows[i][j] * s->embed,
			       s->embed * sizeof(float));
}

/* Turns a row of scores into probabilities; returns the loss of `target`. */
static float softmax(float *row, uint8_t target)
{
	float most = row[0], sum = 0, loss;

	for (size_t j = 1; j < MODEL_BYTES; j++)
		most = row[j] > most ? row[j] : most;
	loss = most - row[target];
	for (size_t j = 0; j < MODEL_BYTES; j++) {
		row[j] = expf(row[j] - most);
		sum += row[j];
	}
	for (size_t j = 0; j < MODEL_BYTES; j++)
		row[j] /= sum;
	return loss + logf(sum);
}

float model_forward(struct model *m, const uint8_t *const windows[], size_t n,
		    const struct model_hooks *hooks)
{
	const struct model_shape *s = &m->shape;
	double loss = 0;

	m->windows = windows;
	m->windows_n = n;
	need(hooks, MODEL_EMBED);
	look_up(m);
	need(hooks, MODEL_W1);
	need(hooks, MODEL_B1);
	linear(m->hidden1, m->input, m->param[MODEL_W1], m->param[MODEL_B1], n, inputs(s),
	       s->hidden1);
	relu(m->hidden1, n * s->hidden1);
	need(hooks, MODEL_W2);
	need(hooks, MODEL_B2);
	linear(m->hidden2, m->hidden1, m->param[MODEL_W2], m->param[MODEL_B2], n, s->hidden1,
	       s->hidden2);
	relu(m->hidden2, n * s->hidden2);
	need(hooks, MODEL_W3);
	need(hooks, MODEL_B3);
	linear(m->output, m->hidden2, m->param[MODEL_W3], m->param[MODEL_B3], n, s->hidden2,
	       MODEL_BYTES);
	for (size_t i = 0; i < n; i++)
		loss += (double)softmax(m->output + i * MODEL_BYTES, windows[i][s->context]);
	return (float)(loss / (double)n);
}

/* From d, the gradient of a layer's output: its weights', its bias', its input's. */
static void linear_back(float *dw, float *db, float *dx, const float *d, const float *x,
			const float *w, size_t n, size_t in, size_t out)
{
	gemm(dw, view_transposed(x, in), view_rows(d, out), in, out, n, false);
	memset(db, 0, out * sizeof(*db));
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < out; j++)
			db[j] += d[i * out + j];
	gemm(dx, view_rows(d, out), view_transposed(w, out), n, in, out, false);
}

static void relu_back(float *d, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		d[i] = x[i] > 0 ? d[i] : 0;
}

/* Probabilities become the gradient of the mean loss by the scores. */
static void softmax_back(struct model *m)
{
	float share = 1 / (float)m->windows_n;

	for (size_t i = 0; i < m->windows_n; i++)
		m->output[i * MODEL_BYTES + m->windows[i][m->shape.context]] -= 1;
	for (size_t i = 0; i < m->windows_n * MODEL_BYTES; i++)
		m->output[i] *= share;
}

static void look_up_back(struct model *m)
{
	const struct model_shape *s = &m->shape;
	float *grad = m->grad[MODEL_EMBED];

	memset(grad, 0, model_count(s, MODEL_EMBED) * sizeof(*grad));
	for (size_t i = 0; i < m->windows_n; i++) {
		for (size_t j = 0; j < s->context; j++) {
			const float *d = m->d_input + (i * s->context + j) * s->embed;
			float *to = grad + m->windows[i][j] * s->embed;

			for (size_t e = 0; e < s->embed; e++)
				to[e] += d[e];
		}
	}
}

void model_backward(struct model *m, const struct model_hooks *hooks)
{
	const struct model_shape *s = &m->shape;
	size_t n = m->windows_n;

	softmax_back(m);
	linear_back(m->grad[MODEL_W3], m->grad[MODEL_B3], m->d_hidden2, m->output, m->hidden2,
		    m->param[MODEL_W3], n, s->hidden2, MODEL_BYTES);
	ready(hooks, MODEL_B3);
	ready(hooks, MODEL_W3);
	relu_back(m->d_hidden2, m->hidden2, n * s->hidden2);
	linear_back(m->grad[MODEL_W2], m->grad[MODEL_B2], m->d_hidden1, m->d_hidden2, m->hidden1,
		    m->param[MODEL_W2], n, s->hidden1, s->hidden2);
	ready(hooks, MODEL_B2);
	ready(hooks, MODEL_W2);
	relu_back(m->d_hidden1, m->hidden1, n * s->hidden1);
	linear_back(m->grad[MODEL_W1], m->grad[MODEL_B1], m->d_input, m->d_hidden1, m->input,
		    m->param[MODEL_W1], n, inputs(s), s->hidden1);
	ready(hooks, MODEL_B1);
	ready(hooks, MODEL_W1);
	look_up_back(m);
	ready(hooks, MODEL_EMBED);
}

void model_update(struct model *m, enum model_param p, const float *grad, uint32_t step,
		  float rate)
{
	float *restrict x = m->param[p];
	float *restrict mean = m->moments[p].mean, *restrict square = m->moments[p].square;
	float unbiased_rate = rate / (1 - powf(ADAM_MEAN, (float)step));
	float unbias_square = 1 / (1 - powf(ADAM_SQUARE, (float)step));
	size_t n = model_count(&m->shape, p);

	for (size_t i = 0; i < n; i++) {
		float g = grad[i];

		mean[i] = ADAM_MEAN * mean[i] + (1 - ADAM_MEAN) * g;
		square[i] = ADAM_SQUARE * square[i] + (1 - ADAM_SQUARE) * g * g;
		x[i] -= unbiased_rate * mean[i] / (sqrtf(square[i] * unbias_square) + ADAM_TINY);
	}
}

/* FNV-1a over 32-bit words, with the high bits brought down. */
uint64_t model_hash(const struct model *m)
{
	uint64_t h = 0xcbf29ce484222325u;
	uint32_t word;

	for (int p = 0; p < MODEL_PARAMS; p++) {
		size_t n = model_count(&m->shape, (enum model_param)p);

		for (size_t i = 0; i < n; i++) {
			memcpy(&word, m->param[p] + i, sizeof(word));
			h = (h ^ word) * 0x100000001b3u;
			h ^= h >> 32;
		}
	}
	return h;
}
