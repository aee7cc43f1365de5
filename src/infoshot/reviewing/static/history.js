// Every action, the latest first, and the way back to any of them.

import { ask, openDialog } from "./dialog.js";
import { button, el, picture } from "./dom.js";
import { clock, count } from "./format.js";
import { getHistory } from "./server.js";

const PAGE = 50;

export function openHistory(app) {
  const list = el("ol", { class: "history" });
  const more = button("Show older actions", { kind: "plain", hidden: true });
  const note = el("p", { class: "soft", text: "Undo is an action too: you can always go forward again." });
  const { close, closed } = openDialog({ title: "History", kind: "drawer-dialog", content: [note, list, more] });
  let oldest = null;

  const load = async () => {
    try {
      const entries = await getHistory(oldest, PAGE);
      list.append(...entries.map((entry) => row(app, entry, () => close(entry))));
      oldest = entries.at(-1)?.n ?? oldest;
      more.hidden = entries.length < PAGE || oldest <= 1;
      if (more.hidden && list.childElementCount) list.append(startRow(() => close({ n: 0 })));
      if (!list.childElementCount) note.textContent = "Nothing has been done yet.";
    } catch (error) {
      note.textContent = error.message;
    }
  };
  const reload = () => {
    oldest = null;
    list.replaceChildren();
    load();
  };
  more.addEventListener("click", load);
  app.live.addEventListener("entry", reload);
  closed.then(async (entry) => {
    app.live.removeEventListener("entry", reload);
    if (entry && (await isMeant(entry))) app.outbox.undo(entry.n);
  });
  load();
}

function isMeant(entry) {
  return ask({
    title: entry.n ? "Go back to this point?" : "Go back to the start?",
    text: entry.n ? `Every action after “${entry.text}” is undone.` : "Every action is undone.",
    confirm: "Undo them",
  });
}

function row(app, entry, onUndo) {
  const pictures = entry.ids.slice(0, 8).map((id) => picture(id, 96, { loading: "lazy" }));
  const rest = entry.n_items - pictures.length;
  return el(
    "li",
    { class: entry.undone ? "entry undone" : "entry" },
    el(
      "div",
      { class: "entry-head" },
      el("time", { datetime: entry.time, text: clock(entry.time) }),
      el("span", { class: "entry-text", text: entry.text }),
      entry.undone ? el("span", { class: "chip", text: "undone" }) : null,
      entry.client !== app.client && entry.n > app.firstEntry ? el("span", { class: "chip", text: "other window" }) : null,
    ),
    pictures.length
      ? el("div", { class: "entry-pictures" }, ...pictures, rest > 0 ? el("span", { class: "soft", text: `and ${count(rest)} more` }) : null)
      : null,
    button("Undo to here", { kind: "plain", onclick: onUndo, title: "Undo everything after this action" }),
  );
}

function startRow(onUndo) {
  return el("li", { class: "entry" }, el("div", { class: "entry-head" }, el("span", { class: "entry-text", text: "Start" })), button("Undo to here", { kind: "plain", onclick: onUndo }));
}
