"""A session without a run: what the HTTP layer calls, with answers that show what it passed."""

import queue
import threading

import numpy as np

from infoshot import InvalidArgumentError
from infoshot.reviewing.answer_rules import Conflict


class FakeSubscription:
    """A queue of events."""

    def __init__(self, session, events):
        self._session = session
        self._events = queue.Queue()
        self.closed = False
        for event in events:
            self._events.put(event)

    def put(self, event):
        self._events.put(event)

    def get(self, timeout):
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self):
        self.closed = True
        self._session.subscriptions.discard(self)


class FakeSession:
    """Five photos and two examples; ``files`` are the images of some of them.

    Every call that changes something is kept in ``calls``, with the thread that made it.
    """

    n_photos, n_items = 5, 7

    def __init__(self, run=None, files=()):
        self.run = run
        self.files = dict(files)
        self.calls = []
        self.threads = set()
        self.subscriptions = set()
        self.names = ["cat", "dog"]
        self.closed = False
        self.lock = threading.Lock()
        self.fails = None  # raised by state()

    def _note(self, name, *values):
        with self.lock:
            self.calls.append((name, *values))
            self.threads.add(threading.current_thread().name)
            entry = len(self.calls)
            for subscription in self.subscriptions:
                subscription.put(("entry", {"n": entry, "action": name}, entry))
            return entry

    def state(self):
        if self.fails is not None:
            raise self.fails
        return {"n_photos": self.n_photos, "classes": [{"name": name} for name in self.names]}

    def items(self, ids):
        return [{"id": number, "name": f"{number}.jpg"} for number in ids]

    def view(self, query):
        self.query = query
        return np.array([3, 1, 2], np.int32)

    def points(self):
        return bytes(4 * self.n_photos)

    def map(self):
        return None

    def groups(self):
        return None

    def history(self, before, limit):
        return [{"n": before, "limit": limit}]

    def answer(self, action, ids, *, label="", client="", seen=0, items="", replace=False):
        if label == "taken" and not replace:
            raise Conflict([{"id": ids[0], "answer": "dog"}])
        if label == "unknown":
            raise InvalidArgumentError("There is no class 'unknown'.")
        entry = self._note("answer", action, tuple(ids), label, client, seen, replace)
        return {"entry": entry, "n_changed": len(ids)}

    def undo(self, *, client="", to=None):
        return {"entry": self._note("undo", client, to), "ids": []}

    def change_class(self, action, name, to="", *, client=""):
        return {"entry": self._note("change_class", action, name, to, client)}

    def next_audit(self, n=8):
        return {"id": 4, "n_audited": 0, "next": [1, 2]}

    def set_goal(self, goal, *, client=""):
        return {"entry": self._note("set_goal", goal, client)}

    def enough(self):
        return {"goal": 0.95}

    def finish(self, exports, *, client=""):
        self._note("finish", tuple(exports), client)

    def image_file(self, number):
        path = self.files.get(number)
        return None if path is None else (path, f"{number:064x}")

    def subscribe(self, since):
        with self.lock:
            events = [
                ("entry", {"n": entry + 1, "action": call[0]}, entry + 1)
                for entry, call in enumerate(self.calls)
                if entry + 1 > since
            ]
            subscription = FakeSubscription(self, events)
            self.subscriptions.add(subscription)
            return subscription

    def close(self):
        self.closed = True
