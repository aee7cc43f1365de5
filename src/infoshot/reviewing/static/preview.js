// One photo, large, with its scores. The keys of the grid work here too.

import { classesFor } from "./action_bar.js";
import { marksOf } from "./cell.js";
import { button, el, icon, iconButton, imageSize, picture, setText, swatch } from "./dom.js";
import { count, labelText, percent } from "./format.js";

export class Preview {
  constructor(app) {
    this.app = app;
    this.#create();
    app.grid.addEventListener("focus-item", () => this.draw());
    app.store.addEventListener("items", () => this.draw());
  }

  get isOpen() {
    return this.dialog.open;
  }

  toggle() {
    if (this.isOpen) this.close();
    else this.open();
  }

  open() {
    if (this.app.grid.focusId === null || this.isOpen) return;
    this.app.peek.hide();
    this.leave = this.app.keyboard.push((event, key) => this.#handleKey(event, key));
    this.dialog.showModal();
    this.stage.focus();
    this.draw();
  }

  close() {
    this.dialog.close();
  }

  #create() {
    const { commands, grid } = this.app;
    this.stage = el("div", { class: "stage", tabindex: "-1", autofocus: true });
    this.place = el("span", { class: "preview-place" });
    this.name = el("h2", { class: "preview-name" });
    this.path = el("p", { class: "preview-path" });
    this.facts = el("div", { class: "preview-facts" });
    this.scores = el("div", { class: "scores", role: "group", "aria-label": "Classes, the most likely first" });
    const step = (by) => () => grid.moveBy(by, { focus: false });
    this.dialog = el(
      "dialog",
      { class: "preview", "aria-label": "Photo" },
      el(
        "div",
        { class: "preview-stage" },
        iconButton("Previous photo", "left", step(-1), { class: "icon-button stage-step stage-left" }),
        this.stage,
        iconButton("Next photo", "right", step(1), { class: "icon-button stage-step stage-right" }),
      ),
      el(
        "div",
        { class: "preview-side" },
        el("div", { class: "preview-head" }, this.place, iconButton("Close the preview", "close", () => this.close())),
        this.name,
        this.path,
        this.facts,
        this.scores,
        el(
          "div",
          { class: "preview-actions" },
          button("Accept", { iconName: "check", key: "Enter", kind: "primary", onclick: () => commands.accept() }),
          button("None", { iconName: "none", key: "X", onclick: () => commands.reject() }),
          button("Skip", { iconName: "skip", key: "S", onclick: () => commands.skip() }),
          button("Undo", { iconName: "undo", key: "U", onclick: () => commands.undo() }),
          button("Clear", { iconName: "clear", key: "Del", onclick: () => commands.clear() }),
          button("Class", { iconName: "search", key: "/", onclick: () => this.app.openPicker() }),
        ),
      ),
    );
    // After a click the keys are for the photo again, not for the button.
    this.dialog.addEventListener("click", (event) => event.detail && this.isOpen && this.stage.focus());
    this.dialog.addEventListener("close", () => {
      this.leave?.();
      this.stage.replaceChildren();
      this.shown = null;
      grid.focusCell();
    });
    document.body.append(this.dialog);
  }

  #handleKey(event, key) {
    if (document.querySelector("dialog[open]:not(.preview)")) return false;
    const { grid } = this.app;
    if (key === "escape") {
      this.close();
      return true;
    }
    const step = event.ctrlKey || event.shiftKey ? null : stepOf(event.key, grid);
    if (step === null) return false;
    grid.moveBy(step, { focus: false });
    return true;
  }

  draw() {
    if (!this.isOpen) return;
    const { grid, store } = this.app;
    const id = grid.focusId;
    if (id === null) return this.close();
    if (this.shown !== id) this.#showPicture(id);
    const item = store.get(id);
    const { focus, ids } = grid.selection;
    setText(this.place, `${count(focus + 1)} of ${count(ids.length)}`);
    setText(this.name, item?.name ?? "");
    setText(this.path, item?.path ?? "");
    if (item) this.#showItem(item);
    return null;
  }

  #showPicture(id) {
    this.shown = id;
    const item = this.app.store.get(id);
    const small = picture(id, imageSize(this.app.grid.cellWidth), { class: "stage-image" });
    const large = picture(id, 1600, { class: "stage-image", alt: item ? item.name : "Photo" });
    large.addEventListener("error", () => this.stage.append(el("p", { class: "stage-note", text: "This picture cannot be shown." })));
    this.stage.replaceChildren(small, large);
    const { focus, ids } = this.app.grid.selection;
    if (focus + 1 < ids.length) large.addEventListener("load", () => (new Image().src = `/image/${ids[focus + 1]}?size=1600`));
  }

  #showItem(item) {
    const { store, keys, commands } = this.app;
    const { none } = store.state;
    const label = el("span", { class: "fact-label" }, swatch(store.colourOf(item.label)), el("strong", { text: labelText(item.label, none) }));
    const source = item.answer !== null ? "your answer" : item.kind === "example" ? "example" : "predicted";
    const marks = marksOf(item).map((mark) => el("span", { class: "chip" }, icon(mark.name), mark.words));
    this.facts.replaceChildren(
      label,
      el("span", { class: "fact-source", text: source }),
      ...marks,
      ...(item.reason ? [el("p", { class: "fact-reason", text: item.reason })] : []),
      ...(item.looks_like ? [el("p", { class: "fact-reason", text: `This example looks like ${item.looks_like}.` })] : []),
    );
    const scores = new Map(item.scores);
    const focused = [...this.scores.children].indexOf(document.activeElement);
    this.scores.replaceChildren(
      ...classesFor(item, store.classNames).slice(0, Math.max(5, scores.size)).map((name) => scoreRow(name, scores.get(name), {
        colour: store.colourOf(name), key: keys.keyOf(name), pressed: item.answer === name, onclick: () => commands.label(name),
      })),
    );
    if (focused >= 0) this.scores.children[focused]?.focus();
  }
}

export function scoreRow(name, score, { colour, key, pressed = false, onclick = null }) {
  const bar = el("span", { class: "score-bar" });
  bar.style.width = `${100 * (score ?? 0)}%`;
  bar.style.background = colour;
  const parts = [
    el("span", { class: "score-name", text: name }),
    el("span", { class: "score-value", text: percent(score) }),
    key ? el("kbd", { text: key.toUpperCase() }) : el("span"),
    el("span", { class: "score-track", "aria-hidden": "true" }, bar),
  ];
  if (!onclick) return el("div", { class: "score" }, ...parts);
  return el("button", { type: "button", class: "score", "aria-pressed": String(pressed), onclick }, ...parts);
}

function stepOf(key, grid) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };
  return steps[key] ?? (["Home", "End", "PageUp", "PageDown"].includes(key) ? grid.stepOf(key) : null);
}
