// SPDX-License-Identifier: Apache-2.0
/*
 * parse.c - numbers with units, both ways, in integers only.
 *
 * A number is read as whole part and up to nine digits of fraction, then
 * multiplied by its unit in 128 bits, so "1.3G" is the same on every machine and
 * nothing overflows silently.  Whatever is left unread is an error.
 */
#include "common/base/parse.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FRACTION	1000000000u	/* nine digits */
#define GIGA		3u		/* as read_magnitude() counts */

struct decimal {
	unsigned __int128 whole;	/* 2^64: that or more */
	uint32_t fraction;	/* parts of FRACTION; further digits are dropped */
};

/* Digits with an optional fraction; returns the first byte behind, NULL: no number. */
static const char *read_decimal(const char *s, struct decimal *d)
{
	const unsigned __int128 too_much = (unsigned __int128)UINT64_MAX + 1;

	*d = (struct decimal){ 0 };
	if (!isdigit((unsigned char)*s))
		return NULL;
	for (; isdigit((unsigned char)*s); s++)
		d->whole = MIN(d->whole * 10 + (unsigned int)(*s - '0'), too_much);
	if (*s != '.')
		return s;
	if (!isdigit((unsigned char)*++s))
		return NULL;
	for (uint32_t place = FRACTION / 10; isdigit((unsigned char)*s); s++, place /= 10)
		d->fraction += (uint32_t)(*s - '0') * place;
	return s;
}

/* d * unit, rounded down, if it is in range; fmt: how a limit is written. */
static int scale(const char *s, struct decimal d, uint64_t unit, uint64_t min, uint64_t max,
		 const char *(*fmt)(char *buf, size_t len, uint64_t v), uint64_t *v,
		 struct err *e)
{
	unsigned __int128 x = d.whole * unit + (unsigned __int128)d.fraction * unit / FRACTION;
	char low[32], high[32];

	if (x < min || x > max)
		return err_set(e, TALLY_EINVAL, "%s is out of range; from %s to %s", s,
			       fmt(low, sizeof(low), min), fmt(high, sizeof(high), max));
	*v = (uint64_t)x;
	return 0;
}

/* Takes one letter of "kmgtpe" off *s: 1 to 6, its place; 0: there is none. */
static uint32_t read_magnitude(const char **s)
{
	static const char letters[] = "kmgtpe";
	const char *at = **s ? strchr(letters, tolower((unsigned char)**s)) : NULL;

	if (!at)
		return 0;
	++*s;
	return (uint32_t)(at - letters) + 1;
}

static uint64_t power(uint64_t base, uint32_t n)
{
	uint64_t v = 1;

	while (n--)
		v *= base;
	return v;
}

static bool is_one_of(const char *s, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcasecmp(s, words[i]))
			return true;
	return false;
}

int parse_bytes(const char *s, uint64_t min, uint64_t max, uint64_t *bytes, struct err *e)
{
	static const char *const ends[] = { "", "b", "i", "ib" };
	struct decimal d;
	const char *p = read_decimal(s, &d);
	uint32_t magnitude;

	if (p) {
		p += *p == ' ' && p[1];
		magnitude = read_magnitude(&p);
		if (is_one_of(p, ends, magnitude ? ARRAY_SIZE(ends) : 2) &&
		    (magnitude || !d.fraction))
			return scale(s, d, power(1024, magnitude), min, max, fmt_bytes, bytes, e);
	}
	return err_set(e, TALLY_EINVAL, "\"%s\" is no number of bytes; say 4096, 512K or 1.5GiB",
		       s);
}

int parse_bitrate(const char *s, uint64_t min, uint64_t max, uint64_t *bits_per_s,
		  struct err *e)
{
	static const char *const ends[] = { "", "bit", "bit/s", "bps" };
	struct decimal d;
	const char *p = read_decimal(s, &d);
	uint32_t magnitude;

	if (p) {
		bool bare = !*p;

		p += *p == ' ' && p[1];
		magnitude = bare ? GIGA : read_magnitude(&p);
		if (is_one_of(p, ends, ARRAY_SIZE(ends)) && (magnitude || !d.fraction))
			return scale(s, d, power(1000, magnitude), min, max, fmt_bitrate,
				     bits_per_s, e);
	}
	return err_set(e, TALLY_EINVAL, "\"%s\" is no bit rate; say 25gbit, 100mbit or 2.5Gbit/s",
		       s);
}

int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *v, struct err *e)
{
	struct decimal d;

	if (!*s || s[strspn(s, "0123456789")])
		return err_set(e, TALLY_EINVAL, "\"%s\" is no whole number; say %" PRIu64, s, min);
	if (!read_decimal(s, &d) || d.whole < min || d.whole > max)
		return err_set(e, TALLY_EINVAL, "%s is out of range; from %" PRIu64 " to %" PRIu64,
			       s, min, max);
	*v = (uint64_t)d.whole;
	return 0;
}

