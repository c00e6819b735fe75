// SPDX-License-Identifier: Apache-2.0
/* The reader of configuration files: any bytes give an outcome, never more. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/rt/opt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fields {
	const char *text;
	struct opt_list list;
	uint64_t number, bytes, rate;
	bool flag;
};

#define F(m) offsetof(struct fields, m)
static const struct opt rows[] = {
	{ "text", OPT_STR, F(text), "x", 0, 0, "TEXT", "a text" },
	{ "list", OPT_ENDPOINTS, F(list), NULL, 0, 0, "TEXT", "texts" },
	{ "number", OPT_U64, F(number), "2", 1, 16, "N", "a number" },
	{ "bytes", OPT_BYTES, F(bytes), "64M", 4096, 1u << 30, "BYTES", "a size" },
	{ "rate", OPT_BITRATE, F(rate), NULL, 0, 0, "BITS", "a speed" },
	{ "flag", OPT_FLAG, F(flag), NULL, 0, 0, NULL, "a flag" },
};

static const struct opt_program program = {
	"fuzz", "Not a program.", NULL, rows, ARRAY_SIZE(rows),
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *null;
	int fd = memfd_create("fuzz_opt", MFD_CLOEXEC);
	struct fields f = { 0 };
	char path[64];
	char *argv[] = { (char *)"fuzz", (char *)"--config", path, NULL };

	if (!null)
		null = fopen("/dev/null", "we");
	if (fd < 0 || !null || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (opt_parse(&program, 3, argv, &f, null, null) == OPT_RUN &&
	    (f.number < 1 || f.number > 16 || f.bytes < 4096 || f.bytes > 1u << 30 ||
	     f.list.n > OPT_LIST_MAX))
		abort();
	close(fd);
	return 0;
}
