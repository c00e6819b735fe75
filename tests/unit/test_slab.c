// SPDX-License-Identifier: Apache-2.0
/*
 * Shared memory: what the seals promise, what a receiver refuses, the page
 * allocator against a plain model, descriptors over a socket.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/shm/slab.h"

static struct err e;

START_TEST(slab_is_zeroed_rounded_up_and_shared)
{
	struct slab a, b;
	int fd;

	ck_assert_int_eq(slab_new(&a, "test", PAGE_BYTES + 1, false, &e), 0);
	ck_assert_uint_eq(a.bytes, 2 * PAGE_BYTES);
	for (uint64_t i = 0; i < a.bytes; i++)
		ck_assert_uint_eq(a.base[i], 0);
	fd = dup(a.fd);
	ck_assert_int_eq(slab_map(&b, fd, a.bytes, true, &e), 0);
	b.base[17] = 42;
	ck_assert_uint_eq(a.base[17], 42);
	slab_free(&b);
	slab_free(&a);
}
END_TEST

START_TEST(slab_cannot_be_resized_by_anybody)
{
	struct slab s;

	ck_assert_int_eq(slab_new(&s, "test", PAGE_BYTES, false, &e), 0);
	ck_assert_int_lt(ftruncate(s.fd, 0), 0);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_lt(ftruncate(s.fd, 2 * PAGE_BYTES), 0);
	slab_free(&s);
}
END_TEST

START_TEST(slab_has_the_name_of_its_maker_and_no_other)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct slab s;

	ck_assert_int_eq(slab_new(&s, "tally-ring 3.1", PAGE_BYTES, false, &e), 0);
	ck_assert(slab_is_named(s.fd, "tally-ring 3.1"));
	ck_assert(!slab_is_named(s.fd, "tally-ring 3.11"));
	ck_assert(!slab_is_named(s.fd, "tally-ring 3."));
	ck_assert(!slab_is_named(s.fd, ""));
	ck_assert(!slab_is_named(fd, "tally-ring 3.1"));
	ck_assert(!slab_is_named(-1, "tally-ring 3.1"));
	ck_assert(slab_is_solid(&s));		/* its holes read as zeros */
	s.huge = true;
	ck_assert(!slab_is_solid(&s));
	ck_assert_int_eq(slab_seal(&s, &e), 0);
	ck_assert(slab_is_solid(&s));
	slab_free(&s);
	close(fd);
}
END_TEST

START_TEST(slab_of_impossible_size_is_refused)
{
	struct slab s;

	ck_assert_int_eq(slab_new(&s, "test", 0, false, &e), TALLY_EINVAL);
	ck_assert_int_eq(slab_new(&s, "test", SLAB_BYTES_MAX + 1, false, &e), TALLY_EINVAL);
	ck_assert_int_eq(slab_new(&s, "test", UINT64_MAX, true, &e), TALLY_EINVAL);
}
END_TEST

START_TEST(slab_falls_back_to_small_pages)
{
	struct slab s;

	/* more huge pages than any test machine has free */
	ck_assert_int_eq(slab_new(&s, "test", 1ull << 36, true, &e), 0);
	ck_assert(!s.huge);
	s.base[s.bytes - 1] = 1;
	slab_free(&s);
}
END_TEST

START_TEST(slab_unsealed_memfd_is_refused)
{
	int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct slab s = { 0 };

	ck_assert_int_eq(ftruncate(fd, PAGE_BYTES), 0);
	ck_assert_int_eq(slab_map(&s, fd, PAGE_BYTES, false, &e), TALLY_EPROTO);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
	ck_assert_int_eq(slab_map(&s, fd, PAGE_BYTES, false, &e), TALLY_EPROTO);
	ck_assert_ptr_null(s.base);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ck_assert_int_eq(slab_map(&s, fd, PAGE_BYTES, false, &e), 0);
	slab_free(&s);
}
END_TEST

START_TEST(slab_truncated_memfd_is_refused)
{
	int fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct slab s;

	ck_assert_int_eq(ftruncate(fd, PAGE_BYTES), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK), 0);
	ck_assert_int_eq(slab_map(&s, fd, PAGE_BYTES + 1, false, &e), TALLY_EPROTO);
	ck_assert_int_eq(slab_map(&s, fd, UINT64_MAX, false, &e), TALLY_EPROTO);
	ck_assert_int_eq(slab_map(&s, fd, 0, false, &e), TALLY_EPROTO);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);	/* still ours */
	close(fd);
}
END_TEST

