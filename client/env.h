/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.h - who this process is, as its launcher says in the environment.
 *
 * The only place of the library that reads the environment.  A family is the
 * set of variables of one launcher.  It counts when its rank or its world size
 * is set; then both must be there and make sense, or the answer is EINVAL and
 * names the variable: to guess would train the wrong model.  The first family
 * that counts is taken, in the order of ENV_TABLE.
 */
#ifndef TALLY_CLIENT_ENV_H
#define TALLY_CLIENT_ENV_H

#include "client/log.h"
#include "client/tally.h"
#include "common/base/err.h"

#define LT_SOCKET_DEFAULT	"/run/tally/agent.sock"
#define LT_JOB_DEFAULT		"default"
#define LT_PATH_MAX		1023u		/* of a timeline, without the NUL */

struct lt_ident {
	char socket[ADDR_LEN_MAX + 1];
	char job[NAME_LEN_MAX + 1];
	uint32_t world, rank;
	int local_rank;			/* -1: the launcher did not say */
	uint32_t timeout_ms, round_timeout_ms;
	uint32_t chunk_bytes;
	uint32_t on_loss;
	char timeline[LT_PATH_MAX + 1];	/* this rank's file; "": none */
	enum lt_log_level log;		/* what is told on stderr */
};

/* Options first, then environment, then defaults.  EINVAL with the name of what is wrong. */
int lt_ident_fill(struct lt_ident *id, const tally_options *opt, struct err *e);

#endif
