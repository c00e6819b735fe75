// SPDX-License-Identifier: Apache-2.0
/*
 * Names to addresses: numeric ones and socket paths at once, names by libuv's
 * thread pool, so that a slow name server never holds up the loop.
 *
 * A cancelled look-up may still be running on its thread; its block lives until
 * libuv reports it, then goes without a word.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>
#undef MIN			/* uv.h drags in sys/param.h's */
#undef MAX

#include "common/rt/loop_int.h"

struct resolve {
	uv_getaddrinfo_t uv;
	void (*fn)(void *ctx, const struct sock_addr *addrs, uint32_t n, const struct err *e);
	void *ctx;
	bool cancelled;
	char host[ADDR_LEN_MAX + 1];
};

bool sock_addr_numeric(struct sock_addr *a, const char *host, uint16_t port)
{
	struct sock_addr r = { 0 };

	if (host[0] == '/' && strlen(host) < sizeof(r.un.sun_path)) {
		r.un.sun_family = AF_UNIX;
		memcpy(r.un.sun_path, host, strlen(host));
		r.len = sizeof(r.un);
	} else if (inet_pton(AF_INET, host, &r.in.sin_addr) == 1) {
		r.in.sin_family = AF_INET;
		r.in.sin_port = htons(port);
		r.len = sizeof(r.in);
	} else if (inet_pton(AF_INET6, host, &r.in6.sin6_addr) == 1) {
		r.in6.sin6_family = AF_INET6;
		r.in6.sin6_port = htons(port);
		r.len = sizeof(r.in6);
	} else {
		return false;
	}
	*a = r;
	return true;
}

bool sock_addr_from_sa(struct sock_addr *a, const struct sockaddr *sa, socklen_t len)
{
	if (len > sizeof(a->un))
		return false;
	memset(a, 0, sizeof(*a));
	a->len = len;
	memcpy(&a->sa, sa, len);
	return true;
}

const char *sock_addr_text(const struct sock_addr *a, char *buf, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "";

	buf[0] = '\0';
	switch (a->sa.sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &a->in.sin_addr, ip, sizeof(ip));
		snprintf(buf, len, "%s:%u", ip, ntohs(a->in.sin_port));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &a->in6.sin6_addr, ip, sizeof(ip));
		snprintf(buf, len, "[%s]:%u", ip, ntohs(a->in6.sin6_port));
		break;
	case AF_UNIX:
		if (a->len > offsetof(struct sockaddr_un, sun_path))
			snprintf(buf, len, "%.*s", (int)sizeof(a->un.sun_path), a->un.sun_path);
		break;
	}
	return buf;
}

static uint32_t collect(const struct addrinfo *ai, struct sock_addr addrs[RESOLVE_ADDRS_MAX])
{
	uint32_t n = 0;

	for (; ai && n < RESOLVE_ADDRS_MAX; ai = ai->ai_next)
		n += sock_addr_from_sa(&addrs[n], ai->ai_addr, ai->ai_addrlen);
	return n;
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *ai)
{
	struct resolve *r = req->data;
	struct sock_addr addrs[RESOLVE_ADDRS_MAX];
	uint32_t n = status == 0 ? collect(ai, addrs) : 0;
	struct err e = { 0 };

	if (n == 0)
		err_set(&e, status == UV_ENOMEM ? TALLY_ENOMEM : TALLY_EIO,
			"cannot find the address of %s: %s", r->host,
			status < 0 ? uv_strerror(status) : "it has none");
	if (!r->cancelled)
		r->fn(r->ctx, addrs, n, &e);
	uv_freeaddrinfo(ai);
	free(r);
}

int resolve_start(struct loop *l, struct resolve **out, const char *host, uint16_t port,
		  void (*fn)(void *ctx, const struct sock_addr *addrs, uint32_t n,
			     const struct err *e),
		  void *ctx, struct err *e)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct resolve *r = calloc(1, sizeof(*r));
	char service[8];
	int code;

	if (!r)
		return err_set(e, TALLY_ENOMEM, "no memory to look up %s", host);
	r->fn = fn;
	r->ctx = ctx;
	r->uv.data = r;
	snprintf(r->host, sizeof(r->host), "%s", host);
	snprintf(service, sizeof(service), "%u", port);
	code = uv_getaddrinfo(loop_uv(l), &r->uv, on_resolved, host, service, &hints);
	if (code < 0) {
		free(r);
		return err_set(e, err_from_errno(-code), "cannot look up %s: %s", host,
			       uv_strerror(code));
	}
	*out = r;
	return 0;
}

void resolve_cancel(struct resolve *r)
{
	if (!r)
		return;
	r->cancelled = true;
	uv_cancel((uv_req_t *)&r->uv);
}
