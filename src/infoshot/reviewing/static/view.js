// The list of items that is open: which view, how sorted, what filtered.

import { getView } from "./server.js";

export const FRESH = {
  view: "suggested", class: "", sort: "default", order: "asc", pin: null, status: "", low: 0, high: 1,
  q: "",
};
const NO_LIST = new Set(["map", "groups"]); // these show items of their own
const OPEN_ENDED = new Set(["suggested", "doubtful"]);

export class View extends EventTarget {
  constructor() {
    super();
    this.query = { ...FRESH };
    this.ids = new Int32Array(0);
    this.request = null;
  }

  get name() {
    return this.query.view;
  }

  get isFiltered() {
    const { q, status, low, high } = this.query;
    return Boolean(q || status || low > 0 || high < 1 || (this.query.class && this.name !== "class"));
  }

  // Opens another view; filters begin anew.
  open(name, changes = {}) {
    return this.change({ ...FRESH, view: name, ...changes });
  }

  change(changes) {
    this.query = { ...this.query, ...changes };
    this.emit("open");
    return this.load();
  }

  async load() {
    this.request?.abort();
    if (NO_LIST.has(this.name)) return this.show(new Int32Array(0));
    const ids = await this.#fetch();
    return ids && this.show(ids);
  }

  show(ids) {
    this.ids = ids;
    this.emit("ids");
  }

  // After a solve: what is on the screen stays in place, what comes after it gets the new order.
  async reorderAfter(index) {
    if (!OPEN_ENDED.has(this.name) || this.query.sort !== "default") return;
    const ids = await this.#fetch();
    if (!ids) return;
    const kept = this.ids.subarray(0, index + 1);
    const shown = new Set(kept);
    const next = ids.filter((id) => !shown.has(id));
    const joined = new Int32Array(kept.length + next.length);
    joined.set(kept);
    joined.set(next, kept.length);
    this.ids = joined;
    this.emit("reordered");
  }

  // All items of the view that nobody has answered.
  fetchUnanswered() {
    return getView({ ...this.#parameters(), status: "unanswered" });
  }

  async #fetch() {
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    try {
      const ids = await getView(this.#parameters(), request.signal);
      return request.signal.aborted ? null : ids;
    } catch (error) {
      if (error.name === "AbortError") return null;
      this.emit("failed", error);
      return null;
    }
  }

  #parameters() {
    const { low, high, order, sort, ...rest } = this.query;
    return {
      ...rest,
      sort: sort === "default" ? "" : sort,
      order: order === "asc" ? "" : order,
      low: low > 0 ? low : "",
      high: high < 1 ? high : "",
    };
  }

  // The view in the address, so that a reload shows it again.
  toHash() {
    const own = Object.entries(this.query).filter(([name, value]) => value !== FRESH[name]);
    return own.length ? `#${new URLSearchParams(own)}` : "";
  }

  fromHash(hash) {
    const given = new URLSearchParams(hash.slice(1));
    for (const [name, fresh] of Object.entries(FRESH)) {
      const text = given.get(name);
      if (text === null) continue;
      const isNumber = typeof fresh === "number" || name === "pin";
      if (!isNumber) this.query[name] = text;
      else if (Number.isFinite(Number(text))) this.query[name] = Number(text);
    }
  }

  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
