/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin.h - what libtally asks of a GPU: the contract of libtally-cuda.
 *
 * For: copies between GPU and host memory, sums and broadcasts within a group of GPUs,
 * and their order.  Not for: what is copied when, and what goes to whom (client/gpu.c).
 *
 * Five lanes (streams), each in its own order; events order them among each other and
 * with the streams of the user.  Everything below join() is put on a lane and returns
 * at once; what an event stands for is what was on the lane when it was recorded, so one
 * event may be recorded again as soon as others wait for it.
 *
 * Errors: 0, or a negative TALLY_E* with a text.  What goes wrong later, on the GPU or
 * at another member, failed() tells.  A group that has failed hangs until give_up(): then
 * what is on the lanes comes to an end, and its data is nothing.
 *
 * One thread at a time, but for failed() and give_up(), which are any thread's.  A plugin
 * is loaded once and never unloaded: drivers leave threads behind.
 */
#ifndef TALLY_CLIENT_GPU_PLUGIN_H
#define TALLY_CLIENT_GPU_PLUGIN_H

#include "common/base/dtype.h"
#include "common/base/err.h"

#define GPU_PLUGIN_VERSION	3u
#define GPU_PLUGIN_SYMBOL	"tally_gpu_plugin"
#define GPU_PLUGIN_IDS		32u	/* 64-bit words by which a group finds itself */
#define GPU_NAME_MAX		63u

/* POST: callbacks alone, as what is behind one on a lane waits for some thread of the host. */
enum gpu_lane { GPU_REDUCE, GPU_OUT, GPU_POST, GPU_IN, GPU_SPREAD, GPU_LANES };

/* What is measured: copies out of a GPU and into it, of pinned memory; from one to another. */
enum gpu_way { GPU_TO_HOST, GPU_FROM_HOST, GPU_TO_GPU };

struct gpu;			/* an opened device: the plugin's */
struct gpu_event;

/* One of several reductions to a root, or broadcasts from one. */
struct gpu_part {
	const void *in;
	void *out;		/* in itself, or memory apart from it; of the root only in a
				 * reduction */
	size_t count;		/* elements */
	uint32_t root;		/* member */
};

struct gpu_plugin {
	uint32_t version;

	/* name: its PCI address, GPU_NAME_MAX + 1 bytes.  ENOENT: no such device. */
	int (*open)(int device, struct gpu **g, char *name, struct err *e);
	/* Waits until the lanes are empty: after give_up(), or when all is done anyhow. */
	void (*drain)(struct gpu *g);
	/* Drained, events and pinned memory went before.  Waits some seconds for the others of
	 * the group, unless it was given up. */
	void (*close)(struct gpu *g);
	/* Bytes/s of copies that way and nothing else; peer: for GPU_TO_GPU.  Waits for them,
	 * some tenths of a second.  The host's memory is near the CPU that calls. */
	int (*measure)(struct gpu *g, enum gpu_way way, struct gpu *peer, uint64_t *bytes_per_s,
		       struct err *e);
	int (*new_id)(struct gpu *g, uint64_t ids[GPU_PLUGIN_IDS], struct err *e);
	/* All members with the ids of member 0; give_up() ends it.  A group of one needs none. */
	int (*join)(struct gpu *g, const uint64_t ids[GPU_PLUGIN_IDS], uint32_t me,
		    uint32_t members, uint32_t timeout_ms, struct err *e);
	/* Host memory that copies and words will be in. */
	int (*pin)(struct gpu *g, void *p, size_t bytes, bool read_only, struct err *e);
	void (*unpin)(struct gpu *g, void *p);

	int (*event_new)(struct gpu *g, struct gpu_event **ev, struct err *e);
	void (*event_free)(struct gpu *g, struct gpu_event *ev);
	int (*record)(struct gpu *g, enum gpu_lane lane, struct gpu_event *ev, struct err *e);
	int (*wait)(struct gpu *g, enum gpu_lane lane, struct gpu_event *ev, struct err *e);
	/* 0: what was recorded is done; EAGAIN: not yet. */
	int (*done)(struct gpu *g, struct gpu_event *ev, struct err *e);
	/* The lane waits for what the user's stream holds by now (ev is recorded for that);
	 * the stream for the event.  EINVAL, and nothing is done: the stream is captured. */
	int (*follow)(struct gpu *g, enum gpu_lane lane, void *stream, struct gpu_event *ev,
		      struct err *e);
	int (*lead)(struct gpu *g, struct gpu_event *ev, void *stream, struct err *e);

	/* Between GPU and host memory, either way. */
	int (*copy)(struct gpu *g, enum gpu_lane lane, void *to, const void *from, size_t bytes,
		    struct err *e);
	/* Calls fn, on a thread of the driver's: no call of this contract from there. */
	int (*call)(struct gpu *g, enum gpu_lane lane, void (*fn)(void *), void *arg,
		    struct err *e);
	/* The lane goes on when *word has come to value, or past it (signed difference). */
	int (*await)(struct gpu *g, enum gpu_lane lane, _Atomic uint32_t *word, uint32_t value,
		     struct err *e);

	/* On REDUCE: to each part's root; on SPREAD: from it.  All members, the same parts. */
	int (*reduce)(struct gpu *g, const struct gpu_part *p, uint32_t n, enum dtype dtype,
		      struct err *e);
	int (*broadcast)(struct gpu *g, const struct gpu_part *p, uint32_t n, enum dtype dtype,
			 struct err *e);
	/* The same for parts of one size side by side, part i with root i.  Scatter: in is
	 * where part 0 begins, out this member's part; gather: the other way round. */
	int (*reduce_scatter)(struct gpu *g, const void *in, void *out, size_t count,
			      enum dtype dtype, struct err *e);
	int (*all_gather)(struct gpu *g, const void *in, void *out, size_t count,
			  enum dtype dtype, struct err *e);

	int (*failed)(struct gpu *g, struct err *e);	/* 0: no */
	/* Does not wait for that end: drain() does. */
	void (*give_up)(struct gpu *g);
};

/* The function that a plugin exports, under GPU_PLUGIN_SYMBOL. */
const struct gpu_plugin *tally_gpu_plugin(void);
typedef const struct gpu_plugin *gpu_plugin_fn(void);

#endif
