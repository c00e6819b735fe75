// SPDX-License-Identifier: Apache-2.0
/*
 * msg.c and its parts: what may be said comes back as it went, the rest is refused.
 * Contents come from msg_make.h, so a new message is tested by being in the table.
 */
#include <check.h>
#include <stdio.h>

#include "tests/unit/msg_make.h"

static int decode(uint32_t type, const uint8_t *body, uint32_t bytes, struct msg *m,
		  struct err *e)
{
	struct msg_mem mem = { .base = block, .size = msg_mem_need(bytes) };

	return msg_decode(type, body, bytes, &mem, m, e);
}

static void assert_round_trip(const struct msg *m)
{
	struct err e = { 0 };
	uint32_t bytes = 0, body = 0, type = 0;
	struct msg back;

	ck_assert_msg(!msg_encode_size(m, &bytes, &e), "%s", e.text);
	ck_assert_int_eq(msg_encode(m, wire, bytes, &e), 0);
	ck_assert_int_eq(msg_prefix_decode(wire, &body, &type, &e), 0);
	ck_assert_uint_eq(body, bytes - MSG_PREFIX_BYTES);
	ck_assert_uint_eq(type, m->type);
	ck_assert_msg(!decode(type, wire + MSG_PREFIX_BYTES, body, &back, &e), "%s", e.text);
	ck_assert(same_msg(m, &back));
}

/* ---- round trips ---- */

START_TEST(the_table_and_tally_proto_agree)
{
	const struct msg_shape *shape = msg_shape_of((uint32_t)_i);
	const struct msg_shape *stack[16] = { shape };

	for (int depth = 1; depth > 0; ) {
		shape = stack[--depth];
		ck_assert_uint_eq(shape->nrows, shape->desc->n_fields);
		for (uint32_t r = 0; r < shape->nrows; r++) {
			ck_assert_str_eq(shape->rows[r].name, shape->desc->fields[r].name);
			ck_assert_uint_eq(shape->desc->fields[r].id, r + 1);
			if (!shape->rows[r].sub)
				continue;
			ck_assert_ptr_eq(shape->rows[r].sub->desc,
					 shape->desc->fields[r].descriptor);
			stack[depth++] = shape->rows[r].sub;
		}
	}
}
END_TEST

START_TEST(every_type_comes_back_at_its_smallest)
{
	struct msg m = make((uint32_t)_i, SMALLEST, 1);

	assert_round_trip(&m);
}
END_TEST

START_TEST(every_type_comes_back_at_its_longest)
{
	struct msg m = make((uint32_t)_i, LONGEST, 1);

	assert_round_trip(&m);
}
END_TEST

START_TEST(every_type_comes_back_with_the_most_elements)
{
	struct msg m = make((uint32_t)_i, MOST, 1);

	assert_round_trip(&m);
}
END_TEST

START_TEST(random_contents_come_back)
{
	for (uint64_t seed = 0; seed < 100; seed++) {
		struct msg m = make((uint32_t)_i, ANY, seed);

		assert_round_trip(&m);
	}
}
END_TEST

START_TEST(a_second_encoder_is_understood)
{
	for (uint64_t seed = 0; seed < 50; seed++) {
		struct msg m = make((uint32_t)_i, ANY, seed), back;
		uint8_t *end = raw(msg_shape_of(m.type), (uint8_t *)&m.reply, wire);
		struct err e = { 0 };

		ck_assert_msg(!decode(m.type, wire, (uint32_t)(end - wire), &back, &e), "%s",
			      e.text);
		ck_assert(same_msg(&m, &back));
	}
}
END_TEST

START_TEST(golden_bytes_stay)
{
	static const uint8_t golden[] = {
		0x0f, 0x00, 0x00, 0x00, 0x01, 0x00, 0x01, 0x00,	/* 15 bytes, REPLY, version 1 */
		0x08, 0xac, 0x02,				/* req 300 */
		0x10, 0x07,					/* code -4 */
		0x1a, 0x04, 'o', 'd', 'd', '?',			/* text */
		0x22, 0x02, 0x01, 0x05,				/* ids 1, 5 */
	};
	struct msg m = { .type = MSG_REPLY, .reply = {
		.req = 300, .code = TALLY_EMISMATCH, .text = "odd?", .nids = 2,
		.ids = (const uint32_t[]){ 1, 5 },
	} };
	uint8_t out[sizeof(golden)];
	uint32_t bytes = 0;

	ck_assert_int_eq(msg_encode_size(&m, &bytes, NULL), 0);
	ck_assert_uint_eq(bytes, sizeof(golden));
	ck_assert_int_eq(msg_encode(&m, out, bytes, NULL), 0);
	ck_assert_mem_eq(out, golden, sizeof(golden));
}
END_TEST

