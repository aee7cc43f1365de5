// Groups of similar photos, each answered at once. A click on a photo leaves it out.

import { button, el, icon, picture, setText, swatch } from "./dom.js";
import { labelText, percent, photos } from "./format.js";
import { namesOf } from "./keyboard.js";
import { pickClass } from "./picker.js";
import { getGroups } from "./server.js";

const SHOWN = 36;
const HAS_KEYS = matchMedia("(hover: hover) and (pointer: fine)");
const NOTE_FOR_KEYS = "Photos that look alike. Enter says that the label is right for the whole group, a class key gives all of them another one. Click a photo to leave it out.";
const NOTE_FOR_TOUCH = "Photos that look alike. Answer a whole group at once. Touch a photo to leave it out.";
const SMALL = 4; // photos; such groups stand side by side

export class Groups {
  constructor(app, root) {
    this.app = app;
    this.root = root;
    this.note = el("p", { class: "soft groups-note" });
    this.list = el("div", { class: "groups", role: "list", "aria-label": "Groups of similar photos" });
    root.append(this.note, this.list);
    this.list.addEventListener("focusin", () => (this.lastRow = this.#current()));
    this.rows = [];
    this.visible = new Set();
    this.observer = new IntersectionObserver((entries) => this.#requestVisible(entries), { rootMargin: "200px" });
    app.store.addEventListener("items", () => this.isOpen && this.#draw());
    app.store.addEventListener("state", () => this.isOpen && this.#followClasses());
    app.live.addEventListener("groups", () => this.isOpen && this.#offer());
  }

  async open() {
    this.isOpen = true;
    this.leave?.();
    this.leave = this.app.keyboard.push((event) => this.#handleKey(event));
    setText(this.note, "Loading…");
    await this.#load();
  }

  async #load() {
    this.classNames = String(this.app.store.classNames);
    try {
      this.#show(await getGroups());
    } catch (error) {
      setText(this.note, error.message);
    }
  }

  // Groups have other labels after a class was renamed or merged.
  #followClasses() {
    if (this.classNames !== String(this.app.store.classNames)) this.#load();
  }

  close() {
    this.isOpen = false;
    this.leave?.();
    this.leave = null;
  }

  #show(groups) {
    this.observer.disconnect();
    this.visible.clear();
    this.rows = (groups ?? []).map((group) => new GroupRow(this.app, group, (row) => this.#focusAfter(row)));
    this.list.replaceChildren(...this.rows.map((row) => row.root));
    for (const row of this.rows) this.observer.observe(row.root);
    const texts = groups === null ? "Groups are being computed." : groups.length
      ? (HAS_KEYS.matches ? NOTE_FOR_KEYS : NOTE_FOR_TOUCH)
      : "No groups of similar photos are left.";
    setText(this.note, texts);
    this.lastRow = null;
    this.focus();
  }

  // The group that had the focus last, or the first one.
  focus() {
    (this.lastRow ?? this.rows[0])?.root.focus();
  }

  #offer() {
    if (!this.rows.length) this.open();
    else this.app.messages.inform("New groups are ready.", { label: "Show them", run: () => this.open() });
  }

  #requestVisible(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.visible.add(target);
      else this.visible.delete(target);
    }
    this.#draw();
  }

  #draw() {
    for (const row of this.rows) {
      row.draw();
      if (this.visible.has(row.root)) this.app.store.request(row.group.ids);
    }
  }

  #current() {
    return this.rows.find((row) => row.root.contains(document.activeElement));
  }

  #focusAfter(row) {
    const index = this.rows.indexOf(row);
    const next = this.rows.slice(index + 1).find((each) => !each.isDone);
    (next ?? row).root.focus();
    (next ?? row).root.scrollIntoView({ block: "nearest" });
  }

  #handleKey(event) {
    if (document.querySelector("dialog[open]")) return false;
    const row = this.#current();
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step) {
      const next = this.rows[row ? this.rows.indexOf(row) + step : 0];
      next?.root.focus();
      return true;
    }
    if (!row) return false;
    for (const name of namesOf(event)) {
      const label = this.app.keys.classOf(name);
      if (event.repeat && (label || ["enter", "x", "s"].includes(name))) return true;
      if (name === "enter") row.confirm();
      else if (name === "x") row.reject();
      else if (name === "s") row.skip();
      else if (name === "/") row.choose();
      else if (label) row.assign(label);
      else if (["space", "n", "p", "delete", "backspace", "ctrl+a"].includes(name)) return true;
      else continue;
      return true;
    }
    return false;
  }
}

