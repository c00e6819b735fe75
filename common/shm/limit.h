/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.h - the limits of this process and of its cgroups, and which of them an error is from.
 *
 * Memory: how much the machine and the cgroups allow, and how much of that can be had now
 * without the kernel ending somebody.  Errors: EMFILE, EFBIG, ENOMEM and the like come with the
 * process, the limit's name and value, and how to raise it.
 *
 * No heap and no state: the client library uses it, too.  Any thread.
 */
#ifndef TALLY_SHM_LIMIT_H
#define TALLY_SHM_LIMIT_H

#include "common/base/err.h"

#define LIMIT_TEXT_MAX	320u

/* Memory of the machine, or the smallest limit of the cgroups that this process is in. */
uint64_t limit_memory_bytes(void);

/*
 * Memory that can be had now: free, reclaimable, and swap; less where a cgroup allows less.
 * UINT64_MAX where the kernel says nothing. group (NULL: not wanted, LIMIT_TEXT_MAX bytes): the
 * file of the cgroup whose limit is the smallest, "" where the machine's memory is.
 */
uint64_t limit_memory_left(char *group);

/* Whether `bytes` more leave the reserve that the machine keeps; else ENOMEM, which names the
 * cgroup and its limit, or the machine. */
int limit_memory_check(uint64_t bytes, struct err *e);

/* The smallest group's limit of huge pages of that size, of a process (0: this one):
 * "/sys/fs/cgroup/a/hugetlb.2MB.max is 0"; "": none is known. */
const char *limit_huge_text(uint32_t pid, uint64_t page_bytes, char text[LIMIT_TEXT_MAX]);

/*
 * The limit that errnum stands for: "tally-agent (process 7) has RLIMIT_NOFILE 64 (open files);
 * raise it: ulimit -n, LimitNOFILE=".  "": none is known.
 */
const char *limit_text(int errnum, char text[LIMIT_TEXT_MAX]);

/* Text of the limit that was reached, as above, or the error's own text. */
const char *limit_why(int errnum, char text[LIMIT_TEXT_MAX]);

/* err_set() with errnum's code, its own text, and limit_text()'s where there is one. */
int limit_err(struct err *e, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