START_TEST(null_texts_are_empty_and_come_back_as_such)
{
	struct msg m = { .type = MSG_REPLY, .reply = { .req = 1 } }, back;
	uint32_t bytes = 0;

	assert_round_trip(&m);
	ck_assert_int_eq(msg_encode_size(&m, &bytes, NULL), 0);
	ck_assert_int_eq(decode(MSG_REPLY, wire, 0, &back, NULL), 0);
	ck_assert_str_eq(back.reply.text, "");
	ck_assert_ptr_null(back.reply.ids);
}
END_TEST

START_TEST(an_absent_nested_message_is_all_zeros)
{
	uint8_t *end = raw_bytes(wire, 7, "\x10\x01\x1a\x01n", 5);	/* kind 1, name "n" */
	struct msg m;

	ck_assert_int_eq(decode(MSG_REPORT, wire, (uint32_t)(end - wire), &m, NULL), 0);
	ck_assert_uint_eq(m.report.nnodes, 1);
	ck_assert_str_eq(m.report.nodes[0].name, "n");
	ck_assert_str_eq(m.report.nodes[0].last.note, "");
	ck_assert_uint_eq(m.report.nodes[0].last.seq, 0);
}
END_TEST

START_TEST(fields_of_a_later_version_are_ignored)
{
	struct msg m = make((uint32_t)_i, ANY, 5), back;
	uint8_t *end = raw(msg_shape_of(m.type), (uint8_t *)&m.reply, wire);

	end = raw_varint(raw_varint(end, 100 << 3), 77);
	end = raw_bytes(end, 101, "later\0\xff", 7);
	end = raw_varint(end, 102 << 3 | 5);
	end = (uint8_t *)memset(end, 1, 4) + 4;
	end = raw_varint(end, 103 << 3 | 1);
	end = (uint8_t *)memset(end, 1, 8) + 8;
	ck_assert_int_eq(decode(m.type, wire, (uint32_t)(end - wire), &back, NULL), 0);
	ck_assert(same_msg(&m, &back));
}
END_TEST

/* ---- refusals ---- */

/* Both directions refuse m, and say why. */
static void assert_refused(const struct msg *m, const char *why)
{
	uint8_t *end = raw(msg_shape_of(m->type), (const uint8_t *)&m->reply, wire);
	struct msg back = { .type = MSG_NONE };
	struct err e = { 0 };
	uint32_t bytes = 7;

	ck_assert_msg(decode(m->type, wire, (uint32_t)(end - wire), &back, &e) == TALLY_EPROTO,
		      "%s %s decodes", msg_type_name(m->type), why);
	ck_assert_msg(strstr(e.text, why) != NULL, "\"%s\" does not say \"%s\"", e.text, why);
	ck_assert_ptr_eq(strstr(e.text, msg_type_name(m->type)), e.text);
	ck_assert_int_eq(back.type, MSG_NONE);
	ck_assert_int_eq(msg_encode_size(m, &bytes, &e), TALLY_EINVAL);
	ck_assert_uint_eq(bytes, 7);
	ck_assert_msg(strstr(e.text, why) != NULL, "\"%s\" does not say \"%s\"", e.text, why);
}

/* Sets one field to v (a value, or a length, or a count) and expects a refusal. */
static void break_row(const struct msg *m, const struct msg_row *row, uint8_t *plain, uint64_t v)
{
	size_t each = row->kind == KIND_U32S ? 4 : row->kind == KIND_U64S ? 8
		    : row->sub ? row->sub->bytes : 0;
	size_t bytes = row->kind == KIND_U32 || row->kind == KIND_I32 ? 4 : 8;
	uint8_t saved[8], *p;
	uint32_t n = (uint32_t)v, was = each ? msg_row_count(row, plain) : 0;

	memcpy(saved, plain + row->at, bytes);
	switch (row->kind) {
	case KIND_STR:
		p = memset(get(v + 1), 'x', v);
		memcpy(plain + row->at, &p, sizeof(p));
		break;
	case KIND_U32S:
	case KIND_U64S:
	case KIND_SUBS:
		p = get((v + 1) * each);	/* zeros: the count is looked at first */
		memcpy(plain + row->at, &p, sizeof(p));
		memcpy(plain + row->count_at, &n, sizeof(n));
		break;
	default:
		memcpy(plain + row->at, &v, bytes);
	}
	assert_refused(m, row->name);
	memcpy(plain + row->at, saved, bytes);
	if (each)
		memcpy(plain + row->count_at, &was, sizeof(was));
}

