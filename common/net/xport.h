/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xport.h - the contract of every transport: moving frames between an engine
 * of an agent and an engine of a server.
 *
 * What it is for: ordered, reliable delivery of frames on one link (endpoint),
 * the payload landing where the receiver says, without a copy beyond what the
 * medium needs.  What it does not do: reconnect, retry, choose routes, know
 * jobs.  Nothing survives an endpoint: after closed() the owner decides anew.
 *
 * Owner: the engine thread that made the endpoint.  All calls and callbacks
 * happen there.  Callbacks may call xport_send() and xport_close() on any
 * endpoint of the same engine, but closed() always comes from xport_poll() or
 * xport_group_free(), never from inside another call.  sent() comes from
 * xport_poll() alone.
 *
 * Life: group_new -> (connect | adopt) -> up -> frames -> close -> closed().
 *   connect: agent's side; sends HELLO given by the owner, waits for WELCOME.
 *   adopt: server's side; takes over a connected descriptor whose HELLO has
 *   been read and accepted by the listener; sends the given WELCOME.
 * closed() is the last word on an endpoint, comes exactly once for each that
 * connect or adopt returned, and names a row of the close-reason table.  Just before
 * it unsent() gives back, one by one, every payload that was given to xport_send() and
 * not reported by sent(), and unplaced() the address of one that came half.  A
 * connection that fails at once (nobody there) fails by closed() like one that fails
 * later; connect's and adopt's own errors are bad addresses and a lack of memory or
 * descriptors.
 *
 * Pulse: a link that hears nothing for LINK_PING_MS asks (PING), one that hears
 * nothing for LINK_DEAD_MS closes with TIMEOUT.  PING, PONG, HELLO, WELCOME, QP and
 * SLAB are the transport's own: the owner never sends or sees them.
 *
 * Memory: endpoints and their queues are allocated at connect/adopt, XPORT_QUEUE
 * frames each.  xport_send() on a full queue says TALLY_EAGAIN and takes nothing.
 *
 * Payload on arrival: place() says where a PUSH's or RESULT's bytes shall land
 * (length bytes, stays valid until deliver() or unplaced(), one of which comes for each
 * address); NULL: the bytes are read and thrown away and neither is called.  An owner that
 * has take() gets short payloads by it, where they were read, and place() is not asked; as
 * a read may end inside one, it must be ready for either.  Transports
 * by reference (shm) call place() never and deliver() with the address in the sender's
 * slab, resolved by the owner's resolve() (NULL: the frame is thrown away).  There
 * xport_send() sets FRAME_BYREF itself and takes no data.
 *
 * RDMA: a TCP link with a queue pair beside it.  The card writes a payload where the
 * frame's (job, slot) says, in memory that the peer has shown (xport_show), then
 * the header follows by a send on the same queue pair; sent() means that the peer's
 * card has both.  place() is asked when all of it is there, and must name the place
 * that slot means.  What cannot go that way (memory not lent, not shown, not yet
 * shown) goes over the TCP connection as it would without a card, so frames of the
 * two ways may pass each other.  Where one side has no device for the address that it
 * has on the link, the link becomes a plain TCP one before up(): xport_kind_name() is
 * the truth, xport_path() the reason.  closed() comes when nothing that was written
 * can land any more on either side: the peer has destroyed its queue pair, too, or
 * was silent for LINK_DEAD_MS.
 *
 * Errors: a peer's bad bytes close the endpoint, nothing else.  Limits: frame
 * payload SEG_BYTES_MAX; handshake HANDSHAKE_MS.
 */
#ifndef TALLY_NET_XPORT_H
#define TALLY_NET_XPORT_H

#include "common/base/cause.h"
#include "proto/frame.h"

#define XPORT_QUEUE	1024u	/* frames an endpoint holds unsent */
#define XPORT_LINKS_MAX	65536u	/* endpoints of one group */
#define XPORT_TURN_BYTES (1u << 20) /* one endpoint's share of a turn, each way */

