// SPDX-License-Identifier: Apache-2.0
/*
 * limit.c - limits of this process and of its cgroups, read from the kernel when they are asked
 * for: an operator may change them at any time.
 *
 * A cgroup of version 2 has memory.max, memory.current and memory.stat; one of version 1 has
 * memory.limit_in_bytes, memory.usage_in_bytes and memory.stat with totals.  A process is held to
 * the limits of its group and of all groups above it.  Version 2 is mounted at /sys/fs/cgroup, or
 * beside version 1 at /sys/fs/cgroup/unified.
 */
#include "common/shm/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/parse.h"

#define PATH_LEN	1024u

/* ---- files of the kernel ---- */

/* A file's first bytes as text; false: it cannot be read. */
static bool read_text(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	ssize_t n = 0;

	buf[0] = '\0';
	if (fd < 0)
		return false;
	while (at + 1 < len && (n = read(fd, buf + at, len - 1 - at)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		at += n > 0 ? (size_t)n : 0;
	}
	buf[at] = '\0';
	close(fd);
	return n >= 0;
}

/* "max", absent or not a number: no limit. */
static uint64_t read_number(const char *path)
{
	char word[64];
	uint64_t v;

	read_text(path, word, sizeof(word));
	word[strcspn(word, "\n")] = '\0';
	return parse_u64(word, 0, UINT64_MAX, &v, NULL) == 0 ? v : UINT64_MAX;
}

/* The number behind a key at a line's begin; 0: there is none. */
static uint64_t number_of(const char *text, const char *key)
{
	size_t len = strlen(key);
	unsigned long long v;

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, len) && sscanf(line + len, " %llu", &v) == 1)
			return v;
	}
	return 0;
}

/* ---- cgroups ---- */

/* How a version of cgroups calls things. */
struct kind {
	const char *root, *limit, *used, *files[2];
};

static const struct kind versions[] = {
	{ "/sys/fs/cgroup", "memory.max", "memory.current", { "inactive_file", "active_file" } },
	{ "/sys/fs/cgroup/unified", "memory.max", "memory.current",
	  { "inactive_file", "active_file" } },
	{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
	  { "total_inactive_file", "total_active_file" } },
};

/* The tightest limit of all groups that were looked at. */
struct tightest {
	uint64_t limit;			/* the smallest */
	uint64_t left;			/* the least that one allows still */
	char group[LIMIT_TEXT_MAX];	/* which has that limit: a file */
};

/* Pages of files go when memory is short. */
static uint64_t group_used(const struct kind *k, const char *path)
{
	char file[PATH_LEN + 64], stat[8192];
	uint64_t used, files;

	snprintf(file, sizeof(file), "%s%s/%s", k->root, path, k->used);
	used = read_number(file);
	snprintf(file, sizeof(file), "%s%s/memory.stat", k->root, path);
	read_text(file, stat, sizeof(stat));
	files = number_of(stat, k->files[0]) + number_of(stat, k->files[1]);
	return used == UINT64_MAX ? 0 : used - MIN(files, used);
}

static void look_at(const struct kind *k, const char *path, struct tightest *t)
{
	char file[PATH_LEN + 64];
	uint64_t limit, left;

	snprintf(file, sizeof(file), "%s%s/%s", k->root, path, k->limit);
	limit = read_number(file);
	if (limit >= UINT64_MAX / 4)	/* version 1 has a large number for none */
		return;
	t->limit = MIN(t->limit, limit);
	left = limit - MIN(limit, group_used(k, path));
	if (left >= t->left)
		return;
	t->left = left;
	snprintf(t->group, sizeof(t->group), "%.*s", (int)sizeof(t->group) - 1, file);
}

/* A group and all above it; path is cut down on the way. */
static void look_up(const struct kind *k, char *path, struct tightest *t)
{
	for (;;) {
		char *slash;

		look_at(k, path, t);
		slash = strrchr(path, '/');
		if (!slash)
			return;
		*slash = '\0';
	}
}