/* One below the least and one above the most of every row, in depth. */
static void break_rows(const struct msg *m, const struct msg_shape *shape, uint8_t *plain)
{
	for (uint32_t r = 0; r < shape->nrows; r++) {
		const struct msg_row *row = &shape->rows[r];
		bool value = row->kind == KIND_U32 || row->kind == KIND_I32;

		if (row->kind == KIND_ID || row->kind == KIND_U16)
			continue;	/* have tests of their own */
		if (row->kind == KIND_SUB) {
			break_rows(m, row->sub, plain + row->at);
			continue;
		}
		if (row->kind == KIND_F64) {
			break_row(m, row, plain, UINT64_C(0x7ff8000000000000));
			continue;
		}
		if (row->lo != 0 && row->lo != INT32_MIN)
			break_row(m, row, plain, (uint64_t)(row->lo - 1));
		if (row->hi != (value ? row->kind == KIND_I32 ? INT32_MAX : UINT32_MAX
				      : UINT64_MAX))
			break_row(m, row, plain, row->hi + 1);
		if (row->kind == KIND_SUBS && msg_row_count(row, plain))
			break_rows(m, row->sub, (uint8_t *)msg_row_ptr(row, plain));
	}
}

START_TEST(one_beyond_each_limit_is_refused_by_name)
{
	struct msg m = make((uint32_t)_i, LONGEST, 1);

	break_rows(&m, msg_shape_of(m.type), (uint8_t *)&m.reply);
	assert_round_trip(&m);	/* the breaking left nothing behind */
}
END_TEST

static struct msg one_tensor(struct msg_tensor *t)
{
	static const uint64_t dims[] = { 2, 3 };

	*t = (struct msg_tensor){ .id = 1, .name = "w", .dtype = DTYPE_F32, .count = 6, .ndims = 2,
				  .dims = dims };
	return (struct msg){ .type = MSG_TENSORS,
			     .tensors = { .seq = 1, .ntensors = 1, .tensors = t } };
}

START_TEST(shapes_must_multiply_to_the_count)
{
	static const uint64_t ones[] = { 1, 1, 1, 1 }, big[] = { 1ull << 33, 1ull << 31, 0 };
	struct msg_tensor t;
	struct msg m = one_tensor(&t);

	assert_round_trip(&m);
	t.count = 7;
	assert_refused(&m, "tensors[0]: dims: their product is not count");
	t.dims = big;
	assert_refused(&m, "dims: their product overflows");
	t.dims = ones;
	t.ndims = 4;
	assert_refused(&m, "dims");
	t.count = 1;
	assert_round_trip(&m);
	t.ndims = 0;		/* no shape given: any count */
	t.count = TENSOR_BYTES_MAX / 4;
	assert_round_trip(&m);
	t.count++;
	assert_refused(&m, "count: more than TENSOR_BYTES_MAX");
	t.dtype = DTYPE_I8;
	assert_round_trip(&m);
	t.count = UINT64_MAX;
	assert_refused(&m, "count: more than TENSOR_BYTES_MAX");
	t.count = 0;
	t.id = 0;
	assert_refused(&m, "tensors: one has no id");
	m = (struct msg){ .type = MSG_DECLARE, .declare = { .ntensors = 1, .tensors = &t } };
	assert_round_trip(&m);	/* where it has none yet */
}
END_TEST

START_TEST(ranks_lie_below_their_world)
{
	struct msg m = { .type = MSG_RANK_JOIN,
			 .rank_join = { .job = "j", .world = 2, .rank = 2 } };

	assert_refused(&m, "rank: not below world");
	m = (struct msg){ .type = MSG_ATTACH, .attach = { .version = 1, .job = "j", .world = 1,
							  .rank = 1 } };
	assert_refused(&m, "rank: not below world");
	m = (struct msg){ .type = MSG_ATTACHED, .attached = {
		.world = 4, .rank = 3, .local_rank = 2, .local_size = 2, .machines = 2,
		.chunk_bytes = CHUNK_BYTES_MIN } };
	assert_refused(&m, "local_rank: not below local_size");
	m.attached.local_rank = 1;
	assert_round_trip(&m);
	m.attached.rank = 4;
	assert_refused(&m, "rank: not below world");
}
END_TEST

