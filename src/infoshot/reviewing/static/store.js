// What the page knows: the state of the run, and the items that were asked for.
//
// Items are requested in batches, kept, and requested again when they are out of date. An item that
// is out of date is shown until the new one is here, so that nothing flickers.

import { classColour, numberColours } from "./colours.js";
import { getItems, getState } from "./server.js";

const BATCH = 500;
const KEPT = 20000;

export class Store extends EventTarget {
  constructor() {
    super();
    this.state = null;
    this.seen = 0; // the last entry of the log that this page knows
    this.colourNumber = new Map(); // of a class; one that is added later changes no other colour
    this.items = new Map();
    this.clock = 0; // counts how often items became out of date
    this.expiredAll = 0; // when all of them did
    this.expired = new Map(); // when single ones did
    this.overlay = (item) => item; // answers on their way, put on top of an item
    this.wanted = new Set();
    this.asked = new Set();
    this.stateTimer = 0;
  }

  async loadState() {
    this.setState(await getState());
  }

  // Asks for the state soon, once for many reasons.
  loadStateSoon() {
    clearTimeout(this.stateTimer);
    this.stateTimer = setTimeout(() => this.loadState().catch(() => {}), 250);
  }

  setState(state) {
    this.state = state;
    this.seen = Math.max(this.seen, state.entry);
    this.classNames = state.classes.map((each) => each.name);
    this.colourNumber = numberColours(this.classNames, this.colourNumber);
    this.emit("state");
  }

  update(part) {
    Object.assign(this.state, part);
    this.emit("state");
  }

  // A class that is renamed keeps its colour.
  renameColour(name, to) {
    this.colourNumber.set(to, this.colourNumber.get(name));
  }

  colourOf(label) {
    return classColour(this.colourNumber.get(label) ?? -1);
  }

  // The item as it is shown: with answers that are not saved yet.
  get(id) {
    const item = this.items.get(id);
    return item ? this.overlay(item) : undefined;
  }

  isCurrent(id) {
    const item = this.items.get(id);
    return Boolean(item) && item.version >= Math.max(this.expiredAll, this.expired.get(id) ?? 0);
  }

  // Asks for items that are missing or out of date. Events say when they are here.
  request(ids) {
    for (const id of ids) {
      if (!this.isCurrent(id) && !this.asked.has(id)) this.wanted.add(id);
    }
    this.sendSoon();
  }

  // The items of all ids, up to date, when they are here.
  async load(ids) {
    const missing = Array.from(ids).filter((id) => !this.isCurrent(id));
    for (let start = 0; start < missing.length; start += BATCH) {
      const { clock } = this;
      this.keep(await getItems(missing.slice(start, start + BATCH)), clock);
    }
    return Array.from(ids, (id) => this.get(id)).filter(Boolean);
  }

  sendSoon() {
    if (this.sending || this.wanted.size === 0) return;
    this.sending = true;
    queueMicrotask(() => this.send());
  }

  async send() {
    const ids = [...this.wanted].slice(0, BATCH);
    for (const id of ids) {
      this.wanted.delete(id);
      this.asked.add(id);
    }
    this.sending = false;
    const { clock } = this;
    try {
      this.keep(await getItems(ids), clock);
    } catch (error) {
      this.emit("failed", error);
    } finally {
      for (const id of ids) this.asked.delete(id);
      this.sendSoon();
    }
  }

  // Keeps items as they were when they were asked for.
  keep(items, version) {
    for (const item of items) {
      this.items.delete(item.id);
      this.items.set(item.id, { ...item, version });
    }
    for (const id of this.items.keys()) {
      if (this.items.size <= KEPT) break;
      this.items.delete(id);
    }
    this.emit("items");
  }

  change(id, change) {
    const item = this.items.get(id);
    if (item) this.items.set(id, { ...change(item), version: item.version });
    if (this.asked.has(id)) this.expired.set(id, (this.clock += 1)); // what is on its way may be older
  }

  // Items are out of date: these, or all.
  expire(ids = null) {
    this.clock += 1;
    if (ids === null) {
      this.expiredAll = this.clock;
      this.expired.clear();
    }
    for (const id of ids ?? []) this.expired.set(id, this.clock);
    this.emit("items");
  }

  // Asks again for items that are out of date, whether they are on the screen or not.
  refresh(ids = null) {
    this.expire(ids);
    this.request(Array.from(ids ?? this.items.keys()).filter((id) => this.items.has(id)));
  }

  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
