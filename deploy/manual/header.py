# SPDX-License-Identifier: Apache-2.0
"""The public header, taken apart: one Entry for each comment and what it explains.

An entry is a comment with the declarations below it, up to an empty line or the next comment
that stands on lines of its own: functions (TALLY_API ...;) or types (typedef ...;).
"""
import re

PIECE = re.compile(r"/\*(?P<comment>.*?)\*/[ \t]*\n"
                   r"|(?P<function>TALLY_API [^;]*;)(?:[ \t]*/\*(?P<remark>.*?)\*/)?"
                   r"|(?P<type>typedef [^{;]*(?:\{.*?\}[^;]*)?;)"
                   r"|(?P<skip>[^\n]*\n)", re.S)


class Function:
    def __init__(self, declaration, remark):
        bare = " ".join(declaration.removeprefix("TALLY_API ").rstrip(";").split())
        m = re.fullmatch(r"(.*?)(\w+)\((.*)\)", bare)
        self.type, self.name = m[1].strip(), m[2]
        self.arguments = [a.strip() for a in m[3].split(",")]
        self.remark = plain(remark or "")


class Entry:
    def __init__(self, comment):
        self.comment = comment      # lines, without stars
        self.functions = []
        self.types = []             # (name, code)

    def names(self):
        return [f.name for f in self.functions] + [name for name, _ in self.types]

    def title(self):
        """The first sentence up to a colon, a semicolon or its end."""
        text = " ".join(self.comment)
        return re.split(r"[.:;](?: |$)", text, maxsplit=1)[0].strip()


def lines_of(comment):
    return [re.sub(r"^[ \t]*\*? ?", "", line, count=1).rstrip()
            for line in comment.strip().split("\n")]


def plain(comment):
    return " ".join(" ".join(lines_of(comment)).split())


def read(text):
    """(the comment on top as lines, [Entry])"""
    entries = []
    top = None
    at = 0
    while at < len(text):
        m = PIECE.match(text, at)
        at = m.end() if m else len(text)
        if not m:
            break
        if m["comment"] is not None:
            lines = lines_of(m["comment"])
            if lines[0].startswith("tally.h - "):
                top = lines
            elif not lines[0].startswith(("SPDX", "----")):
                entries.append(Entry(lines))
        elif m["skip"] == "\n":
            entries.append(Entry([]))       # for what has no comment
        elif m["function"]:
            entries[-1].functions.append(Function(m["function"], m["remark"]))
        elif m["type"]:
            name = re.search(r"(\w+)\s*;$", m["type"])[1]
            entries[-1].types.append((name, m["type"]))
        at += text.startswith("\n", at) and not m["skip"] and not m["comment"]
    entries = [e for e in entries if e.names()]
    for e in entries:
        if not e.comment:
            raise ValueError(f"tally.h: {e.names()[0]} has no comment")
    return top, entries


def errors(text):
    """[(name, help)] of the error table."""
    rows = re.findall(r'X\((E\w+),\s+\d+,\s+((?:"[^"]*"[\s\\]*)+)\)', text)
    return [(name, "".join(re.findall(r'"([^"]*)"', strings))) for name, strings in rows]
