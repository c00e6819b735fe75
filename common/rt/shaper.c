// SPDX-License-Identifier: Apache-2.0
/*
 * shaper.c - asked of the kernel by rtnetlink, with libmnl.
 *
 * A dump of queueing disciplines has those of all interfaces, one of classes those of one.  Rates
 * are bytes/s, in 32 bits with an attribute of their own behind them where that is too few.
 */
#include <libmnl/libmnl.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/base.h"
#include "common/rt/shaper.h"

#define ANSWER_BYTES	(32u << 10)	/* the kernel's own bound of one part of a dump */
#define SEQ		1u

struct question {
	unsigned int ifindex;
	uint32_t class;			/* of an htb, whose ceiling counts; 0: the root */
	uint64_t bytes_per_s;		/* the least so far; 0: none */
};

static const struct nlattr *sub(const struct nlattr *nest, uint16_t type, size_t len)
{
	const struct nlattr *a;

	mnl_attr_for_each_nested(a, nest)
		if (mnl_attr_get_type(a) == type && mnl_attr_get_payload_len(a) >= len)
			return a;
	return NULL;
}

static uint64_t rate(const struct nlattr *options, uint32_t rate32, uint16_t type64)
{
	const struct nlattr *a = sub(options, type64, sizeof(uint64_t));

	return a ? mnl_attr_get_u64(a) : rate32;
}

static void take_tbf(struct question *q, const struct nlattr *options)
{
	const struct nlattr *a = sub(options, TCA_TBF_PARMS, sizeof(struct tc_tbf_qopt));
	struct tc_tbf_qopt p;

	if (!a)
		return;
	memcpy(&p, mnl_attr_get_payload(a), sizeof(p));
	q->bytes_per_s = rate(options, p.rate.rate, TCA_TBF_RATE64);
}

/*
 * Takes an HTB qdisc in: packets that no filter puts elsewhere are in its default class, and
 * unshaped where there is none.
 */
static void take_htb(struct question *q, const struct nlattr *options, uint32_t handle)
{
	const struct nlattr *a = sub(options, TCA_HTB_INIT, sizeof(struct tc_htb_glob));
	struct tc_htb_glob p;

	if (!a)
		return;
	memcpy(&p, mnl_attr_get_payload(a), sizeof(p));
	q->class = p.defcls ? TC_H_MAKE(handle, p.defcls) : 0;
}

/* The one above it is next.  What is to go to a class that has others below it is unshaped. */
static void take_class(struct question *q, const struct nlattr *options, uint32_t parent)
{
	const struct nlattr *a = sub(options, TCA_HTB_PARMS, sizeof(struct tc_htb_opt));
	bool leaf = !q->bytes_per_s;
	struct tc_htb_opt p;
	uint64_t ceil;

	q->class = 0;
	if (!a)
		return;
	memcpy(&p, mnl_attr_get_payload(a), sizeof(p));
	if (leaf && p.level)
		return;
	ceil = rate(options, p.ceil.rate, TCA_HTB_CEIL64);
	q->bytes_per_s = leaf ? ceil : MIN(q->bytes_per_s, ceil);
	if (parent != TC_H_ROOT)
		q->class = parent;
}

static int on_answer(const struct nlmsghdr *h, void *data)
{
	bool is_class = h->nlmsg_type == RTM_NEWTCLASS;
	struct question *q = data;
	const struct nlattr *a, *options = NULL;
	const char *kind = "";
	struct tcmsg tc;

	if (mnl_nlmsg_get_payload_len(h) < sizeof(tc))
		return MNL_CB_OK;
	memcpy(&tc, mnl_nlmsg_get_payload(h), sizeof(tc));
	if ((unsigned int)tc.tcm_ifindex != q->ifindex)
		return MNL_CB_OK;
	if (is_class ? tc.tcm_handle != q->class : tc.tcm_parent != TC_H_ROOT)
		return MNL_CB_OK;
	mnl_attr_for_each(a, h, sizeof(tc)) {
		if (mnl_attr_get_type(a) == TCA_KIND && !mnl_attr_validate(a, MNL_TYPE_NUL_STRING))
			kind = mnl_attr_get_str(a);
		else if (mnl_attr_get_type(a) == TCA_OPTIONS)
			options = a;
	}
	if (!options)
		return MNL_CB_OK;
	if (is_class)
		take_class(q, options, tc.tcm_parent);
	else if (!strcmp(kind, "tbf"))
		take_tbf(q, options);
	else if (!strcmp(kind, "htb"))
		take_htb(q, options, tc.tcm_handle);
	return MNL_CB_OK;
}

static void ask(struct mnl_socket *nl, uint16_t type, struct question *q)
{
	_Alignas(struct nlmsghdr) char room[ANSWER_BYTES];
	struct nlmsghdr *h = mnl_nlmsg_put_header(room);
	struct tcmsg *tc = mnl_nlmsg_put_extra_header(h, sizeof(*tc));
	struct question asked = *q;
	ssize_t n;

	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	h->nlmsg_seq = SEQ;
	tc->tcm_ifindex = (int)q->ifindex;
	n = mnl_socket_sendto(nl, h, h->nlmsg_len);
	while (n > 0) {
		n = mnl_socket_recvfrom(nl, room, sizeof(room));
		if (n > 0)
			n = mnl_cb_run(room, (size_t)n, SEQ, mnl_socket_get_portid(nl), on_answer,
				       &asked);
	}
	if (!n)				/* to its end */
		*q = asked;
}

uint64_t shaper_bits_per_s(unsigned int ifindex)
{
	struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
	struct question q = { .ifindex = ifindex };

	if (!nl)
		return 0;
	if (!mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID)) {
		ask(nl, RTM_GETQDISC, &q);
		for (uint32_t i = 0; q.class && i < TC_HTB_MAXDEPTH; i++)
			ask(nl, RTM_GETTCLASS, &q);
	}
	mnl_socket_close(nl);
	return q.bytes_per_s <= UINT64_MAX / 8 ? q.bytes_per_s * 8 : 0;
}
