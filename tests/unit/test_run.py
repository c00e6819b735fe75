#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/run.py says at the end: what was left out, and last the totals.  And that a story
(tests/lib.sh) leaves nothing behind."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import run      # noqa: E402

LIB = os.path.join(os.path.dirname(os.path.abspath(run.__file__)), "lib.sh")
# The signal comes when the process is there and not yet noted.
STRUCK = f"""
. "{LIB}"
eval "real_$(declare -f adopt)"
adopt()
{{
	adopt() {{ real_adopt "$@"; }}
	echo $1
	kill -TERM $$
}}
start_daemon it sleep 600
"""
# The signal comes when a namespace is made and not yet all of what belongs to it.
MAKING = f"""
. "{LIB}"
ip()
{{
	[ "$1 $2" != "netns del" ] || echo "$3 is gone"
	[ "$1 $2" != "netns add" ] || {{ echo "$3"; kill -TERM $$; }}
}}
ns_add gpu2
"""
# The signal comes to all of its group while it waits, which it does nearly all the time.
WAITING = f"""
. "{LIB}"
jobs() {{ sleep 0.05; builtin jobs "$@"; }}	# for longer than a pause
(sleep 0.1; kill -TERM 0) &
echo "$TMP"
wait_until 600 'never' false
"""
FINE = "exit 0"
NO_TOOL = "echo 'cannot run here: no such tool'; exit 77"
NO_ROOT = "echo first; echo 'cannot run here: making network namespaces needs root'; exit 77"


class Ends(unittest.TestCase):
    def lines(self, scripts, user, *options):
        """The last lines of a run of those, by a user of that number."""
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for n, script in enumerate(scripts):
                paths.append(os.path.join(folder, f"{n}.sh"))
                with open(paths[-1], "w", encoding="utf-8") as f:
                    f.write(script + "\n")
            with (mock.patch.object(sys, "argv", ["run.py", *options, *paths]),
                  mock.patch.object(run.signal, "signal"),
                  mock.patch.object(os, "geteuid", lambda: user),
                  contextlib.redirect_stdout(said)):
                self.status = run.main()
        return said.getvalue().splitlines()[len(scripts):]

    def test_what_needs_root_is_told_loudly_to_who_is_not(self):
        self.assertEqual(self.lines([NO_ROOT, FINE, NO_TOOL, NO_ROOT], 1000), [
            "3 skipped",
            "NOT RUN: 2 that need root; `sudo make check` runs them, too",
            "1 passed, 0 failed"])
        self.assertEqual(self.status, 0)

    def test_root_itself_is_told_the_number_alone(self):
        self.assertEqual(self.lines([NO_ROOT, FINE], 0), ["1 skipped", "1 passed, 0 failed"])

    def test_other_things_that_are_missing_are_no_matter_of_root(self):
        self.assertEqual(self.lines([FINE, NO_TOOL], 1000), ["1 skipped", "1 passed, 0 failed"])

    def test_nothing_but_skipped_is_no_success(self):
        self.assertEqual(self.lines([NO_ROOT], 1000)[-1], "0 passed, 0 failed")
        self.assertEqual(self.status, 1)

    def test_a_program_has_a_group_of_its_own_in_the_session_of_the_runner(self):
        says = "read -r _ _ _ _ group session _ < /proc/$$/stat; " \
               f'[ "$group $session" = "$$ {os.getsid(0)}" ]'
        self.assertEqual(self.lines([says], 0)[-1], "1 passed, 0 failed")

    def test_what_takes_long_begins_first_and_what_wants_to_be_alone_last(self):
        with tempfile.NamedTemporaryFile("r") as order:
            self.lines([f"{line}\necho {line.split()[-1]} >> {order.name}" for line in
                        ("# ALONE", "# TIMEOUT: 9", "# LONG")], 0, "-j1")
            self.assertEqual(order.read().split(), ["LONG", "9", "ALONE"])

    def test_what_a_script_wishes_may_have_a_reason(self):
        for line, when in (("# ALONE", "ALONE"), ("# ALONE: its knob is everybody's", "ALONE"),
                           ("# LONG", "LONG"), ("# ALONE in the world", "")):
            with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
                script.write(f"#!/bin/bash\n{line}\n# TIMEOUT: 90\n")
                script.flush()
                self.assertEqual(run.wishes(script.name, 60), (90, when))


class Story(unittest.TestCase):
    def test_it_ends_what_it_had_only_begun_to_start(self):
        said = subprocess.run(["bash", "-c", STRUCK], stdout=subprocess.PIPE, text=True,
                              timeout=60, check=False)
        self.assertEqual(said.returncode, 143)
        self.assertFalse(os.path.exists(f"/proc/{int(said.stdout)}"))

    def test_a_namespace_goes_that_it_has_just_made(self):
        said = subprocess.run(["bash", "-c", MAKING], stdout=subprocess.PIPE, text=True,
                              timeout=60, check=False)
        made, gone = said.stdout.splitlines()
        self.assertEqual((said.returncode, gone), (143, f"{made} is gone"))

    def test_it_cleans_up_when_it_is_struck_while_it_waits(self):
        for _ in range(5):
            said = subprocess.run(["bash", "-c", WAITING], stdout=subprocess.PIPE, text=True,
                                  timeout=60, check=False, process_group=0)
            self.assertEqual(said.returncode, 143)
            self.assertFalse(os.path.exists(said.stdout.strip()))


if __name__ == "__main__":
    unittest.main()
