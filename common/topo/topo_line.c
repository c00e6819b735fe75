// SPDX-License-Identifier: Apache-2.0
/*
 * topo_line.c - a description as people write it, one device a line.
 *
 * A line is a name and "key=value" words.  Keys are rows of a table: which kinds of line
 * take it, and what becomes of the value.  A device is made on the side and put into
 * the description when its whole line holds.
 */
#include <string.h>

#include "common/base/parse.h"
#include "common/topo/topo.h"

#define WORDS_MAX 8u

enum kind {
	NODE = 1 << 0,
	SWITCH = 1 << 1,
	GPU = 1 << 2,
	CARD = 1 << 3,
};

static const struct {
	const char *name;
	enum kind kind;
} kinds[] = { { "node", NODE }, { "switch", SWITCH }, { "gpu", GPU }, { "nic", CARD },
	    { "card", CARD } };	/* as files had it that were written before */

/* What the words of a line can say, whatever it describes. */
struct said {
	struct topo_place at;
	uint64_t socket;
	struct topo_rate rate, memory, net, nvswitch;
	bool placed;
};

static uint32_t split(char *text, char *word[WORDS_MAX + 1])
{
	uint32_t n = 0;

	for (char *rest, *w = strtok_r(text, " \t", &rest); w && n <= WORDS_MAX;
	     w = strtok_r(NULL, " \t", &rest))
		word[n++] = w;
	return n;
}

static bool find_gpu(const struct topo *t, const char *name, uint32_t *at)
{
	for (uint32_t i = 0; i < t->gpus; i++)
		if (!strcmp(t->gpu[i].name, name)) {
			*at = i;
			return true;
		}
	return false;
}

/* A node or a switch, as the place of what hangs below. */
static bool find_place(const struct topo *t, const char *name, struct topo_place *at)
{
	for (uint32_t i = 0; i < t->nodes; i++)
		if (!strcmp(t->node[i].name, name)) {
			*at = (struct topo_place){ TOPO_NONE, i };
			return true;
		}
	for (uint32_t i = 0; i < t->switches; i++)
		if (!strcmp(t->sw[i].name, name)) {
			*at = (struct topo_place){ i, t->sw[i].at.node };
			return true;
		}
	return false;
}

static bool is_taken(const struct topo *t, const char *name)
{
	struct topo_place at;
	uint32_t gpu;

	if (find_place(t, name, &at) || find_gpu(t, name, &gpu))
		return true;
	for (uint32_t i = 0; i < t->cards; i++)
		if (!strcmp(t->card[i].name, name))
			return true;
	return false;
}

static int take_rate(const char *text, struct topo_rate *r, struct err *e)
{
	uint64_t bits;
	int rc = parse_bitrate(text, 0, UINT64_MAX, &bits, e);

	if (rc)
		return rc;
	if (!bits)
		return err_set(e, TALLY_EINVAL, "a rate of 0; leave it out if it is unknown");
	*r = (struct topo_rate){ bits, false };
	return 0;
}

static int take_under(const struct topo *t, const char *name, struct said *s, struct err *e)
{
	if (!find_place(t, name, &s->at))
		return err_set(e, TALLY_ENOENT, "under=%s: no node or switch of that name above",
			       name);
	s->placed = true;
	return 0;
}

static int take_word(const struct topo *t, enum kind kind, char *word, struct said *s,
		     struct err *e)
{
	const struct {
		const char *key;
		uint32_t kinds;
		struct topo_rate *rate;
	} rates[] = {
		{ "rate", SWITCH | GPU | CARD, &s->rate },
		{ "memory", NODE, &s->memory },
		{ "net", CARD, &s->net },
		{ "nvswitch", GPU, &s->nvswitch },
	};
	char *value = strchr(word, '=');

	if (!value)
		return err_set(e, TALLY_EINVAL, "'%s' is not of the form key=value", word);
	*value++ = '\0';
	if (kind == NODE && !strcmp(word, "socket"))
		return parse_u64(value, 0, TOPO_NODES_MAX - 1, &s->socket, e);
	if (kind != NODE && !strcmp(word, "under"))
		return take_under(t, value, s, e);
	for (size_t i = 0; i < ARRAY_SIZE(rates); i++)
		if (rates[i].kinds & kind && !strcmp(word, rates[i].key))
			return take_rate(value, rates[i].rate, e);
	return err_set(e, TALLY_EINVAL, "unknown key '%s'", word);
}

static int full(struct err *e, const char *what, uint32_t max)
{
	return err_set(e, TALLY_EQUOTA, "more than %u: %s", max, what);
}

