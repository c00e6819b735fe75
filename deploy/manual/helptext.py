# SPDX-License-Identifier: Apache-2.0
"""What a program's --help says, taken apart: manual pages and completion come from it.

--help is printed from the program's own table of options, so nothing here can be of another
version.  Its form is the same for all: lines of usage, a summary, blocks with a blank line
between them.  A block of options has rows "  --name ARG   text", whose text may go on in
indented lines; "Exit status:" and "Example:" begin blocks of their own; a block "Title:" with
"  WORD   text" rows is a list of words.
"""
import re
import subprocess

OPTION = re.compile(r"^  ((?:-\w|--[\w-]+)(?:, --[\w-]+)?)(?: ([A-Z]\S*))?(?: +(\S.*))?$")
WORD = re.compile(r"^  (\S+(?: [A-Z]+)?) {2,}(\S.*)$")
# "error, warn, info, debug", "sum or mean": at the start of an option's text or behind a colon
CHOICE = re.compile(r"(?:^|: )([\w]+(?:, [\w]+)*(?:,? or [\w]+|, [\w]+))(?= \(|$)")


class Option:
    def __init__(self, flags, arg, text):
        self.flags = flags.split(", ")
        self.arg = arg or ""
        self.text = text or ""

    def choices(self):
        """The values that there are, where the text lists them, else none."""
        found = CHOICE.search(self.text)
        return re.split(r",? or |, ", found[1]) if found and self.arg else []


class Help:
    """usage: lines; summary: text; options: all of them; blocks: what is to be shown, in order.

    A block is (kind, what): ("options", [Option]), ("text", text), ("example", [line]),
    ("exit", text), ("words", (title, [(word, text)])).
    """

    def __init__(self, text):
        first, *rest = re.split(r"\n\s*\n", text.rstrip("\n"))
        lines = first.split("\n")
        self.usage = [lines.pop(0).removeprefix("Usage: ")]
        while lines and lines[0].startswith("       "):
            self.usage.append(lines.pop(0).strip())
        self.summary = " ".join(lines)
        self.blocks = []
        for block in rest:
            self.blocks += read_block(block.split("\n"))

    @property
    def options(self):
        return [o for kind, what in self.blocks if kind == "options" for o in what]

    def verbs(self):
        """[(name, text)] of the verbs that the list of `tally --help` has."""
        return [(word, text) for kind, what in self.blocks if kind == "words"
                for word, text in what[1] if re.fullmatch(r"[a-z]+", word)]


def read_block(lines):
    if OPTION.match(lines[0]) and lines[0].startswith("  -"):
        return [("options", read_options(lines))]
    at = next((i for i, line in enumerate(lines) if line.startswith("Exit status:")), None)
    if at:
        return read_block(lines[:at]) + read_block(lines[at:])
    if lines[0].startswith("Exit status:"):
        return [("exit", " ".join(lines).removeprefix("Exit status: "))]
    if lines[0].startswith("Example:"):
        return [("example", [line.strip() for line in lines[1:]])]
    title = lines[0].rstrip(":") if lines[0].endswith(":") else ""
    rows = lines[1:] if title else lines
    if rows and all(WORD.match(row) or OPTION.match(row) for row in rows):
        return [("words", (title, [WORD.match(row).groups() for row in rows]))]
    return [("text", " ".join(line.strip() for line in lines))]


def read_options(lines):
    found = []
    for line in lines:
        row = OPTION.match(line)
        if row:
            found.append(Option(*row.groups()))
        else:
            found[-1].text = f"{found[-1].text} {line.strip()}".strip()
    return found


def ask(program, *words):
    """The Help of a built program, or of its verb."""
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True)
    return Help(done.stdout)
