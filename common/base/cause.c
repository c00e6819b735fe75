// SPDX-License-Identifier: Apache-2.0
/*
 * cause.c - facts to causes, causes to sentences.
 *
 * An address that can lead nowhere explains whatever came of it, so addresses are looked at first;
 * then what answered, then the errno, then the silence.
 *
 * Large packets are known to be lost only where small ones passed both ways on the same connection
 * (it is up), no large one ever did, and one is sent again and again: on a connection that once
 * carried large ones the same silence may be a firewall that was told something new, and the next
 * connection shows which of the two it is.
 */
#include "common/base/cause.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/base/utf8.h"

#define MTU_UNKNOWN	1500u
#define PING_HEADERS_V4	28u		/* IPv4 and ICMP */
#define PING_HEADERS_V6	48u

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

bool cause_is_loopback(const char *host)
{
	return !strncmp(host, "127.", 4) || !strcmp(host, "::1") ||
	       !strncmp(host, "::ffff:127.", 11);
}

static bool is_v6(const char *host)
{
	return strchr(host, ':') != NULL;
}

static enum cause of_addresses(const struct cause_facts *f)
{
	const char *local = or_empty(f->local), *remote = or_empty(f->remote);
	bool there = cause_is_loopback(remote), here = cause_is_loopback(local);

	if (!remote[0] || f->stage == STAGE_UP)
		return CAUSE_NONE;
	if (local[0] && is_v6(local) != is_v6(remote))
		return CAUSE_FAMILY;
	if (there && f->peer != PEER_SCHEDULER && local[0] && !here)
		return CAUSE_LOOPBACK;
	if (here && !there)
		return CAUSE_LOCAL_LOOPBACK;
	return CAUSE_NONE;
}

static enum cause of_connect(const struct cause_facts *f)
{
	switch (f->errnum) {
	case ECONNREFUSED:
		return f->peer == PEER_SCHEDULER && cause_is_loopback(or_empty(f->remote)) ?
			CAUSE_HERE : CAUSE_REFUSED;
	case EADDRNOTAVAIL:
		return CAUSE_LOCAL_GONE;
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ENETDOWN:
	case EHOSTDOWN:
	case EACCES:
	case EPERM:
	case EAFNOSUPPORT:
		return CAUSE_NO_ROUTE;
	case 0:
	case ETIMEDOUT:
		return CAUSE_FILTERED;
	default:
		return CAUSE_NONE;
	}
}

static enum cause of_up(const struct cause_facts *f)
{
	if (!f->proven && f->stuck && f->unacked_bytes >= f->mss)
		return CAUSE_MTU;
	return !f->closed && (!f->errnum || f->errnum == ETIMEDOUT) ? CAUSE_SILENT : CAUSE_NONE;
}

/* A server that was started again is another node of the same name. */
static bool is_other(const struct cause_facts *f)
{
	const char *name = or_empty(f->name);

	return !name[0] || strncmp(name, f->other, strlen(f->other)) != 0;
}

enum cause cause_of(const struct cause_facts *f)
{
	enum cause c = of_addresses(f);

	if (c != CAUSE_NONE)
		return c;
	if (or_empty(f->other)[0])
		return is_other(f) ? CAUSE_OTHER_SERVER : CAUSE_NONE;
	if (or_empty(f->speaks)[0])
		return CAUSE_WRONG_PORT;
	if (f->stage == STAGE_CONNECT)
		return of_connect(f);
	if (f->stage == STAGE_GREET)
		return f->closed || f->errnum ? CAUSE_DENIED : CAUSE_MUTE;
	return of_up(f);
}

bool cause_is_vague(enum cause c)
{
	return c == CAUSE_NONE || c == CAUSE_SILENT || c == CAUSE_MUTE ||
	       c == CAUSE_DENIED;
}

void cause_hold(struct cause_held *h, const struct cause_facts *f)
{
	snprintf(h->local, sizeof(h->local), "%s", or_empty(f->local));
	snprintf(h->remote, sizeof(h->remote), "%s", or_empty(f->remote));
	snprintf(h->speaks, sizeof(h->speaks), "%s", or_empty(f->speaks));
	snprintf(h->other, sizeof(h->other), "%s", or_empty(f->other));
	h->facts = *f;
	h->facts.name = "";
	h->facts.local = h->local;
	h->facts.remote = h->remote;
	h->facts.speaks = h->speaks;
	h->facts.other = h->other;
}

/* ---- sentences ---- */

static const struct {
	const char *sentence, *remedy[2];
} rows[] = {
#define X(e, sentence, remedy, remedy_scheduler) { sentence, { remedy, remedy_scheduler } },
	CAUSE_TABLE(X)
#undef X
};

static void peer_text(const struct cause_facts *f, char *buf, size_t len)
{
	static const char *const kind[] = { "server", "agent", "scheduler" };
	const char *name = or_empty(f->name);

	if (name[0])
		snprintf(buf, len, "%s %.64s", kind[f->peer], name);
	else
		snprintf(buf, len, f->peer == PEER_SCHEDULER ? "the %s" : "a %s", kind[f->peer]);
}

/* Writes the text that a letter of the table stands for. */
static void put(char what, const struct cause_facts *f, char *buf, size_t len)
{
	const char *remote = or_empty(f->remote), *local = or_empty(f->local);
	uint32_t mtu = f->mtu ? f->mtu : MTU_UNKNOWN;

	switch (what) {
	case 'N':
		peer_text(f, buf, len);
		break;
	case 'R':
		fmt_endpoint(buf, len, remote, f->port);
		break;
	case 'H':
		snprintf(buf, len, "%s", remote);
		break;
	case 'P':
		snprintf(buf, len, "%u", f->port);
		break;
	case 'L':
		snprintf(buf, len, "%s", local[0] ? local : "this machine");
		break;
	case 'S':
		snprintf(buf, len, "%s", or_empty(or_empty(f->other)[0] ? f->other : f->speaks));
		break;
	case 'M':
		snprintf(buf, len, "%u", mtu);
		break;
	default:
		ASSERT(what == 'D');
		snprintf(buf, len, "%u", mtu - (is_v6(remote) ? PING_HEADERS_V6 : PING_HEADERS_V4));
	}
}

static void expand(const char *from, const struct cause_facts *f, char *buf, size_t len)
{
	size_t at = 0;

	for (; *from && at + 1 < len; from++) {
		if (*from != '%') {
			buf[at++] = *from;
			buf[at] = '\0';
			continue;
		}
		put(*++from, f, buf + at, len - at);
		at += strlen(buf + at);
	}
}

const char *cause_text(enum cause c, const struct cause_facts *f, char *buf, size_t len)
{
	size_t at;

	ASSERT(len > 0 && (unsigned int)c < CAUSE_END);
	buf[0] = '\0';
	if (c == CAUSE_NONE)
		return buf;
	expand(rows[c].sentence, f, buf, len);
	at = strlen(buf);
	snprintf(buf + at, len - at, "; ");
	at = strlen(buf);
	expand(rows[c].remedy[f->peer == PEER_SCHEDULER], f, buf + at, len - at);
	utf8_mend(buf);
	return buf;
}
