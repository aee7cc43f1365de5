// Answers on their way to the server.
//
// Actions are sent one after the other, in the order in which they were made. What cannot be sent
// stays here and is tried again; it survives a reload of the page. Before an action is sent a second
// time, the log is asked whether the first attempt arrived, so that nothing is done twice.

import { getHistory, postAnswers, postUndo, Refused, Unreachable } from "./server.js";

const WAITS = [0.5, 1, 2, 4, 8, 15];
const NOT_ALLOWED = 403;
const CONFLICT = 409;

// An item after an action.
export function answered(item, action, label, none) {
  const answers = { label, audit: label, accept: label || item.predicted || item.answer, reject: none };
  if (action === "skip") return { ...item, skipped: true };
  if (action === "clear") return { ...item, answer: null, label: item.predicted, skipped: false };
  const answer = answers[action] ?? item.answer;
  return { ...item, answer, label: answer ?? item.label, skipped: false };
}

export class Outbox extends EventTarget {
  constructor(store, client) {
    super();
    this.store = store;
    this.client = client;
    this.queue = [];
    this.conflicts = [];
    this.nFailures = 0;
    this.timer = 0;
    this.busy = false;
    store.overlay = (item) => this.overlay(item);
  }

  // Takes up what an earlier load of this tab could not send.
  restore(key) {
    this.key = key;
    const kept = JSON.parse(sessionStorage.getItem(key) ?? "[]");
    this.queue.push(...kept.map((job) => ({ ...job, idSet: new Set(job.ids), tried: true })));
    if (kept.length) this.send();
    return kept.length;
  }

  get nUnsaved() {
    return this.queue.length;
  }

  get isOffline() {
    return this.nFailures > 0;
  }

  add(action, ids, label = "", options = {}) {
    this.enqueue({ kind: "answers", action, ids: Array.from(ids), label, ...options });
  }

  // Takes back the last action: here if it has not been sent, else on the server.
  undo(to = null) {
    const last = this.queue.at(-1);
    if (to === null && last?.kind === "answers" && !last.tried) {
      this.queue.pop();
      this.changed();
      this.emit("taken-back", last);
      return;
    }
    this.enqueue({ kind: "undo", to, ids: [] });
  }

  enqueue(job) {
    const { seen, state } = this.store;
    this.queue.push({ ...job, seen, items: state.items, client: this.client, idSet: new Set(job.ids), tried: false });
    this.changed();
    this.send();
  }

  // Sends now what waits for the next attempt.
  retry() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.send();
  }

  async send() {
    if (this.busy || this.timer || this.queue.length === 0) return;
    this.busy = true;
    const job = this.queue[0];
    try {
      const arrived = job.tried ? await this.#findInLog(job) : null;
      job.tried = true;
      job.sentAfter ??= this.store.seen;
      this.#finish(job, arrived ?? (await this.#post(job)));
    } catch (error) {
      this.#fail(job, error);
    }
    this.busy = false;
    this.send();
  }

  #post(job) {
    if (job.kind === "undo") return postUndo({ client: job.client, to: job.to });
    const { action, ids, label, client, seen, items, replace = false } = job;
    return postAnswers({ action, ids, label, client, seen, items, replace });
  }

  async #findInLog(job) {
    const entries = await getHistory(null, 100);
    const own = entries.find((entry) => entry.client === job.client && entry.n > (job.sentAfter ?? 0));
    return own && job.sentAfter !== undefined ? { entry: own.n, ids: null } : null;
  }

  #finish(job, result) {
    this.#leaveQueue();
    this.store.seen = Math.max(this.store.seen, result.entry);
    if (job.kind === "undo") this.store.refresh(result.ids);
    if (job.action === "accept") this.store.expire(job.ids); // the prediction may have changed meanwhile
    if (result.n_changed > job.ids.length) this.store.expire(); // files with the same content
    for (const id of job.ids) this.store.change(id, (item) => this.#saved(item, job, result));
    this.changed();
    this.emit("saved", { job, result });
    if (this.queue.length || !this.wasOffline) return;
    this.wasOffline = false;
    this.emit("caught-up");
  }

  #saved(item, job, result) {
    const next = answered(item, job.action, job.label, this.store.state.none);
    return { ...next, entry: result.entry, audited: item.audited || job.action === "audit" };
  }

  // The server took up the first action, or refused it: it is there.
  #leaveQueue() {
    this.wasOffline ||= this.isOffline;
    this.nFailures = 0;
    this.queue.shift();
  }

  #fail(job, error) {
    if (error instanceof Refused && error.status === CONFLICT) {
      this.#leaveQueue();
      this.#splitConflict(job, error);
    } else if (error instanceof Refused && error.status !== NOT_ALLOWED && error.status < 500) {
      this.#leaveQueue();
      this.emit("refused", { job, error });
    } else if (error instanceof Refused || error instanceof Unreachable) {
      this.#wait(error);
    } else {
      this.queue.shift();
      this.emit("refused", { job, error });
      throw error;
    }
    this.changed();
  }

  #wait(error) {
    const seconds = WAITS[Math.min(this.nFailures, WAITS.length - 1)];
    this.nFailures += 1;
    this.nextTry = Date.now() + 1000 * seconds;
    this.timer = setTimeout(() => this.retry(), 1000 * seconds);
    this.emit("waiting", error);
  }

  // Photos that nobody else answered are sent again; for the others a person decides.
  #splitConflict(job, error) {
    const contested = new Map(error.conflicts.map(({ id, answer }) => [id, answer]));
    const free = job.ids.filter((id) => !contested.has(id));
    if (free.length) {
      this.queue.unshift({ ...job, ids: free, idSet: new Set(free), tried: false, sentAfter: undefined });
    }
    this.conflicts.push({ job, contested });
    this.store.expire(contested.keys());
    this.emit("conflict", { job, contested });
  }

  // What a person decided about a conflict: some photos get this page's answer after all.
  settle(conflict, ids) {
    this.conflicts = this.conflicts.filter((each) => each !== conflict);
    const { action, label } = conflict.job;
    if (ids.length) this.add(action, ids, label, { replace: true });
    this.changed();
  }

  get isUndoing() {
    return this.queue.some((job) => job.kind === "undo");
  }

  // Photos with an answer that is on its way.
  get waitingIds() {
    const answers = this.queue.filter((job) => job.kind === "answers" && !["skip", "clear"].includes(job.action));
    return new Set(answers.flatMap((job) => job.ids));
  }

  overlay(item) {
    let shown = item;
    for (const job of this.queue) {
      if (job.kind !== "answers" || !job.idSet.has(item.id)) continue;
      shown = answered(shown, job.action, job.label, this.store.state.none);
      shown.pending = this.isOffline ? "unsaved" : "saving";
    }
    const isContested = this.conflicts.some((each) => each.contested.has(item.id));
    return isContested ? { ...shown, conflict: true } : shown;
  }

  changed() {
    if (this.key) this.#keep();
    this.store.emit("items");
    this.emit("change");
  }

  #keep() {
    const kept = this.queue.map(({ idSet, ...job }) => job);
    try {
      if (kept.length) sessionStorage.setItem(this.key, JSON.stringify(kept));
      else sessionStorage.removeItem(this.key);
    } catch {
      // The browser's storage is full: the answers stay in this page only.
    }
  }

  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
