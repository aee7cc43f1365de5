// A class chosen by typing part of its name: for runs with hundreds of classes.

import { classesFor } from "./action_bar.js";
import { openDialog } from "./dialog.js";
import { el, swatch } from "./dom.js";
import { percent } from "./format.js";

const MAX_SHOWN = 60;

// Resolves with the name of a class, "(none)", or null.
export function pickClass(app, { title = "Choose a class", item = null, withNone = true, leaveOut = null } = {}) {
  const { store, keys } = app;
  const scores = new Map(item?.scores ?? []);
  const names = classesFor(item, store.classNames).filter((name) => name !== leaveOut);
  if (withNone) names.push(store.state.none);
  const list = el("ul", { class: "picker-list", role: "listbox", id: "picker-list", "aria-label": "Classes" });
  const input = el("input", {
    type: "search", class: "picker-input", placeholder: "Type part of a name", role: "combobox", autocomplete: "off",
    "aria-expanded": "true", "aria-controls": "picker-list", "aria-label": title, autofocus: true,
  });
  const { close, closed } = openDialog({ title, content: [input, list], kind: "picker" });
  let shown = [];
  let active = 0;

  const row = (name, index) =>
    el(
      "li",
      { role: "option", id: `picker-${index}`, class: "picker-row", onclick: () => close(name) },
      swatch(store.colourOf(name)),
      el("span", { class: "nav-name", text: name === store.state.none ? "None of the classes" : name }),
      el("span", { class: "nav-count", text: percent(scores.get(name)) }),
      keys.keyOf(name) ? el("kbd", { text: keys.keyOf(name).toUpperCase() }) : null,
    );
  const mark = () => {
    [...list.children].forEach((each, index) => each.setAttribute("aria-selected", String(index === active)));
    list.children[active]?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", shown.length ? `picker-${active}` : "");
  };
  const search = () => {
    shown = rank(names, input.value).slice(0, MAX_SHOWN);
    active = 0;
    list.replaceChildren(...shown.map(row));
    if (!shown.length) list.append(el("li", { class: "picker-empty", text: "No class has this in its name." }));
    else mark();
  };
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && shown.length) {
      event.preventDefault();
      active = (active + step + shown.length) % shown.length;
      mark();
    } else if (event.key === "Enter" && shown.length) {
      event.preventDefault();
      close(shown[active]);
    }
  });
  search();
  input.focus();
  return closed;
}

// Names that begin with the text first, then those that contain it.
export function rank(names, text) {
  const part = text.trim().toLowerCase();
  const found = names.filter((name) => name.toLowerCase().includes(part));
  if (!part) return found;
  return [
    ...found.filter((name) => name.toLowerCase().startsWith(part)),
    ...found.filter((name) => !name.toLowerCase().startsWith(part)),
  ];
}
