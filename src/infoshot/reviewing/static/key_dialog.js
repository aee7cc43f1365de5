// The list of keys, and the keys of the classes to change.

import { FREE_KEYS } from "./class_keys.js";
import { openDialog } from "./dialog.js";
import { button, el, swatch } from "./dom.js";
import { commandKeys, MOVES } from "./keyboard.js";

export function openKeyDialog(app) {
  const groups = new Map([["Move", MOVES]]);
  for (const command of commandKeys(app)) {
    groups.set(command.group, [...(groups.get(command.group) ?? []), command]);
  }
  const list = el("div", { class: "key-groups" }, ...[...groups].map(([name, rows]) => keyGroup(name, rows)));
  const classes = el("div", { class: "key-classes" });
  const draw = () => classes.replaceChildren(...app.store.classNames.map((name) => classRow(app, name, draw)));
  draw();
  openDialog({
    title: "Keys",
    kind: "broad",
    content: [
      list,
      el("h3", { text: "Classes" }),
      el("p", { class: "soft", text: "Click a field and press the key you want: a digit, or a letter that is not used above. Delete takes the key away. Keys are kept in this browser." }),
      classes,
      button("Give all classes their first keys again", { kind: "plain", onclick: () => (app.keys.reset(), draw()) }),
    ],
  });
}

function keyGroup(name, rows) {
  return el(
    "section",
    {},
    el("h3", { text: name }),
    el(
      "dl",
      { class: "key-list" },
      ...rows.flatMap(({ keys, text }) => [el("dt", {}, ...keys.map((key) => el("kbd", { text: key }))), el("dd", { text })]),
    ),
  );
}

function classRow(app, name, draw) {
  const field = el("input", {
    class: "key-field", type: "text", readonly: true, value: app.keys.keyOf(name).toUpperCase(), "aria-label": `Key of ${name}`,
    onkeydown: (event) => {
      const key = event.key.toLowerCase();
      const isCleared = ["delete", "backspace"].includes(key);
      if (event.ctrlKey || event.metaKey || (!isCleared && key.length > 1)) return;
      event.preventDefault();
      if (!isCleared && !FREE_KEYS.includes(key)) {
        app.messages.warn(`The key ${event.key.toUpperCase()} is used by a command. Take a digit or another letter.`);
        return;
      }
      app.keys.assign(name, isCleared ? "" : key);
      draw();
      document.querySelector(`[data-key-of="${CSS.escape(name)}"]`)?.focus();
    },
    "data-key-of": name,
  });
  return el("label", { class: "key-class" }, swatch(app.store.colourOf(name)), el("span", { class: "nav-name", text: name }), field);
}
