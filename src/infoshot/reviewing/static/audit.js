// The audit: photos at random, one at a time, answered without seeing what was predicted.

import { classButton } from "./action_bar.js";
import { AuditPicture } from "./audit_picture.js";
import { button, el, iconButton, setText } from "./dom.js";
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
    this.answered = []; // since the audit was opened: an undo may take back these
    this.nBefore = 0; // answers from before
    this.#create();
    this.picture = new AuditPicture(this.stage);
    app.store.addEventListener("state", () => this.draw());
    app.outbox.addEventListener("saved", ({ detail }) => this.#forgetUnchanged(detail));
    app.outbox.addEventListener("refused", () => this.isOpen && this.#loadWhenSaved());
    app.live.addEventListener("connected", () => this.isOpen && this.#resume());
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
    this.loss = el("p", { class: "audit-loss", role: "alert", hidden: true });
    this.app.status.tellLoss(this.loss);
    this.reached = el(
      "div",
      { class: "audit-reached", role: "status", hidden: true },
      el("strong", { text: "The goal is reached." }),
      button("Leave and finish", { iconName: "check", kind: "primary", onclick: () => this.#finish() }),
    );
    this.root.append(
      el("header", { class: "audit-head" }, el("h2", { text: "Audit" }), this.progress, this.sentences, iconButton("Leave the audit", "close", () => this.close()), this.reached, this.loss),
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
    this.answered = [];
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

  #finish() {
    this.close();
    this.app.openFinish();
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

  // Begins anew with what the server asks.
  async #load() {
    this.done.clear();
    this.upcoming = [];
    const found = await this.#refill();
    if (found) this.nBefore = found.n_audited + this.#nWaiting - this.answered.length;
    if (found || this.upcoming.length) this.#showPhoto();
    else this.picture.showNote("Waiting for the server.");
    this.draw();
  }

  // What the server asks next; null if it does not answer.
  async #refill() {
    try {
      const found = await getAudit();
      const waiting = this.app.outbox.queue.flatMap((job) => job.ids);
      const known = new Set([...this.done, ...this.upcoming, ...waiting]);
      this.upcoming.push(...[found.id, ...found.next].filter((id) => id !== null && !known.has(id)));
      return found;
    } catch (error) {
      if (error.status) this.app.messages.warn(error.message);
      return null;
    }
  }

  // An answer that another window gave already is no action: an undo would take back another one.
  #forgetUnchanged({ job, result }) {
    if (job.action !== "audit" || result.n_changed !== 0) return;
    this.answered = this.answered.filter((id) => !job.idSet.has(id));
    this.nBefore += 1;
    this.draw();
  }

  // The server is back.
  #resume() {
    if (this.picture.isLost) this.picture.retry();
    else if (!this.upcoming.length) this.#loadWhenSaved();
  }

  #answer(label) {
    if (!this.upcoming.length) return;
    if (!this.picture.canBeAnswered) {
      this.app.messages.say("Wait for the picture.");
      return;
    }
    const id = this.upcoming.shift();
    this.done.add(id);
    this.answered.push(id);
    this.app.outbox.add("audit", [id], label);
    if (this.upcoming.length < FEW) this.#refill();
    this.app.messages.say(`Answered ${label}.`);
    this.search.value = "";
    this.#drawClasses();
    if (this.upcoming.length) this.#showPhoto();
    else this.#loadWhenSaved();
    this.draw();
  }

  // The last photo is asked again at once; actions reach the server in their order.
  #undo() {
    const id = this.answered.pop();
    if (id === undefined) {
      this.app.messages.inform("Nothing was answered in this audit yet.");
      return;
    }
    this.done.delete(id);
    this.upcoming.unshift(id);
    this.app.commands.undo();
    this.#showPhoto();
    this.draw();
  }

  #loadWhenSaved() {
    const { outbox } = this.app;
    this.picture.showNote("Saving…");
    this.saving?.abort();
    this.saving = new AbortController();
    const check = () => {
      if (outbox.nUnsaved) return;
      this.saving.abort();
      this.#load();
    };
    outbox.addEventListener("change", check, { signal: this.saving.signal });
    check();
  }

  #showPhoto() {
    if (this.upcoming.length) this.picture.show(this.upcoming);
    else this.picture.showNote("Every photo has an answer. There is nothing left to audit.");
  }

  get #nWaiting() {
    return this.app.outbox.queue.filter((job) => job.action === "audit").length;
  }

  draw() {
    if (!this.isOpen) return;
    const { state } = this.app.store;
    const { promise, sentences } = state.enough;
    const more = promise?.more ? `, about ${count(promise.more)} to go` : "";
    setText(this.progress, `${count(this.nBefore + this.answered.length)} answered${more}`);
    setText(this.sentences, sentences.join(" "));
    this.reached.hidden = !promise?.met;
  }

  #drawClasses() {
    const text = this.search.value.trim().toLowerCase();
    const names = [...this.app.store.classNames].sort(ALPHABET.compare);
    this.search.hidden = names.length <= 24;
    const shown = names.filter((name) => name.toLowerCase().includes(text));
    this.classes.replaceChildren(...shown.map((name) => classButton(this.app, name, () => this.#answer(name))));
  }
}