int parse_decimal(const char *s, double min, double max, double *v, struct err *e)
{
	struct decimal d;
	const char *p = read_decimal(s, &d);
	double x;

	if (!p || *p)
		return err_set(e, TALLY_EINVAL, "\"%s\" is no decimal number; say 34.5", s);
	x = (double)d.whole + (double)d.fraction / FRACTION;
	if (!(x >= min && x <= max))
		return err_set(e, TALLY_EINVAL, "%s is out of range; from %.10g to %.10g", s, min,
			       max);
	*v = x;
	return 0;
}

/*
 * "41001", "0x7f.1", "010.0.0.1": nobody's name, but looking it up gives an IPv4 address that
 * nobody meant.
 */
static bool is_odd_number(const char *host, size_t len)
{
	char text[ADDR_LEN_MAX + 1];
	struct in_addr a;

	memcpy(text, host, len);
	text[len] = '\0';
	return inet_aton(text, &a) && inet_pton(AF_INET, text, &a) != 1;
}

/* A host's characters, or a bracketed address's; names are not looked up here. */
static bool host_ok(const char *host, size_t len, bool bracketed)
{
	if (len > ADDR_LEN_MAX || (bracketed && !len))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)host[i]) &&
		    (!host[i] || !strchr(bracketed ? ":.%-_" : ".-_", host[i])))
			return false;
	return !is_odd_number(host, len);
}

/* What an address may have beside its host, and how it is said. */
struct form {
	bool port, rate;
	const char *examples;
};

static const struct form endpoint_form = {
	.port = true, .rate = true, .examples = "10.0.0.1:7000, [fe80::1]:7000, a port alone as "
						":7000, or host:7000@25gbit",
};
static const struct form listen_form = {
	.port = true, .examples = "10.0.0.1:7000, [fe80::1]:7000, or a port alone as :7000",
};
static const struct form peer_form = {
	.port = true, .examples = "10.0.0.1:7000, [fe80::1]:7000 or host:7000",
};
static const struct form rail_form = {
	.rate = true, .examples = "10.0.0.1, [fe80::1] or host@25gbit",
};

struct endpoint {
	const char *host;
	size_t host_len;
	bool has_port;
	uint64_t port, bits_per_s;
};

/* The part before '@', [s, end). */
static bool read_address(const char *s, const char *end, struct endpoint *ep)
{
	bool bracketed = *s == '[';
	const char *stop = memchr(s, bracketed ? ']' : ':', (size_t)(end - s));
	char port[8];
	size_t len;

	if (bracketed && !stop)
		return false;
	ep->host = s + bracketed;
	ep->host_len = (size_t)((stop ? stop : end) - ep->host);
	if (!host_ok(ep->host, ep->host_len, bracketed))
		return false;
	stop = stop ? stop + bracketed : end;
	if (stop == end)
		return ep->host_len > 0;
	len = (size_t)(end - stop) - 1;
	if (*stop != ':' || len >= sizeof(port))
		return false;
	ep->has_port = true;
	memcpy(port, stop + 1, len);
	port[len] = '\0';
	return !parse_u64(port, 0, UINT16_MAX, &ep->port, NULL);
}

static int read_endpoint(const char *s, const struct form *f, struct endpoint *ep, struct err *e)
{
	const char *at = strchr(s, '@');
	int rc;

	if (!read_address(s, at ? at : s + strlen(s), ep))
		return err_set(e, TALLY_EINVAL, "\"%s\" is no address; say %s", s, f->examples);
	if (ep->has_port && !f->port)
		return err_set(e, TALLY_EINVAL, "\"%s\": no port belongs here; say %s", s,
			       f->examples);
	if (!at)
		return 0;
	if (!f->rate)
		return err_set(e, TALLY_EINVAL, "\"%s\": no bit rate belongs here; say %s", s,
			       f->examples);
	rc = parse_bitrate(at + 1, NIC_BITS_MIN, NIC_BITS_MAX, &ep->bits_per_s, e);
	if (!rc && !ep->bits_per_s)
		rc = err_set(e, TALLY_EINVAL, "\"%s\": a card of 0 bit/s", s);
	return rc;
}

static void take_host(const struct endpoint *ep, char host[ADDR_LEN_MAX + 1])
{
	memcpy(host, ep->host, ep->host_len);
	host[ep->host_len] = '\0';
}

static int with_port(const char *s, const struct form *f, uint16_t default_port,
		     char host[ADDR_LEN_MAX + 1], uint16_t *port, uint64_t *bits_per_s,
		     struct err *e)
{
	struct endpoint ep = { .port = default_port };
	int rc = read_endpoint(s, f, &ep, e);

