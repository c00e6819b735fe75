# SPDX-License-Identifier: Apache-2.0
"""Manual pages in mdoc(7), written so that `mandoc -T lint` has nothing to warn of."""
import re
import textwrap

COLUMNS = 78


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-") if text.startswith("-") else \
        text.replace("\\", "\\e")
    return "\\&" + text if text[:1] in (".", "'") else text


def fill(text):
    """Lines of running text; each sentence begins on a new one."""
    lines = []
    for sentence in re.split(r"(?<=[.!?]) +", " ".join(text.split())):
        lines += [escape(line) for line in textwrap.wrap(sentence, COLUMNS,
                                                         break_long_words=False,
                                                         break_on_hyphens=False)]
    return lines


def literal(lines):
    return [".Bd -literal -offset indent",
            *(escape(line.expandtabs(8)) for line in lines), ".Ed"]


def items(rows):
    """[(head macro line, text)] as a tagged list."""
    lines = [".Bl -tag -width Ds"]
    for head, text in rows:
        lines += [f".It {head}", *fill(text)]
    return lines + [".El"]


def word(text):
    """One argument of a macro."""
    return f'"{escape(text)}"' if re.search(r"\s", text) else f"\\&{escape(text)}" \
        if re.fullmatch(r"[A-Z][a-z]|[.,:;()\[\]?!|]", text) else escape(text)


class Page:
    """names: all that it explains; release: (date, name)"""

    def __init__(self, name, section, release, title, names):
        self.name, self.section = name, section
        if title[1:2].islower():
            title = title[0].lower() + title[1:]
        others = "".join(f" ,\n.Nm {n}" for n in names[1:])
        self.lines = ['.\\" SPDX-License-Identifier: Apache-2.0', f".Dd {release[0]}",
                      f".Dt {name.upper()} {section}", f".Os {release[1]}", ".Sh NAME",
                      f".Nm {names[0]}{others}",
                      f".Nd {escape(title.rstrip('.'))}"]

    def add(self, *lines):
        self.lines += lines
        return self

    def section_of(self, title, lines):
        return self.add(f".Sh {title}", *lines) if lines else self

    def see_also(self, pages):
        """pages: (name, section), in the order of sections, then of names"""
        rows = [f".Xr {n} {s}" for n, s in sorted(set(pages), key=lambda p: (p[1], p[0]))
                if (n, s) != (self.name, self.section)]
        return self.section_of("SEE ALSO", [r + " ," for r in rows[:-1]] + rows[-1:])

    def text(self):
        return "\n".join(self.lines) + "\n"


def comment(lines):
    """A header's comment: paragraphs, code (lines that begin with a tab), items ("- ")."""
    out, text, code, rows = [], [], [], []

    def flush():
        if text:
            out.extend(([".Pp"] if out else []) + fill(" ".join(text)))
        if code:
            out.extend(literal(textwrap.dedent("\n".join(code)).split("\n")))
        if rows:
            out.extend([".Bl -bullet", *sum(([".It", *fill(r)] for r in rows), []), ".El"])
        for part in (text, code, rows):
            part.clear()

    for line in lines:
        if line.startswith("\t"):
            if text or rows:
                flush()
            code.append(line)
        elif line.startswith("- "):
            if text or code:
                flush()
            rows.append(line[2:])
        elif rows and line.startswith(" "):
            rows[-1] += " " + line.strip()
        elif not line:
            flush()
        else:
            if code or rows:
                flush()
            text.append(line)
    flush()
    return out
