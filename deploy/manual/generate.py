#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completions of a build: generate.py BUILD OUT.

From what --help of the programs in BUILD/bin prints (helptext.py), from client/tally.h
(header.py) and from the table of error codes.  In OUT: man/man1, man3, man8, bash/tally,
zsh/_tally.  The date of the pages is that of the newest release in deploy/debian/changelog.
"""
import email.utils
import os
import re
import shutil
import sys

import completion
import header
import helptext
import mdoc

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DAEMONS = ("tally-scheduler", "tally-server", "tally-agent")
CONFIG = ("Every option but --config, --check, --show-config, --help and --version may also "
          "stand in the file that --config names, as a line \"name = value\" without the "
          "dashes. The command line wins; a line that begins with # is a comment. A name that "
          "does not exist and a value out of range end the program, with file and line.")
LIBRARY = ("libtally", 3)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def release():
    """(its date, its name), of the newest one."""
    newest = re.search(r"^tally \((.*?)\).*?^ -- .*?>  (.*?)$", read("deploy/debian/changelog"),
                       re.M | re.S)
    when = email.utils.parsedate_to_datetime(newest[2])
    return when.strftime("%B %-d, %Y"), f"Tally {newest[1]}"


def new_page(name, section, title, names):
    return mdoc.Page(name, section, release(), title, names)


# ---- programs --------------------------------------------------------------------

def option_rows(options):
    for o in options:
        flags = " , ".join(f"Fl {f[1:].replace('-', chr(92) + '-')}" for f in o.flags)
        yield flags + (f" Ar {mdoc.word(o.arg)}" if o.arg else ""), o.text


def program_page(name, section, title, h, pages):
    page = new_page(name.replace(" ", "-"), section, title, [name.replace(" ", "-")])
    usage = []
    for line in h.usage:
        usage += [f".Nm {name}", *mdoc.fill(line.removeprefix(name).strip())]
    page.section_of("SYNOPSIS", usage)
    page.section_of("DESCRIPTION", mdoc.fill(h.summary))
    for kind, what in h.blocks:
        if kind == "options":
            page.add(*mdoc.items(option_rows(what)))
        elif kind == "text":
            page.add(".Pp", *mdoc.fill(what))
        elif kind == "words":
            page.add(*([".Pp", *mdoc.fill(what[0] + ":")] if what[0] else []))
            page.add(*mdoc.items((f"Cm {mdoc.word(word)}", text) for word, text in what[1]))
    if name in DAEMONS:
        page.section_of("CONFIGURATION FILE", mdoc.fill(CONFIG))
    for kind, what in h.blocks:
        if kind == "exit":
            page.section_of("EXIT STATUS", mdoc.fill(what))
    for kind, what in h.blocks:
        if kind == "example":
            page.section_of("EXAMPLES", mdoc.literal(what))
    return page.see_also(pages)


# ---- the library -----------------------------------------------------------------

def synopsis(entry):
    lines = [".In tally.h"]
    for f in entry.functions:
        lines += [f".Ft {mdoc.word(f.type)}", f".Fo {f.name}",
                  *(f'.Fa "{mdoc.escape(a)}"' for a in f.arguments), ".Fc"]
    for _, code in entry.types:
        lines += mdoc.literal(code.split("\n"))
    return lines


def library_entry(entry, errors, known):
    names = entry.names()
    page = new_page(names[0], 3, entry.title(), names)
    page.section_of("LIBRARY", ["libtally, -ltally"])
    page.section_of("SYNOPSIS", synopsis(entry))
    page.section_of("DESCRIPTION", mdoc.comment(entry.comment))
    remarks = [(f"Fn {f.name}", f.remark) for f in entry.functions if f.remark]
    if remarks:
        page.add(*mdoc.items(remarks))
    told = " ".join(entry.comment)
    page.section_of("ERRORS", mdoc.items((f"Bq Er TALLY_{name}", text) for name, text in errors
                    if re.search(rf"\b(TALLY_)?{name}\b", told)) if
                    any(re.search(rf"\b(TALLY_)?{n}\b", told) for n, _ in errors) else [])
    used = told + " ".join(a for f in entry.functions for a in f.arguments)
    return page.see_also([LIBRARY] + [(known[n], 3) for n in re.findall(r"\btally_\w+", used)
                                      if n in known and known[n] != names[0]])


def library_pages():
    """(name, section, text) of libtally(3) and one page for each entry of tally.h, and links for
    what else it explains."""
    top, entries = header.read(read("client/tally.h"))
    errors = header.errors(read("common/base/err.h"))
    known = {name: e.names()[0] for e in entries for name in e.names()}
    page = new_page(*LIBRARY, top[0].split(": ", 1)[1], ["libtally"])
    page.section_of("LIBRARY", ["libtally, -ltally"])
    page.section_of("SYNOPSIS", [".In tally.h"])
    page.section_of("DESCRIPTION", mdoc.comment(top[2:]))
    page.section_of("ERRORS", mdoc.items((f"Bq Er TALLY_{n}", text) for n, text in errors))
    page.see_also([("tally", 1)] + [(e.names()[0], 3) for e in entries])
    yield page.name, 3, page.text()
    for e in entries:
        yield e.names()[0], 3, library_entry(e, errors, known).text()
        for other in e.names()[1:]:
            yield other, 3, Link(f"{e.names()[0]}.3")


# ---- all of it -------------------------------------------------------------------

class Link(str):
    """A page that is another one: the name of that file."""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if isinstance(text, Link):
        os.symlink(text, path)
        return
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def main(build, out):
    bin_dir = os.path.join(build, "bin")
    tally = helptext.ask(os.path.join(bin_dir, "tally"))
    verbs = {v: text for v, text in tally.verbs()}
    daemons = [(d, helptext.ask(os.path.join(bin_dir, d))) for d in DAEMONS]
    helps = [(f"tally {v}", helptext.ask(os.path.join(bin_dir, "tally"), v)) for v in verbs]
    every = [("tally", 1), LIBRARY] + [(d, 8) for d in DAEMONS]
    pages = [program_page("tally", 1, tally.summary, tally,
                          every + [(f"tally-{v}", 1) for v in verbs])]
    pages += [program_page(name, 1, verbs[name.split()[1]], h, every) for name, h in helps]
    pages += [program_page(name, 8, h.summary, h, every) for name, h in daemons]
    texts = [(p.name, p.section, p.text()) for p in pages] + list(library_pages())
    shutil.rmtree(out, ignore_errors=True)
    for name, section, text in texts:
        write(os.path.join(out, f"man/man{section}/{name}.{section}"), text)
    programs = daemons + helps
    write(os.path.join(out, "bash/tally"), completion.bash(programs, verbs))
    write(os.path.join(out, "zsh/_tally"), completion.zsh(programs, verbs))


if __name__ == "__main__":
    main(*sys.argv[1:])
