// SPDX-License-Identifier: Apache-2.0
/*
 * state.c - lock, read, check; write aside, sync, rename, sync; the copy first.
 *
 * The file, little-endian: "TALLYST1", cluster id, key seed, epoch u64, job u32,
 * node u32, zeros, and in the last four bytes the CRC-32C of all before.
 */
#include "scheduler/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/rt/host.h"
#include "common/rt/log.h"
#include "common/shm/limit.h"

#define STATE_BYTES	64u
#define OFF_CLUSTER	8u
#define OFF_SEED	24u
#define OFF_EPOCH	40u
#define OFF_JOB		48u
#define OFF_NODE	52u
#define OFF_CRC		60u

static const char magic[8] = "TALLYST1";

struct state {
	char *dir;			/* owned; "" memory only */
	int dirfd, lockfd;		/* -1: none */
	bool is_new;
	uint8_t cluster[ID_BYTES];
	uint8_t seed[KEY_BYTES];
	struct sched_ids ids;
};

/* ---- bytes ---- */

static void encode(const struct state *st, const struct sched_ids *ids, uint8_t out[STATE_BYTES])
{
	memset(out, 0, STATE_BYTES);
	memcpy(out, magic, sizeof(magic));
	memcpy(out + OFF_CLUSTER, st->cluster, ID_BYTES);
	memcpy(out + OFF_SEED, st->seed, KEY_BYTES);
	put_le64(out + OFF_EPOCH, ids->epoch);
	put_le32(out + OFF_JOB, ids->job);
	put_le32(out + OFF_NODE, ids->node);
	put_le32(out + OFF_CRC, crc32c(out, OFF_CRC));
}

static int decode(struct state *st, const char *file, const uint8_t *in, size_t len,
		  struct err *e)
{
	static const uint8_t zeros[ID_BYTES];

	if (len != STATE_BYTES || memcmp(in, magic, sizeof(magic)) ||
	    get_le32(in + OFF_CRC) != crc32c(in, OFF_CRC) ||
	    !memcmp(in + OFF_CLUSTER, zeros, ID_BYTES))
		return err_set(e, TALLY_EPROTO, "%s/%s is damaged; put a good one back, or remove "
			       "it and " STATE_COPY " to begin a new cluster once no job runs",
			       st->dir, file);
	memcpy(st->cluster, in + OFF_CLUSTER, ID_BYTES);
	memcpy(st->seed, in + OFF_SEED, KEY_BYTES);
	st->ids.epoch = get_le64(in + OFF_EPOCH);
	st->ids.job = get_le32(in + OFF_JOB);
	st->ids.node = get_le32(in + OFF_NODE);
	return 0;
}

/* ---- the directory ---- */

static int os_error(const struct state *st, const char *what, const char *file, struct err *e)
{
	return limit_err(e, errno, "cannot %s %.100s%s%s", what, st->dir, file[0] ? "/" : "",
			 file);
}

static int no_dir(const struct state *st, const char *what, struct err *e)
{
	return err_set(e, err_from_errno(errno), "cannot %s %.200s, %s; say another directory, or "
		       "'' to keep nothing over restarts", what, st->dir, strerror(errno));
}

static int open_dir(struct state *st, struct err *e)
{
	if (mkdir(st->dir, 0700) && errno != EEXIST)
		return no_dir(st, "create", e);
	st->dirfd = open(st->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return st->dirfd < 0 ? no_dir(st, "open", e) : 0;
}

/*
 * For people alone: the lock is what counts, and a disk without room is no reason not to start.
 * What was there is written over, which needs none as a rule; it names nobody who has ended.
 */
static void write_pid(const struct state *st)
{
	char pid[32];
	int n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());

	if (pwrite(st->lockfd, pid, (size_t)n, 0) == n && !ftruncate(st->lockfd, n))
		return;
	log_warn("process id is not in %s/" STATE_LOCK ", reason %m", st->dir);
	if (ftruncate(st->lockfd, 0))
		log_warn("%s/" STATE_LOCK " names another process, reason %m", st->dir);
}

/*
 * Whether other users cannot open the lock file: a process that can open it can lock it for as
 * long as it likes.
 */
static bool is_private(const struct state *st)
{
	struct stat file, dir;

	if (fstat(st->lockfd, &file) || fstat(st->dirfd, &dir) || !S_ISREG(file.st_mode) ||
	    (file.st_uid != geteuid() && file.st_uid != dir.st_uid))
		return false;
	return !(file.st_mode & 077) || !fchmod(st->lockfd, 0600);
}