START_TEST(slab_other_descriptors_are_refused)
{
	int fds[2], file = open("/dev/zero", O_RDWR | O_CLOEXEC);
	struct slab s;

	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(slab_map(&s, fds[0], PAGE_BYTES, false, &e), TALLY_EPROTO);
	ck_assert_int_eq(slab_map(&s, file, PAGE_BYTES, false, &e), TALLY_EPROTO);
	ck_assert_int_eq(slab_map(&s, -1, PAGE_BYTES, false, &e), TALLY_EPROTO);
	close(fds[0]);
	close(fds[1]);
	close(file);
}
END_TEST

/* Real ones: tests/vm/guest/device.sh. */
START_TEST(slab_of_a_device_is_a_dma_buf_and_nothing_else)
{
	int file = open("/dev/zero", O_RDWR | O_CLOEXEC), fds[3] = { file, -1, -1 };
	struct slab a, s = { .fd = -1 };

	ck_assert_int_eq(slab_new(&a, "test", PAGE_BYTES, false, &e), 0);
	fds[1] = a.fd;
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert(!slab_is_device(fds[i]));
		ck_assert_int_eq(slab_map_device(&s, fds[i], PAGE_BYTES, false, &e), TALLY_EINVAL);
		ck_assert_str_eq(e.text, "the descriptor is no dma-buf");
	}
	ck_assert_ptr_null(s.base);
	ck_assert_int_eq(fcntl(file, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);	/* still ours */
	close(file);
	slab_free(&a);
}
END_TEST