/* Calls fn for each line of /proc/PID/cgroup: "0::/path" (v2) or "4:memory:/path" (v1). */
static void each_group(uint32_t pid, void (*fn)(void *ctx, const char *controllers,
						const char *path), void *ctx)
{
	char text[4096], file[32], *line = text, *next;

	snprintf(file, sizeof(file), "/proc/%u/cgroup", pid);
	read_text(pid ? file : "/proc/self/cgroup", text, sizeof(text));
	for (; *line; line = next) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		size_t len = strcspn(line, "\n");

		next = line + len + (line[len] == '\n');
		line[len] = '\0';
		if (!path || path > line + len)
			continue;
		*path = '\0';
		fn(ctx, controllers + 1, path + 1);
	}
}

static void memory_group(void *ctx, const char *controllers, const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		bool first = i == ARRAY_SIZE(versions) - 1;
		char own[PATH_LEN];

		if (strcmp(controllers, first ? "memory" : ""))
			continue;
		snprintf(own, sizeof(own), "%s", path);
		look_up(&versions[i], own, ctx);
	}
}

/* ---- memory ---- */

static struct tightest all_groups(void)
{
	struct tightest t = { .limit = UINT64_MAX, .left = UINT64_MAX };

	each_group(0, memory_group, &t);
	return t;
}

static uint64_t machine_bytes(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t limit_memory_bytes(void)
{
	struct tightest t = all_groups();

	return MIN(machine_bytes(), t.limit);
}

uint64_t limit_memory_left(char *group)
{
	struct tightest t = all_groups();
	uint64_t left = UINT64_MAX;
	char text[4096];

	read_text("/proc/meminfo", text, sizeof(text));
	if (strstr(text, "MemAvailable:"))
		left = (number_of(text, "MemAvailable:") + number_of(text, "SwapFree:")) << 10;
	if (group)
		snprintf(group, LIMIT_TEXT_MAX, "%s", t.left < left ? t.group : "");
	return MIN(left, t.left);
}

int limit_memory_check(uint64_t bytes, struct err *e)
{
	char group[LIMIT_TEXT_MAX], need[32], have[32];
	uint64_t left = limit_memory_left(group);
	uint64_t keep = group[0] ? 0 : MIN(machine_bytes() / 32, MEMORY_KEPT_MAX);

	if (left == UINT64_MAX || (left > keep && bytes <= left - keep))
		return 0;
	fmt_bytes(need, sizeof(need), bytes);
	fmt_bytes(have, sizeof(have), left - MIN(keep, left));
	if (group[0])
		return err_set(e, TALLY_ENOMEM, "%s (process %d) needs %s, its cgroup allows %s "
			       "more; raise %s", program_invocation_short_name, getpid(), need,
			       have, group);
	return err_set(e, TALLY_ENOMEM, "%s (process %d) needs %s, and the machine has %s left",
		       program_invocation_short_name, getpid(), need, have);
}

/* ---- huge pages ---- */

struct huge {
	char leaf[64];
	char *text;
};

/* The first group from below that has a limit. */
static void huge_group(void *ctx, const char *controllers, const char *path)
{
	static const char *const roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified",
					     "/sys/fs/cgroup/hugetlb" };
	bool first = !strcmp(controllers, "hugetlb");
	struct huge *h = ctx;
	char own[PATH_LEN], file[PATH_LEN + 128], *slash;

	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		if ((i == 2) != first || (!first && controllers[0]))
			continue;
		snprintf(own, sizeof(own), "%s", path);
		do {
			uint64_t v;

			snprintf(file, sizeof(file), "%s%s/hugetlb.%s.%s", roots[i], own, h->leaf,
				 first ? "limit_in_bytes" : "max");
			v = read_number(file);
			if (v < UINT64_MAX / 4 && !h->text[0])
				snprintf(h->text, LIMIT_TEXT_MAX, "%.250s is %llu", file,
					 (unsigned long long)v);
			slash = strrchr(own, '/');
			if (slash)
				*slash = '\0';
		} while (slash);
	}
}