static int lock_dir(struct state *st, struct err *e)
{
	char pid[32] = "";
	ssize_t n;

	st->lockfd = openat(st->dirfd, STATE_LOCK,
			    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (st->lockfd < 0)
		return os_error(st, "open", STATE_LOCK, e);
	if (!is_private(st))
		return err_set(e, TALLY_EAUTH, "%.200s/" STATE_LOCK " is not a file of this user "
			       "alone; remove it, or give another --state-dir", st->dir);
	if (flock(st->lockfd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return os_error(st, "lock", STATE_LOCK, e);
		n = pread(st->lockfd, pid, sizeof(pid) - 1, 0);
		pid[MAX(n, 0)] = '\0';
		pid[strcspn(pid, "\n")] = '\0';
		return err_set(e, TALLY_EBUSY, "%.200s belongs to another scheduler, process %s",
			       st->dir, pid[0] ? pid : "unknown");
	}
	write_pid(st);
	return 0;
}

/* ENOENT: there is none. */
static int read_file(struct state *st, const char *file, struct err *e)
{
	uint8_t buf[STATE_BYTES + 1];
	int fd = openat(st->dirfd, file, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return err_set(e, TALLY_ENOENT, "no state yet");
	if (fd < 0)
		return os_error(st, "open", file, e);
	n = read(fd, buf, sizeof(buf));
	if (n < 0) {
		os_error(st, "read", file, e);
		close(fd);
		return e->code;
	}
	close(fd);
	return decode(st, file, buf, (size_t)n, e);
}

/* ENOENT: neither is there. */
static int read_any(struct state *st, struct err *e)
{
	int err = read_file(st, STATE_FILE, e);
	struct err other;
	int copy = err ? read_file(st, STATE_COPY, &other) : 0;

	if (err && !copy)
		log_warn("state is read from " STATE_COPY ", reason %s", e->text);
	if (err == TALLY_ENOENT && copy)
		*e = other;
	return err == TALLY_ENOENT || !copy ? copy : err;
}

static int write_file(const struct state *st, const char *file, const uint8_t *buf, struct err *e)
{
	int fd = openat(st->dirfd, STATE_FILE ".tmp", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			0600);
	ssize_t n;

	if (fd < 0)
		return os_error(st, "create", STATE_FILE ".tmp", e);
	errno = ENOSPC;		/* what a short write means */
	n = write(fd, buf, STATE_BYTES);
	if (n != STATE_BYTES || fsync(fd)) {
		os_error(st, "write", STATE_FILE ".tmp", e);
		close(fd);
		return e->code;
	}
	if (close(fd))
		return os_error(st, "close", STATE_FILE ".tmp", e);
	if (renameat(st->dirfd, STATE_FILE ".tmp", st->dirfd, file))
		return os_error(st, "rename", STATE_FILE ".tmp", e);
	return fsync(st->dirfd) ? os_error(st, "sync", "", e) : 0;
}

/* ---- life ---- */

static int make_new(struct state *st, struct err *e)
{
	if (host_random(st->cluster, ID_BYTES) || host_random(st->seed, KEY_BYTES))
		return err_set(e, TALLY_EIO, "the kernel has no random numbers");
	st->cluster[0] |= 1;	/* never zeros */
	st->is_new = true;
	return state_save(st, &st->ids, e);
}

static int load(struct state *st, struct err *e)
{
	int err = st->dir[0] ? open_dir(st, e) : 0;

	if (!err && st->dir[0])
		err = lock_dir(st, e);
	if (!err)
		err = st->dir[0] ? read_any(st, e) : TALLY_ENOENT;
	return err == TALLY_ENOENT && (!st->dir[0] || st->lockfd >= 0) ? make_new(st, e) : err;
}

int state_open(struct state **out, const char *dir, struct err *e)
{
	struct state *st = calloc(1, sizeof(*st));
	int err;

	if (!st)
		return err_set(e, TALLY_ENOMEM, "out of memory");
	st->dirfd = st->lockfd = -1;
	st->dir = strdup(dir);
	err = st->dir ? load(st, e) : err_set(e, TALLY_ENOMEM, "out of memory");
	if (err) {
		state_close(st);
		return err;
	}
	*out = st;
	return 0;
}

void state_close(struct state *st)
{
	if (!st)
		return;
	if (st->lockfd >= 0)
		close(st->lockfd);
	if (st->dirfd >= 0)
		close(st->dirfd);
	free(st->dir);
	free(st);
}

int state_save(struct state *st, const struct sched_ids *ids, struct err *e)
{
	uint8_t buf[STATE_BYTES];
	int err = 0;

	encode(st, ids, buf);
	if (st->dir[0])
		err = write_file(st, STATE_COPY, buf, e);
	if (!err && st->dir[0])
		err = write_file(st, STATE_FILE, buf, e);
	if (!err)
		st->ids = *ids;
	return err;
}

bool state_is_new(const struct state *st)
{
	return st->is_new;
}

const struct sched_ids *state_ids(const struct state *st)
{
	return &st->ids;
}

const uint8_t *state_cluster(const struct state *st)
{
	return st->cluster;
}

const uint8_t *state_key_seed(const struct state *st)
{
	return st->seed;
}
