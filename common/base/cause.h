/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cause.h - why a connection does not come about or does not last, for people.
 *
 * Transports know facts (an errno, how far the connection came, what the kernel counted, what the
 * first bytes were); people want a cause and what to do about it.  cause_of() draws the one from
 * the other, cause_text() says it in one sentence with its remedy.  Both are pure: no clock, no
 * socket.  What it does not do: decide whether to retry, or log (trouble.h has how often).
 */
#ifndef TALLY_BASE_CAUSE_H
#define TALLY_BASE_CAUSE_H

#include "common/base/err.h"
#include "common/base/limits.h"

/* The kind of daemon that a connection is meant to reach. */
enum cause_peer { PEER_SERVER, PEER_AGENT, PEER_SCHEDULER };

/* How far the connection came. */
enum cause_stage {
	STAGE_CONNECT,			/* the kernel has not connected it */
	STAGE_GREET,			/* connected; nothing that belongs there has answered */
	STAGE_UP,			/* both sides have heard each other on it */
};

struct cause_facts {
	enum cause_peer peer;
	enum cause_stage stage;
	int errnum;			/* it ended with that; 0: in silence, or by the peer */
	bool closed;			/* by the peer, with nothing missing */
	const char *name;		/* of a server or agent; "" or NULL: not known */
	const char *local, *remote;	/* numeric hosts; "" or NULL: not known, or not chosen */
	uint16_t port;			/* of remote */
	const char *speaks;		/* "a web server (HTTP)": what answers there instead */
	const char *other;		/* a server of that name (cut) has answered; "": none has */
	bool proven;			/* packets of full size have passed */
	bool stuck;			/* one of full size is sent again and again, and the peer
					 * is heard meanwhile */
	uint64_t unacked_bytes;
	uint32_t mss, mtu;		/* of this side, as it takes the path to be; 0: not known */
};

/*
 * Sentence and remedies by peer, where %N is "server s0" or "the scheduler", %R the remote address
 * with its port, %H the same without, %P the port, %L the local address, %S `speaks` or `other`,
 * %M the MTU and %D the bytes of a ping that just fills it.
 *
 *   enum	 sentence; remedy where a server or an agent is meant; where the scheduler is */
#define CAUSE_TABLE(X) \
	X(NONE, "", "", "") \
	X(SILENT, "nothing comes from %N at %R any more", \
	  "its machine is down, it stands still, or the path between is cut", \
	  "its machine is down, it stands still, or the path between is cut") \
	X(MUTE, "%R takes connections and does not answer as %N", \
	  "it stands still, or another program has that port", \
	  "it stands still, or another program has that port: give --scheduler the HOST:PORT of " \
	  "tally-scheduler's --listen") \
	X(DENIED, "%R closes connections to %N without an answer", \
	  "it does not know this agent yet, or another program has that port", \
	  "another program has that port: give --scheduler the HOST:PORT of tally-scheduler's " \
	  "--listen") \
	X(REFUSED, "%R refuses connections to %N", \
	  "nobody listens there, or a firewall rejects them: start it with a --listen that other " \
	  "machines reach, or open TCP port %P on its machine", \
	  "nobody listens there, or a firewall rejects them: start tally-scheduler with a " \
	  "--listen that other machines reach, or open TCP port %P on its machine") \
	X(FILTERED, "%R does not answer at all to connections to %N", \
	  "a firewall drops them, or the address is wrong: open TCP port %P on its machine " \
	  "(`nc -vz %H %P` shows it), or give it another --listen", \
	  "a firewall drops them, or the address is wrong: open TCP port %P on its machine " \
	  "(`nc -vz %H %P` shows it), or give another --scheduler") \
	X(NO_ROUTE, "there is no way to %N at %R", \
	  "no route, no such machine, or a firewall that says so: `ip route get %H` shows the " \
	  "route; give the server a --listen address, or the agent a --rail, of a network that " \
	  "both have", \
	  "no route, no such machine, or a firewall that says so: `ip route get %H` shows the " \
	  "route; give --scheduler an address of a network that both have") \
	X(MTU, "small packets pass to %N at %R and large ones are lost", \
	  "a link on the way has an MTU below %M: `ping -M do -s %D %H` from %L shows it; set " \
	  "the same MTU on all NICs and switches between, and let ICMP pass", \
	  "a link on the way has an MTU below %M: `ping -M do -s %D %H` from %L shows it; set " \
	  "the same MTU on all NICs and switches between, and let ICMP pass") \
	X(LOOPBACK, "%N is announced at %H, which leads each machine to itself", \
	  "start it with --listen ADDRESS:PORT, the address that of a NIC", \
	  "give --scheduler an address of a NIC of the scheduler's machine") \
	X(HERE, "%R is this machine itself, and nobody listens there", \
	  "start it there", \
	  "start tally-scheduler on this machine, or give --scheduler an address of a NIC of the " \
	  "machine that it runs on") \
	X(LOCAL_LOOPBACK, "this side's address %L leads to no other machine, and %N is at %R", \
	  "give the agent --rail ADDRESS of a NIC, or --scheduler an address of a NIC", \
	  "give --scheduler an address of a NIC of the scheduler's machine") \
	X(LOCAL_GONE, "this machine has no address %L now", \
	  "`ip addr` lists them; bring the NIC up, or give another --rail", \
	  "`ip addr` lists them; bring the NIC up") \
	X(FAMILY, "%N is at %H and this side at %L: IPv4 and IPv6 do not reach each other", \
	  "give the agent a --rail and the server a --listen of the same family", \
	  "give --scheduler an address of the other family") \
	X(OTHER_SERVER, "%R is server %S's port, not %N's", \
	  "two servers are given one address, or it leads elsewhere: give that server another " \
	  "--listen", \
	  "give --scheduler the HOST:PORT of tally-scheduler's --listen") \
	X(WRONG_PORT, "what answers at %R is %S, not %N", \
	  "two programs are given one address, or it leads elsewhere: give that server " \
	  "another --listen", \
	  "give --scheduler the HOST:PORT of tally-scheduler's --listen")

enum cause {
#define X(e, sentence, remedy, remedy_scheduler) CAUSE_##e,
	CAUSE_TABLE(X)
#undef X
	CAUSE_END
};

/* CAUSE_NONE: the facts are of no trouble of the network. */
enum cause cause_of(const struct cause_facts *f);

/* "SENTENCE; REMEDY"; "" for CAUSE_NONE.  Returns buf, cut to fit. */
const char *cause_text(enum cause c, const struct cause_facts *f, char *buf, size_t len);

/* A vague cause says no more than that the peer is not heard, which other reports explain better:
 * it is logged, and not passed on to other nodes of the same jobs. */
bool cause_is_vague(enum cause c);

/* Facts with their texts, to be kept or handed to another thread. */
struct cause_held {
	struct cause_facts facts;	/* its texts are those below, and name is "" */
	char local[ADDR_LEN_MAX + 1], remote[ADDR_LEN_MAX + 1], speaks[64], other[64];
};
void cause_hold(struct cause_held *h, const struct cause_facts *f);

bool cause_is_loopback(const char *host);	/* "127.0.1.1", "::1"; not "" */

#endif