START_TEST(slab_readonly_descriptor_cannot_be_mapped_writable)
{
	struct slab a, b;
	struct stat st;
	int ro;

	ck_assert_int_eq(slab_new(&a, "test", PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(slab_readonly_fd(&a, &ro, &e), 0);
	ck_assert_int_eq(fstat(ro, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0400);
	ck_assert_int_eq(slab_map(&b, ro, PAGE_BYTES, true, &e), TALLY_EAUTH);
	ck_assert_int_eq(slab_map(&b, ro, PAGE_BYTES, false, &e), 0);
	ck_assert_int_lt(mprotect(b.base, PAGE_BYTES, PROT_READ | PROT_WRITE), 0);
	a.base[5] = 9;
	ck_assert_uint_eq(b.base[5], 9);
	slab_free(&b);
	slab_free(&a);
}
END_TEST

/* Pointers into it stay good, and see the other one's bytes. */
START_TEST(slab_mapped_again_lies_where_the_first_was)
{
	struct slab a, b, seen;
	uint8_t *at;
	int ro;

	ck_assert_int_eq(slab_new(&a, "first", 2 * PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(slab_new(&b, "second", 2 * PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(slab_readonly_fd(&a, &ro, &e), 0);
	ck_assert_int_eq(slab_map(&seen, ro, 2 * PAGE_BYTES, false, &e), 0);
	at = seen.base + PAGE_BYTES;
	a.base[PAGE_BYTES] = 1;
	b.base[PAGE_BYTES] = 2;
	ck_assert_uint_eq(*at, 1);
	ck_assert_int_eq(slab_readonly_fd(&b, &ro, &e), 0);
	ck_assert_int_eq(slab_remap(&seen, ro, &e), 0);
	ck_assert_uint_eq(*at, 2);
	ck_assert_ptr_eq(seen.base + PAGE_BYTES, at);
	slab_free(&a);
	ck_assert_int_eq(slab_new(&a, "small", PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(slab_readonly_fd(&a, &ro, &e), 0);
	ck_assert_int_eq(slab_remap(&seen, ro, &e), TALLY_EPROTO);
	close(ro);
	ck_assert_uint_eq(*at, 2);
	slab_free(&seen);
	slab_free(&a);
	slab_free(&b);
}
END_TEST

START_TEST(slab_that_is_sealed_can_be_written_and_not_be_sealed_again)
{
	struct slab a, b;
	int fd;

	ck_assert_int_eq(slab_new(&a, "test", PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(slab_seal(&a, &e), 0);
	ck_assert_int_eq(slab_seal(&a, &e), 0);
	fd = dup(a.fd);
	ck_assert_int_lt(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	ck_assert_int_lt(ftruncate(fd, 0), 0);
	ck_assert_int_eq(slab_map(&b, fd, PAGE_BYTES, true, &e), 0);
	b.base[0] = 7;
	ck_assert_uint_eq(a.base[0], 7);
	slab_free(&b);
	slab_free(&a);
}
END_TEST

START_TEST(slab_that_was_given_on_read_only_is_its_makers_to_write)
{
	struct slab a, b, c;
	struct stat st;
	int ro;

	ck_assert_int_eq(slab_new(&a, "test", PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(slab_readonly_fd(&a, &ro, &e), 0);
	ck_assert_int_eq(slab_map(&b, ro, PAGE_BYTES, true, &e), TALLY_EAUTH);
	ck_assert_int_eq(slab_map_own(&c, ro, PAGE_BYTES, &e), 0);
	c.base[0] = 7;
	ck_assert_uint_eq(a.base[0], 7);
	ck_assert(!fstat(ro, &st) && (st.st_mode & 0777) == 0400);
	ck_assert_int_eq(slab_map_own(&b, ro, 2 * PAGE_BYTES, &e), TALLY_EPROTO);
	ck_assert_int_ne(slab_map_own(&b, -1, PAGE_BYTES, &e), 0);
	close(ro);
	slab_free(&c);
	slab_free(&a);
}
END_TEST

START_TEST(slab_of_huge_pages_that_is_sealed_gets_no_new_writer_and_keeps_the_old)
{
	struct slab a, b;
	int fd;

	ck_assert_int_eq(slab_new(&a, "test", PAGE_BYTES, false, &e), 0);
	a.huge = true;			/* as if: a machine has none, mostly */
	ck_assert_int_eq(slab_seal(&a, &e), 0);
	fd = dup(a.fd);
	ck_assert_int_eq(slab_map(&b, fd, PAGE_BYTES, true, &e), TALLY_EAUTH);
	ck_assert_int_lt(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   PAGE_BYTES), 0);
	ck_assert_int_lt(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	a.base[0] = 7;
	ck_assert_int_eq(slab_map(&b, fd, PAGE_BYTES, false, &e), 0);
	ck_assert_uint_eq(b.base[0], 7);
	slab_free(&b);
	slab_free(&a);
}
END_TEST

START_TEST(slab_pages_are_charged_by_prefault_and_keep_their_bytes)
{
	struct slab s;
	struct stat st;

	ck_assert_int_eq(slab_new(&s, "test", 64 * PAGE_BYTES, false, &e), 0);
	ck_assert_int_eq(fstat(s.fd, &st), 0);
	ck_assert_int_eq(st.st_blocks, 0);
	s.base[9 * PAGE_BYTES + 1] = 3;
	ck_assert_int_eq(slab_prefault(&s, 8 * PAGE_BYTES + 5, 4 * PAGE_BYTES, &e), 0);
	ck_assert_int_eq(slab_prefault(&s, 64 * PAGE_BYTES, 0, &e), 0);
	ck_assert_int_eq(fstat(s.fd, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_blocks * 512, 5 * PAGE_BYTES);
	ck_assert_uint_eq(s.base[9 * PAGE_BYTES + 1], 3);
	slab_free(&s);
}
END_TEST

START_TEST(slab_free_twice_or_of_nothing_is_harmless)
{
	struct slab s = { 0 };

	slab_free(&s);
	ck_assert_int_ge(fcntl(0, F_GETFD), 0);	/* descriptor 0 was not ours */
	ck_assert_int_eq(slab_new(&s, "test", 1, false, &e), 0);
	slab_free(&s);
	slab_free(&s);
	ck_assert_int_eq(s.fd, -1);
}
END_TEST

/* ---- pagemap ---- */

#define MODEL_PAGES	331u	/* not a multiple of 64 */

/* What first fit means, without cleverness. */
static uint32_t model_get(bool *taken, uint32_t n)
{
	for (uint32_t i = 0; i + n <= MODEL_PAGES; i++) {
		uint32_t j = 0;

		while (j < n && !taken[i + j])
			j++;
		if (j < n)
			continue;
		memset(taken + i, true, n);
		return i;
	}
	return UINT32_MAX;
}

START_TEST(pagemap_equals_the_plain_model)
{
	uint64_t words[BITS_WORDS(MODEL_PAGES)];
	struct { uint32_t first, n; } runs[MODEL_PAGES];
	bool taken[MODEL_PAGES] = { false };
	struct rng rng = { .state = 7 };
	uint32_t nruns = 0, used = 0;
	struct pagemap m;

	memset(words, 0xff, sizeof(words));
	pagemap_init(&m, words, MODEL_PAGES);
	for (int step = 0; step < 100000; step++) {
		if (nruns && rng_below(&rng, 5) < 2) {
			uint32_t i = (uint32_t)rng_below(&rng, nruns);

			pagemap_put(&m, runs[i].first, runs[i].n);
			memset(taken + runs[i].first, false, runs[i].n);
			used -= runs[i].n;
			runs[i] = runs[--nruns];
		} else {
			uint32_t n = 1 + (uint32_t)rng_below(&rng, rng_below(&rng, 8) ? 12 : 200);
			uint32_t first = pagemap_get(&m, n);

			ck_assert_uint_eq(first, model_get(taken, n));
			if (first == UINT32_MAX)
				continue;
			used += n;
			runs[nruns].first = first;
			runs[nruns++].n = n;
		}
		ck_assert_uint_eq(m.used, used);
	}
}
END_TEST

START_TEST(pagemap_gives_all_or_nothing_at_its_ends)
{
	uint64_t words[BITS_WORDS(130)];
	struct pagemap m;

	pagemap_init(&m, words, 130);
	ck_assert_uint_eq(pagemap_get(&m, 131), UINT32_MAX);
	ck_assert_uint_eq(pagemap_get(&m, UINT32_MAX), UINT32_MAX);
	ck_assert_uint_eq(pagemap_get(&m, 130), 0);
	ck_assert_uint_eq(pagemap_get(&m, 1), UINT32_MAX);
	pagemap_put(&m, 129, 1);
	ck_assert_uint_eq(pagemap_get(&m, 2), UINT32_MAX);
	ck_assert_uint_eq(pagemap_get(&m, 1), 129);
	pagemap_init(&m, words, 0);
	ck_assert_uint_eq(pagemap_get(&m, 1), UINT32_MAX);
}
END_TEST

/* ---- descriptors over a socket ---- */

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

START_TEST(pagemap_takes_a_place_that_is_free)
{
	uint64_t words[2];
	struct pagemap m;

	pagemap_init(&m, words, 100);
	ck_assert(pagemap_take(&m, 60, 10));
	ck_assert(!pagemap_take(&m, 69, 1));
	ck_assert(!pagemap_take(&m, 50, 11));
	ck_assert(!pagemap_take(&m, 95, 6));
	ck_assert(!pagemap_take(&m, UINT32_MAX, 2));
	ck_assert(pagemap_take(&m, 50, 10));
	ck_assert_uint_eq(m.used, 20);
	ck_assert_uint_eq(pagemap_get(&m, 51), UINT32_MAX);
	ck_assert_uint_eq(pagemap_get(&m, 50), 0);
	ck_assert_uint_eq(pagemap_get(&m, 30), 70);
	pagemap_put(&m, 50, 20);
	ck_assert_uint_eq(pagemap_get(&m, 20), 50);
}
END_TEST

/* Of 1 TiB: a late, small tensor of a large job takes no more than these for others to come. */
START_TEST(what_is_made_ahead_is_a_part_of_the_jobs_and_of_the_room)
{
	const uint64_t gib = 1 << 30, room = 1024 * gib;

	ck_assert_uint_eq(slab_ahead_max(0, room), SLAB_AHEAD_BYTES);
	ck_assert_uint_eq(slab_ahead_max(gib, room), SLAB_AHEAD_BYTES);
	ck_assert_uint_eq(slab_ahead_max(400 * gib, room), 50 * gib);
	ck_assert_uint_eq(slab_ahead_max(400 * gib, 100 * gib), 25 * gib);
	ck_assert_uint_eq(slab_ahead_max(gib, 7 * PAGE_BYTES), PAGE_BYTES);
	ck_assert_uint_eq(slab_ahead_max(gib, 0), 0);
}
END_TEST

START_TEST(fdmsg_carries_bytes_and_descriptors)
{
	int sv[2], p[2], fds[FDS_PER_MSG_MAX];
	uint32_t nfds = FDS_PER_MSG_MAX;
	char buf[16];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv), 0);
	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(fdmsg_recv(sv[1], buf, sizeof(buf), fds, &nfds), TALLY_EAGAIN);
	ck_assert_uint_eq(nfds, 0);
	ck_assert_int_eq(fdmsg_send(sv[0], "hello", 5, p, 2), 5);
	nfds = FDS_PER_MSG_MAX;
	ck_assert_int_eq(fdmsg_recv(sv[1], buf, 2, fds, &nfds), 2);
	ck_assert_uint_eq(nfds, 2);
	ck_assert_int_eq(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(write(fds[1], "x", 1), 1);
	ck_assert_int_eq(read(p[0], buf + 2, 1), 1);
	close(fds[0]);
	close(fds[1]);
	nfds = FDS_PER_MSG_MAX;
	ck_assert_int_eq(fdmsg_recv(sv[1], buf, sizeof(buf), fds, &nfds), 3);
	ck_assert_uint_eq(nfds, 0);
	close(sv[0]);
	nfds = FDS_PER_MSG_MAX;
	ck_assert_int_eq(fdmsg_recv(sv[1], buf, sizeof(buf), fds, &nfds), 0);
	ck_assert_int_eq(fdmsg_send(sv[1], "x", 1, NULL, 0), TALLY_ESHUTDOWN);
	close(sv[1]);
	close(p[0]);
	close(p[1]);
}
END_TEST

START_TEST(fdmsg_closes_descriptors_beyond_the_room)
{
	int sv[2], three[3] = { 0, 1, 2 }, fds[1], before;
	uint32_t nfds;
	char c;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	before = open_descriptors();
	for (uint32_t room = 0; room < 2; room++) {
		ck_assert_int_eq(fdmsg_send(sv[0], "x", 1, three, 3), 1);
		nfds = room;
		ck_assert_int_eq(fdmsg_recv(sv[1], &c, 1, fds, &nfds), 1);
		ck_assert_uint_eq(nfds, room);
		if (room)
			close(fds[0]);
		ck_assert_int_eq(open_descriptors(), before);
	}
	close(sv[0]);
	close(sv[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("slab");
	TCase *tc = tcase_create("all");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(tc, 240);
	tcase_add_test(tc, slab_is_zeroed_rounded_up_and_shared);
	tcase_add_test(tc, slab_cannot_be_resized_by_anybody);
	tcase_add_test(tc, slab_has_the_name_of_its_maker_and_no_other);
	tcase_add_test(tc, slab_of_impossible_size_is_refused);
	tcase_add_test(tc, slab_falls_back_to_small_pages);
	tcase_add_test(tc, slab_unsealed_memfd_is_refused);
	tcase_add_test(tc, slab_truncated_memfd_is_refused);
	tcase_add_test(tc, slab_other_descriptors_are_refused);
	tcase_add_test(tc, slab_of_a_device_is_a_dma_buf_and_nothing_else);
	tcase_add_test(tc, slab_readonly_descriptor_cannot_be_mapped_writable);
	tcase_add_test(tc, slab_mapped_again_lies_where_the_first_was);
	tcase_add_test(tc, slab_that_is_sealed_can_be_written_and_not_be_sealed_again);
	tcase_add_test(tc, slab_that_was_given_on_read_only_is_its_makers_to_write);
	tcase_add_test(tc, slab_of_huge_pages_that_is_sealed_gets_no_new_writer_and_keeps_the_old);
	tcase_add_test(tc, slab_pages_are_charged_by_prefault_and_keep_their_bytes);
	tcase_add_test(tc, slab_free_twice_or_of_nothing_is_harmless);
	tcase_add_test(tc, pagemap_equals_the_plain_model);
	tcase_add_test(tc, pagemap_gives_all_or_nothing_at_its_ends);
	tcase_add_test(tc, pagemap_takes_a_place_that_is_free);
	tcase_add_test(tc, what_is_made_ahead_is_a_part_of_the_jobs_and_of_the_room);
	tcase_add_test(tc, fdmsg_carries_bytes_and_descriptors);
	tcase_add_test(tc, fdmsg_closes_descriptors_beyond_the_room);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