static int add(struct topo *t, enum kind kind, const char *name, const struct said *s,
	       struct err *e)
{
	char *dst = NULL;

	switch (kind) {
	case NODE:
		if (t->nodes == TOPO_NODES_MAX)
			return full(e, "nodes", TOPO_NODES_MAX);
		dst = t->node[t->nodes].name;
		t->node[t->nodes].socket = (uint32_t)s->socket;
		t->node[t->nodes++].memory = s->memory;
		break;
	case SWITCH:
		if (t->switches == TOPO_SWITCHES_MAX)
			return full(e, "switches", TOPO_SWITCHES_MAX);
		dst = t->sw[t->switches].name;
		t->sw[t->switches].at = s->at;
		t->sw[t->switches++].up = s->rate;
		break;
	case GPU:
		if (t->gpus == TOPO_GPUS_MAX)
			return full(e, "GPUs", TOPO_GPUS_MAX);
		dst = t->gpu[t->gpus].name;
		t->gpu[t->gpus].at = s->at;
		t->gpu[t->gpus].pcie = s->rate;
		t->gpu[t->gpus++].nvswitch = s->nvswitch;
		break;
	case CARD:
		if (t->cards == TOPO_CARDS_MAX)
			return full(e, "NICs", TOPO_CARDS_MAX);
		dst = t->card[t->cards].name;
		t->card[t->cards].at = s->at;
		t->card[t->cards].pcie = s->rate;
		t->card[t->cards++].net = s->net;
		break;
	}
	memcpy(dst, name, strlen(name) + 1);
	return 0;
}

static int take_device(struct topo *t, enum kind kind, char **word, uint32_t words, struct err *e)
{
	struct said s = { 0 };

	if (words == 0)
		return err_set(e, TALLY_EINVAL, "a name is missing");
	if (strlen(word[0]) > TOPO_NAME_MAX || strchr(word[0], '='))
		return err_set(e, TALLY_EINVAL, "'%.*s' is no name: it comes first, at most %u "
			       "characters", (int)TOPO_NAME_MAX, word[0], TOPO_NAME_MAX);
	if (is_taken(t, word[0]))
		return err_set(e, TALLY_EEXIST, "there is a '%s' above", word[0]);
	for (uint32_t i = 1; i < words; i++) {
		int rc = take_word(t, kind, word[i], &s, e);

		if (rc)
			return err_wrap(e, "%s", word[0]);
	}
	if (kind != NODE && !s.placed)
		return err_set(e, TALLY_EINVAL, "%s: under=NODE or under=SWITCH is missing",
			       word[0]);
	return add(t, kind, word[0], &s, e);
}

static int take_nvlink(struct topo *t, char **word, uint32_t words, struct err *e)
{
	struct topo_rate r = { 0 };
	uint32_t a, b;
	int rc;

	if (words != 3)
		return err_set(e, TALLY_EINVAL, "two GPUs and a rate, as in: g0 g1 400gbit");
	for (uint32_t i = 0; i < 2; i++)
		if (!find_gpu(t, word[i], i ? &b : &a))
			return err_set(e, TALLY_ENOENT, "no GPU '%s' above", word[i]);
	if (a == b)
		return err_set(e, TALLY_EINVAL, "%s with itself", word[0]);
	if (t->nvlink[a][b])
		return err_set(e, TALLY_EEXIST, "%s and %s are linked above", word[0], word[1]);
	rc = take_rate(word[2], &r, e);
	if (rc)
		return rc;
	t->nvlink[a][b] = t->nvlink[b][a] = r.bits_per_s;
	return 0;
}

int topo_line(struct topo *t, const char *what, char *value, struct err *e)
{
	char *word[WORDS_MAX + 1];
	uint32_t words = split(value, word);

	if (words > WORDS_MAX)
		return err_set(e, TALLY_EINVAL, "more than %u words", WORDS_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(what, kinds[i].name))
			return take_device(t, kinds[i].kind, word, words, e);
	if (!strcmp(what, "nvlink"))
		return take_nvlink(t, word, words, e);
	if (!strcmp(what, "sockets") && words == 1)
		return take_rate(word[0], &t->sockets, e);
	if (!strcmp(what, "sockets"))
		return err_set(e, TALLY_EINVAL, "a rate is wanted, as in: sockets = 300gbit");
	return err_set(e, TALLY_EINVAL, "unknown '%.*s': node, switch, gpu, nic, nvlink or "
		       "sockets", (int)TOPO_NAME_MAX, what);
}
