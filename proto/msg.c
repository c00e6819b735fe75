// SPDX-License-Identifier: Apache-2.0
/*
 * msg.c - what all control messages share: the prefix, their names, their memory.
 *
 * A message comes in as prefix (msg_prefix_decode: is it worth reading on?),
 * body (msg_decode.c: protobuf-c unpacks into the caller's block, the result is
 * turned into the struct and checked) and goes out the other way (msg_encode.c:
 * checked, measured, packed).  Both walk the table in msg_table.c.
 */
#include "proto/msg.h"

#include "common/base/bytes.h"
#include "proto/msg_table.h"
#include "proto/speech.h"

#define VERSION_CEIL	256u		/* what says that it has more is not Tally */

const char *msg_kind_name(uint32_t kind)
{
	return kind == NODE_AGENT ? "agent" : kind == NODE_SERVER ? "server" : "unknown";
}

const char *msg_type_name(uint32_t type)
{
	switch (type) {
#define X(e, num, s, help) case MSG_##e: return #e;
	MSG_TABLE(X)
#undef X
	}
	return "?";
}

int msg_prefix_decode(const uint8_t prefix[MSG_PREFIX_BYTES], uint32_t *body_bytes,
		      uint32_t *type, struct err *e)
{
	uint32_t bytes = get_le32(prefix), t = get_le16(prefix + 4);
	uint32_t version = get_le16(prefix + 6);
	char who[SPEECH_TEXT];

	if (version != MSG_VERSION && *speech_of(SPEECH_CONTROL, prefix, MSG_PREFIX_BYTES, who))
		return err_set(e, TALLY_EPROTO, "%s is at the other end, and this is Tally's "
			       "control protocol", who);
	if (version >= VERSION_CEIL)
		return err_set(e, TALLY_EPROTO, "bytes came that are not Tally's control protocol");
	if (version != MSG_VERSION)
		return err_set(e, TALLY_EVERSION, "message of version %u, this side speaks %u",
			       version, MSG_VERSION);
	if (!msg_shape_of(t))
		return err_set(e, TALLY_EPROTO, "message of unknown type %u", t);
	if (bytes > CTL_MSG_BYTES_MAX)
		return err_set(e, TALLY_EPROTO, "%s of %u bytes, at most %u are allowed",
			       msg_type_name(t), bytes, CTL_MSG_BYTES_MAX);
	*body_bytes = bytes;
	*type = t;
	return 0;
}

/*
 * Small elements cost most: a row of a report takes 7 bytes on the wire, but 80
 * in the unpacker's list of members (40, doubled as the list grows), 150 unpacked
 * with pointer and block header, and 200 in the struct.  Hence the factor.  The
 * limits on counts make it end: the largest set of elements any message may hold
 * (REPORT) stays below MSG_MEM_ELEMENTS, however long the body, and the rest is
 * text, which costs itself.  Tests hold both to the worst legal messages.
 */
#define MSG_MEM_FIXED		4096u
#define MSG_MEM_FACTOR		80u
#define MSG_MEM_ELEMENTS	(24u << 20)

size_t msg_mem_need(uint32_t body_bytes)
{
	size_t body = body_bytes;

	return MSG_MEM_FIXED + MIN(MSG_MEM_FACTOR * body, body + MSG_MEM_ELEMENTS);
}