START_TEST(a_plan_for_a_gpu_names_members_and_their_shares)
{
	const uint32_t members[3] = { 4, 1, 9 };
	uint32_t roots[2] = { 0, 2 }, weights[2] = { TURN_SUM / 4, TURN_SUM };
	uint64_t ids[GPU_ID_WORDS] = { 1, UINT64_MAX };
	struct msg m = { .type = MSG_GPU_PLAN, .gpu_plan = {
		.req = 3, .group = 1, .groups = 2, .me = 2, .nmembers = 3, .members = members,
		.nroots = 2, .roots = roots, .nweights = 2, .weights = weights,
		.nids = GPU_ID_WORDS, .ids = ids, .why = "so" } };

	assert_round_trip(&m);
	m.gpu_plan.scatter = 1;
	assert_refused(&m, "scatter: not all are roots");
	m.gpu_plan.scatter = 0;
	weights[1]--;
	assert_refused(&m, "weights: the last is not TURN_SUM");
	weights[1]++;
	weights[0] = TURN_SUM;
	assert_refused(&m, "weights: not ascending");
	weights[0] = 1;
	roots[0] = 2;
	assert_refused(&m, "roots: no members, or not ascending");
	roots[1] = 3;
	assert_refused(&m, "roots: no members, or not ascending");
	roots[0] = 0;
	roots[1] = 2;
	m.gpu_plan.nweights = 1;
	assert_refused(&m, "roots: not as many as weights");
	m.gpu_plan.nweights = 2;
	m.gpu_plan.me = 3;
	assert_refused(&m, "me: no member");
	m.gpu_plan.me = 0;
	m.gpu_plan.group = 2;
	assert_refused(&m, "group: not below groups");
	m.gpu_plan.group = 0;
	m.gpu_plan.nids = 1;
	assert_refused(&m, "ids");
}
END_TEST

START_TEST(chunks_are_whole_pages)
{
	struct msg m = { .type = MSG_ATTACH, .attach = { .version = 1, .job = "j", .world = 1 } };

	m.attach.chunk_bytes = CHUNK_BYTES_MIN + 1;
	assert_refused(&m, "chunk_bytes");
	m.attach.chunk_bytes = CHUNK_BYTES_MIN - PAGE_BYTES;
	assert_refused(&m, "chunk_bytes");
	m.attach.chunk_bytes = CHUNK_BYTES_MIN + PAGE_BYTES;
	assert_round_trip(&m);
}
END_TEST

START_TEST(a_job_is_consistent)
{
	uint32_t ranks[2][2] = { { 0, 2 }, { 1, 3 } }, gone[2] = { 1, 3 };
	struct msg_machine machine[2] = {
		{ .name = "a", .nranks = 2, .ranks = ranks[0] },
		{ .name = "b", .nranks = 2, .ranks = ranks[1] },
	};
	struct msg_server server = { .name = "s", .engines = 1, .weight = 1 };
	struct msg m = { .type = MSG_JOB_UP, .job_up = {
		.name = "j", .world = 4, .algorithm = 1, .chunk_bytes = CHUNK_BYTES_MIN,
		.seg_bytes = CHUNK_BYTES_MIN, .window_bytes = CHUNK_BYTES_MIN, .nmachines = 2,
		.machines = machine, .nservers = 1, .servers = &server } };

	assert_round_trip(&m);
	ranks[1][1] = 1;
	assert_refused(&m, "machines[1]: ranks: not ascending");
	ranks[1][1] = 4;
	assert_refused(&m, "machines: a rank is not below world");
	ranks[1][1] = 3;
	ranks[1][0] = 0;
	assert_refused(&m, "machines: not in the order");
	ranks[1][0] = 1;
	m.job_up.seg_bytes += PAGE_BYTES;
	assert_refused(&m, "seg_bytes");
	m.job_up.seg_bytes = CHUNK_BYTES_MIN - 1;
	assert_refused(&m, "seg_bytes");
	m.job_up.seg_bytes = SEG_BYTES_MIN;
	m.job_up.window_bytes = SEG_BYTES_MIN - 1;
	assert_refused(&m, "window_bytes");
	m.job_up.chunk_bytes++;
	assert_refused(&m, "chunk_bytes");
	m.job_up.chunk_bytes += PAGE_BYTES - 1;	/* whole pages, no whole segments */
	m.job_up.window_bytes = SEG_BYTES_MIN;
	assert_refused(&m, "seg_bytes");
	m.job_up.chunk_bytes = 3 * SEG_BYTES_MIN;
	assert_round_trip(&m);
	server.weight = 0;
	assert_refused(&m, "servers: none sums");
	m.job_up.nservers = 0;
	assert_refused(&m, "servers: none sums");
	m.job_up.nmachines = 1;
	m.job_up.window_bytes = 0;
	assert_round_trip(&m);
	m.job_up.gone = gone;
	m.job_up.ngone = 2;
	assert_round_trip(&m);
	gone[0] = 3;
	assert_refused(&m, "gone: not ascending");
	gone[0] = 1;
	gone[1] = 4;
	assert_refused(&m, "gone: not ascending, or not below world");
	m.job_up.left = gone;
	m.job_up.nleft = 2;
	m.job_up.ngone = 0;
	assert_refused(&m, "left: not ascending, or not below world");
	gone[1] = 2;
	assert_round_trip(&m);
	m.job_up.nleft = 0;
	m.job_up.world = 1;
	m.job_up.ngone = 1;
	ranks[0][1] = gone[0] = 0;
	machine[0].nranks = 1;
	assert_refused(&m, "gone: nobody is left");
}
END_TEST