	if (rc)
		return rc;
	take_host(&ep, host);
	*port = (uint16_t)ep.port;
	*bits_per_s = ep.bits_per_s;
	return 0;
}

int parse_endpoint(const char *s, uint16_t default_port, char host[ADDR_LEN_MAX + 1],
		   uint16_t *port, uint64_t *bits_per_s, struct err *e)
{
	return with_port(s, &endpoint_form, default_port, host, port, bits_per_s, e);
}

int parse_listen(const char *s, uint16_t default_port, char host[ADDR_LEN_MAX + 1],
		 uint16_t *port, struct err *e)
{
	uint64_t none;

	return with_port(s, &listen_form, default_port, host, port, &none, e);
}

int parse_peer(const char *s, uint16_t default_port, char host[ADDR_LEN_MAX + 1],
	       uint16_t *port, struct err *e)
{
	struct endpoint ep = { .port = default_port };
	int rc = read_endpoint(s, &peer_form, &ep, e);

	if (rc)
		return rc;
	if (!ep.host_len)
		return err_set(e, TALLY_EINVAL, "it names no host");
	if (!ep.port)
		return err_set(e, TALLY_EINVAL, "its port cannot be 0");
	take_host(&ep, host);
	*port = (uint16_t)ep.port;
	return 0;
}

static bool is_every_address(const char *host)
{
	struct in6_addr v6;
	struct in_addr v4;

	return (inet_pton(AF_INET, host, &v4) == 1 && v4.s_addr == INADDR_ANY) ||
	       (inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6));
}

int parse_rail(const char *s, char host[ADDR_LEN_MAX + 1], uint64_t *bits_per_s, struct err *e)
{
	char name[ADDR_LEN_MAX + 1];
	struct endpoint ep = { 0 };
	int rc = read_endpoint(s, &rail_form, &ep, e);

	if (rc)
		return rc;
	take_host(&ep, name);
	if (is_every_address(name))
		return err_set(e, TALLY_EINVAL, "\"%s\" is no card's address; say %s", s,
			       rail_form.examples);
	memcpy(host, name, ep.host_len + 1);
	*bits_per_s = ep.bits_per_s;
	return 0;
}

const char *fmt_endpoint(char *buf, size_t len, const char *host, uint16_t port)
{
	snprintf(buf, len, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
	return buf;
}

void endpoint_host(const char *endpoint, char host[ADDR_LEN_MAX + 1])
{
	const char *colon = strrchr(endpoint, ':');
	size_t len = colon ? (size_t)(colon - endpoint) : 0;

	if (len >= 2 && endpoint[0] == '[') {
		endpoint++;
		len -= 2;
	}
	len = MIN(len, ADDR_LEN_MAX);
	memcpy(host, endpoint, len);
	host[len] = '\0';
}

/* v in the largest unit that leaves at least 1 of it, one decimal where it is not 0. */
static const char *fmt_scaled(char *buf, size_t len, uint64_t v, uint32_t base,
			      const char *const *units, uint32_t nunits)
{
	unsigned __int128 unit = 1, tenths = (unsigned __int128)v * 10;
	uint32_t u = 0;

	while (tenths >= 10 * (unsigned __int128)base && u + 1 < nunits) {
		u++;
		unit *= base;
		tenths = ((unsigned __int128)v * 10 + unit / 2) / unit;
	}
	if (tenths % 10)
		snprintf(buf, len, "%" PRIu64 ".%u %s", (uint64_t)(tenths / 10),
			 (unsigned int)(tenths % 10), units[u]);
	else
		snprintf(buf, len, "%" PRIu64 " %s", (uint64_t)(tenths / 10), units[u]);
	return buf;
}

const char *fmt_bytes(char *buf, size_t len, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };

	return fmt_scaled(buf, len, bytes, 1024, units, ARRAY_SIZE(units));
}

const char *fmt_bitrate(char *buf, size_t len, uint64_t bits_per_s)
{
	static const char *const units[] = { "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s" };

	return fmt_scaled(buf, len, bits_per_s, 1000, units, ARRAY_SIZE(units));
}

const char *fmt_seconds(char *buf, size_t len, double seconds)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	double ns = seconds * 1e9;

	if (ns > 0 && ns < 1) {
		snprintf(buf, len, "%.2g %s", ns, units[0]);
		return buf;
	}
	if (!(ns >= 1 && ns < 1e19)) {	/* zero, nonsense, or more than an age */
		snprintf(buf, len, isfinite(seconds) ? "%.0f s" : "%f s", seconds);
		return buf;
	}
	return fmt_scaled(buf, len, (uint64_t)(ns + 0.5), 1000, units, ARRAY_SIZE(units));
}
