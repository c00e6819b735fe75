// SPDX-License-Identifier: Apache-2.0
/*
 * Processes of the agent before this one, which live and have not come back yet.
 *
 * A process that computes hears that its agent was started again when it calls libtally
 * next, which may be minutes later.  That it lives it shows by a lock, which ends with it:
 * on a file of its own, JOB.RANK in a directory beside the socket, which its agent has made
 * and given to it, to be read only.  It is fcntl()'s lock, so children do not inherit it.
 *
 * The file goes with the job; so those of jobs that are not here were made by an agent before.
 * Each second, whoever has locked one of them is told of to the scheduler, which waits for it,
 * and the others are removed.  Without the directory, or where files cannot be locked, a
 * process has the scheduler's grace to come back.
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
#define FILE_NAME_MAX	32u

static void dir_path(const struct agent *a, char path[DIR_PATH_MAX])
{
	snprintf(path, DIR_PATH_MAX, "%s" SUFFIX, a->opt.socket);
}

/* -1: there is none, or others can write in it. */
static int open_dir(const struct agent *a, bool make)
{
	char path[DIR_PATH_MAX];
	struct stat st;
	int fd;

	dir_path(a, path);
	if (make && mkdir(path, 0700) && errno != EEXIST)
		return -1;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || (!fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 022)))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

static void file_name(char name[FILE_NAME_MAX], uint32_t job, uint32_t rank)
{
	snprintf(name, FILE_NAME_MAX, "%u.%u", job, rank);
}

int ad_alive_file(const struct agent *a, uint32_t job, uint32_t rank)
{
	int dir = open_dir(a, true), fd = -1;
	char name[FILE_NAME_MAX];

	file_name(name, job, rank);
	if (dir >= 0 && (!unlinkat(dir, name, 0) || errno == ENOENT))	/* another one's lock */
		fd = openat(dir, name, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		log_warn("rank %u of job %u has %u s to come back where this agent is started "
			 "again, reason %s" SUFFIX ": %s", rank, job, a->grace_ms / 1000,
			 a->opt.socket, strerror(errno));
	if (dir >= 0)
		close(dir);
	return fd;
}

void ad_alive_over(const struct ad_job *j)
{
	const struct ad_machine *me = &j->machines[j->me];
	int dir = open_dir(j->agent, false);
	char name[FILE_NAME_MAX];

	for (uint32_t i = 0; dir >= 0 && i < me->nranks; i++) {
		file_name(name, j->id, me->ranks[i]);
		unlinkat(dir, name, 0);
	}
	if (dir >= 0)
		close(dir);
}

/* Whether a process has locked it; 0, or an error: that is not known. */
static int look_at_lock(int dir, const char *name, bool *locked)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = fcntl(fd, F_GETLK, &lock) ? -errno : 0;
	*locked = lock.l_type != F_UNLCK;
	close(fd);
	return rc;
}

static void look_at(struct agent *a, int dir, const char *name)
{
	struct msg m = { .type = MSG_RANK_ALIVE };
	bool locked = false;
	char more;

	if (sscanf(name, "%u.%u%c", &m.rank_alive.job, &m.rank_alive.rank, &more) != 2 ||
	    m.rank_alive.rank >= WORLD_SIZE_MAX)
		return;
	if (!a->stopping && ad_job_find(a, m.rank_alive.job))
		return;
	if (look_at_lock(dir, name, &locked))
		return;
	if (!locked)
		unlinkat(dir, name, 0);
	else if (!a->stopping)
		(void)ad_tell_scheduler(a, &m);
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