START_TEST(nodes_say_who_they_are)
{
	struct msg m = { .type = MSG_HELLO, .hello = {
		.version_min = 1, .version_max = 1, .kind = NODE_SERVER, .name = "s",
		.machine = "m", .engines = 1 } };

	assert_round_trip(&m);
	m.hello.engines = 0;
	assert_refused(&m, "engines: 0");
	m.hello.engines = 1;
	m.hello.machine = NULL;
	assert_refused(&m, "machine: empty");
	m.hello.kind = NODE_CLI;
	assert_round_trip(&m);
	m.hello.version_min = 2;
	assert_refused(&m, "version_min: above version_max");
}
END_TEST

START_TEST(id_zero_is_no_tensor)
{
	struct msg m = { .type = MSG_FORGET, .ids = { .nids = 2,
						      .ids = (const uint32_t[]){ 4, 0 } } };

	assert_refused(&m, "ids: 0 is no tensor");
	m = (struct msg){ .type = MSG_REPLY,
			  .reply = { .nids = 1, .ids = (const uint32_t[]){ 0 } } };
	assert_refused(&m, "ids: 0 is no tensor");
}
END_TEST

static const char *const bad_texts[] = {
	"\x01", "tab\t", "line\n", "\x1b[2J", "\x7f", "\xc2\x80", "\xc2\x9f", "\x80",
	"\xbf", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80",
	"\xed\xbf\xbf", "\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
	"\xf8\x88\x80\x80\x80", "\xff", "\xfe", "a\xc3", "\xe2\x82", "\xf0\x9f\x98",
	"\xc3(", "\xe2(\xa1", "\xe2\x82(",
};

START_TEST(text_is_printable_utf8)
{
	char at_end[64];
	struct msg m = { .type = MSG_REPLY, .reply = { .text = bad_texts[_i] } };

	assert_refused(&m, "text: no printable UTF-8 at byte");
	snprintf(at_end, sizeof(at_end), "fine until here %s", bad_texts[_i]);
	m.reply.text = at_end;
	assert_refused(&m, "text: no printable UTF-8 at byte");
}
END_TEST

START_TEST(a_nul_inside_a_text_is_refused)
{
	struct err e = { 0 };
	struct msg m;
	uint8_t *end = raw_bytes(wire, 3, "a\0b", 3);

	ck_assert_int_eq(decode(MSG_REPLY, wire, (uint32_t)(end - wire), &m, &e), TALLY_EPROTO);
	ck_assert_str_eq(e.text, "REPLY: text: a NUL inside");
	end = raw_bytes(wire, 3, "\0b", 2);
	ck_assert_int_eq(decode(MSG_REPLY, wire, (uint32_t)(end - wire), &m, &e), TALLY_EPROTO);
	end = raw_bytes(wire, 3, "", 0);
	ck_assert_int_eq(decode(MSG_REPLY, wire, (uint32_t)(end - wire), &m, &e), 0);
}
END_TEST

