"""A made-up pool of photos under review, in memory: what the fake server serves."""

import io
import queue
import threading

import numpy as np
from PIL import Image, ImageDraw

NONE = "(none)"
HOSTILE_NAME = "<img src=x onerror=alert(1)>.jpg"


class ConflictError(Exception):
    """Another client answered one of the photos differently."""


class FakePool:
    """Photos with predictions and answers, and a log of actions."""

    def __init__(self, n_photos=400, classes=("cat", "dog", "horse", "ship"), n_examples=8):
        rng = np.random.default_rng(0)
        self.lock = threading.RLock()
        self.classes = list(classes)
        self.n_photos, self.n_examples = n_photos, n_examples
        self.predicted = rng.integers(len(self.classes), size=n_photos)
        self.confidence = np.round(rng.beta(4, 1.5, size=n_photos), 3)
        self.xy = rng.normal(size=(n_photos, 2)).astype("<f4") * 0.6
        angle = 2 * np.pi * self.predicted / len(self.classes)
        self.xy += np.stack([np.cos(angle), np.sin(angle)], 1).astype("<f4") * 2.5
        self.xy /= np.abs(self.xy).max()
        self.changed = set()
        self.log = []  # (entry, the answers before it)
        self.touched = []  # all items of each entry
        self.answers, self.skipped, self.audited = {}, set(), {}
        self.entry_of = {}
        self.goal = 0.95
        self.solve = {
            "state": "idle", "version": 0, "n_changed": 0, "seconds": 0.4, "error": None,
        }  # fmt: skip
        self.finished = None
        self.listeners = []
        self.without_picture = set()  # files that cannot be opened

    # What the page reads

    def state(self):
        labels = [self.label(i) for i in range(self.n_photos)]
        classes = [
            {
                "name": name,
                "n": labels.count(name),
                "n_answered": list(self.answers.values()).count(name),
                "n_examples": 2,
            }
            for name in self.classes
        ]
        names = ("suggested", "doubtful", "all", "outliers", "unreadable", "examples", "corrected",
                 "changed")  # fmt: skip
        return {
            "run": "digits-run", "n_photos": self.n_photos, "n_examples": self.n_examples,
            "n_unreadable": 0, "classes": classes, "none": NONE, "entry": len(self.log),
            "solve": self.solve, "views": {name: len(self.view({"view": name})) for name in names},
            "n_audited": len(self.audited), "projection": "pca", "can_change_classes": True,
            "exports": ["imagefolder"], "all_exports": ["imagefolder", "label-studio", "fiftyone"],
            "enough": self.enough(), "finished": self.finished,
        }  # fmt: skip

    def label(self, number):
        answer = self.answers.get(number)
        return answer if answer is not None else self.classes[self.predicted[number]]

    def status(self, number):
        if number in self.answers:
            return "labelled"
        confidence = self.confidence[number]
        return "outlier" if confidence < 0.25 else "unsure" if confidence < 0.5 else "labelled"

    def view(self, query):
        numbers = list(range(self.n_photos))
        view = query.get("view", "all")
        unanswered = [i for i in numbers if i not in self.answers]
        chosen = {
            "suggested": lambda: sorted(unanswered, key=lambda i: (i * 7919) % 1009)[:200],
            "doubtful": lambda: sorted(unanswered, key=lambda i: self.confidence[i]),
            "all": lambda: numbers,
            "class": lambda: sorted(
                (i for i in numbers if self.label(i) == query.get("class")),
                key=lambda i: (i in self.answers, self.confidence[i]),
            ),
            "outliers": lambda: [i for i in numbers if self.status(i) == "outlier"],
            "unreadable": list,
            "examples": lambda: list(range(self.n_photos, self.n_photos + self.n_examples)),
            "corrected": lambda: sorted(self.answers, key=lambda i: -self.entry_of[i]),
            "changed": lambda: sorted(self.changed),
        }[view]()
        return np.array([i for i in self._sort(chosen, query) if self._fits(i, query)], "<i4")

    def _sort(self, numbers, query):
        if query.get("sort") == "name":
            numbers = sorted(numbers, key=self.name)
        elif query.get("sort") == "confidence":
            numbers = sorted(numbers, key=lambda i: self.confidence[i])
        return numbers[::-1] if query.get("order") == "desc" else numbers

    def _fits(self, number, query):
        if number >= self.n_photos:
            return True
        status = query.get("status", "")
        answered = number in self.answers
        return (
            query.get("q", "").lower() in self.name(number).lower()
            and (not query.get("class") or self.label(number) == query["class"])
            and float(query.get("low", 0)) <= self.confidence[number]
            and self.confidence[number] <= float(query.get("high", 1))
            and (
                {"answered": answered, "unanswered": not answered}.get(
                    status, not status or self.status(number) == status
                )
            )
        )

    def name(self, number):
        return HOSTILE_NAME if number == 3 else f"photo-{number:05d}.jpg"

    def item(self, number):
        if number >= self.n_photos:
            name = self.classes[number % len(self.classes)]
            return {
                "id": number, "kind": "example", "name": f"{name}-{number}.jpg",
                "path": f"examples/{name}-{number}.jpg", "label": name, "answer": None,
                "audited": False, "predicted": name, "confidence": None, "margin": None,
                "outlier_score": None, "scores": [[name, 0.6]], "status": "labelled",
                "reason": "", "skipped": False, "changed": False,
                "looks_like": self.classes[0] if number % 5 == 0 else None, "entry": 0,
            }  # fmt: skip
        confidence = float(self.confidence[number])
        first = int(self.predicted[number])
        order = [(first + k) % len(self.classes) for k in range(min(5, len(self.classes)))]
        rest = (1 - confidence) / 2
        scores = [confidence] + [rest / 2**k for k in range(len(order) - 1)]
        return {
            "id": number, "kind": "photo", "name": self.name(number),
            "path": f"photos/{self.name(number)}", "label": self.label(number),
            "answer": self.answers.get(number), "audited": number in self.audited,
            "predicted": self.classes[first], "confidence": confidence,
            "margin": max(0.0, confidence - rest), "outlier_score": 1 - confidence,
            "scores": [[self.classes[k], s] for k, s in zip(order, scores, strict=True)],
            "status": self.status(number), "reason": "", "skipped": number in self.skipped,
            "changed": number in self.changed, "looks_like": None,
            "entry": self.entry_of.get(number, 0),
        }  # fmt: skip

    def points(self):
        rows = np.zeros(self.n_photos, np.dtype([("c", "<u2"), ("p", "u1"), ("f", "u1")]))
        rows["c"] = self.predicted
        rows["p"] = self.confidence * 255
        for number, answer in self.answers.items():
            none = answer == NONE
            rows[number] = (65535 if none else self.classes.index(answer), 255, 65 if none else 1)
        return rows.tobytes()

    def groups(self):
        free = [i for i in range(self.n_photos) if i not in self.answers]
        sizes = [24, 15, 11, 8, 6, 5, 4, 3, 3, 2, 2]
        groups = []
        for k, size in enumerate(sizes):
            same = [i for i in free if self.predicted[i] == k % len(self.classes)][k : k + size]
            if len(same) > 1:
                label = self.classes[k % len(self.classes)]
                agreement = 1.0 if k % 3 else 0.8
                groups.append({"ids": same, "label": label, "agreement": agreement})
        return groups

    def history(self, before, limit):
        entries = [entry for entry, _ in self.log if before is None or entry["n"] < before]
        return entries[::-1][:limit]

    def enough(self):
        n = len(self.audited)
        estimate = {
            "source": "audit" if n else "examples", "accuracy": 0.93, "low": 0.88, "high": 0.97,
            "n": n or self.n_examples,
        }  # fmt: skip
        low = min(0.99, 0.6 + n / 100)
        return {
            "goal": self.goal, "confidence": 0.95, "n_photos": self.n_photos,
            "n_answered": len(self.answers), "estimate": estimate,
            "audit": {"n": n, "n_correct": n, "round": 1},
            "promise": {"low": low, "met": low >= self.goal, "more": max(0, 36 - n)},
            "part": None if low >= self.goal else {
                "share": 0.8, "n": int(0.8 * self.n_photos), "threshold": 0.71, "low": 0.953,
                "n_remaining": self.n_photos - int(0.8 * self.n_photos),
            },
            "sentences": [
                f"Answer about {max(0, 36 - n)} more audit photos to promise that "
                f"{self.goal:.0%} of the labels are right."
            ],
        }  # fmt: skip

    def next_audit(self):
        rest = [i for i in range(self.n_photos) if i not in self.audited and i not in self.answers]
        rest.sort(key=lambda i: (i * 6007) % 977)
        return {"id": rest[0] if rest else None, "n_audited": len(self.audited), "next": rest[1:9]}

    def picture(self, number, size):
        rng = np.random.default_rng(number)
        label = self.predicted[number] if number < self.n_photos else number % len(self.classes)
        hue = int(255 * label / len(self.classes))
        base = Image.new("HSV", (size, int(size * (0.66 + 0.3 * rng.random()))), (hue, 90, 200))
        picture = base.convert("RGB")
        draw = ImageDraw.Draw(picture)
        for _ in range(9):
            x, y, r = rng.random(3) * size
            fill = tuple(int(v) for v in rng.integers(30, 230, 3))
            draw.ellipse((x - r / 4, y - r / 4, x + r / 4, y + r / 4), fill=fill)
        file = io.BytesIO()
        picture.save(file, "JPEG")
        return file.getvalue()

    # What the page changes

    def answer(self, action, ids, label="", client="", seen=0, items="", replace=False):
        with self.lock:
            answers = {i: self._answer_of(action, i, label) for i in ids}
            conflicts = [
                {"id": i, "answer": self.answers[i]}
                for i, answer in answers.items()
                if i in self.answers and self.answers[i] != answer
                and self.entry_of[i] > seen and self._client_of(i) != client
            ]  # fmt: skip
            if conflicts and not replace:
                raise ConflictError(conflicts)
            before = self._remember()
            self._apply(action, answers)
            words = {"skip": "skipped", "clear": "cleared", "accept": "confirmed"}.get(action)
            photos = "1 photo" if len(ids) == 1 else f"{len(ids)} photos"
            entry = self._record(action, ids, f"{photos} {words or f'labelled {label}'}", client,
                                 before)  # fmt: skip
            return {"entry": entry, "n_changed": len(ids)}

    def _answer_of(self, action, number, label):
        if action == "accept":
            return label or self.item(number)["predicted"]
        return NONE if action == "reject" else label

    def _client_of(self, number):
        return self.log[self.entry_of[number] - 1][0]["client"]

    def _apply(self, action, answers):
        for number, answer in answers.items():
            if action == "skip":
                self.skipped.add(number)
            elif action == "clear":
                self.answers.pop(number, None)
            else:
                self.answers[number] = answer
            if action == "audit":
                self.audited[number] = answer
            self.entry_of[number] = len(self.log) + 1

    def _remember(self):
        return dict(self.answers), set(self.skipped), dict(self.audited), list(self.classes)

    def _record(self, action, ids, text, client, before):
        entry = {
            "n": len(self.log) + 1, "time": "2026-11-16T12:00:00Z", "action": action, "text": text,
            "ids": list(ids)[:8], "n_items": len(ids), "undone": False, "client": client,
        }  # fmt: skip
        self.log.append((entry, before))
        self.touched.append(list(ids))
        self.send("entry", {**entry, "ids": list(ids) if len(ids) <= 1000 else None}, entry["n"])
        self.send("enough", self.enough())
        return entry["n"]

    def undo(self, client="", to=None):
        with self.lock:
            open_entries = [k for k, (e, _) in enumerate(self.log)
                            if e["action"] != "undo" and not e["undone"]]  # fmt: skip
            chosen = [k for k in open_entries if to is None or k >= to]
            if not chosen:
                raise ValueError("There is nothing to undo.")
            first = chosen[-1] if to is None else chosen[0]
            now = self._remember()
            self.answers, self.skipped, self.audited, self.classes = (
                type(part)(part) for part in self.log[first][1]
            )
            ids = sorted({i for k in chosen if k >= first for i in self.touched[k]})
            for k in chosen:
                self.log[k][0]["undone"] |= k >= first
            text = f"Undone: {self.log[first][0]['text']}"
            return {"entry": self._record("undo", ids, text, client, now), "ids": ids}

    def change_class(self, action, name, to="", client=""):
        with self.lock:
            before = self._remember()
            if action == "add":
                if name in self.classes:
                    raise ValueError(f"There is a class {name} already.")
                self.classes.append(name)
            elif action == "rename":
                self.classes[self.classes.index(name)] = to
            text = {"add": f"class {name} added", "rename": f"class {name} renamed to {to}"}
            text["merge"] = f"class {name} merged into {to}"
            return {"entry": self._record(action, [], text[action], client, before)}

    def set_goal(self, goal, client=""):
        self.goal = goal
        return {"entry": self._record("goal", [], f"goal {goal}", client, self._remember())}

    def finish(self):
        self.finished = {
            "time": "2026-11-16T12:30:00Z", "goal": self.goal, "confidence": 0.95,
            "n_audited": len(self.audited), "n_correct": len(self.audited), "accuracy": 0.97,
            "low": 0.953, "part": None,
            "sentence": "At least 95.3 % of the labels are right, with 95 % confidence.",
        }  # fmt: skip
        self.send("finished", self.finished)

    def solve_again(self, changed):
        """As if the solver had changed the labels of some photos."""
        self.changed = set(changed)
        for number in changed:
            self.predicted[number] = (self.predicted[number] + 1) % len(self.classes)
        self.solve = {**self.solve, "version": self.solve["version"] + 1,
                      "n_changed": len(changed)}  # fmt: skip
        self.send("solve", self.solve)

    # Events

    def subscribe(self, since):
        events = queue.Queue()
        for entry, _ in self.log[since:]:
            events.put(("entry", entry, entry["n"]))
        self.listeners.append(events)
        return events

    def send(self, event, data, entry=None):
        for events in self.listeners:
            events.put((event, data, entry))