const char *limit_huge_text(uint32_t pid, uint64_t page_bytes, char text[LIMIT_TEXT_MAX])
{
	struct huge h = { .text = text };

	text[0] = '\0';
	if (page_bytes >= 1ull << 30)
		snprintf(h.leaf, sizeof(h.leaf), "%lluGB", (unsigned long long)page_bytes >> 30);
	else
		snprintf(h.leaf, sizeof(h.leaf), "%lluMB", (unsigned long long)page_bytes >> 20);
	each_group(pid, huge_group, &h);
	return text;
}

/* ---- errors ---- */

/* Limits of this process, by the error that they cause; the first one that is set counts. */
static const struct row {
	int errnum, what;
	bool bytes;
	const char *name, *bounds, *raise;
} rows[] = {
	{ EMFILE, RLIMIT_NOFILE, false, "RLIMIT_NOFILE", "open files", "ulimit -n, LimitNOFILE=" },
	{ EFBIG, RLIMIT_FSIZE, true, "RLIMIT_FSIZE", "a file, and a piece of shared memory",
	  "ulimit -f, LimitFSIZE=" },
	/* A thread's stack is refused by EAGAIN, too. */
	{ EAGAIN, RLIMIT_AS, true, "RLIMIT_AS", "address space", "ulimit -v, LimitAS=" },
	{ EAGAIN, RLIMIT_DATA, true, "RLIMIT_DATA", "data", "ulimit -d, LimitDATA=" },
	{ EAGAIN, RLIMIT_NPROC, false, "RLIMIT_NPROC", "threads of its user, or pids.max of its "
	  "cgroup", "ulimit -u, LimitNPROC=, TasksMax=" },
	{ ENOMEM, RLIMIT_AS, true, "RLIMIT_AS", "address space", "ulimit -v, LimitAS=" },
	{ ENOMEM, RLIMIT_DATA, true, "RLIMIT_DATA", "data", "ulimit -d, LimitDATA=" },
};

static bool says(const struct row *r, char text[LIMIT_TEXT_MAX])
{
	struct rlimit l;
	char value[32];

	if (getrlimit((__rlimit_resource_t)r->what, &l) || l.rlim_cur == RLIM_INFINITY)
		return false;
	if (r->bytes)
		fmt_bytes(value, sizeof(value), l.rlim_cur);
	else
		snprintf(value, sizeof(value), "%llu", (unsigned long long)l.rlim_cur);
	snprintf(text, LIMIT_TEXT_MAX, "%s (process %d) has %s %s (%s); raise it: %s",
		 program_invocation_short_name, getpid(), r->name, value, r->bounds, r->raise);
	return true;
}

static void no_memory(char text[LIMIT_TEXT_MAX])
{
	char left[32], group[LIMIT_TEXT_MAX];

	fmt_bytes(left, sizeof(left), limit_memory_left(group));
	if (group[0])
		snprintf(text, LIMIT_TEXT_MAX, "the cgroup of %s (process %d) allows %s more; "
			 "raise %.200s", program_invocation_short_name, getpid(), left, group);
	else
		snprintf(text, LIMIT_TEXT_MAX, "%s (process %d): the machine has %s left",
			 program_invocation_short_name, getpid(), left);
}

const char *limit_text(int errnum, char text[LIMIT_TEXT_MAX])
{
	text[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].errnum == errnum && says(&rows[i], text))
			return text;
	if (errnum == ENOMEM)
		no_memory(text);
	else if (errnum == ENFILE)
		snprintf(text, LIMIT_TEXT_MAX, "the machine has no room for more open files; raise "
			 "fs.file-max");
	return text;
}

const char *limit_why(int errnum, char text[LIMIT_TEXT_MAX])
{
	if (!limit_text(errnum, text)[0])
		snprintf(text, LIMIT_TEXT_MAX, "%s", strerror(errnum));
	return text;
}

int limit_err(struct err *e, int errnum, const char *fmt, ...)
{
	char limit[LIMIT_TEXT_MAX], what[ERR_TEXT_MAX + 1];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	limit_text(errnum, limit);
	return err_set(e, err_from_errno(errnum), "%.150s: %s%s%s", what, strerror(errnum),
		       limit[0] ? "; " : "", limit);
}
