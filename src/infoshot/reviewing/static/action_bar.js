// Below the grid: the answers for the photo with the focus, or for all that are selected.

import { button, el, setText, swatch } from "./dom.js";
import { photos } from "./format.js";

const MAX_BUTTONS = 12;

// Classes in the order of an item's own scores, then in the order of the list.
export function classesFor(item, classNames) {
  const known = new Set(classNames);
  const first = (item?.scores ?? []).map(([name]) => name).filter((name) => known.has(name));
  const rest = new Set(first);
  return [...first, ...classNames.filter((name) => !rest.has(name))];
}

export function classButton(app, name, onclick, attributes = {}) {
  const key = app.keys.keyOf(name).toUpperCase();
  const choice = button(name, { kind: "class-button", key, onclick, ...attributes });
  choice.prepend(swatch(app.store.colourOf(name)));
  return choice;
}

export class ActionBar {
  constructor(app, root) {
    this.app = app;
    this.subject = el("span", { class: "subject" });
    this.classes = el("div", { class: "class-buttons", role: "group", "aria-label": "Classes, the most likely first" });
    const { commands } = app;
    this.accept = button("Accept", { iconName: "check", key: "Enter", kind: "primary", onclick: () => commands.accept() });
    this.needTarget = [
      button("More", { key: "/", kind: "more", title: "Choose a class by typing", onclick: () => app.openPicker() }),
      this.accept,
      button("None", { iconName: "none", key: "X", title: "None of the classes", onclick: () => commands.reject() }),
      button("Skip", { iconName: "skip", key: "S", title: "Decide later", onclick: () => commands.skip() }),
    ];
    const [more, ...answers] = this.needTarget;
    root.append(
      this.subject,
      this.classes,
      more,
      el(
        "div",
        { class: "answer-buttons", role: "group", "aria-label": "Answers" },
        ...answers,
        button("Undo", { iconName: "undo", key: "U", title: "Undo the last action", onclick: () => commands.undo() }),
      ),
    );
    const draw = () => this.draw();
    app.grid.addEventListener("focus-item", draw);
    app.store.addEventListener("items", draw);
    app.store.addEventListener("state", draw);
    app.keys.addEventListener("change", () => ((this.drawn = null), this.draw()));
  }

  draw() {
    const { grid, store, keys } = this.app;
    const { chosen } = grid.selection;
    const item = store.get(grid.focusId);
    const n = chosen.size || (grid.selection.isEmpty ? 0 : 1);
    for (const each of this.needTarget) each.disabled = n === 0;
    setText(this.subject, chosen.size ? `${photos(chosen.size)} selected` : (item?.name ?? ""));
    this.subject.classList.toggle("several", chosen.size > 0);
    setText(this.accept.querySelector(".button-text"), chosen.size ? "Confirm all" : "Accept");
    this.accept.title = item?.predicted ? `Accept the prediction: ${item.predicted}` : "Accept the prediction";
    const names = classesFor(item, store.classNames).slice(0, MAX_BUTTONS);
    const drawn = JSON.stringify([names, item?.answer, n > 0, names.map((name) => keys.keyOf(name))]);
    if (this.drawn === drawn) return;
    this.drawn = drawn;
    const buttons = names.map((name) =>
      classButton(this.app, name, () => this.app.commands.label(name), {
        "aria-pressed": String(item?.answer === name),
        disabled: n === 0,
      }),
    );
    const focused = [...this.classes.children].indexOf(document.activeElement);
    this.classes.replaceChildren(...buttons);
    this.classes.scrollLeft = 0;
    if (focused >= 0) this.classes.children[focused]?.focus();
  }
}