class GroupRow {
  constructor(app, group, onDone) {
    this.app = app;
    this.group = group;
    this.onDone = onDone;
    this.left = new Set();
    this.thumbs = group.ids.slice(0, SHOWN).map((id) => this.#thumb(id));
    this.count = el("span", { class: "soft" });
    this.confirmButton = button("", { iconName: "check", key: "Enter", kind: "primary", onclick: () => this.confirm() });
    const rest = group.ids.length - this.thumbs.length;
    this.root = el(
      "section",
      { class: group.ids.length > SMALL ? "group large" : "group", role: "listitem", tabindex: "0", "aria-label": `${photos(group.ids.length)}, ${group.label}` },
      el(
        "div",
        { class: "group-head" },
        swatch(app.store.colourOf(group.label)),
        el("strong", { text: group.label || "no label" }),
        this.count,
        el("span", { class: "group-actions" },
          this.confirmButton,
          button("Other class", { key: "/", onclick: () => this.choose() }),
          button("None", { iconName: "none", key: "X", onclick: () => this.reject() })),
      ),
      el("div", { class: "group-thumbs" }, ...this.thumbs.map((thumb) => thumb.root), rest > 0 ? el("span", { class: "soft group-rest", text: `and ${rest} more` }) : null),
    );
    this.draw();
  }

  #thumb(id) {
    const mark = el("span", { class: "mark", hidden: true });
    const label = el("span", { class: "group-label" });
    const root = el(
      "button",
      { type: "button", class: "group-thumb", "aria-pressed": "true", onclick: () => this.#toggle(id), onkeydown: (event) => this.#handleEnter(event) },
      picture(id, 160, { loading: "lazy" }), label, mark,
    );
    return { id, root, mark, label };
  }

  // Enter is for the group, also from one of its photos; Space is for the photo.
  #handleEnter(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (!event.repeat) this.confirm();
  }

  #toggle(id) {
    if (!this.left.delete(id)) this.left.add(id);
    this.draw();
  }

  get ids() {
    return this.group.ids.filter((id) => !this.left.has(id) && (this.app.store.get(id)?.answer ?? null) === null);
  }

  get isDone() {
    return this.ids.length === 0;
  }

  draw() {
    const { store } = this.app;
    const { group } = this;
    const agreement = group.agreement < 1 ? `, ${percent(group.agreement)} of them ${group.label}` : "";
    setText(this.count, `${photos(group.ids.length)}${agreement}`);
    const n = this.ids.length;
    setText(this.confirmButton.querySelector(".button-text"), n ? `${n === 1 ? "This is" : n === 2 ? "Both are" : `All ${n} are`} ${group.label}` : "Done");
    this.confirmButton.disabled = n === 0 || !group.label;
    this.root.classList.toggle("done", n === 0);
    for (const { id, root, mark, label } of this.thumbs) {
      const item = store.get(id);
      const isAnswered = (item?.answer ?? null) !== null;
      root.setAttribute("aria-pressed", String(!this.left.has(id)));
      root.setAttribute("aria-label", item ? `${item.name}, ${labelText(item.label, store.state.none)}` : `Photo ${id}`);
      root.classList.toggle("answered", isAnswered);
      const differs = item && item.label !== group.label;
      setText(label, differs ? labelText(item.label, store.state.none) : "");
      if (mark.hidden === isAnswered) {
        mark.hidden = !isAnswered;
        mark.className = "mark mark-check";
        mark.replaceChildren(icon("check"));
      }
    }
  }

  confirm() {
    if (this.group.label) this.assign(this.group.label);
  }

  assign(name) {
    return this.#answer((ids) => this.app.commands.label(name, ids));
  }

  reject() {
    return this.#answer((ids) => this.app.commands.reject(ids));
  }

  skip() {
    return this.#answer((ids) => this.app.commands.skip(ids));
  }

  async #answer(give) {
    const ids = await this.app.commands.findUnanswered(this.group.ids.filter((id) => !this.left.has(id)));
    if (ids?.length && (await give(ids))) this.onDone(this);
  }

  async choose() {
    const item = this.app.store.get(this.group.ids[0]);
    const name = await pickClass(this.app, { item, title: `A class for ${photos(this.ids.length)}` });
    if (name === this.app.store.state.none) await this.reject();
    else if (name !== null) await this.assign(name);
  }
}