/*   enum	name		severity  retry  code		meaning */
#define CLOSE_REASON_TABLE(X) \
	X(LOCAL,	"local",	"info",	 false, ESHUTDOWN, "closed by this side") \
	X(EOF,		"eof",		"info",	 true,	ESHUTDOWN, "closed by the peer") \
	X(RESET,	"reset",	"warn",	 true,	EIO, "reset, or cut inside a frame") \
	X(REFUSED,	"refused",	"warn",	 true,	EIO, "nobody listens there") \
	X(UNREACHABLE,	"unreachable",	"warn",	 true,	EIO, "no route, or no answer") \
	X(TIMEOUT,	"timeout",	"warn",	 true,	ETIMEDOUT, "the peer stopped answering") \
	X(HANDSHAKE,	"handshake",	"warn",	 false, EAUTH, "the hello was not accepted") \
	X(BAD_FRAME,	"bad_frame",	"error", false, EPROTO, "bytes that are no frame came") \
	X(RETRIES,	"retries",	"warn",	 true,	ETIMEDOUT, "no answer, however often") \
	X(NOT_READY,	"not_ready",	"error", true,	EPROTO, "no buffer for a header there") \
	X(ACCESS,	"access",	"error", true,	EPROTO, "a write beyond what was shown") \
	X(QUEUE_PAIR,	"queue_pair",	"warn",	 true,	EIO, "the queue pair failed") \
	X(DEVICE,	"device",	"warn",	 true,	EIO, "the card or its port went away") \
	X(VERSION,	"version",	"error", false, EVERSION, "the peer has another version") \
	X(RESOURCE,	"resource",	"error", true,	ENOMEM, "out of descriptors or memory")

enum close_reason {
#define X(e, name, sev, retry, code, help) CLOSE_##e,
	CLOSE_REASON_TABLE(X)
#undef X
	CLOSE_REASON_END
};

const char *close_reason_name(enum close_reason r);	/* "reset" */
const char *close_reason_help(enum close_reason r);
const char *close_reason_severity(enum close_reason r);	/* "info", "warn", "error" */
bool close_reason_retry(enum close_reason r);

struct xport_ep;			/* one link; opaque */
struct xport_group;			/* all links of one engine; opaque */

struct xport_cb {
	/* The handshake is done; `peer` is the decoded WELCOME (connect) or HELLO (adopt). */
	void (*up)(void *ctx, struct xport_ep *ep, const struct frame *peer);
	/* place, resolve and slab may be NULL: such frames are thrown away. */
	void *(*place)(void *ctx, struct xport_ep *ep, const struct frame *f);
	/* f and its whole payload, which is valid during this call alone.  NULL: all are placed. */
	void (*take)(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data);
	/* The link has ended: what place() gave an address for will not be delivered.  NULL:
	 * nobody wants to know. */
	void (*unplaced)(void *ctx, struct xport_ep *ep, const struct frame *f);
	const void *(*resolve)(void *ctx, struct xport_ep *ep, const struct frame *f);
	/* f and, where it has one, its whole payload are here; data is NULL without one. */
	void (*deliver)(void *ctx, struct xport_ep *ep, const struct frame *f, const void *data);
	/* A payload of xport_send() is no longer borrowed (written to the medium). */
	void (*sent)(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len);
	/* The same for one whose link has ended: whether the peer has it nobody knows. */
	void (*unsent)(void *ctx, struct xport_ep *ep, uint64_t cookie, uint32_t len);
	/* shm: the peer shows a slab of a job; fd is the callee's from here on.  An id
	 * that was shown before has a new slab now.  fd -1, no bytes: it has none any more. */
	void (*slab)(void *ctx, struct xport_ep *ep, uint32_t job, uint32_t id, int fd,
		     uint64_t bytes);
	void (*closed)(void *ctx, struct xport_ep *ep, enum close_reason why, const struct err *e);
};

/*
 * The links of one engine.  `epfd` is the engine's epoll descriptor (borrowed);
 * events carry a pointer of the group's, so the engine hands each event whose
 * data.ptr it does not know to xport_event().
 */
