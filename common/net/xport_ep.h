/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport_ep.h - what an endpoint is made of; for the files of common/net alone.
 *
 * From below to above: xport_ep.c has what one endpoint is, xport_stream.c moves frames over any
 * stream, one xport_ops row per kind says how bytes or frames move, xport.c keeps all endpoints of
 * an engine.  Rows point event at xport_stream.c and bring recv and send.  rdma's row is tcp's and
 * more: the calls below `recv` are its own, NULL in the other rows.
 *
 * Memory: one allocation per endpoint, made at connect/adopt, freed after
 * closed(); rdma has a second one, beside its queue pair.  The descriptor is closed
 * the moment the endpoint dies, or when its fence is over.
 */
#ifndef TALLY_NET_XPORT_EP_H
#define TALLY_NET_XPORT_EP_H

#include <sys/types.h>
#include <sys/uio.h>

#include "common/base/list.h"
#include "common/base/parse.h"
#include "common/net/xport.h"
#include "common/shm/proc.h"
#include "proto/speech.h"

#define XPORT_TICK_MS	250u		/* grain of pulse and deadlines */
#define BATCH_BYTES	(128u << 10)	/* read at once, where frames are small */
#define SMALL_BYTES	(8u << 10) /* payloads up to this are read in batches and copied */
#define SINK_BYTES	(64u << 10)	/* where refused payloads go */

enum ep_state {
	EP_CONNECTING,	/* the kernel is at it */
	EP_HELLO,	/* connected; HELLO on its way, WELCOME awaited */
	EP_QUEUE_PAIR,	/* rdma: welcome, and now the queue pairs are joined */
	EP_ADOPTED,	/* accepted by the listener; up() not called yet */
	EP_UP,
	EP_FENCED,	/* rdma: dead, but the peer's card may still write */
	EP_DEAD,	/* no descriptor; closed() to be called, or being called */
};

struct xport_ops {
	const char *name;
	bool by_reference;
	/*
	 * Makes a non-blocking socket and starts to connect it.  0: *fd is the
	 * caller's, *sys_err is 0 (connected), EINPROGRESS or why it failed.
	 */
	int (*open)(const struct xport_addr *a, int *fd, int *sys_err, struct err *e);
	void (*tune)(int fd);		/* socket options; best effort */
	void (*event)(struct xport_ep *ep, uint32_t epoll_events);
	void (*flush)(struct xport_ep *ep);
	/* As sendmsg and recvmsg.  pass_fd goes along with the first byte; -1: none.
	 * *got_fd is set when a descriptor came with the bytes. */
	ssize_t (*send)(int fd, struct iovec *iov, int n, int pass_fd);
	ssize_t (*recv)(int fd, struct iovec *iov, int n, int *got_fd);

	/* The handshake of the stream is done; up() comes later. Either side. */
	void (*shake)(struct xport_ep *ep);
	/* A QP or SLAB frame came over the stream. */
	void (*frame)(struct xport_ep *ep, const struct frame *f);
	/* The owner's frame, checked; false: let it go over the stream. */
	bool (*take)(struct xport_ep *ep, const struct frame *f, const void *data, uint64_t cookie,
		     int *rc);
	/* The peer has closed the stream; false: nothing to do before the end. */
	bool (*eof)(struct xport_ep *ep);
	/* The endpoint ends: gives everything back at once; true: the peer's end of it
	 * has to be waited for. */
	bool (*cut)(struct xport_ep *ep);
};

extern const struct xport_ops xport_tcp_ops, xport_shm_ops, xport_rdma_ops;

struct tx_item {
	uint8_t wire[FRAME_BYTES];
	const uint8_t *data;		/* borrowed until sent() or closed() */
	uint64_t cookie;
	uint32_t len;			/* of data */
	int fd;				/* SLAB: owned until its first byte is out; -1 */
};

struct tx {
	/* Handshake and pulse: goes out first, at the next frame boundary. */
	uint8_t ctl[4 * FRAME_BYTES];
	uint32_t ctl_len, ctl_off;
	uint32_t head, count;		/* of the ring q */
	uint32_t head_off;		/* bytes of q[head] that are out */
	bool blocked;			/* full; wait for EPOLLOUT */
	uint64_t bytes;			/* in q, not out */
	struct tx_item q[XPORT_QUEUE];
};