START_TEST(ids_have_sixteen_bytes_or_none)
{
	for (size_t len = 0; len < 40; len++) {
		struct msg m = make(MSG_WELCOME, ANY, 3), back;
		uint8_t *end = raw(msg_shape_of(m.type), (uint8_t *)&m.reply, wire);
		struct err e = { 0 };
		int rc;

		end = raw_bytes(end, 3, "0123456789abcdef0123456789abcdef0123456789abcdef", len);
		rc = decode(MSG_WELCOME, wire, (uint32_t)(end - wire), &back, &e);
		ck_assert_int_eq(rc, len == 0 || len == 16 ? 0 : TALLY_EPROTO);
		ck_assert(!rc || strstr(e.text, "cluster"));
	}
}
END_TEST

START_TEST(ports_end_at_65535)
{
	struct msg m = make(MSG_HELLO, SMALLEST, 3), back;
	uint8_t addr[16] = { 0x0a, 1, 'h', 0x10, 0xff, 0xff, 0x03 }, *end;

	end = raw(msg_shape_of(m.type), (uint8_t *)&m.reply, wire);
	end = raw_bytes(end, 8, addr, 7);
	ck_assert_int_eq(decode(m.type, wire, (uint32_t)(end - wire), &back, NULL), 0);
	ck_assert_uint_eq(back.hello.addrs[0].port, 65535);
	memcpy(addr + 4, "\x80\x80\x04", 3);
	end = raw(msg_shape_of(m.type), (uint8_t *)&m.reply, wire);
	end = raw_bytes(end, 8, addr, 7);
	ck_assert_int_eq(decode(m.type, wire, (uint32_t)(end - wire), &back, NULL), TALLY_EPROTO);
}
END_TEST

/* ---- prefix ---- */

START_TEST(prefix_refuses_other_versions_types_and_lengths)
{
	uint8_t p[MSG_PREFIX_BYTES] = { 0, 0, 0, 1, MSG_REPLY, 0, MSG_VERSION, 0 };
	uint32_t bytes = 0, type = 0;
	struct err e = { 0 };

	ck_assert_int_eq(msg_prefix_decode(p, &bytes, &type, &e), 0);	/* exactly the most */
	ck_assert_uint_eq(bytes, CTL_MSG_BYTES_MAX);
	p[0] = 1;
	ck_assert_int_eq(msg_prefix_decode(p, &bytes, &type, &e), TALLY_EPROTO);
	ck_assert_ptr_nonnull(strstr(e.text, "REPLY of 16777217 bytes"));
	p[0] = p[3] = 0;
	for (uint32_t t = 0; t <= UINT16_MAX; t++) {
		put_le16(p + 4, (uint16_t)t);
		ck_assert_int_eq(msg_prefix_decode(p, &bytes, &type, NULL),
				 msg_shape_of(t) ? 0 : TALLY_EPROTO);
	}
	put_le16(p + 4, MSG_DETACH);
	for (uint32_t v = 0; v <= UINT16_MAX; v++) {
		put_le16(p + 6, (uint16_t)v);
		ck_assert_int_eq(msg_prefix_decode(p, &bytes, &type, NULL),
				 v == MSG_VERSION ? 0 : v < 256 ? TALLY_EVERSION : TALLY_EPROTO);
	}
}
END_TEST

START_TEST(unknown_types_neither_decode_nor_encode)
{
	struct msg m = { .type = MSG_TYPE_END };
	uint32_t bytes;

	ck_assert_int_eq(decode(MSG_NONE, wire, 0, &m, NULL), TALLY_EPROTO);
	ck_assert_int_eq(decode(MSG_TYPE_END, wire, 0, &m, NULL), TALLY_EPROTO);
	ck_assert_int_eq(msg_encode_size(&m, &bytes, NULL), TALLY_EINVAL);
	ck_assert_str_eq(msg_type_name(MSG_TYPE_END), "?");
	ck_assert_str_eq(msg_type_name(MSG_TENSORS_HELD), "TENSORS_HELD");
}
END_TEST

