# SPDX-License-Identifier: Apache-2.0
"""Calls of libtally that wait for others, so that Ctrl-C is heard meanwhile.

Python's main thread hears of a signal between two calls of C only, so such a call is made by
another thread.  After Ctrl-C the main thread leaves it there, and what is done on the way to the
end of the process, which is mostly to leave the job, gets a moment and no more: an agent that
lives answers in milliseconds, and hears of the process's end otherwise.
"""

import _thread
import contextlib
import sys
import threading

_MOMENT_S = 0.4
_interrupted = threading.Event()  # Ctrl-C has ended one of our waits


def note_interrupt():
    """Ctrl-C has ended a wait."""
    _interrupted.set()


def patience_s():
    """Seconds that leaving the job may take; None: as many as it needs."""
    kinds = sys.exc_info()[0], getattr(sys, "last_type", None)
    return _MOMENT_S if _interrupted.is_set() or KeyboardInterrupt in kinds else None


def _run(box, answer, ended, last):
    """What the thread of a Call does; it holds nothing of its caller's any more at the end."""
    over, function, args = box
    try:
        answer.append((function(*args), None))
    except Exception as error:
        answer.append((None, error))
    if last.acquire(blocking=False):
        del over, function, args
        box.clear()
        ended.release()
    else:
        over(False)


class Call:
    """function(*args), a call that waits for others, for wait(), which hears Ctrl-C meanwhile.

    over(through) is called once when nobody gets the answer: after Ctrl-C, or when wait() has lost
    patience.  through is False where the call was left while it ran, and over() comes at its end
    then.  Whatever a signal's handler raises, and where, left is what has become of it.
    """

    def __init__(self, over, function, *args):
        self._over, self._function, self._args = over, function, args
        self._begun, self._answer = [], []  # filled in C, where no handler comes between
        self._ended, self._last = threading.Lock(), threading.Lock()
        self._ended.acquire()
        self.left = False

    def _join(self, seconds):
        """Returns at its end, or that many seconds later; None: not before."""
        if self._begun and self._ended.acquire(timeout=-1 if seconds is None else seconds):
            self._ended.release()

    def _leave(self):
        self.left = bool(self._begun and not self._answer) and self._last.acquire(blocking=False)
        if not self.left:
            self._over(True)

    def wait(self, patience=None, moment=0):
        """The answer; None after so many seconds of patience.

        A call that is through within a moment, in seconds, of Ctrl-C has not been left while it
        ran.  From other threads than the main one it is called as it is.
        """
        if threading.current_thread() is not threading.main_thread():
            return self._function(*self._args)
        whole = [self._over, self._function, self._args], self._answer, self._ended, self._last
        try:
            try:
                self._begun[:] = map(_thread.start_new_thread, (_run,), (whole,))
            except RuntimeError:  # no thread can be had, or the interpreter ends
                return self._function(*self._args)
            self._join(patience)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                note_interrupt()
            try:
                self._join(moment)
            finally:
                self._leave()
            raise
        if not self._answer:
            self._leave()
            return None
        value, error = self._answer[0]
        try:
            if error:
                raise error
            return value
        finally:
            del error  # which has this frame, and all that is there


@contextlib.contextmanager
def interruptible():
    """A context that waits in Python, where Ctrl-C is heard: it is remembered that it was."""
    try:
        yield
    except KeyboardInterrupt:
        note_interrupt()
        raise
