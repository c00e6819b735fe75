/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8.h - what counts as text: UTF-8 without control characters.
 */
#ifndef TALLY_BASE_UTF8_H
#define TALLY_BASE_UTF8_H

#include "common/base/base.h"

/*
 * The length of the well-formed character at s (a NUL ends every string, so
 * looking one byte on is safe as long as the last was not NUL); 0: malformed,
 * overlong, a surrogate, out of range, or a control character (C0, DEL, C1).
 */
uint32_t utf8_char(const uint8_t *s);

/* Nothing but characters. */
bool utf8_is_text(const char *text);

/* Takes out what is no character: halves that a precision or a full buffer left over. */
void utf8_mend(char *text);

#endif