START_TEST(bodies_end_at_their_limit)
{
	static const struct msg_row longest = { .lo = ERR_TEXT_MAX, .hi = ERR_TEXT_MAX };
	struct msg m = make(MSG_REPORT, MOST, 1), back;
	struct rng rng = { 1 };
	struct err e = { 0 };
	uint32_t bytes = 0;

	ck_assert_int_eq(decode(MSG_REPLY, wire, CTL_MSG_BYTES_MAX + 1, &back, &e), TALLY_EPROTO);
	for (uint32_t i = 0; i < m.report.ntensors; i++)
		((struct msg_tensor_row *)m.report.tensors)[i].waiting_for =
			i ? m.report.tensors[0].waiting_for : text(&rng, LONGEST, &longest);
	ck_assert_int_eq(msg_encode_size(&m, &bytes, &e), TALLY_EINVAL);
	ck_assert_ptr_nonnull(strstr(e.text, "at most 16777216 are allowed"));
}
END_TEST

START_TEST(the_room_given_must_be_the_size)
{
	struct msg m = make(MSG_HELLO, ANY, 2);
	uint32_t bytes = 0;

	ck_assert_int_eq(msg_encode_size(&m, &bytes, NULL), 0);
	ck_assert_int_eq(msg_encode(&m, wire, bytes - 1, NULL), TALLY_EINVAL);
	ck_assert_int_eq(msg_encode(&m, wire, bytes + 1, NULL), TALLY_EINVAL);
	ck_assert_int_eq(msg_encode(&m, wire, 0, NULL), TALLY_EINVAL);
}
END_TEST

/* ---- hostile bytes, little memory ---- */

START_TEST(truncated_anywhere_never_crashes)
{
	struct msg m = make((uint32_t)_i, LONGEST, 1), back;
	uint32_t bytes = (uint32_t)(raw(msg_shape_of(m.type), (uint8_t *)&m.reply, wire) - wire);

	for (uint32_t cut = 0; cut < bytes; cut++) {
		uint8_t *exact = malloc(MAX(cut, 1));	/* so that a sanitizer sees one byte more */
		int rc;

		ck_assert_ptr_nonnull(exact);
		memcpy(exact, wire, cut);
		rc = decode(m.type, exact, cut, &back, NULL);
		ck_assert(rc == 0 || rc == TALLY_EPROTO);
		free(exact);
	}
}
END_TEST

START_TEST(random_damage_never_crashes)
{
	struct rng rng = { (uint64_t)_i };
	int good = 0, bad = 0;

	for (uint64_t i = 0; i < 500; i++) {
		struct msg m = make((uint32_t)_i, ANY, i % 20), back;
		uint32_t bytes = (uint32_t)(raw(msg_shape_of(m.type), (uint8_t *)&m.reply, wire) -
					    wire);
		int rc;

		for (uint64_t n = rng_below(&rng, 4); n > 0; n--)
			wire[rng_below(&rng, bytes)] = (uint8_t)rng_u64(&rng);
		rc = decode(m.type, wire, bytes, &back, NULL);
		ck_assert(rc == 0 || rc == TALLY_EPROTO);
		good += !rc;
		bad += !!rc;
		if (!rc)
			ck_assert_int_eq(msg_encode_size(&back, &bytes, NULL), 0);
	}
	ck_assert_int_gt(good, 0);
	ck_assert_int_gt(bad, 0);
}
END_TEST

START_TEST(a_block_too_small_is_enomem_at_every_size)
{
	struct msg m = make((uint32_t)_i, LONGEST, 1), back;
	uint32_t bytes = (uint32_t)(raw(msg_shape_of(m.type), (uint8_t *)&m.reply, wire) - wire);
	struct msg_mem mem = { .base = block, .size = msg_mem_need(bytes) };
	size_t need;

	ck_assert_int_eq(msg_decode(m.type, wire, bytes, &mem, &back, NULL), 0);
	need = mem.used;
	for (size_t size = 0; size < need; size += need > 16384 ? 7 : 1) {
		mem = (struct msg_mem){ .base = block, .size = size };
		ck_assert_int_eq(msg_decode(m.type, wire, bytes, &mem, &back, NULL), TALLY_ENOMEM);
		ck_assert_uint_eq(mem.used, 0);
	}
	mem = (struct msg_mem){ .base = block, .size = need };
	ck_assert_int_eq(msg_decode(m.type, wire, bytes, &mem, &back, NULL), 0);
	mem = (struct msg_mem){ .base = block + 1, .size = need + 8 };	/* any alignment will do */
	ck_assert_int_eq(msg_decode(m.type, wire, bytes, &mem, &back, NULL), 0);
	ck_assert(same_msg(&m, &back));
}
END_TEST

