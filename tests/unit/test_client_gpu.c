// SPDX-License-Identifier: Apache-2.0
/*
 * client/gpu.c and gpu_round.c over a plugin that has no GPU, and refuses what a driver refuses;
 * or over the real one and a CUDA of host memory (tests/gpu).
 */
#include <dlfcn.h>
#include <libgen.h>
#include <sys/mman.h>

#include "client/gpu.h"
#include "client/mem.h"
#include "tests/unit/client_rig.h"

#define BYTES (8u << 20)		/* more than an arena slab begins with */

static const void *device;		/* what was imported */
static uint32_t pinned;

static int pin(struct gpu *g, void *p, size_t bytes, bool read_only, struct err *e)
{
	(void)g;
	(void)bytes;
	(void)read_only;
	if (p == device)
		return err_set(e, TALLY_EIO, "no pages");
	pinned++;
	return 0;
}

static void unpin(struct gpu *g, void *p)
{
	(void)g;
	ck_assert_ptr_ne(p, device);
	pinned--;
}

static const struct gpu_plugin ops = { .pin = pin, .unpin = unpin };

/* As tally_gpu_open() leaves it. */
static void open_gpu(void)
{
	s->gpu = lt_mem_new(1, sizeof(*s->gpu));
	s->gpu->ops = &ops;
	s->gpu->stop_fd = -1;
	list_init(&s->gpu->tensors);
	pthread_mutex_init(&s->gpu->lock, NULL);
}

static void pin_all(void)
{
	lt_gpu_hold(s);
	ck_assert_msg(lt_gpu_pin(s) == 0, "%s", s->err.text);
	lt_gpu_let(s);
}

/* As tally_import() does. */
static void import(void)
{
	struct lt_arena_slab as = { .read_only = true, .mem = {
		.fd = -1, .bytes = PAGE_BYTES, .device = true,
		.base = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	} };

	device = as.mem.base;
	lt_arena_add(&s->arena, &as);
}

START_TEST(memory_of_a_device_is_not_pinned)
{
	void *p;

	start(NO_TRICK);
	open_gpu();
	ck_assert_int_eq(tally_alloc(s, 1, &p), 0);
	import();
	pin_all();
	ck_assert_uint_eq(pinned, 1);
	ck_assert_int_eq(tally_alloc(s, BYTES, &p), 0);
	pin_all();
	ck_assert_uint_eq(pinned, 2);
	finish();
	ck_assert_uint_eq(pinned, 0);
}
END_TEST

static atomic_bool given_back;

static void *give_back(void *t)
{
	lt_gpu_tensor_free(s, t);
	given_back = true;
	return NULL;
}

/* A callback that has posted a run writes that down under sub_lock. */
START_TEST(tensor_is_not_given_back_while_a_callback_posts)
{
	struct lt_gpu_tensor *gt = lt_mem_new(1, sizeof(*gt));
	tally_tensor *t;
	pthread_t thread;

	start(NO_TRICK);
	open_gpu();
	t = declare("w", TALLY_FLOAT32, 1);
	gt->tensor = t;
	list_init(&gt->link);
	list_add(&s->gpu->tensors, &gt->link);
	t->gpu = gt;
	pthread_mutex_lock(&s->sub_lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, give_back, t), 0);
	usleep(50000);
	ck_assert(!given_back);
	pthread_mutex_unlock(&s->sub_lock);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_ptr_null(t->gpu);
	finish();
}
END_TEST

/* By its name it is found from then on. */
static void load_plugin(void)
{
	char self[4096] = "", path[4200];

	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	snprintf(path, sizeof(path), "%s/gpu/libtally-cuda.so.0", dirname(self));
	ck_assert_msg(dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL, "%s", dlerror());
}

/* Which is the launcher's, and another one than the agent's. */
START_TEST(gpu_without_options_is_that_of_the_local_rank)
{
	load_plugin();
	setenv("DOUBLE_GPUS", "g0", 1);
	setenv("TALLY_RANK", "0", 1);
	setenv("TALLY_WORLD_SIZE", "8", 1);
	setenv("TALLY_LOCAL_RANK", "3", 1);
	agent = fake_start(NO_TRICK);
	ck_assert_int_eq(tally_attach(&(tally_options){ .socket = agent->path }, &s), 0);
	ck_assert_int_eq(tally_local_rank(s), 3);
	ck_assert_int_eq(tally_gpu_open(s, NULL), TALLY_ENOENT);
	expect_text("no GPU 3: this process sees 1");
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client_gpu");
	TCase *tc = tcase_create("all");
	SRunner *sr = srunner_create(suite);
	int failed;

	tcase_add_test(tc, memory_of_a_device_is_not_pinned);
	tcase_add_test(tc, tensor_is_not_given_back_while_a_callback_posts);
	tcase_add_test(tc, gpu_without_options_is_that_of_the_local_rank);
	suite_add_tcase(suite, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