int xport_group_new(struct xport_group **g, int epfd, const struct xport_cb *cb, void *ctx,
		    struct err *e);
void xport_group_free(struct xport_group *g);	/* closes all; closed() for each */
/* So many of the owner's frames, 1 to FRAMES_PER_WRITE_MAX, go to a socket with one call at
 * most; without a word as many as wait. */
void xport_set_frames_per_write(struct xport_group *g, uint32_t frames);
/* Frames that sockets have taken so far, and the calls that brought them there. */
struct xport_written {
	uint64_t frames, calls;
};
struct xport_written xport_written(const struct xport_group *g);

/* True when the event was one of this group's. */
bool xport_event(struct xport_group *g, void *data_ptr, uint32_t epoll_events);

/* Deferred work (closed() calls, timeouts, sends queued by callbacks); once per
 * turn of the engine's loop.  Returns the time of its next need. */
mono_t xport_poll(struct xport_group *g, mono_t now);

struct xport_addr {
	enum { XPORT_TCP, XPORT_SHM, XPORT_RDMA } kind;
	char local[ADDR_LEN_MAX + 1];	/* tcp, rdma: source address of this rail, or "" */
	char remote[ADDR_LEN_MAX + 1];	/* tcp, rdma: numeric host; shm: socket path */
	uint16_t port;			/* tcp, rdma */
};

/* `user` is the owner's, given back by xport_user().  Both functions never block.
 * A socket path whose process is neither this one's user's nor root's: EAUTH, nothing is sent.
 * adopt takes fd on success only and tells the kinds apart by address family and hello. */
int xport_connect(struct xport_group *g, const struct xport_addr *a, const struct frame *hello,
		  void *user, mono_t now, struct xport_ep **ep, struct err *e);
int xport_adopt(struct xport_group *g, int fd, const struct frame *hello,
		const struct frame *welcome, void *user, mono_t now, struct xport_ep **ep,
		struct err *e);

/*
 * Queues f and its payload (borrowed until sent() or closed(); NULL for none or
 * by reference).  0, TALLY_EAGAIN (queue full), TALLY_ESHUTDOWN (not up).
 */
int xport_send(struct xport_ep *ep, const struct frame *f, const void *data, uint64_t cookie);

/*
 * shm only: shows the peer a memfd, in order with the frames; the fd stays the
 * caller's.  id < SLABS_PER_LINK_MAX; one used before replaces the slab it named.
 * fd -1, no bytes: the id names none from here on.
 * EINVAL (not shm, id or bytes too large), EAGAIN, ESHUTDOWN, EQUOTA (no
 * descriptor left in this process).
 */
int xport_send_slab(struct xport_ep *ep, uint32_t job, uint32_t id, int fd, uint64_t bytes);

/*
 * Memory for cards.  A region is registered once with every RDMA device here, for
 * all engines, by any thread; without devices that costs nothing and never fails.
 * peers_write: it, or parts of it, may be shown; links only send from it otherwise.
 * EQUOTA: the text says what to raise.  Whoever frees it has seen to it that nobody
 * lends or shows it.
 */
struct xport_region;
int xport_region_new(struct xport_region **r, void *base, uint64_t bytes, bool peers_write,
		     struct err *e);
/*
 * The same for memory of a device that links send from: a dma-buf, which the CPU has mapped at
 * base.  Cards read the device by themselves.  EIO: a card or its driver cannot.
 */
int xport_region_device(struct xport_region **r, int fd, void *base, uint64_t bytes,
			struct err *e);
void xport_region_free(struct xport_region *r);	/* NULL: harmless */
uint64_t xport_regions_bytes(void);		/* registered by this process now */

/* Links of this group may send from r (until xport_unlend()). ENOMEM. */
int xport_lend(struct xport_group *g, const struct xport_region *r);
void xport_unlend(struct xport_group *g, const struct xport_region *r);

