// What a person can do with photos, whichever key, button or dialog it comes from.

import { ask } from "./dialog.js";
import { count, labelText, photos } from "./format.js";
import { ANSWERED_FLAG, getPoints } from "./server.js";

const LARGE = 500; // more photos than this are confirmed by a question
const MANY_ITEMS = 500; // more are looked up in the list of all photos
const LOOK_AHEAD = 120;
const MAX_LOOKS = 10;
const STEP_BY_ONE = new Set(["corrected", "examples"]); // nothing unanswered to look for

export class Commands {
  constructor(app) {
    this.app = app;
  }

  get targets() {
    return this.app.grid.selection.targets;
  }

  label(name, ids = null) {
    return this.#answer("label", ids, name, `labelled ${name}`);
  }

  reject(ids = null) {
    return this.#answer("reject", ids, "", "marked as none of the classes");
  }

  skip(ids = null) {
    return this.#answer("skip", ids, "", "skipped");
  }

  clear(ids = null) {
    return this.#answer("clear", ids, "", "without an answer again");
  }

  // One photo gets its prediction; of several, those that nobody has answered.
  async accept(ids = null) {
    const chosen = ids ?? this.targets;
    if (chosen.length > 1) {
      const open = await this.findUnanswered(chosen);
      if (!open) return false;
      if (!open.length) return this.app.messages.inform("All of these photos are answered already.");
      return this.#answer("accept", open, "", "confirmed", ids === null);
    }
    const item = this.app.store.get(chosen[0]);
    if (item && !item.predicted) {
      return this.app.messages.inform("This photo has no prediction to accept. Choose a class.");
    }
    const words = item ? `confirmed as ${item.predicted}` : "confirmed";
    return this.#answer("accept", ids, item?.predicted ?? "", words); // what the person saw
  }

  // Those that nobody has answered, by what the server says now; null if that is not known.
  async findUnanswered(ids) {
    const { store, outbox, messages } = this.app;
    if (outbox.isUndoing) {
      messages.inform("The undo is not saved yet. Try again in a moment.");
      return null;
    }
    try {
      const old = ids.filter((id) => !store.isCurrent(id));
      if (old.length > MANY_ITEMS) return await this.#findByPoints(ids);
      await store.load(old);
      return ids.filter((id) => store.get(id)?.answer === null);
    } catch (error) {
      messages.warn(error.message);
      return null;
    }
  }

  // The same for many photos at once.
  async #findByPoints(ids) {
    const { store, outbox } = this.app;
    const waiting = outbox.waitingIds;
    const { flags } = await getPoints();
    return ids.filter((id) => {
      if (id >= flags.length) return (store.get(id)?.answer ?? null) === null; // an example
      return !waiting.has(id) && !(flags[id] & ANSWERED_FLAG);
    });
  }

  async #answer(action, ids, label, words, fromGrid = ids === null) {
    const chosen = ids ?? this.targets;
    if (chosen.length === 1 && this.app.store.get(chosen[0])?.status === "unreadable") {
      this.app.messages.inform("This file could not be opened, so it cannot get an answer.");
      return false;
    }
    if (!chosen.length || !(await this.#isMeant(chosen, words))) return false;
    const { outbox, messages, grid, store } = this.app;
    outbox.add(action, chosen, label);
    const name = chosen.length === 1 ? (store.get(chosen[0])?.name ?? "Photo") : photos(chosen.length);
    messages.say(`${name} ${words}.`);
    if (fromGrid) {
      const several = grid.selection.chosen.size > 0;
      await this.next(several ? this.#lastIndexOf(chosen) : grid.selection.focus, action !== "clear");
    }
    return true;
  }

  #isMeant(ids, words) {
    if (ids.length <= LARGE) return true;
    return ask({
      title: `${photos(ids.length)} at once?`,
      text: `${count(ids.length)} photos will be ${words}. One undo takes it back.`,
      confirm: `Yes, all ${count(ids.length)}`,
    });
  }

  #lastIndexOf(ids) {
    const chosen = new Set(ids);
    return this.app.grid.selection.ids.findLastIndex((id) => chosen.has(id));
  }

  // Moves the focus to the next photo without an answer.
  async next(from = this.app.grid.selection.focus, move = true) {
    const { grid, messages, view, store } = this.app;
    if (!move) return grid.clearSelection();
    if (STEP_BY_ONE.has(view.name)) return grid.moveTo(from + 1);
    const { ids } = grid.selection;
    let index = from + 1;
    for (let look = 0; look < MAX_LOOKS && index < ids.length; look += 1) {
      for (; index < ids.length && store.get(ids[index]); index += 1) {
        if (isOpen(store.get(ids[index]))) return grid.moveTo(index);
      }
      if (index < ids.length) {
        await store.load(ids.subarray(index, index + LOOK_AHEAD)).catch(() => (look = MAX_LOOKS));
      }
    }
    if (index < ids.length) return grid.moveTo(index);
    grid.clearSelection();
    return messages.inform("All photos after this one are answered.");
  }

  undo() {
    this.app.outbox.undo();
  }

  // Sorts by similarity to the photo with the focus; a second time ends that.
  pin() {
    const { view, grid, store } = this.app;
    const id = grid.focusId;
    if (view.query.pin !== null) return view.change({ pin: null, sort: "default", order: "asc" });
    if (id === null || ["map", "groups"].includes(view.name)) return null;
    this.app.messages.say(`Sorted by similarity to ${store.get(id)?.name}.`);
    return view.change({ pin: id, sort: "similar", order: "asc" });
  }

  describeAnswer(job) {
    const words = { accept: "confirmed", skip: "skipped", clear: "answer taken away" };
    const label = job.action === "reject" ? this.app.store.state.none : job.label;
    return words[job.action] ?? labelText(label, this.app.store.state.none);
  }
}

function isOpen(item) {
  return item.answer === null && !item.skipped && item.status !== "unreadable";
}