struct rx {
	uint32_t have;			/* bytes in part, of a header not yet all here */
	uint32_t left;			/* payload of f still to come */
	bool bulk;			/* the last frame had a payload worth a read of its own */
	uint8_t *dst;			/* of f's payload, borrowed from place(); NULL: sink */
	struct frame f;			/* valid while left > 0 */
	const uint8_t *next;		/* while a header of the batch is looked at: what follows */
	uint32_t ahead;			/* bytes there */
	uint32_t taken;			/* of them, those that the owner took with it */
	int fd;				/* came ahead of its SLAB frame; owned; -1 */
	uint8_t part[FRAME_BYTES];
};

/* What cause.h is to know of it; addresses are "" for shm. */
struct ep_facts {
	char local[ADDR_LEN_MAX + 1], remote[ADDR_LEN_MAX + 1];
	uint16_t port;
	char speaks[SPEECH_TEXT], other[HELLO_NAME_BYTES + 1];
	enum cause_stage stage;		/* valid when dead, as is closed */
	int errnum;			/* 0: none */
	bool closed;
	bool answered;			/* the peer is one of ours, and has refused the hello */
	bool proven;			/* a packet of full size was acknowledged */
	bool stuck;			/* as in cause.h */
	uint32_t mss, mtu;
	uint64_t written, unacked;	/* bytes of the stream */
	uint64_t full_at;		/* where the first packet of full size ends; 0: none yet */
	mono_t full_sent;		/* seen so by the tick after it; 0: none yet */
};

struct xport_ep {
	struct list all;		/* in group's live or dead */
	struct list dirty;		/* in group's dirty: flush me */
	struct xport_group *g;
	const struct xport_ops *ops;
	void *user;
	int fd;				/* owned; -1 when dead */
	uint32_t slot;			/* in group's slots */
	uint32_t armed;			/* epoll events asked for */
	enum ep_state state;
	enum close_reason why;		/* valid when dead */
	struct err err;			/* likewise */
	struct frame hello;		/* ours (connect) or the peer's (adopt) */
	mono_t deadline;		/* of the handshake; of the fence, 0: the next tick's */
	mono_t heard_at, ping_at;	/* last sign of life (by ticks), next PING */
	bool heard;			/* bytes since the last tick */
	bool idle;			/* the kernel held none of it, and has got none since */
	char peer[ENDPOINT_TEXT];	/* for people: "10.0.0.1:7001" */
	struct rdma_link *rdma;		/* owned; NULL: none */
	struct proc_peer process;	/* shm: who listened where this link was made to */
	char path[160];			/* xport_path() */
	struct ep_facts facts;
	struct xport_moved moved;
	struct rx rx;
	struct tx tx;
};

struct xport_slot {
	struct xport_ep *ep;		/* NULL: free */
	uint32_t next_free;		/* index + 1; 0: end of the list */
};

struct xport_group {
	int epfd;			/* borrowed */
	const struct xport_cb *cb;	/* borrowed */
	void *ctx;
	struct list live, dead, dirty;
	struct rdma_group *rdma;	/* owned; NULL: no devices */
	mono_t tick_at;			/* of the last tick */
	mono_t need_at;			/* when the first endpoint wants one, as that tick saw it */
	bool stirred;			/* since then something was heard, began or ended */
	mono_t due;			/* what xport_poll() said last; MONO_NEVER: no endpoints */
	bool busy;			/* inside event or poll */
	bool freeing;
	uint32_t frames_per_write;
	struct xport_written written;
	uint32_t slots_used, slot_free;	/* high-water mark; index + 1 or 0 */
	struct xport_slot *slots;	/* owned; XPORT_LINKS_MAX, events point here */
	uint8_t sink[SINK_BYTES];
	uint8_t batch[BATCH_BYTES];	/* of the endpoint that reads now */
};

/* Bytes came, or something that counts as such. */
static inline void ep_heard(struct xport_ep *ep)
{
	ep->heard = ep->g->stirred = true;
}

