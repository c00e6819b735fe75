// SPDX-License-Identifier: Apache-2.0
/*
 * Connect, ask QUERY, take the REPORT.  A scheduler that is not there is the
 * commonest trouble of all, so its error names the address and the remedy.
 */
#include "cli/sched.h"

#include "common/base/parse.h"

static int open_client(struct sched *s, const char *endpoint, uint32_t timeout_ms, struct err *e)
{
	char host[ADDR_LEN_MAX + 1];
	uint16_t port;
	uint64_t rate;
	int rc = parse_endpoint(endpoint, SCHED_PORT, host, &port, &rate, e);

	if (rc)
		return rc;
	rc = ctl_client_open(&s->client, host, port, timeout_ms, e);
	if (rc)
		err_wrap(e, "no scheduler at %s", endpoint);
	return rc;
}

int sched_ask(struct sched *s, const char *endpoint, uint32_t timeout_ms, uint32_t what,
	      const char *job, struct err *e)
{
	const struct msg ask = {
		.type = MSG_QUERY,
		.query = { .req = 1, .what = what, .job = job },
	};
	int rc = open_client(s, endpoint, timeout_ms, e);

	if (rc)
		return rc;
	rc = ctl_client_ask(s->client, &ask, &s->answer, e);
	if (rc) {
		err_wrap(e, "scheduler at %s", endpoint);
	} else if (s->answer.type == MSG_REPORT) {
		s->report = &s->answer.report;
		return 0;
	} else if (s->answer.type == MSG_REPLY && s->answer.reply.code) {
		rc = err_set(e, s->answer.reply.code, "%s", s->answer.reply.text);
	} else {
		rc = err_set(e, TALLY_EPROTO, "scheduler at %s answered %s to a query", endpoint,
			     msg_type_name(s->answer.type));
	}
	ctl_client_close(s->client);
	return rc;
}

void sched_close(struct sched *s)
{
	ctl_client_close(s->client);
	*s = (struct sched){ 0 };
}
