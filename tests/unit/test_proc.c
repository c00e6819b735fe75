// SPDX-License-Identifier: Apache-2.0
/* proc.c: processes that live, that are dying, that have ended, and others with their numbers. */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/shm/proc.h"

#define DYING_BYTES	(512u << 20)	/* whose pages take the kernel a while to free */

static struct sockaddr_un at;
static int listener = -1, word[2];

static void setup(void)
{
	at.sun_family = AF_UNIX;
	snprintf(at.sun_path, sizeof(at.sun_path), "/tmp/test_proc.%d", getpid());
	unlink(at.sun_path);
	ck_assert_int_eq(pipe2(word, O_CLOEXEC), 0);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
}

static void teardown(void)
{
	close(listener);
	close(word[0]);
	close(word[1]);
	unlink(at.sun_path);
}

/* A child that listens on the socket, which stays open here, too. */
static pid_t child_listens(void)
{
	pid_t pid = fork();
	char c = 0;

	if (pid == 0) {
		if (listen(listener, 4) || write(word[1], &c, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(word[0], &c, 1), 1);
	return pid;
}

static int connected(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_peer_that_lives_is_held_and_can_be_ended)
{
	pid_t pid = child_listens();
	int fd = connected(), process;
	struct proc_peer p;
	struct err e;

	ck_assert_int_eq(proc_peer(fd, &p, &e), 0);
	ck_assert_int_eq(p.pid, pid);
	ck_assert_uint_eq(p.uid, geteuid());
	ck_assert_uint_eq(p.started, proc_start_time(pid));
	ck_assert_uint_ne(p.started, 0);
	ck_assert_int_eq(proc_peer_check(&p, at.sun_path, &e), 0);
	process = proc_peer_open(fd, &p, &e);
	ck_assert_int_ge(process, 0);
	ck_assert_int_eq((int)syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(process);
	close(fd);
}
END_TEST

START_TEST(a_peer_that_has_ended_is_not_held)
{
	pid_t pid = child_listens();
	int fd = connected();
	struct proc_peer p;
	struct err e;

	ck_assert_int_eq(proc_peer(fd, &p, &e), 0);
	end(pid);
	ck_assert_int_lt(proc_peer_open(fd, &p, &e), 0);
	ck_assert_ptr_nonnull(strstr(e.text, "ended"));
	ck_assert(proc_has_ended(pid));
	close(fd);
}
END_TEST

/* The next process gets that number, where this process may say so. */
static pid_t fork_with(pid_t number)
{
	FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "w");
	pid_t pid;

	if (!f)
		return -1;
	fprintf(f, "%d", (int)number - 1);
	if (fclose(f))
		return -1;
	pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

START_TEST(another_process_with_the_number_of_the_peer_is_not_held)
{
	pid_t pid = child_listens(), other = -1;
	int fd = connected();
	struct proc_peer p;
	struct err e;

	ck_assert_int_eq(proc_peer(fd, &p, &e), 0);
	end(pid);
	for (int i = 0; i < 20 && other != pid; i++) {
		if (other > 0)
			end(other);
		other = fork_with(pid);
	}
	if (other != pid) {
		printf("note: no process with a given number here\n");
	} else {
		ck_assert_int_lt(proc_peer_open(fd, &p, &e), 0);
		ck_assert(!proc_has_ended(pid));
	}
	if (other > 0)
		end(other);
	close(fd);
}
END_TEST

START_TEST(a_peer_of_another_user_is_not_trusted)
{
	struct proc_peer p = { .pid = 1, .uid = geteuid() + 1 };
	struct err e;

	ck_assert_int_eq(proc_peer_check(&p, "/run/x", &e), TALLY_EAUTH);
	ck_assert_ptr_nonnull(strstr(e.text, "/run/x"));
	p.uid = 0;
	ck_assert_int_eq(proc_peer_check(&p, "/run/x", &e), 0);
}
END_TEST

START_TEST(a_peer_that_cannot_be_seen_is_not_held)
{
	struct proc_peer p = { .pid = 0 };
	struct err e;

	ck_assert_int_lt(proc_peer_open(0, &p, &e), 0);
	ck_assert_ptr_nonnull(strstr(e.text, "PID namespace"));
}
END_TEST

START_TEST(a_process_is_dying_from_its_kill_to_its_end)
{
	pid_t pid = fork();
	char c = 0;

	if (pid == 0) {
		void *p = mmap(NULL, DYING_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (p == MAP_FAILED || write(word[1], &c, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(word[0], &c, 1), 1);
	ck_assert(!proc_is_dying(pid));
	ck_assert(!proc_has_ended(pid));
	kill(pid, SIGKILL);
	while (!proc_has_ended(pid))
		ck_assert(proc_is_dying(pid));
	ck_assert(proc_is_dying(pid));		/* nobody has asked after it yet */
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert(!proc_is_dying(pid));
	ck_assert(proc_has_ended(pid));
	ck_assert_uint_eq(proc_start_time(pid), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("proc");
	TCase *t = tcase_create("all");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_peer_that_lives_is_held_and_can_be_ended);
	tcase_add_test(t, a_peer_that_has_ended_is_not_held);
	tcase_add_test(t, another_process_with_the_number_of_the_peer_is_not_held);
	tcase_add_test(t, a_peer_of_another_user_is_not_trusted);
	tcase_add_test(t, a_peer_that_cannot_be_seen_is_not_held);
	tcase_add_test(t, a_process_is_dying_from_its_kill_to_its_end);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
