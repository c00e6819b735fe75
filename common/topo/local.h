/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local.h - the local plan: how a machine's GPUs add up a gradient among themselves, get
 * the sum of the machine into host memory, and the sum of all machines back.
 *
 * A plan has groups of GPUs.  Within a group the GPUs reduce to roots, by NVLink or
 * through their PCIe switch; each root copies its share to host memory near a network
 * card; the CPU adds what the groups brought there, if there are several; the card
 * sends it and receives the result; roots copy their share of that back and broadcast
 * it in the group.  All of it runs at once over many chunks, so the time per byte of the
 * model is that of the busiest link.
 *
 * The rule (the BytePS paper's, section 4.2), and what was added to it where machines are
 * not equal:
 *  - GPUs of different switches never copy to each other without NVLink: so groups are
 *    what NVLink and switches join, along a ring, and several groups mean CPU-assisted
 *    aggregation.
 *  - A switch's way to the CPU that a card uses is spared: with NVLink across switches,
 *    roots are GPUs whose switch has no card (reduce + broadcast).  When all switches
 *    have cards, or none, all GPUs are roots (reduce-scatter + all-gather).
 *  - Roots get equal shares, unless unequal switches or links make other shares faster;
 *    GPUs beside a card become roots, too, if those away from it are too few.
 *  - The rule's plan is compared with groups by switch alone, and with plain copies from
 *    every GPU; one of those is taken only where the predicted time is shorter.
 *
 * Pure: the same description gives the same plan.  No heap; a plan is about 200 KiB.
 */
#ifndef TALLY_TOPO_LOCAL_H
#define TALLY_TOPO_LOCAL_H

#include "common/base/turn.h"
#include "common/topo/topo.h"

#define LOCAL_COPIES_MAX	(TOPO_GPUS_MAX * TOPO_CARDS_MAX)
#define LOCAL_LINKS_MAX		(3 * TOPO_GPUS_MAX + 2 * TOPO_CARDS_MAX + TOPO_SWITCHES_MAX + \
				 TOPO_NODES_MAX * (TOPO_NODES_MAX + 1) / 2)
#define LOCAL_WEIGHT_SUM	TURN_SUM

/*	enum		what a machine does */
#define LOCAL_STRATEGY_TABLE(X) \
	X(NO_GPU,	"host memory only") \
	X(COPY,		"copies of one GPU") \
	X(SCATTER,	"reduce-scatter and all-gather") \
	X(ROOTS,	"reduce and broadcast") \
	X(CPU_ASSISTED,	"CPU-assisted aggregation")

enum local_strategy {
#define X(e, text) LOCAL_##e,
	LOCAL_STRATEGY_TABLE(X)
#undef X
};

/* How GPUs were put into groups; the first that is as fast as the others is taken. */
#define LOCAL_GROUPING_TABLE(X) \
	X(JOINED,	"groups as NVLink and switches join GPUs") \
	X(BY_SWITCH,	"a group for each switch") \
	X(ALONE,	"plain copies from every GPU")

enum local_grouping {
#define X(e, text) LOCAL_GROUP_##e,
	LOCAL_GROUPING_TABLE(X)
#undef X
	LOCAL_GROUPINGS
};

/* What a link is loaded with.  The table's order is the order of a chunk's life. */
#define LOCAL_CAUSE_TABLE(X) \
	X(REDUCE,	"reduce")	/* between GPUs of a group */ \
	X(COPY_OUT,	"copy out")	/* GPU to host memory */ \
	X(SUM,		"sum")		/* the CPU's, over the groups */ \
	X(NETWORK,	"network") \
	X(COPY_IN,	"copy in")	/* host memory to GPU */ \
	X(BROADCAST,	"broadcast")

enum local_cause {
#define X(e, text) LOCAL_BY_##e,
	LOCAL_CAUSE_TABLE(X)
#undef X
	LOCAL_CAUSES
};

/*	enum		name		a..b are */
#define LOCAL_LINK_TABLE(X) \
	X(NET,		"wire")		/* card; up is sending */ \
	X(SWITCH,	"switch")	/* switch and what is above it */ \
	X(GPU,		"gpu")		/* GPU and what is above it */ \
	X(CARD,		"card")		/* card and what is above it */ \
	X(SOCKETS,	"sockets")	/* two sockets' numbers, a < b; up is a to b */ \
	X(MEMORY,	"memory")	/* node; up is written, down is read */ \
	X(NVLINK,	"nvlink")	/* two GPUs, a < b; up is a to b */ \
	X(NVSWITCH,	"nvswitch")	/* GPU and the fabric; up is out of the GPU */