static inline bool ep_live(const struct xport_ep *ep)
{
	return ep->state < EP_FENCED;
}

int close_reason_code(enum close_reason r);		/* TALLY_E* */
enum close_reason close_reason_from_errno(int errnum);

/* Makes an endpoint with a slot, live, without a descriptor: the caller gives it one when nothing
 * can fail any more.  ESHUTDOWN, ENOMEM, EQUOTA. */
int ep_new(struct xport_group *g, const struct xport_ops *ops, const struct frame *hello,
	   void *user, mono_t now, struct xport_ep **out, struct err *e);
/* Closes the descriptor of an endpoint whose cause of death is noted, and puts it on the dead
 * list. */
void ep_gone(struct xport_ep *ep);
/* Ends ep with `why` and a text; closed() follows from the next poll. */
void ep_kill(struct xport_ep *ep, enum close_reason why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same for a frame that cannot be: the reason, which goes to the log, has its bytes, but
 * for those that may be a key. */
void ep_kill_frame(struct xport_ep *ep, const uint8_t wire[FRAME_BYTES], const char *what);
/* The same for a failed system call; `doing` is "read", "connect", ... */
void ep_kill_errno(struct xport_ep *ep, const char *doing, int errnum);

void ep_up(struct xport_ep *ep, const struct frame *peer);
/* An owner's frame that has come, payload and all. */
void ep_deliver(struct xport_ep *ep, const struct frame *f, const void *data);
/* Gives back the address that place() gave for a frame whose payload will not come. */
void ep_unplace(struct xport_ep *ep, const struct frame *f);
/* Frames that owners may send. */
static inline bool ep_owners_type(uint8_t type)
{
	return (type > FRAME_WELCOME && type < FRAME_PING) || type > FRAME_QP;
}
void ep_dirty(struct xport_ep *ep);		/* flush at the next poll */
void ep_arm(struct xport_ep *ep, uint32_t epoll_events);

/* Queues a frame with `len` bytes of payload, for which the caller fills the rest in; the queue has
 * room. */
struct tx_item *tx_push(struct xport_ep *ep, const struct frame *f, uint32_t len);
/* Queues a frame of the transport's own behind all others; false: the queue is full. */
bool tx_own(struct xport_ep *ep, const struct frame *f);
/* The same for a frame of the pulse: before all others; one too many is left out. */
void tx_control(struct xport_ep *ep, const struct frame *f);

/* ---- xport_facts.c ---- */

void ep_facts_up(struct xport_ep *ep);			/* the handshake of the stream is done */
void ep_facts_wrote(struct xport_ep *ep, size_t bytes);	/* with one call */
void ep_facts_look(struct xport_ep *ep);		/* each tick, while it is up */
/* In the next tick. */
static inline bool ep_facts_wanted(const struct xport_ep *ep)
{
	return ep->facts.full_at && !ep->facts.proven;
}
void ep_facts_end(struct xport_ep *ep, enum close_reason why);	/* its state is that before */

/* xport_adopt() for a known kind. */
int ep_adopt(struct xport_group *g, const struct xport_ops *ops, int fd, const struct frame *hello,
	     const struct frame *welcome, void *user, mono_t now, struct xport_ep **ep,
	     struct err *e);

/* The stream engine's event and flush. */
void stream_event(struct xport_ep *ep, uint32_t epoll_events);
/* Writes what is queued until the socket is full or the turn's share is out. */
void stream_flush(struct xport_ep *ep);

/* ---- xport_rdma*.c, for xport.c ---- */

struct rdma_group *rdma_group_new(struct xport_group *g);	/* NULL: no device, or no memory */
void rdma_group_free(struct rdma_group *rg);
bool rdma_group_event(struct rdma_group *rg, void *data_ptr);	/* true: it was one of its own */
/* Completions, and what became of the devices; when it wants to be called again. */
mono_t rdma_group_poll(struct rdma_group *rg, mono_t now);
uint32_t rdma_queued(const struct xport_ep *ep, uint64_t *bytes);
uint64_t rdma_detours(const struct xport_ep *ep);
void rdma_give_back(struct xport_ep *ep);	/* unsent() for what its queue borrows */
void rdma_link_free(struct rdma_link *k);

#endif
