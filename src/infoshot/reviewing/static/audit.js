// The audit: photos at random, one at a time, answered without seeing what was predicted.

import { classButton } from "./action_bar.js";
import { button, el, iconButton, imageUrl, picture, setText } from "./dom.js";
import { count } from "./format.js";
import { namesOf } from "./keyboard.js";
import { getAudit } from "./server.js";

const FEW = 5; // photos left before more are asked for
const ALPHABET = new Intl.Collator(undefined, { numeric: true });

export class Audit {
  constructor(app, root) {
    this.app = app;
    this.root = root;
    this.upcoming = [];
    this.done = new Set(); // answered here, perhaps not saved yet
    this.nAnswers = 0; // that an undo may take back: none from before the audit
    this.#create();
    app.store.addEventListener("state", () => this.draw());
    app.outbox.addEventListener("saved", ({ detail }) => this.isOpen && detail.job.kind === "undo" && this.#load());
    app.outbox.addEventListener("taken-back", () => this.isOpen && this.#load());
    app.keys.addEventListener("change", () => this.#drawClasses());
  }

  get isOpen() {
    return !this.root.hidden;
  }

  #create() {
    this.progress = el("span", { class: "audit-progress", "aria-live": "polite" });
    this.sentences = el("p", { class: "audit-sentence soft", "aria-live": "polite" });
    this.stage = el("div", { class: "stage", tabindex: "-1" });
    this.classes = el("div", { class: "audit-classes", role: "group", "aria-label": "Classes, in alphabetical order" });
    this.search = el("input", { type: "search", class: "audit-search", placeholder: "Find a class", "aria-label": "Find a class", oninput: () => this.#drawClasses() });
    this.search.addEventListener("keydown", (event) => event.key === "Enter" && this.classes.querySelector("button")?.click());
    this.root.append(
      el("header", { class: "audit-head" }, el("h2", { text: "Audit" }), this.progress, this.sentences, iconButton("Leave the audit", "close", () => this.close())),
      this.stage,
      el(
        "div",
        { class: "audit-answers" },
        this.search,
        this.classes,
        el(
          "div",
          { class: "answer-buttons" },
          button("None of the classes", { iconName: "none", key: "X", onclick: () => this.#answer(this.app.store.state.none) }),
          button("Undo", { iconName: "undo", key: "U", onclick: () => this.#undo() }),
          button("Leave", { key: "Esc", onclick: () => this.close() }),
        ),
        el("p", { class: "soft", text: "The photos are drawn at random and no label is shown, so that your answers are an independent check. Skip is not offered: leaving out the hard ones would make the estimate too good. If you cannot tell, take the class you find most likely." }),
      ),
    );
  }

  async open() {
    this.root.hidden = false;
    for (const part of document.querySelectorAll(".top, #side, #main, #enough")) part.inert = true;
    this.leave = this.app.keyboard.push((event) => this.#handleKey(event));
    this.nAnswers = 0;
    this.#drawClasses();
    this.draw();
    await this.#load();
    this.stage.focus();
  }

  close() {
    this.root.hidden = true;
    for (const part of document.querySelectorAll(".top, #side, #main, #enough")) part.inert = false;
    this.leave?.();
    this.app.store.expire();
    this.app.store.loadStateSoon();
    this.app.grid.focusCell();
  }

  #handleKey(event) {
    if (document.querySelector("dialog[open]")) return false;
    for (const name of namesOf(event)) {
      if (name === "escape") this.close();
      else if (event.repeat) return true;
      else if (name === "x") this.#answer(this.app.store.state.none);
      else if (name === "u" || name === "ctrl+z") this.#undo();
      else if (name === "s") this.app.messages.inform("Skip is not offered in the audit: leaving out the hard photos would make the estimate too good.");
      else if (name === "/") this.search.focus();
      else if (name === "?") this.app.openKeys();
      else if (this.app.keys.classOf(name)) this.#answer(this.app.keys.classOf(name));
      else continue;
      return true;
    }
    return !event.ctrlKey && !event.metaKey && event.key !== "Tab";
  }

  // Begins anew with what the server asks, also after an undo.
  async #load() {
    this.done.clear();
    this.upcoming = [];
    await this.#refill();
    this.#showPhoto();
  }

  async #refill() {
    try {
      const { id, next } = await getAudit();
      const known = new Set([...this.done, ...this.upcoming]);
      this.upcoming.push(...[id, ...next].filter((each) => each !== null && !known.has(each)));
    } catch (error) {
      this.app.messages.warn(error.message);
    }
  }

  #answer(label) {
    const id = this.upcoming.shift();
    if (id === undefined) return;
    this.done.add(id);
    this.nAnswers += 1;
    this.app.outbox.add("audit", [id], label);
    if (this.upcoming.length < FEW) this.#refill();
    this.app.messages.say(`Answered ${label}.`);
    this.search.value = "";
    this.#drawClasses();
    if (this.upcoming.length) this.#showPhoto();
    else this.#loadWhenSaved();
    this.draw();
  }

  #undo() {
    if (!this.nAnswers) {
      this.app.messages.inform("Nothing was answered in this audit yet.");
      return;
    }
    this.nAnswers -= 1;
    this.app.commands.undo();
  }

  #loadWhenSaved() {
    const { outbox } = this.app;
    this.stage.replaceChildren(el("p", { class: "stage-note", text: "Saving…" }));
    const check = () => {
      if (outbox.nUnsaved) return;
      outbox.removeEventListener("change", check);
      this.#load();
    };
    outbox.addEventListener("change", check);
    check();
  }

  #showPhoto() {
    const id = this.upcoming[0];
    this.photo = id;
    if (id === undefined) {
      this.stage.replaceChildren(el("p", { class: "stage-note", text: "Every photo has an answer. There is nothing left to audit." }));
      return;
    }
    const large = picture(id, 1600, { class: "stage-image", alt: "Photo to answer" });
    large.addEventListener("load", () => {
      for (const next of this.upcoming.slice(1, 4)) new Image().src = imageUrl(next, 1600);
    });
    large.addEventListener("error", () => this.stage.append(el("p", { class: "stage-note", text: "This picture cannot be shown. Answer “none of the classes”." })));
    this.stage.replaceChildren(large);
  }

  draw() {
    if (!this.isOpen) return;
    const { state } = this.app.store;
    const waiting = this.app.outbox.queue.filter((job) => job.action === "audit").length;
    const { audit, promise, sentences } = state.enough;
    const more = promise?.more ? `, about ${count(promise.more)} to go` : "";
    setText(this.progress, `${count(Math.max(audit.n, state.n_audited) + waiting)} answered${more}`);
    setText(this.sentences, sentences.join(" "));
  }

  #drawClasses() {
    const text = this.search.value.trim().toLowerCase();
    const names = [...this.app.store.classNames].sort(ALPHABET.compare);
    this.search.hidden = names.length <= 24;
    const shown = names.filter((name) => name.toLowerCase().includes(text));
    this.classes.replaceChildren(...shown.map((name) => classButton(this.app, name, () => this.#answer(name))));
  }
}
