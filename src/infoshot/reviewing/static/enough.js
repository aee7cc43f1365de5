// Right: is it enough? The goal, what the audit says about it, and the way to the end.

import { button, el, setText } from "./dom.js";
import { count, percent } from "./format.js";
import { postGoal } from "./server.js";

export class EnoughPanel {
  constructor(app, root) {
    this.app = app;
    this.goal = el("input", {
      type: "number", id: "goal", min: 50, max: 100, step: 0.5, inputmode: "decimal",
      onchange: () => this.#setGoal(),
    });
    this.figure = el("p", { class: "figure" });
    this.source = el("p", { class: "soft" });
    this.gauge = new Gauge();
    this.sentences = el("div", { class: "sentences", "aria-live": "polite" });
    this.part = el("p", { class: "part" });
    this.progressText = el("p", { class: "soft" });
    this.progress = el("progress", { max: 1, value: 0, "aria-label": "Photos answered" });
    this.auditText = el("p", { class: "soft" });
    this.audit = button("Audit", { iconName: "audited", kind: "wide", onclick: () => app.openAudit() });
    this.advice = el(
      "div",
      { class: "block", hidden: true },
      el("p", { text: "Review more photos first: an audit alone does not reach the goal." }),
      button("Review suggested photos", { kind: "wide primary", onclick: () => app.openView("suggested") }),
    );
    this.finish = button("Finish", { iconName: "check", kind: "wide", onclick: () => app.openFinish() });
    this.finished = el("p", { class: "soft finished" });
    root.append(
      el("h2", { text: "Enough?" }),
      el("label", { class: "goal", for: "goal" }, el("span", { text: "Goal" }), el("span", { class: "goal-field" }, this.goal, el("span", { text: "% correct" }))),
      el("div", { class: "block" }, this.figure, this.source, this.gauge.root),
      this.sentences,
      this.part,
      this.advice,
      el("div", { class: "block" }, this.auditText, this.audit),
      el("div", { class: "block" }, this.progressText, this.progress),
      this.finish,
      this.finished,
    );
    app.store.addEventListener("state", () => this.draw());
  }

  async #setGoal() {
    const goal = Number(this.goal.value) / 100;
    const { messages, client, store } = this.app;
    this.closeWarning?.();
    if (!(goal >= 0.5 && goal <= 1)) {
      this.closeWarning = messages.warn("The goal is a share between 50 % and 100 % of the labels.");
      this.goal.value = +(100 * store.state.enough.goal).toFixed(1);
      return;
    }
    try {
      await postGoal({ goal: Math.round(1000 * goal) / 1000, client });
      store.loadStateSoon();
    } catch (error) {
      this.closeWarning = messages.warn(error.message);
    }
  }

  draw() {
    const { state } = this.app.store;
    const { enough } = state;
    if (document.activeElement !== this.goal) this.goal.value = +(100 * enough.goal).toFixed(1);
    this.#drawEstimate(enough);
    if (this.drawnSentences !== enough.sentences.join()) {
      this.drawnSentences = enough.sentences.join();
      this.sentences.replaceChildren(...enough.sentences.map((text) => el("p", { text })));
    }
    this.#drawPart(enough);
    const { n_answered: n, n_photos: total } = enough;
    setText(this.progressText, `${count(n)} of ${count(total)} photos answered (${percent(total ? n / total : 0, 1)})`);
    this.progress.value = total ? n / total : 0;
    this.#drawAudit(enough);
    setText(this.finished, state.finished ? `Finished before: ${state.finished.sentence}` : "");
  }

  #drawEstimate({ estimate, goal, promise, audit }) {
    setText(this.figure, estimate ? percent(estimate.accuracy, 1) : "No estimate yet");
    setText(
      this.source,
      estimate
        ? `estimated correct, from ${describeSource(estimate, audit)}; between ${percent(estimate.low, 1)} and ${percent(estimate.high, 1)}`
        : "An audit gives an estimate.",
    );
    this.gauge.draw(estimate, goal, promise);
  }

  #drawPart({ part, promise }) {
    this.part.hidden = !part || promise?.met;
    if (!part) return;
    setText(
      this.part,
      `Already now: ${count(part.n)} photos (${percent(part.share)}) can be promised at ${percent(part.low, 1)}. ${count(part.n_remaining)} remain for the eye.`,
    );
  }

  #drawAudit({ audit, promise }) {
    const more = promise?.more;
    const isOutOfReach = Boolean(promise) && !promise.met && more === null;
    this.advice.hidden = !isOutOfReach;
    const label = promise?.met ? "Audit more" : more ? `Audit: about ${count(more)} more` : audit.n ? "Go on with the audit" : "Start the audit";
    setText(this.audit.querySelector(".button-text"), label);
    this.audit.classList.toggle("primary", !promise?.met && !isOutOfReach);
    this.finish.classList.toggle("primary", Boolean(promise?.met));
    const result = audit.n ? `${count(audit.n)} audited, ${count(audit.n_correct)} of them right.` : "Photos at random, answered without seeing the label.";
    setText(this.auditText, result);
  }
}

function describeSource({ source, n }, audit) {
  if (source === "examples") return `${count(n)} held-out examples`;
  const nBefore = n - audit.n;
  const before = nBefore > 0 ? ` and ${count(nBefore)} that you had answered before` : "";
  return `${count(audit.n)} audited ${audit.n === 1 ? "photo" : "photos"}${before}`;
}

const STARTS = [0.8, 0.5, 0];

// A scale up to 100 % with the interval of the estimate, the promise and the goal.
class Gauge {
  constructor() {
    this.band = el("span", { class: "gauge-band" });
    this.point = el("span", { class: "gauge-point" });
    this.promise = el("span", { class: "gauge-promise" });
    this.goal = el("span", { class: "gauge-goal" });
    this.start = el("span");
    this.text = el("figcaption", { class: "gauge-scale" }, this.start, el("span", { text: percent(1) }));
    this.root = el("figure", { class: "gauge", "aria-hidden": "true" }, el("div", { class: "gauge-track" }, this.band, this.promise, this.point, this.goal), this.text);
  }

  draw(estimate, goal, promise) {
    const lowest = Math.min(goal - 0.05, estimate?.low ?? 1, promise?.low || 1);
    const start = STARTS.find((share) => share <= lowest) ?? 0;
    const place = (share) => `${Math.max(0, Math.min(100, (100 * (share - start)) / (1 - start)))}%`;
    setText(this.start, percent(start));
    this.band.hidden = this.point.hidden = !estimate;
    if (estimate) {
      this.band.style.left = place(estimate.low);
      this.band.style.right = `calc(100% - ${place(estimate.high)})`;
      this.point.style.left = place(estimate.accuracy);
    }
    this.promise.hidden = !promise;
    if (promise) this.promise.style.width = place(promise.low);
    this.goal.style.left = place(goal);
    this.goal.classList.toggle("met", Boolean(promise?.met));
  }
}
