// SPDX-License-Identifier: Apache-2.0
/* Facts of a connection to the scheduler to a cause, and its words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parse.h"
#include "common/base/utf8.h"
#include "common/ctl/ctl.h"

#define OTHER_PORT	"; give --scheduler the HOST:PORT of tally-scheduler's --listen"
#define OTHER_NAME	"; is that its name, and can this machine look it up?  Else give " \
			"--scheduler its address"

static uint16_t port_of(const char *endpoint)
{
	const char *colon = strrchr(endpoint, ':');

	return colon ? (uint16_t)strtoul(colon + 1, NULL, 10) : 0;
}

/* Not those of want of memory, or of a limit here. */
static bool is_of_the_network(int code)
{
	return code == TALLY_ESCHED || code == TALLY_EIO || code == TALLY_ETIMEDOUT ||
	       code == TALLY_ESHUTDOWN;
}

static void append(struct err *e, const char *text)
{
	size_t at = strlen(e->text);

	snprintf(e->text + at, sizeof(e->text) - at, "%s", text);
	utf8_mend(e->text);
}

int ctl_explain(struct err *e, enum cause_stage stage, int errnum, bool closed, const char *remote,
		const char *local)
{
	char there[ADDR_LEN_MAX + 1], here[ADDR_LEN_MAX + 1], text[ERR_TEXT_MAX + 1];
	const struct cause_facts f = {
		.peer = PEER_SCHEDULER, .stage = stage, .errnum = errnum, .closed = closed,
		.local = here, .remote = there, .port = port_of(remote),
	};
	struct err why = *e;

	endpoint_host(remote, there);
	endpoint_host(local, here);
	if (why.code == TALLY_EPROTO) {		/* it says what answers there */
		append(e, OTHER_PORT);
		return e->code;
	}
	if (!is_of_the_network(why.code))
		return e->code;
	if (!there[0]) {			/* the name has no address */
		append(e, OTHER_NAME);
		return e->code;
	}
	cause_text(cause_of(&f), &f, text, sizeof(text));
	if (text[0])
		err_set(e, why.code, "%s (%s)", text, errnum ? strerror(errnum) : why.text);
	return e->code;
}
