// SPDX-License-Identifier: Apache-2.0
#include "common/base/utf8.h"

#include <string.h>

uint32_t utf8_char(const uint8_t *s)
{
	static const uint32_t least[] = { 0, 0x20, 0xa0, 0x800, 0x10000 };
	uint32_t c = s[0], n = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 :
			       c < 0xf8 ? 4 : 0;

	if (n > 1)
		c &= 0x7fu >> n;
	for (uint32_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c == 0x7f || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	return n;
}

bool utf8_is_text(const char *text)
{
	const uint8_t *s = (const uint8_t *)text;

	while (*s) {
		uint32_t n = utf8_char(s);

		if (!n)
			return false;
		s += n;
	}
	return true;
}

void utf8_mend(char *text)
{
	char *to = text;

	for (const char *from = text; *from; ) {
		uint32_t n = utf8_char((const uint8_t *)from);

		memmove(to, from, n);
		to += n;
		from += n ? n : 1;
	}
	*to = '\0';
}