enum local_link_kind {
#define X(e, text) LOCAL_LINK_##e,
	LOCAL_LINK_TABLE(X)
#undef X
};

enum local_way { LOCAL_UP, LOCAL_DOWN };	/* up is toward the CPU */

struct local_link {
	enum local_link_kind kind;
	uint32_t a, b;			/* indices as the kind says; b unused: TOPO_NONE */
	struct topo_rate rate;
	double load[2][LOCAL_CAUSES];	/* bytes per byte of the model */
};

struct local_group {
	uint32_t first, count;		/* in member[] */
	uint32_t first_copy, copies;	/* in copy[]; ordered by card, then by GPU */
	uint32_t switches_card;		/* S_n: its switches that have a card too */
	uint32_t switches_only;		/* S_g: those with GPUs only */
	bool nvlink;			/* all its GPUs reach each other by NVLink */
	bool spared;			/* no root is beside a card, but others might be */
	bool whole;			/* a chunk goes to one root, by turns; else it is cut */
};

/* A root's share by one card. */
struct local_copy {
	uint32_t gpu;
	uint32_t card;			/* or TOPO_NONE: no card was seen */
	uint32_t node;			/* whose memory the share lies in */
	uint32_t weight_end;		/* shares up to this one, of LOCAL_WEIGHT_SUM */
	double share;			/* of the model's bytes; 1 in all for each group */
};

struct local_plan {
	enum local_strategy strategy;
	enum local_grouping grouping;
	uint32_t groups, copies, links;
	struct local_group group[TOPO_GPUS_MAX];
	uint32_t member[TOPO_GPUS_MAX];	/* GPUs, group by group, each a ring */
	struct local_copy copy[LOCAL_COPIES_MAX];
	struct local_link link[LOCAL_LINKS_MAX];
	double card_share[TOPO_CARDS_MAX];	/* of what goes over the network */
	uint32_t bottleneck;		/* index of the busiest link */
	double s_per_byte;		/* its time for each byte of the model */
	double other_s_per_byte[LOCAL_GROUPINGS];	/* what each grouping would take;
					 * INFINITY: some group has no ring */
};

/* A piece of a chunk: the root it is reduced to and the card it goes by. */
struct local_piece {
	uint32_t copy;			/* index in the plan */
	uint64_t offset, len;		/* bytes of the chunk */
};

/*
 * The plan for a description without unknown rates (topo_guess()).  EINVAL when the
 * description does not hold; a machine without GPUs has a plan, too: its processes'
 * gradients are in host memory already.
 *
 * exact: the bits shall be those of adding in rank order.  GPUs of a group reduce in
 * their own order, so then every GPU is a group, and the CPU adds them one by one.
 */
int local_plan_make(const struct topo *t, bool exact, struct local_plan *p, struct err *e);

/*
 * Cuts a chunk of the group into at most `copies` pieces, aligned to 256 bytes but for
 * the chunk's end; empty ones are left out.  Groups that the CPU adds up are cut at the
 * same places between cards.  Returns how many.
 */
uint32_t local_pieces(const struct local_plan *p, uint32_t group, uint64_t chunk, uint64_t bytes,
		      struct local_piece *out);

/* Bytes that the link moves that way per byte of the model, all causes together. */
double local_load(const struct local_link *l, enum local_way way);
/* Its time per byte of the model; the busier way's, or both of a memory. */
double local_link_time(const struct local_link *l);

/* The words of the tables. */
const char *local_strategy_text(enum local_strategy s);
const char *local_grouping_text(enum local_grouping g);
const char *local_cause_text(enum local_cause c);
const char *local_link_text(enum local_link_kind k);

/* Why the group does what it does, one line; returns buf. */
const char *local_why(const struct local_plan *p, uint32_t group, char *buf, size_t len);
/* Explains the bottleneck of a local plan in one line, without its name; returns buf. */
const char *local_bottleneck_text(const struct local_plan *p, char *buf, size_t len);

#endif
