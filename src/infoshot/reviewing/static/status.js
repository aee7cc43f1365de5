// In the header: what the solver does, whether everything is saved, whether the server is there.

import { openDialog } from "./dialog.js";
import { button, el, icon, setText } from "./dom.js";
import { count, photos } from "./format.js";
import { getEnough } from "./server.js";

export class Status {
  constructor(app, { solver, save, banner }) {
    this.app = app;
    this.solver = el("button", { type: "button", class: "status-chip", onclick: () => app.openView("changed") });
    solver.append(this.solver);
    this.save = save;
    this.banner = banner;
    this.others = []; // elements that say it too, where the banner is hidden behind them
    this.bannerText = el("p");
    banner.append(
      this.bannerText,
      button("Try now", { onclick: () => this.#tryNow() }),
      (this.showButton = button("Show them", { onclick: () => this.showUnsaved() })),
    );
    app.store.addEventListener("state", () => this.drawSolver());
    app.outbox.addEventListener("change", () => this.drawSave());
    app.outbox.addEventListener("waiting", (event) => this.#wait(event.detail));
    app.live.addEventListener("lost", () => this.#explainLoss());
    app.live.addEventListener("connected", () => this.drawSave());
    setInterval(() => !this.banner.hidden && this.drawSave(), 500);
    addEventListener("beforeunload", (event) => app.outbox.nUnsaved && event.preventDefault());
  }

  drawSolver() {
    const { state, n_changed: nChanged, version, error } = this.app.store.state.solve;
    const texts = {
      waiting: ["", "Solving again soon"], solving: ["", "Solving again…"], failed: ["", "Solving again failed"],
      idle: version ? [`${count(nChanged)} `, nChanged === 1 ? "label " : "labels ", "changed"] : [],
    };
    const [number = "", long = "", rest = ""] = texts[state] ?? [];
    if (this.solver.textContent !== number + long + rest) {
      this.solver.replaceChildren(number, el("span", { class: rest && "wide-only", text: long }), rest);
    }
    this.solver.hidden = !long;
    this.solver.disabled = state !== "idle" || nChanged === 0;
    this.solver.title = error ?? (this.solver.disabled ? "" : "Show the photos whose label changed");
    this.solver.dataset.state = state;
  }

  // Events do not say why they ended; a request does.
  #explainLoss() {
    this.drawSave();
    if (this.app.live.nFailures !== 2) return;
    getEnough().catch((error) => error.status && this.#wait(error));
  }

  #wait(error) {
    this.reason = error.status === 403
      ? "This page is no longer allowed in. Open the address that the command printed."
      : "The server does not answer.";
    this.drawSave();
  }

  drawSave() {
    const { outbox, live } = this.app;
    const n = outbox.nUnsaved;
    const offline = outbox.isOffline || !live.connected;
    const [name, text] = offline && n
      ? ["unsaved", `${count(n)} not saved`]
      : n ? ["saving", `Saving ${count(n)}…`] : offline ? ["unsaved", "Not connected"] : ["check", "Saved"];
    if (this.drawn !== text) {
      this.drawn = text;
      this.save.replaceChildren(icon(name), el("span", { text }));
      this.save.dataset.state = name;
    }
    this.#drawBanner(n, offline && live.nFailures + outbox.nFailures > 0);
  }

  // Shows in this element, too, that the server is not there.
  tellLoss(element) {
    this.others.push(element);
    this.drawSave();
  }

  #drawBanner(n, isLost) {
    for (const each of [this.banner, ...this.others]) if (each.hidden === isLost) each.hidden = !isLost;
    if (!isLost) {
      this.reason = null;
      return;
    }
    const { nextTry } = this.app.outbox;
    const seconds = n && nextTry ? Math.ceil((nextTry - Date.now()) / 1000) : 0;
    const answers = n === 1 ? "1 answer is kept here" : `${count(n)} answers are kept here`;
    const kept = n ? ` ${answers} and sent when the server is back.` : "";
    const next = n && seconds > 0 ? ` Next try in ${seconds} s.` : "";
    const text = `${this.reason ?? "The server does not answer."}${kept}${next}`;
    for (const each of [this.bannerText, ...this.others]) setText(each, text);
    this.showButton.hidden = n === 0;
  }

  #tryNow() {
    this.app.live.reconnect();
    this.app.outbox.retry();
  }

  // The answers that wait.
  showUnsaved() {
    const { outbox, commands } = this.app;
    openDialog({
      title: "Not saved yet",
      content: [
        el("p", { text: "These answers wait for the server, the oldest first. They stay here if you reload this page." }),
        el("ol", { class: "unsaved-list" }, ...outbox.queue.map((job) => el("li", {
          text: job.kind === "undo" ? "Undo" : `${photos(job.ids.length)}: ${commands.describeAnswer(job)}`,
        }))),
      ],
      actions: [{ label: "Close" }, { label: "Try now", primary: true, run: (close) => (this.#tryNow(), close()) }],
    });
  }
}
