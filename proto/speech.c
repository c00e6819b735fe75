// SPDX-License-Identifier: Apache-2.0
/*
 * speech.c - a table of beginnings.
 *
 * Beginnings that are Tally's own are looked at first.  Whatever else is text is shown: people
 * know their programs by their greetings.
 */
#include "proto/speech.h"

#include <stdio.h>
#include <string.h>

#include "common/base/bytes.h"
#include "proto/frame.h"
#include "proto/msg.h"

#define SHOWN	16u
#define DATA	"a Tally data link (a server's --listen port)"
#define CONTROL	"a Tally control connection (a scheduler's port)"

static const struct {
	const char *begin;
	uint8_t len;
	const char *who;
} beginnings[] = {
	{ "HTTP/", 5, "a web server (HTTP)" },
	{ "<!DOCTYP", 8, "a web server (HTTP)" },
	{ "<html", 5, "a web server (HTTP)" },
	{ "GET ", 4, "a web client (HTTP)" },
	{ "HEAD ", 5, "a web client (HTTP)" },
	{ "POST ", 5, "a web client (HTTP)" },
	{ "PUT ", 4, "a web client (HTTP)" },
	{ "OPTIONS ", 8, "a web client (HTTP)" },
	{ "CONNECT ", 8, "a web client (HTTP)" },
	{ "PRI * HT", 8, "a web client (HTTP/2)" },
	{ "\0\0\x12\4\0\0\0\0", 8, "a web server (HTTP/2)" },
	{ "SSH-", 4, "an SSH server or client" },
	{ "\x15\3", 2, "a TLS server or client" },
	{ "\x16\3", 2, "a TLS server or client" },
};

static bool is_frame(const uint8_t *bytes, size_t n)
{
	uint8_t magic[4];

	put_le32(magic, FRAME_MAGIC);
	return n && !memcmp(bytes, magic, MIN(n, sizeof(magic)));
}

static bool is_message(const uint8_t *bytes, size_t n)
{
	uint32_t type = n >= MSG_PREFIX_BYTES ? get_le16(bytes + 4) : MSG_NONE;

	return type > MSG_NONE && type < MSG_TYPE_END && get_le16(bytes + 6) == MSG_VERSION &&
	       get_le32(bytes) <= CTL_MSG_BYTES_MAX;
}

static const char *text_of(const uint8_t *bytes, size_t n, char buf[SPEECH_TEXT])
{
	char shown[SHOWN + 1];
	size_t k = 0;

	while (k < MIN(n, SHOWN) && bytes[k] >= 0x20 && bytes[k] < 0x7f) {
		shown[k] = (char)bytes[k];
		k++;
	}
	shown[k] = '\0';
	buf[0] = '\0';
	if (k >= 4 && (k == n || k == SHOWN || bytes[k] == '\r' || bytes[k] == '\n'))
		snprintf(buf, SPEECH_TEXT, "another program, which says \"%s\"", shown);
	return buf;
}

const char *speech_of(enum speech_of expected, const uint8_t *bytes, size_t n,
		      char buf[SPEECH_TEXT])
{
	const char *who = NULL;

	buf[0] = '\0';
	if (is_frame(bytes, n))
		who = expected == SPEECH_DATA ? "" : DATA;
	else if (is_message(bytes, n))
		who = expected == SPEECH_CONTROL ? "" : CONTROL;
	for (size_t i = 0; !who && i < ARRAY_SIZE(beginnings); i++) {
		size_t len = beginnings[i].len;

		if (n >= len && !memcmp(bytes, beginnings[i].begin, len))
			who = beginnings[i].who;
	}
	if (!who)
		return n ? text_of(bytes, n, buf) : buf;
	snprintf(buf, SPEECH_TEXT, "%s", who);
	return buf;
}
