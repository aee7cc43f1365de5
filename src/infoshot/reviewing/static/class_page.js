// By class: pages of one class, the least confident first. Correct what is wrong, confirm the rest.

import { button, el, iconButton, setText } from "./dom.js";
import { count } from "./format.js";

const PAGE = 60;

export class ClassPage {
  constructor(app, root) {
    this.app = app;
    this.root = root;
    this.page = 0;
    this.text = el("span", { class: "page-text" });
    this.previous = iconButton("Previous page", "left", () => this.turn(-1));
    this.following = iconButton("Next page", "right", () => this.turn(1));
    this.confirm = button("Confirm", { iconName: "check", kind: "primary", onclick: () => this.#confirmPage() });
    this.all = button("Confirm all", { onclick: () => this.#confirmAll() });
    this.nextClass = button("Next class", { iconName: "right", kind: "primary", onclick: () => app.openView("class", { class: this.followingClass }) });
    root.append(
      el("span", { class: "pager" }, this.previous, this.text, this.following),
      el("span", { class: "page-actions" }, this.confirm, this.all, this.nextClass),
    );
    app.store.addEventListener("items", () => this.draw());
    app.store.addEventListener("state", () => this.draw());
  }

  get nPages() {
    return Math.max(1, Math.ceil(this.app.view.ids.length / PAGE));
  }

  get ids() {
    return this.app.view.ids.subarray(this.page * PAGE, (this.page + 1) * PAGE);
  }

  // The next class in the list, and from its start again, with photos without an answer.
  get followingClass() {
    const { classes } = this.app.store.state;
    const place = classes.findIndex(({ name }) => name === this.app.view.query.class);
    const others = [...classes.slice(place + 1), ...classes.slice(0, Math.max(0, place))];
    return others.find((each) => each.n > each.n_answered)?.name ?? null;
  }

  restart() {
    this.page = 0;
  }

  turn(by) {
    const next = Math.max(0, Math.min(this.nPages - 1, this.page + by));
    if (next === this.page) return;
    this.page = next;
    this.app.grid.setIds(this.ids);
    this.draw();
  }

  draw() {
    const { view, store } = this.app;
    this.root.hidden = view.name !== "class";
    if (this.root.hidden || !store.state) return;
    store.request(this.ids); // also those that are not on the screen
    const items = Array.from(this.ids, (id) => store.get(id));
    const isHere = items.every(Boolean);
    const open = items.filter((item) => !item || item.answer === null).length;
    const each = store.state.classes.find(({ name }) => name === view.query.class);
    const remaining = each ? Math.max(0, each.n - each.n_answered) : 0;
    setText(this.text, `Page ${count(this.page + 1)} of ${count(this.nPages)}`);
    this.previous.disabled = this.page === 0;
    this.following.disabled = this.page >= this.nPages - 1;
    setText(this.confirm.querySelector(".button-text"), this.#describeConfirm(open, isHere));
    this.confirm.disabled = open === 0;
    setText(this.all.querySelector(".button-text"), `Confirm all ${count(remaining)} remaining`);
    this.all.hidden = remaining <= open;
    this.#drawNextClass(open);
  }

  #drawNextClass(open) {
    const name = open || !this.following.disabled ? null : this.followingClass;
    this.nextClass.hidden = name === null;
    if (name !== null) setText(this.nextClass.querySelector(".button-text"), `Next class: ${name}`);
    this.confirm.hidden = name !== null;
  }

  #describeConfirm(open, isHere) {
    if (!isHere) return "Confirm this page";
    return open ? `Confirm the ${count(open)} left on this page` : "Page done";
  }

  async #confirmPage() {
    const { commands } = this.app;
    const ids = await commands.findUnanswered(Array.from(this.ids));
    if (!ids?.length || !(await commands.label(this.app.view.query.class, ids))) return;
    if (this.page < this.nPages - 1) this.turn(1);
    else this.app.messages.inform(`That was the last page of ${this.app.view.query.class}.`);
    this.app.grid.focusCell();
  }

  async #confirmAll() {
    const { commands, view, messages } = this.app;
    try {
      const ids = await commands.findUnanswered(Array.from(await view.fetchUnanswered()));
      if (ids?.length) await commands.label(view.query.class, ids);
    } catch (error) {
      messages.warn(error.message);
    }
  }
}
