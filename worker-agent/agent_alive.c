// SPDX-License-Identifier: Apache-2.0
/*
 * Processes of the agent before this one, which live and have not come back yet.
 *
 * A process that computes hears that its agent was started again when it calls libtally
 * next, which may be minutes later.  That it lives it shows by a lock, which ends with it:
 * on a file of its own, JOB.RANK in a directory beside the socket, which its agent has made
 * and given to it, to be read only.  It is fcntl()'s lock, so children do not inherit it.
 *
 * Each second, whoever holds such a lock and is of no job here is told of to the scheduler,
 * which waits for it.  Files that nobody locks are removed; those of jobs that are here may
 * be about to be.  Without the directory a process has the scheduler's grace to come back.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/rt/log.h"
#include "worker-agent/agent.h"

#define SUFFIX		".ranks"
#define DIR_PATH_MAX	(ADDR_LEN_MAX + sizeof(SUFFIX))

static void dir_path(const struct agent *a, char path[DIR_PATH_MAX])
{
	snprintf(path, DIR_PATH_MAX, "%s" SUFFIX, a->opt.socket);
}

/* -1: there is none. */
static int open_dir(const struct agent *a, bool make)
{
	char path[DIR_PATH_MAX];

	dir_path(a, path);
	if (make && mkdir(path, 0700) && errno != EEXIST)
		return -1;
	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int ad_alive_file(const struct agent *a, uint32_t job, uint32_t rank)
{
	int dir = open_dir(a, true), fd = -1;
	char name[32];

	snprintf(name, sizeof(name), "%u.%u", job, rank);
	if (dir >= 0)
		fd = openat(dir, name, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		log_warn("rank %u of job %u has %u s to come back where this agent is started "
			 "again, reason %s" SUFFIX ": %s", rank, job, a->grace_ms / 1000,
			 a->opt.socket, strerror(errno));
	if (dir >= 0)
		close(dir);
	return fd;
}

/* Also where that cannot be told: its file stays. */
static bool is_locked(int dir, const char *name)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	bool locked = fd < 0 || fcntl(fd, F_GETLK, &lock) || lock.l_type != F_UNLCK;

	if (fd >= 0)
		close(fd);
	return locked;
}

static void look_at(struct agent *a, int dir, const char *name)
{
	uint32_t job, rank;
	char more;

	if (sscanf(name, "%u.%u%c", &job, &rank, &more) != 2)
		return;
	if (!a->stopping && ad_job_find(a, job))
		return;
	if (!is_locked(dir, name)) {
		unlinkat(dir, name, 0);
	} else if (!a->stopping && rank < WORLD_SIZE_MAX) {
		const struct msg m = { .type = MSG_RANK_ALIVE,
				       .rank_alive = { .job = job, .rank = rank } };

		(void)ad_tell_scheduler(a, &m);
	}
}

void ad_alive_look(struct agent *a)
{
	int dir = open_dir(a, false);
	DIR *list = dir >= 0 ? fdopendir(dir) : NULL;

	if (!list && dir >= 0)
		close(dir);
	if (!list)
		return;
	for (const struct dirent *d; (d = readdir(list)); )
		look_at(a, dir, d->d_name);
	closedir(list);
}

void ad_alive_end(struct agent *a)
{
	char path[DIR_PATH_MAX];

	ad_alive_look(a);
	dir_path(a, path);
	rmdir(path);			/* unless a process is there for the next agent */
}
