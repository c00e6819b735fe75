// SPDX-License-Identifier: Apache-2.0
/* The scheduler's state file: any bytes are what was saved, or damage, never more. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "scheduler/state.h"

#define FILE_BYTES	64u		/* as docs and test_sched_state say */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64] = "fuzz_state.XXXXXX";	/* in TMPDIR, which run.sh tidies up */
static char file[96];

static void put(const uint8_t *data, size_t size)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	close(fd);
}

/* What is accepted must be the same after it was saved and read again. */
static void look(void)
{
	struct state *st, *again;
	struct sched_ids ids;
	uint8_t cluster[ID_BYTES];
	struct err e;
	int rc = state_open(&st, dir, &e);

	if (rc && rc != TALLY_EPROTO)
		abort();
	if (rc)
		return;
	if (state_is_new(st))
		abort();
	ids = *state_ids(st);
	memcpy(cluster, state_cluster(st), ID_BYTES);
	if (state_save(st, &ids, &e))
		abort();
	state_close(st);
	if (state_open(&again, dir, &e) || memcmp(&ids, state_ids(again), sizeof(ids)) ||
	    memcmp(cluster, state_cluster(again), ID_BYTES))
		abort();
	state_close(again);
}

/* As it comes; and as it would be if its check were right, or few would get past that. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *tmp = getenv("TMPDIR");
	uint8_t whole[FILE_BYTES] = { 0 };

	if (!file[0]) {
		if (chdir(tmp ? tmp : "/tmp") || !mkdtemp(dir))
			abort();
		snprintf(file, sizeof(file), "%s/" STATE_FILE, dir);
	}
	put(data, size);
	look();
	memcpy(whole, data, MIN(size, sizeof(whole)));
	memcpy(whole, "TALLYST1", 8);
	put_le32(whole + FILE_BYTES - 4, crc32c(whole, FILE_BYTES - 4));
	put(whole, sizeof(whole));
	look();
	return 0;
}
