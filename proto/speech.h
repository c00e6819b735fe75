/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speech.h - what the first bytes of a connection are, where they are not what was expected.
 *
 * For texts: a port that was mistaken for another is known by what it says, a web server by HTTP,
 * a server's data port by a frame.  Pure.
 */
#ifndef TALLY_PROTO_SPEECH_H
#define TALLY_PROTO_SPEECH_H

#include "common/base/base.h"

#define SPEECH_TEXT	64u

enum speech_of { SPEECH_CONTROL, SPEECH_DATA };

/*
 * Names the program that sends such bytes (1 to 8 are enough): "a web server (HTTP)", "a Tally data
 * link (...)". expected: what belongs on this connection. Returns buf; "" where the bytes may be
 * that, or the beginning of it, or nothing that is known and printable.
 */
const char *speech_of(enum speech_of expected, const uint8_t *bytes, size_t n,
		      char buf[SPEECH_TEXT]);

#endif
