// SPDX-License-Identifier: Apache-2.0
/* trouble.c - rows by name, and when the log has them. */
#include "common/base/trouble.h"

#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

static struct trouble_row *find(struct trouble *t, const char *peer)
{
	size_t len = strnlen(peer, sizeof(t->row[0].peer) - 1);

	for (uint32_t i = 0; i < TROUBLE_ROWS; i++)
		if (peer[0] && !strncmp(t->row[i].peer, peer, len) && !t->row[i].peer[len])
			return &t->row[i];
	return NULL;
}

/* A free row, or that of the peer whose trouble has been over for longest; NULL: all are open. */
static struct trouble_row *make(struct trouble *t, const char *peer)
{
	struct trouble_row *r = NULL;

	for (uint32_t i = 0; i < TROUBLE_ROWS; i++) {
		struct trouble_row *k = &t->row[i];

		if (!k->open && (!r || (r->peer[0] && (!k->peer[0] || k->told < r->told))))
			r = k;
	}
	if (!r || !peer[0])
		return NULL;
	*r = (struct trouble_row){ 0 };
	snprintf(r->peer, sizeof(r->peer), "%s", peer);
	return r;
}

/* A cause that says nothing comes after a better one: whoever heard that keeps it. */
static void learn(struct trouble_row *r, enum cause c, const char *text, mono_t now)
{
	if (!r->open)
		r->since = now;
	if (r->open && !cause_is_vague(r->cause) && cause_is_vague(c))
		return;
	r->cause = c;
	snprintf(r->text, sizeof(r->text), "%s", text);
	utf8_mend(r->text);
}

uint32_t trouble_note(struct trouble *t, const char *peer, uint32_t source, enum cause c,
		      const char *text, mono_t now)
{
	struct trouble_row *r = find(t, peer);
	uint32_t times;

	r = r ? r : make(t, peer);
	if (!r)
		return 1;
	learn(r, c, text, now);
	r->open |= 1ull << source % 64;
	r->left = 0;
	times = ++r->times;
	if (r->told && now - r->told < mono_ms(TROUBLE_LOG_MS) &&
	    (!r->vague_told || cause_is_vague(c)))
		return 0;
	if (!r->told || now - r->told >= mono_ms(TROUBLE_LOG_MS))
		r->told = now;
	r->vague_told = cause_is_vague(c);
	r->times = 0;
	return times;
}

bool trouble_over(struct trouble *t, const char *peer, uint32_t source)
{
	struct trouble_row *r = find(t, peer);

	if (!r || !r->open)
		return false;
	r->open &= ~(1ull << source % 64);
	return !r->open && !r->times;
}

void trouble_leave(struct trouble *t, const char *peer, uint32_t source, mono_t now)
{
	struct trouble_row *r = find(t, peer);

	if (!r || !r->open)
		return;
	r->open &= ~(1ull << source % 64);
	r->left = r->open ? 0 : now;
}

#define KEY_TEXT	(NAME_LEN_MAX + ADDR_LEN_MAX + 16)

/* Of several links to one peer each has a trouble of its own. */
static void key_of(const struct trouble_news *n, char key[KEY_TEXT])
{
	size_t at = 0;

	if (n->node)
		snprintf(key, KEY_TEXT, "#%u", n->node);
	else
		snprintf(key, KEY_TEXT, "%s", n->peer);
	at = strlen(key);
	if (n->what == TROUBLE_PART)
		snprintf(key + at, KEY_TEXT - at, " %s", n->held.remote);
}

static bool hear_lost(struct trouble *t, const struct trouble_news *n, mono_t now,
		      char line[TROUBLE_LINE])
{
	struct cause_facts f = n->held.facts;
	char key[KEY_TEXT], text[ERR_TEXT_MAX + 1], often[40] = "";
	const char *kind = f.peer == PEER_AGENT ? "from agent" : "to server";
	enum cause c;
	uint32_t times;

	f.name = n->peer;
	c = cause_of(&f);
	cause_text(c, &f, text, sizeof(text));
	if (c == CAUSE_NONE)
		snprintf(text, sizeof(text), "%s", n->words);
	key_of(n, key);
	times = trouble_note(t, key, n->source, c, text, now);
	if (n->what == TROUBLE_PART)
		trouble_leave(t, key, n->source, now);
	if (times > 1)
		snprintf(often, sizeof(often), " %u times since this was said", times);
	snprintf(line, TROUBLE_LINE, "link %s %s %s%s, reason %s", kind, n->peer,
		 n->what == TROUBLE_STUCK ? "carries no data" :
		 f.peer == PEER_AGENT ? "closed" : "lost", often, text);
	return times;
}

bool trouble_hear(struct trouble *t, const struct trouble_news *n, mono_t now,
		  char line[TROUBLE_LINE])
{
	const char *kind = n->held.facts.peer == PEER_AGENT ? "from agent" : "to server";
	char key[KEY_TEXT];

	key_of(n, key);
	switch (n->what) {
	case TROUBLE_LOST:
	case TROUBLE_STUCK:
	case TROUBLE_PART:
		return hear_lost(t, n, now, line);
	case TROUBLE_OVER:
		snprintf(line, TROUBLE_LINE, "links %s %s are back", kind, n->peer);
		return trouble_over(t, key, n->source);
	case TROUBLE_LEFT:
		trouble_leave(t, key, n->source, now);
	}
	return false;
}

const struct trouble_row *trouble_of(const struct trouble *t, const char *peer)
{
	const struct trouble_row *r = find((struct trouble *)(uintptr_t)t, peer);

	return r && r->open ? r : NULL;
}

const struct trouble_row *trouble_first(const struct trouble *t, mono_t since)
{
	const struct trouble_row *best = NULL;

	for (uint32_t i = 0; i < TROUBLE_ROWS; i++) {
		const struct trouble_row *r = &t->row[i];
		bool vague = cause_is_vague(r->cause);

		if ((!r->open && (!r->left || r->left < since)) || r->cause == CAUSE_NONE)
			continue;
		if (!best || (cause_is_vague(best->cause) && !vague) ||
		    (cause_is_vague(best->cause) == vague && r->since < best->since))
			best = r;
	}
	return best;
}