/* The unpacker's lists grow by doubling: just above a power of two costs most. */
START_TEST(the_stated_memory_takes_the_most_small_elements)
{
	static const struct {
		uint32_t type, field;
		const char *element;
		uint32_t len, max;
	} few[] = {
		{ MSG_DECLARED, 4, "\x08\x01", 2, TENSORS_PER_BATCH_MAX },
		{ MSG_DECLARE, 5, "\x12\x01w\x18\x01", 5, TENSORS_PER_BATCH_MAX },
		{ MSG_REPORT, 9, "\x1a\x01w\x30\x01", 5, TENSORS_PER_JOB_MAX },
		{ MSG_REPORT, 7, "\x10\x01\x1a\x01w", 5, NODES_MAX },
		{ MSG_REPORT, 8, "\x12\x01w", 3, JOBS_MAX },
		{ MSG_REPLY, 4, "\x01", 1, TENSORS_PER_BATCH_MAX },
	};

	for (uint32_t n = 1; n <= few[_i].max; n = n & (n - 1) ? (n & (n - 1)) << 1 : n + 1) {
		uint8_t *end = wire;
		struct err e = { 0 };
		struct msg m;

		for (uint32_t i = 0; i < n; i++)
			end = raw_bytes(end, few[_i].field, few[_i].element, few[_i].len);
		ck_assert_msg(!decode(few[_i].type, wire, (uint32_t)(end - wire), &m, &e),
			      "%u elements: %s", n, e.text);
	}
}
END_TEST

START_TEST(a_hostile_body_costs_the_stated_memory_and_no_more)
{
	struct err e = { 0 };
	struct msg m;

	for (uint32_t i = 0; i < CTL_MSG_BYTES_MAX; i += 2)	/* unknown, or empty nested */
		memcpy(wire + i, _i ? "\x78\x01" : "\x22\x00", 2);
	ck_assert_int_eq(decode(MSG_DECLARED, wire, CTL_MSG_BYTES_MAX, &m, &e), TALLY_EPROTO);
	ck_assert_ptr_nonnull(strstr(e.text, "more elements than any message may have"));
	ck_assert_uint_lt(msg_mem_need(CTL_MSG_BYTES_MAX), (size_t)41 << 20);
	ck_assert_uint_eq(msg_mem_need(0), 4096);
}
END_TEST

int main(void)
{
	const TTest *const each_type[] = {
		the_table_and_tally_proto_agree, every_type_comes_back_at_its_smallest,
		every_type_comes_back_at_its_longest, every_type_comes_back_with_the_most_elements,
		random_contents_come_back, a_second_encoder_is_understood,
		fields_of_a_later_version_are_ignored, one_beyond_each_limit_is_refused_by_name,
		truncated_anywhere_never_crashes, random_damage_never_crashes,
		a_block_too_small_is_enomem_at_every_size,
	};
	const TTest *const once[] = {
		golden_bytes_stay, null_texts_are_empty_and_come_back_as_such,
		an_absent_nested_message_is_all_zeros, shapes_must_multiply_to_the_count,
		ranks_lie_below_their_world, chunks_are_whole_pages, a_job_is_consistent,
		a_plan_for_a_gpu_names_members_and_their_shares,
		nodes_say_who_they_are, id_zero_is_no_tensor, a_nul_inside_a_text_is_refused,
		ids_have_sixteen_bytes_or_none, ports_end_at_65535,
		prefix_refuses_other_versions_types_and_lengths,
		unknown_types_neither_decode_nor_encode, bodies_end_at_their_limit,
		the_room_given_must_be_the_size,
	};
	Suite *s = suite_create("msg");
	TCase *t = tcase_create("msg");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 240);
	for (size_t i = 0; i < ARRAY_SIZE(each_type); i++)
		for (int type = MSG_NONE + 1; type < MSG_TYPE_END; type++)
			if (msg_shape_of((uint32_t)type))	/* numbers are not used again */
				tcase_add_loop_test(t, each_type[i], type, type + 1);
	for (size_t i = 0; i < ARRAY_SIZE(once); i++)
		tcase_add_test(t, once[i]);
	tcase_add_loop_test(t, text_is_printable_utf8, 0, ARRAY_SIZE(bad_texts));
	tcase_add_loop_test(t, the_stated_memory_takes_the_most_small_elements, 0, 6);
	tcase_add_loop_test(t, a_hostile_body_costs_the_stated_memory_and_no_more, 0, 2);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