/*
 * rdma only: the peer, and nobody else, may write into bytes [off, off + bytes) of r,
 * which frames of this job name by SLOT_SLAB(id, at).  What is shown already stays.
 * xport_hide() takes all of a job back; xport_shows() says whether some of it can
 * still be written to (the peer has not confirmed; a closed link shows nothing).
 * EINVAL (not rdma), ENOMEM, EQUOTA, ESHUTDOWN.
 */
int xport_show(struct xport_ep *ep, uint32_t job, uint32_t id, const struct xport_region *r,
	       uint64_t off, uint64_t bytes);
void xport_hide(struct xport_ep *ep, uint32_t job);
bool xport_shows(const struct xport_ep *ep, uint32_t job);
bool xport_seen(const struct xport_ep *ep, uint32_t job);	/* the peer shows something of it */

uint32_t xport_rdma_devices(void);	/* how many RDMA devices this process uses */
void xport_rdma_off(void);	/* none; before anything else here is called */

/* Whether a device here serves the numeric address; why says which, or why not. */
bool xport_rdma_serves(const char *addr, char *why, size_t len);
/* The same in a line for the log, with the limits that links will meet. */
void xport_rdma_say(const char *addr, char *buf, size_t len);

/* Cuts the link at once; what is queued stays unsent.  Harmless when closed. */
void xport_close(struct xport_ep *ep, enum close_reason why);

/*
 * Facts about an endpoint's trouble, for cause_of(): in closed(), and while it lives (CAUSE_MTU
 * or nothing). Peer and name are the caller's to fill in; texts are the endpoint's.
 */
void xport_facts(const struct xport_ep *ep, struct cause_facts *f);

void *xport_user(const struct xport_ep *ep);
uint32_t xport_queued(const struct xport_ep *ep);	/* frames not yet written */
uint64_t xport_queued_bytes(const struct xport_ep *ep);	/* their bytes, headers counted;
							 * 0 once it has died */
/* Up, with half of its queue empty at least; not once it has died, whenever closed() comes. */
bool xport_takes(const struct xport_ep *ep);
/* tcp: what the kernel holds of it before the card: not sent yet, or queued there.
 * What travels, and what waits for an acknowledgement that queues at the peer's own
 * busy card, is not in it.  The kernel is not asked while nothing is sent. */
uint64_t xport_backlog_bytes(struct xport_ep *ep);
bool xport_by_reference(const struct xport_ep *ep);
/* shm, of a link that this side made: the pidfd of the process that listens there, which this
 * process may signal; else an error that says why there is none. */
int xport_peer_process(const struct xport_ep *ep, struct err *e);
/* Up and rdma: its peer wants to be shown what it may write. */
bool xport_takes_regions(const struct xport_ep *ep);
const char *xport_kind_name(const struct xport_ep *ep);	/* "tcp", "shm", "rdma" */
/* For people: which card, address and MTU an rdma link took and why, or why it is tcp
 * now although rdma was asked for; "" where there is nothing to say. */
const char *xport_path(const struct xport_ep *ep);
/* Payload frames that an rdma link sent over its TCP connection. */
uint64_t xport_detours(const struct xport_ep *ep);

/*
 * Payload bytes of a link so far, sent (done) and received.  direct: by the card, from and
 * to registered memory, which is where their owner put them and wants them.  copied: by the
 * kernel on their way (TCP), or into a work request (tiny ones).  By reference: neither.
 */
struct xport_moved {
	uint64_t direct, copied;
};
struct xport_moved xport_moved(const struct xport_ep *ep);

/*
 * The listener's half, on the control thread: reads one HELLO from a fresh
 * connection.  xport_hello_read() is called when fd is readable: TALLY_EAGAIN
 * (not all there), 0 (*hello filled), else close it.  Never reads past the HELLO.
 */
struct xport_hello {
	uint8_t wire[FRAME_BYTES];
	uint32_t got;
};
int xport_hello_read(struct xport_hello *h, int fd, struct frame *hello);

#endif
