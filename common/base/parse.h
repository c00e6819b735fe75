/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.h - the units people type and read.
 *
 * Parsers accept the whole string or nothing: 0, or TALLY_EINVAL with e filled
 * with what was wrong and the range, or an example that would have been right.
 */
#ifndef TALLY_BASE_PARSE_H
#define TALLY_BASE_PARSE_H

#include "common/base/err.h"

/* Bytes in [min, max]: "1000", "64K", "512KiB", "4M", "1.3G".  K to E are powers of 1024. */
int parse_bytes(const char *s, uint64_t min, uint64_t max, uint64_t *bytes, struct err *e);

/* Bits per second in [min, max]: "25g", "25gbit", "100mbit", "2.5Gbit/s", "9600bit".  Powers of
 * 1000; a number without a unit is in Gbit/s. */
int parse_bitrate(const char *s, uint64_t min, uint64_t max, uint64_t *bits_per_s,
		  struct err *e);

/* A decimal number in [min, max]. */
int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *v, struct err *e);

/* The same with a fraction, nine digits of which count: "34.5". */
int parse_decimal(const char *s, double min, double max, double *v, struct err *e);

/*
 * "host:port", "[v6]:port", ":port" (all addresses) or "host" (then
 * port = default_port), each optionally followed by "@bitrate" (then
 * *bits_per_s, else 0).  host gets at most ADDR_LEN_MAX characters and a NUL; an
 * IPv4 address has its four decimal numbers, "41001" is none.
 */
int parse_endpoint(const char *s, uint16_t default_port, char host[ADDR_LEN_MAX + 1],
		   uint16_t *port, uint64_t *bits_per_s, struct err *e);

/* The same without a bit rate: to listen where no card is meant. */
int parse_listen(const char *s, uint16_t default_port, char host[ADDR_LEN_MAX + 1],
		 uint16_t *port, struct err *e);

/* For somebody to connect to: with a host, a port that is not 0, and no bit rate. */
int parse_peer(const char *s, uint16_t default_port, char host[ADDR_LEN_MAX + 1],
	       uint16_t *port, struct err *e);

/* A card: "host" or "[v6]", not every address, without a port, with "@bitrate" or not. */
int parse_rail(const char *s, char host[ADDR_LEN_MAX + 1], uint64_t *bits_per_s, struct err *e);

/* "10.0.0.1:7000", "[fe80::1]:7000"; returns buf. */
#define ENDPOINT_TEXT	(ADDR_LEN_MAX + 16)	/* room enough */
const char *fmt_endpoint(char *buf, size_t len, const char *host, uint16_t port);

/* The host of such a text, "" if it is none; a longer one is cut. */
void endpoint_host(const char *endpoint, char host[ADDR_LEN_MAX + 1]);

/* "64 MiB", "1.5 GiB", "17 B" / "25 Gbit/s" / "1.2 ms"; returns buf. */
const char *fmt_bytes(char *buf, size_t len, uint64_t bytes);
const char *fmt_bitrate(char *buf, size_t len, uint64_t bits_per_s);
const char *fmt_seconds(char *buf, size_t len, double seconds);

/* Behind a noun: "" for one, else "s".  "%u server%s". */
static inline const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

#endif
